"""Goals and rows for the game of three players."""

from typing import Any

import numpy as np
from oracles.goals import KL, Rules
from scipy import sparse

from ratecli.models.base import Features
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import Solution
from ratecli.solvers.hull.forms import RateProgram
from ratecli.solvers.players.game import ThreePlayerGame
from ratecli.solvers.players.lagrangian import ProgramLagrangian
from ratecli.solvers.players.options import ThreePlayer
from ratecli.solvers.players.training import make_game
from ratecli.solvers.problem import Problem

GOALS = {
    "kl": Rules({"e": "error <= 0.4"}, KL),
    "g-mean": Rules({"c": "positive_rate <= 0.5"}, "1 - g_mean"),
    "h-mean": Rules({}, "1 - h_mean"),
    "q-mean": Rules({"q": "q_mean[g=a] >= 0.4"}, "1 - q_mean"),
    "f1 parity": Rules({"f": "max_gap(f1, by=g) <= 0.1"}, "1 - f1"),
    "precision": Rules({"p": "precision[g=a] - precision[g=b] <= 0.1"}),
    "subtracted ratio": Rules({"d": "tpr[g=a] / tpr[g=b] - fpr[g=a] / fpr[g=b] <= 0.2"}),
    "affine": Rules({"p": "positive_rate[g=a] <= 1.1 * positive_rate[g=b]"}),
    "smooth": Rules({"x": "exp(positive_rate) + exp(fpr) <= 2.4"}, "error"),
}


ALL_VARIANTS = {"randomize": True, "variants": ("deterministic", "last", "uniform")}


def solved(given: Problem, **options: Any) -> Solution:
    return ThreePlayer(**(ALL_VARIANTS | options)).solve(
        given, np.random.default_rng(0), lambda _: None
    )


def game_of(given: Problem, grid: list[dict[str, float]], **options: Any) -> ThreePlayerGame:
    form = ProgramLagrangian(RateProgram.of(given), RowKinds.by(given.rates))
    return make_game(ThreePlayer(**options), given, form, grid, np.random.default_rng(0))


def features(storage: str, n: int) -> Features:
    """n rows that are `one-hot`, `dense` or `sparse`."""
    rng = np.random.default_rng(1)
    if storage == "one-hot":
        codes = np.array([0, 3, 7, 12]) + rng.integers([3, 4, 5, 2], size=(n, 4))
        X = np.zeros((n, 14))
        X[np.arange(n)[:, None], codes] = 1.0
        return sparse.csr_array(X)
    X = rng.normal(size=(n, 6)) * (rng.random((n, 6)) < 0.5)
    return X if storage == "dense" else sparse.csr_array(X)

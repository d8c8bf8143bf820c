"""The game on enumerated classifiers, with an exact best response: its duality gap."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.goals import Rules, problem, smooth_rows

from ratecli.models.linear import Threshold
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.best import optimize_over_hull
from ratecli.solvers.hull.forms import RatePoints, RateProgram
from ratecli.solvers.numerics import Stepper
from ratecli.solvers.players.game import ClassifierPlayer, GradientAscent, ThreePlayerGame
from ratecli.solvers.players.lagrangian import ProgramLagrangian

RULES = Rules({"p": "positive_rate[g=a] <= 0.8 * positive_rate[g=b]", "r": "recall >= 0.75"})
RADIUS = 4.0


class EnumeratedPlayer(ClassifierPlayer):
    """Best responses among classifiers whose rates (K, T) are known."""

    def __init__(self, form, rates):
        self.form, self.rates = form, rates

    def move(self, prices):
        slopes, _ = self.form.sides
        answers = np.argmin((slopes.T @ prices).T @ self.rates, axis=1)
        return answers, self.rates[:, answers]

    def classifier(self, answer, lane):
        raise NotImplementedError


def enumerated(given):
    """Rates of lines in many directions at many thresholds."""
    rng = np.random.default_rng(0)
    normals = rng.normal(size=(60, given.X.shape[1]))
    scores = given.X @ normals.T
    cuts = np.quantile(scores, np.linspace(0, 1, 21), axis=0)
    lines = [Threshold(w, -cut) for k, w in enumerate(normals) for cut in cuts[:, k]]
    return np.stack([given.rates.rates(line.decide(given.X)) for line in lines], axis=1)


@pytest.mark.parametrize("seed", range(2))
def test_duality_gap_is_not_negative_and_falls_as_the_theory_says(seed):
    """The gap of the players' means: the multipliers' best response minus the classifier's."""
    given = problem(smooth_rows(seed), RULES)
    program, kinds = RateProgram.of(given), RowKinds.by(given.rates)
    rates = enumerated(given)
    form = ProgramLagrangian(program, kinds)
    slopes, constants = form.sides
    sides = slopes @ rates + constants[:, :1]
    optimum = optimize_over_hull(program, RatePoints.classifiers(rates), 1e-7)
    length = np.linalg.norm(sides[1:], axis=0).max()
    gaps = []
    for steps in (100, 900, 8_100):
        rate = np.array([RADIUS / (length * np.sqrt(2 * steps))])
        ascent = GradientAscent(Stepper("sgd", rate), RADIUS)
        game = ThreePlayerGame(form, EnumeratedPlayer(form, rates), ascent, rate)
        played = game.play(steps, 1)
        mean, prices = (
            np.mean(np.hstack(column), axis=1)
            for column in zip(*((each.rates, each.prices) for each in played), strict=True)
        )
        upper = program.value(program.objective, mean) + RADIUS * max(program.excess(mean), 0.0)
        lower = float((prices @ sides).min())
        gaps.append(float(upper) - lower)
        assert -1e-9 <= gaps[-1] <= RADIUS * length * np.sqrt(2 / steps)
        assert lower <= optimum.value + 1e-7
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] <= gaps[0] / 2

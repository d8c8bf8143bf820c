from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.goals import Rows, Rules, problem

from ratecli.solvers.hull.best import best
from ratecli.solvers.hull.columns import Columns
from ratecli.solvers.hull.forms import Program
from ratecli.solvers.hull.relaxation import Relaxation

GAP = 1e-5
GOALS = {
    "affine": Rules({"p": "positive_rate[g=a] <= 1.2 * positive_rate[g=b]", "r": "recall >= 0.4"}),
    "kl": Rules(
        {"e": "error <= 0.45"},
        "kl(base_rate, positive_rate[g=a]) + kl(base_rate, positive_rate[g=b])",
    ),
    "g-mean": Rules({"p": "positive_rate <= 0.5"}, "1 - g_mean"),
    "h-mean within": Rules({"h": "h_mean >= 0.3"}, "error"),
    "q-mean": Rules({}, "1 - q_mean"),
    "f1": Rules({"p": "positive_rate <= 0.6"}, "1 - f1"),
    "f1 parity": Rules({"f": "max_gap(f1, by=g) <= 0.1"}, "1 - f1"),
    "precision parity": Rules({"f": "max_gap(precision, by=g) <= 0.1"}),
    "f1 and error": Rules({"f": "max_gap(f1, by=g) <= 0.2"}, "error - f1[g=a] - f1[g=b]"),
    "ratio and curve": Rules({"k": "kl(0.5, positive_rate) <= 0.2"}, "1 - f1"),
}


def instance(seed: int, rules: Rules, count: int):
    """A program, and rates (K, count) of random decisions of 60 rows in two groups."""
    rng = np.random.default_rng(seed)
    group = np.array(["a", "b"], dtype=object)[rng.integers(2, size=60)]
    label = (rng.random(60) < np.where(group == "a", 0.6, 0.3)).astype(float)
    given = problem(Rows(np.zeros((60, 1)), label, group), rules)
    decisions = (rng.random((count, 60)) < rng.random((count, 1))).astype(float)
    return Program.of(given), np.stack([given.rates.rates(p) for p in decisions], axis=1)


def on_grid(program: Program, rates: np.ndarray, steps: int) -> float:
    """The least objective of the mixtures whose chances are multiples of 1 / steps."""
    count = rates.shape[1]
    cuts = itertools.combinations(range(steps + count - 1), count - 1)
    bars = np.array([(-1, *cut, steps + count - 1) for cut in cuts])
    mixtures = (rates @ ((np.diff(bars, axis=1) - 1) / steps).T).T
    values = program.value(program.objective, mixtures.T)
    return float(min(values[program.excess(mixtures.T) <= 1e-9], default=np.inf))


@pytest.mark.parametrize("name", GOALS)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=8, deadline=None)
def test_no_mixture_on_a_grid_is_better(name, seed):
    program, rates = instance(seed, GOALS[name], 4)
    found = best(Relaxation(program, Columns.classifiers(rates)), GAP)
    grid = on_grid(program, rates, 24)
    if found is None:
        assert grid == np.inf
        return
    assert found.value <= grid + GAP
    assert program.excess(found.rates) <= 5e-7
    assert found.value == pytest.approx(program.value(program.objective, found.rates), abs=1e-9)
    assert found.bound <= min(found.value, grid) + 1e-9
    if found.value < 2:  # else a rate is 0, where no line touches kl
        assert found.bound >= found.value - 5 * GAP  # a box may end early by what a level is off
    assert found.rates == pytest.approx(rates @ found.weights)
    assert found.weights.sum() == pytest.approx(1)

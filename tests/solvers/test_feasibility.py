from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.goals import Rules, problem, smooth_rows

from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import RateProgram, min_violation
from ratecli.solvers.problem import min_constraint_excess


def violation(rules: Rules) -> float:
    goals = problem(smooth_rows(0), rules)
    return min_violation(RateProgram.of(goals), RowKinds.by(goals.rates))


def together(base: float) -> float:
    """positive_rate is at least base_rate * recall: with recall >= 0.9 and positive_rate <= 0.01,
    both are missed by t with base_rate (0.9 - t) = 0.01 + t."""
    return (0.9 * base - 0.01) / (1 + base)


@pytest.mark.parametrize(
    ("rules", "least"),
    [
        ({"r": "recall >= 1.25"}, 0.25),
        (
            {"r": "recall >= 0.9", "c": "positive_rate <= 0.01"},
            together(smooth_rows(0).label.mean()),
        ),
        ({"e": "error <= 0", "c": "max_gap(tpr, by=g) <= 0"}, 0.0),
        ({"r": "recall >= 0.5"}, 0.0),
    ],
    ids=["beyond the range", "exclude each other", "met by the labels", "easy"],
)
def test_min_violation_is_the_least_that_any_decisions_reach(rules, least):
    assert max(violation(Rules(rules)), 0.0) == pytest.approx(least, abs=2e-4)


def test_min_violation_allows_an_undefined_objective():
    """Nobody of a is selected there, and of b a share of x so that `x - .9 = .47 - x / 2`."""
    rules = {
        "most": "positive_rate[g=b] <= 0.9",
        "apart": "positive_rate[g=a] - 0.5 * positive_rate[g=b] <= -0.47",
        "ratio": "f1[g=b] - precision <= 0.9",
    }
    found = violation(Rules(rules, "1 - precision[g=a]"))
    assert found == pytest.approx(0.02 / 1.5, abs=2e-4)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_no_decisions_are_below_min_constraint_excess(seed):
    rng = np.random.default_rng(seed)
    coefficients, constants = rng.integers(-2, 3, size=(3, 8)) / 8, rng.normal(size=3)
    decisions = np.vstack([rng.random((300, 8)), rng.integers(2, size=(300, 8))])
    reached = (decisions @ coefficients.T + constants).max(axis=1)
    assert min_constraint_excess(coefficients, constants) <= reached.min() + 1e-9

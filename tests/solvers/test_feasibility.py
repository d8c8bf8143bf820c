from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.goals import Rules, forms, problem, smooth_rows

from ratecli.rates.matrix import RowKinds
from ratecli.solvers.feasibility import min_constraint_excess, min_violation
from ratecli.solvers.hull.forms import RateProgram


def excess(rules: dict[str, str]) -> float:
    coefficients, constants = forms(problem(smooth_rows(0), Rules(rules)))
    return min_constraint_excess(coefficients[1:], constants[1:])


def test_one_rate_beyond_its_range():
    assert excess({"r": "recall >= 1.25"}) == pytest.approx(0.25)


def test_two_rates_that_exclude_each_other():
    """positive_rate is at least base_rate * recall: both are missed by t with
    base_rate (0.9 - t) = 0.01 + t."""
    base = smooth_rows(0).label.mean()
    wanted = (0.9 * base - 0.01) / (1 + base)
    assert excess({"r": "recall >= 0.9", "c": "positive_rate <= 0.01"}) == pytest.approx(wanted)


def test_what_decisions_can_meet_is_left_to_the_classifier():
    assert excess({"e": "error <= 0", "c": "max_gap(tpr, by=g) <= 0"}) == pytest.approx(0)
    assert excess({"r": "recall >= 0.5"}) < 0


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_no_decisions_do_better(seed):
    rng = np.random.default_rng(seed)
    coefficients, constants = rng.integers(-2, 3, size=(3, 8)) / 8, rng.normal(size=3)
    decisions = np.vstack([rng.random((300, 8)), rng.integers(2, size=(300, 8))])
    reached = (decisions @ coefficients.T + constants).max(axis=1)
    assert min_constraint_excess(coefficients, constants) <= reached.min() + 1e-9


def test_an_objective_may_be_undefined_where_the_least_is_missed():
    """Nobody of a is decided yes there, and of b a share of x so that `x - .9 = .47 - x / 2`."""
    rules = {
        "most": "positive_rate[g=b] <= 0.9",
        "apart": "positive_rate[g=a] - 0.5 * positive_rate[g=b] <= -0.47",
        "ratio": "f1[g=b] - precision <= 0.9",
    }
    goals = problem(smooth_rows(0), Rules(rules, "1 - precision[g=a]"))
    found = min_violation(RateProgram.of(goals), RowKinds.by(goals.rates))
    assert found == pytest.approx(0.02 / 1.5, abs=2e-4)

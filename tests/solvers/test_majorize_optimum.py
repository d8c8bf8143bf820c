"""Majorization against the exact optimum of Problem 1, 0/1 rates of any linear classifier."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import problem1
from oracles.families import FAMILIES
from oracles.goals import Rows, Rules, forms, grid_rows, measured, problem, run

from ratecli.solvers.base import Solution
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

EXACT = {name: FAMILIES[name] for name in ("nothing", "fpr", "four")} | {
    "parity": {"p": "positive_rate[g=b] >= 0.8 * positive_rate[g=a]"},
    "precision": {"p": "precision >= 0.85"},
    "recall": {"r": "recall >= 0.8"},
    "odds": {"o": "max_gap(tpr, by=g) <= 0.1"},
    "coverage": {"c": "positive_rate <= 0.3"},
}


def solve(goals: Problem, solver: Majorize | None = None) -> Solution:
    return run(solver or Majorize(), goals)


LOST = {"odds": 0.08, "precision": 0.075}
"""Random decisions above the best mixture, on average; 0.05 in other families, 2 of 40 rows."""

WRONG = {"precision": 7}
"""Rows that a sign has wrong beyond the best one, of 40, at most; 3 in other families. Rows 1 end in
a local optimum of precision.
"""


@pytest.mark.parametrize("intercept", ["regularized", "unregularized"])
@pytest.mark.parametrize("family", EXACT)
def test_majorize_is_close_to_and_never_below_the_exact_optimum(
    family, intercept, record_testsuite_property
):
    """A random decision is held against mixtures of classifiers, the sign against the best one."""
    random_losses, losses = [], []
    for seed in range(5):
        rows = grid_rows(seed)
        goals = problem(rows, Rules(EXACT[family]))
        solution = solve(goals, Majorize(intercept=intercept))
        assert solution.status == "solved", solution.reason
        random, hard = (measured(goals, each) for each in solution.variants.values())
        assert max(random[1:], default=0) <= FEASIBILITY_TOLERANCE
        mixture = problem1.of_mixtures(rows.X, *forms(goals))
        assert random[0] >= mixture - 1e-6
        random_losses.append(random[0] - mixture)
        if max(hard[1:], default=0) <= 1e-9:
            exact = problem1.by_enumeration(rows.X, *forms(goals))
            assert hard[0] >= exact.value - 1e-9
            losses.append(hard[0] - exact.value)
    name = f"{family}, {intercept}"
    record_testsuite_property(f"{name}: random decisions above the best mixture", random_losses)
    record_testsuite_property(f"{name}: signs above the optimum", losses)
    assert np.mean(random_losses) <= LOST.get(family, 0.05)
    assert len(losses) >= 2
    assert max(losses) <= WRONG.get(family, 3) / 40 + 1e-9


def test_three_features_against_the_milp(record_testsuite_property):
    losses = []
    for seed in (1, 2, 3, 5, 9, 10, 13):
        rows = grid_rows(seed, n=24, d=3, reach=2)
        goals = problem(rows, Rules({"c": "positive_rate <= 0.4", "r": "recall >= 0.6"}))
        solution, exact = solve(goals), problem1.by_milp(rows.X, *forms(goals))
        assert np.isfinite(exact.value)
        random, hard = (measured(goals, each) for each in solution.variants.values())
        assert max(random[1:]) <= FEASIBILITY_TOLERANCE
        # a mixture of classifiers may be better than the best one
        assert random[0] <= exact.value + 0.08
        if (hard[1:] <= 1e-9).all():
            losses.append(hard[0] - exact.value)
    record_testsuite_property("signs above the optimum", losses)
    assert len(losses) >= 5
    assert min(losses) >= -1e-9
    assert max(losses) <= 2 / 24 + 1e-9


SEPARABLE = {
    "parity": {"p": "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"},
    "recall and precision": {"r": "recall >= 0.9", "p": "precision >= 0.9"},
    "coverage": {"c": "positive_rate <= 0.5"},
    "odds": {"t": "max_gap(tpr, by=g) <= 0.05", "f": "max_gap(fpr, by=g) <= 0.05"},
    "churn": {"c": "churn <= 0.15"},
}


@pytest.mark.parametrize("family", SEPARABLE)
def test_separable_rows_are_classified_without_error(family):
    """Labels of a line that keeps the constraints: Problem 1 has optimum 0, which is attained."""
    x = np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5], dtype=float)
    X = np.stack([np.tile(x, 4), np.repeat([-1.0, 0.0, 1.0, 2.0], 10)], axis=1)
    label = (X[:, 0] > 0).astype(float)
    deployed = (X[:, 0] > 1).astype(float)
    group = np.where(np.arange(40) // 10 % 2, "a", "b").astype(object)
    goals = problem(Rows(X, label, group, deployed=deployed), Rules(SEPARABLE[family]), 1e-3)
    solution = solve(goals)
    assert problem1.by_enumeration(X, *forms(goals)).value == pytest.approx(0, abs=1e-12)
    assert solution.status == "solved"
    for name, variant in solution.variants.items():
        values = measured(goals, variant)
        # the ramp's corners are met up to the gap, the sign exactly
        assert values[0] == pytest.approx(0, abs=Majorize().gap if name == "stochastic" else 1e-9)
        assert (values[1:] <= FEASIBILITY_TOLERANCE).all()

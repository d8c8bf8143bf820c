"""A sweep as one path, each convex problem starting from the same step of the target before."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.goals import Rules, measured, problem, smooth_rows

from ratecli.solvers.base import Solution
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE, MIN_GAP_SCALE
from ratecli.solvers.majorize.majorization import make_ramp_problem
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

RULES = {
    "parity": ("positive_rate[g=a] >= {} * positive_rate[g=c]", np.linspace(0.5, 1.0, 4)),
    "churn": ("churn <= {}", np.linspace(0.2, 0.14, 4)),
    "recall": ("recall >= {}", np.linspace(0.7, 0.95, 4)),
    "odds": ("max_gap(tpr, by=g) <= {}", np.linspace(0.2, 0.02, 4)),
}


def targets(family: str) -> list[Problem]:
    """From one that is all but idle to one that costs a lot; 250 rows."""
    rule, values = RULES[family]
    rows = smooth_rows(1, n=250)
    return [problem(rows, Rules({"t": rule.format(value), "f": "fpr <= 0.4"})) for value in values]


def ramp_objective(goals: Problem, solution: Solution) -> float:
    ramp = solution.variants["stochastic"]
    norm = float(ramp.weights @ ramp.weights) + ramp.bias**2
    return float(measured(goals, ramp)[0] + goals.l2 * norm)


@pytest.mark.parametrize("family", RULES)
def test_a_path_is_certified_at_each_target_and_as_good_as_cold_solves(family):
    solver, rng = Majorize(iterations=4), np.random.default_rng(0)
    problems = targets(family)
    path = solver.path(problems, rng, lambda _: None)
    assert path[-1].multipliers["t"] > 0.1, "the last target binds"
    for goals, solution in zip(problems, path, strict=True):
        assert solution.status == "solved", solution.reason
        assert max(measured(goals, solution.variants["stochastic"])[1:]) <= FEASIBILITY_TOLERANCE
        certified(solver, goals, solution)
        cold = solver.solve(goals, rng, lambda _: None)
        assert cold.status == "solved"
        # another solution within the gap may lead to another local optimum
        assert ramp_objective(goals, solution) == pytest.approx(
            ramp_objective(goals, cold), rel=0.02
        )


def certified(solver: Majorize, goals: Problem, solution: Solution) -> None:
    """Each step from a feasible point ends with a gap as small as was asked."""
    spread = make_ramp_problem(solver, goals).spread
    missed = sum(row["violation"] > FEASIBILITY_TOLERANCE for row in solution.trace)
    worth = 1e-9 + FEASIBILITY_TOLERANCE * (1 + 2 * sum(solution.multipliers.values()))
    for row in solution.trace[missed + 1 :]:
        assert -worth <= row["bound"] - row["lower"]
        assert row["gap"] <= solver.gap * max(abs(row["lower"]), MIN_GAP_SCALE * spread) * (
            1 + 1e-9
        )
        assert row["gap"] == pytest.approx(row["bound"] - row["lower"], abs=worth)


def test_the_first_problem_of_a_path_is_solved_as_if_it_were_alone():
    problems, rng = targets("parity"), np.random.default_rng(0)
    first, alone = (
        Majorize().path(few, rng, lambda _: None)[0].variants["stochastic"]
        for few in (problems[:2], problems[:1])
    )
    np.testing.assert_array_equal(first.weights, alone.weights)
    assert first.bias == alone.bias

"""What Goh et al. 2016 prove of majorization, on hundreds of random problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.families import FAMILIES
from oracles.goals import Rules, grid_rows, measured, problem, smooth_rows
from oracles.instances import INTERCEPTS
from scipy import sparse

from ratecli.solvers.base import Solution
from ratecli.solvers.majorize.solution import FEASIBLE
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

OBJECTIVES = ("error", "error", "positive_rate", "0.5 * fnr + 2 * fpr", "1 - recall")


def random_problem(family: str, seed: int) -> Problem:
    """Points of a grid or in general position, 25 to 70 rows, dense or sparse, any penalty."""
    rng = np.random.default_rng([seed, *family.encode()])
    n, d = int(rng.integers(25, 70)), int(rng.integers(1, 6))
    rows = grid_rows(seed, n=n) if seed % 3 == 0 else smooth_rows(seed, n=n, d=d)
    if seed % 2:
        rows = replace(rows, X=sparse.csr_array(rows.X))
    l2 = None if seed % 4 == 0 else 10 ** rng.uniform(-4, 0)
    return problem(rows, Rules(FAMILIES[family], str(rng.choice(OBJECTIVES))), l2)


def solve(goals: Problem, solver: Majorize) -> Solution:
    return solver.solve(goals, np.random.default_rng(0), lambda _: None)


def holds(goals: Problem, solution: Solution) -> bool:
    """Whether a feasible point was found; asserts that it was kept and never got worse."""
    objective, violation, bound, gap = (
        np.array([row[name] for row in solution.trace])
        for name in ("objective", "violation", "bound", "gap")
    )
    assert (gap >= 0).all()
    assert (violation >= 0).all()
    assert min(solution.multipliers.values(), default=0.0) >= 0
    met = int(np.argmax(violation <= FEASIBLE)) if (violation <= FEASIBLE).any() else len(violation)
    assert (violation[met:] <= FEASIBLE).all(), "it left the feasible set"
    assert (np.diff(objective[met:]) <= 0).all(), "the objective rose"
    assert (objective[: met + 1] <= bound[: met + 1] + 1e-9).all(), "the bound is one"
    if not solution.variants:
        assert solution.status in {"infeasible", "no_solution_found"}
        assert met == len(violation)
        return False
    assert solution.status == "solved", solution.reason
    assert len(objective) in {met + 8, met + 3, met + 2}
    ramp = solution.variants["stochastic"]
    values = measured(goals, ramp)
    assert violation[-1] == pytest.approx(max([0.0, *values[1:]]), abs=1e-9)
    last = objective[-1] - goals.l2 * float(ramp.weights @ ramp.weights)
    assert last - goals.l2 * ramp.bias**2 - 1e-9 <= values[0] <= last + 1e-9
    return True


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_iterates_are_feasible_and_never_get_worse(family, intercept):
    solver = Majorize(intercept=intercept)
    found = [
        holds(goals, solve(goals, solver))
        for goals in (random_problem(family, s) for s in range(7))
    ]
    assert sum(found) >= 3 or intercept == "none"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "solver",
    [
        Majorize(iterations=3, inner="cutting_plane", chooser="maximization"),
        Majorize(iterations=2, inner="cutting_plane", intercept="unregularized", gap=1e-3),
        Majorize(iterations=3, inner="liblinear", chooser="maximization", gap=1e-2),
    ],
    ids=["maximization", "center", "liblinear"],
)
def test_so_they_are_with_algorithm_2_inside(family, solver):
    if solver.chooser == "center" and len(FAMILIES[family]) > 1:
        return
    for seed in range(2):
        goals = random_problem(family, seed)
        holds(goals, solve(goals, solver))

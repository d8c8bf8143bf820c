"""What Goh et al. 2016 prove of majorization, on some 100 random problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracles.families import FAMILIES
from oracles.goals import Rules, grid_rows, measured, problem, run, smooth_rows
from oracles.instances import INTERCEPTS
from scipy import sparse

from ratecli.solvers.base import Solution
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE, MIN_GAP_SCALE
from ratecli.solvers.majorize.majorization import make_ramp_problem
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

OBJECTIVES = ("error", "error", "positive_rate", "0.5 * fnr + 2 * fpr", "1 - recall")

HARD = {"recall", "fpr", "precision", "coverage", "four"}
"""What can often not be met without a bias, which takes long to find out."""

ALGORITHM_2 = {
    "maximization": Majorize(3, inner="cutting_plane", chooser="maximization"),
    "center": Majorize(2, inner="cutting_plane", intercept="unregularized", gap=1e-3),
    "liblinear": Majorize(3, inner="liblinear", chooser="maximization", gap=1e-2),
}


def random_problem(family: str, seed: int) -> Problem:
    """Points of a grid or in general position, 25 to 60 rows, dense or sparse, any penalty."""
    rng = np.random.default_rng([seed, *family.encode()])
    n, d = int(rng.integers(25, 60)), int(rng.integers(1, 6))
    rows = grid_rows(seed, n=n) if seed % 3 == 0 else smooth_rows(seed, n=n, d=d)
    if seed % 2:
        rows = replace(rows, X=sparse.csr_array(rows.X))
    l2 = None if seed % 4 == 0 else 10 ** rng.uniform(-4, 0)
    return problem(rows, Rules(FAMILIES[family], str(rng.choice(OBJECTIVES))), l2)


def column(solution: Solution, name: str) -> np.ndarray:
    return np.array([row[name] for row in solution.trace])


def holds(goals: Problem, solution: Solution, solver: Majorize) -> bool:
    """Whether a feasible point was found; asserts that it was kept and never got worse."""
    objective, violation, bound = (
        column(solution, name) for name in ("objective", "violation", "bound")
    )
    assert (violation >= 0).all()
    assert min(solution.multipliers.values(), default=0.0) >= 0
    feasible = np.append(violation <= FEASIBILITY_TOLERANCE, True)
    met = int(np.argmax(feasible))
    assert (violation[met:] <= FEASIBILITY_TOLERANCE).all(), "it left the feasible set"
    assert (np.diff(objective[met:]) <= 0).all(), "the objective rose"
    assert (objective[: met + 1] <= bound[: met + 1] + 1e-9).all(), "the bound is one"
    if not solution.variants:
        assert solution.status in {"infeasible", "no_solution_found"}
        assert met == len(violation)
        return False
    assert solution.status == "solved", solution.reason
    assert len(objective[met:]) <= solver.iterations
    if len(objective[met:]) < solver.iterations:
        last = solution.trace[-1]["gap"]
        assert objective[-2] - objective[-1] <= last, "it ends before its time only at rest"
    if solver.inner != "liblinear":  # which certifies nothing
        certified(goals, solution, solver, met)
    is_its_own(goals, solution)
    return True


def certified(goals: Problem, solution: Solution, solver: Majorize, met: int) -> None:
    """A step from a feasible point ends above its lower bound, the last one by the gap or less.

    At the first feasible point the convex bound may still miss a constraint.
    """
    bound, lower, gap = (column(solution, name)[met + 1 :] for name in ("bound", "lower", "gap"))
    # a point that misses a constraint by FEASIBLE is better than the optimum by what that is worth
    worth = 1e-9 + FEASIBILITY_TOLERANCE * (1 + 2 * sum(solution.multipliers.values()))
    assert (bound - lower >= -worth).all()
    np.testing.assert_allclose(gap, bound - lower, rtol=0, atol=worth)
    spread = make_ramp_problem(solver, goals).spread
    last = solution.trace[-1]
    assert last["gap"] <= solver.gap * max(abs(last["lower"]), MIN_GAP_SCALE * spread) * (1 + 1e-9)


def is_its_own(goals: Problem, solution: Solution) -> None:
    """The trace ends with the rates of the classifier that is given."""
    ramp, last = solution.variants["stochastic"], solution.trace[-1]
    values = measured(goals, ramp)
    assert last["violation"] == pytest.approx(max([0.0, *values[1:]]), abs=1e-9)
    weights = last["objective"] - goals.l2 * float(ramp.weights @ ramp.weights)
    assert weights - goals.l2 * ramp.bias**2 - 1e-9 <= values[0] <= weights + 1e-9


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_iterates_are_feasible_and_never_get_worse(family, intercept):
    """Some of either storage, of either kind of points, 2 to 6 steps."""
    hard = intercept == "none" and family in HARD
    solvers = [Majorize(2 + seed % 5, intercept=intercept) for seed in range(2 if hard else 3)]
    problems = [random_problem(family, seed) for seed in range(len(solvers))]
    found = [
        holds(goals, run(solver, goals), solver)
        for goals, solver in zip(problems, solvers, strict=True)
    ]
    assert sum(found) >= len(found) - 1


@pytest.mark.parametrize(
    ("family", "solver"),
    [(family, name) for name in ALGORITHM_2 for family in FAMILIES
     if name != "center" or len(FAMILIES[family]) <= 1],
)  # fmt: skip
def test_iterates_with_algorithm_2_are_feasible_and_never_get_worse(family, solver):
    inner = ALGORITHM_2[solver]
    for seed in range(2 if solver == "liblinear" else 1):
        goals = random_problem(family, seed)
        assert holds(goals, run(inner, goals), inner)

"""Problem 3 against a generic convex solver, and the certificates on the way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles.instances import INTERCEPTS, KINDS, instance, instances
from oracles.problem3 import least

from ratecli.solvers.majorize import augmented, newton
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
from ratecli.solvers.majorize.convex import (
    FEASIBILITY_TOLERANCE,
    ConvexProblem,
    ConvexSolution,
    StoppingRule,
)
from ratecli.solvers.majorize.cutting_plane import (
    CutChooser,
    CuttingPlane,
    center_of_mass,
    model_maximizer,
    newton_svm,
)


def goal(problem: ConvexProblem, gap: float) -> StoppingRule:
    return StoppingRule(0.0, 1e4 * (problem.ramp.spread or 1.0), 1e6, absolute=gap)


def solved(method: AugmentedLagrangian | CuttingPlane, problem: ConvexProblem) -> ConvexSolution:
    return method.solve(problem, np.zeros(problem.ramp.rows.width))


def cuts(problem: ConvexProblem, gap: float, chooser: CutChooser) -> CuttingPlane:
    return CuttingPlane(goal(problem, gap), newton_svm(), chooser, 300)


def holds(problem: ConvexProblem, found: ConvexSolution, gap: float) -> None:
    """The point is feasible and as good as the optimum, and the certificate is one."""
    optimum = least(problem)
    assert optimum
    value, multipliers = optimum
    at = problem.values(found.w)
    assert found.converged
    assert found.feasible
    assert at[1:].max(initial=0.0) <= FEASIBILITY_TOLERANCE * (1 + 1e-9)
    assert found.value == pytest.approx(at[0], abs=1e-12)
    assert found.lower <= value + 1e-8
    # a point may miss each constraint by FEASIBLE, and be better by what that is worth
    worth = FEASIBILITY_TOLERANCE * multipliers.sum()
    assert -worth - 1e-9 <= found.value - found.lower <= gap
    assert found.gap == pytest.approx(max(found.value - found.lower, 0), abs=1e-12)
    assert value - worth - 1e-8 <= found.value <= value + gap + 1e-8


@pytest.mark.parametrize("kind", KINDS)
def test_method_of_multipliers_solves_to_1e_6(kind):
    """The method of multipliers on few constraints and many, and each kind of intercept."""
    for problem in instances(range(1, 2), (0, 1, 2, 5) if kind == "rates" else (1, 5), kind):
        holds(problem, solved(AugmentedLagrangian(goal(problem, 5e-7)), problem), 5e-7)


@pytest.mark.parametrize(
    ("kind", "most"), [("dense", 2), ("wide", 1), ("sparse", 1), ("merged", 2), ("rates", 2)]
)
def test_cutting_plane_at_the_maximizer_solves_to_1e_6(kind, most):
    for problem in instances(range(1), range(most + 1), kind):
        holds(problem, solved(cuts(problem, 5e-7, model_maximizer), problem), 5e-7)


@pytest.mark.parametrize("products", [1e12, 0.0], ids=["matrix", "conjugate gradients"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "wide"])
def test_all_newton_systems_lead_to_the_optimum(kind, products, monkeypatch):
    monkeypatch.setattr(newton, "CG_COST", products)
    monkeypatch.setattr(newton, "CHEAP_PRODUCTS", -1.0)
    for problem in instances(range(1), range(3), kind, "unregularized"):
        holds(problem, solved(AugmentedLagrangian(goal(problem, 5e-7)), problem), 5e-7)


@pytest.mark.parametrize("kind", ["dense", "rates"])
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_gap_of_method_of_multipliers_is_nonnegative_and_shrinks(kind, intercept, monkeypatch):
    """The same search stopped ever later: the ends close in on the optimum from both sides."""
    problem = instance(1, 3, intercept, kind)
    optimum = least(problem)
    assert optimum
    value, multipliers = optimum
    lower, worth = [], []
    for rounds in itertools.count(1, 2):
        monkeypatch.setattr(augmented, "MAX_ROUNDS", rounds)
        found = solved(AugmentedLagrangian(goal(problem, 1e-7)), problem)
        lower.append(found.lower)
        # with excess at a price above the multipliers: no point is below the optimum
        worth.append(found.lower + found.gap)
        if found.converged:
            break
    assert len(lower) > 3
    assert max(lower) <= value + 1e-8
    assert min(worth) >= value - FEASIBILITY_TOLERANCE * multipliers.sum() - 1e-8
    assert (np.diff(lower) >= 0).all()
    assert (np.diff(worth) <= 1e-12).all()
    assert found.feasible
    assert found.value - lower[-1] <= 1e-7


@pytest.mark.parametrize("chooser", [model_maximizer, center_of_mass])
def test_gap_of_cutting_plane_is_nonnegative_and_shrinks(chooser):
    problem = instance(1, 1, "unregularized", "rates")
    optimum = least(problem)
    assert optimum
    value, multipliers = optimum
    found = []
    for count in itertools.count(1, 5):
        method = CuttingPlane(goal(problem, 1e-6), newton_svm(), chooser, count)
        found.append(solved(method, problem))
        if found[-1].converged:
            break
    lower = [each.lower for each in found]
    feasible = [each.value for each in found if each.feasible]
    assert max(lower) <= value + 1e-8
    assert (np.diff(lower) >= 0).all()
    assert len(feasible) > 2
    assert (np.diff(feasible) <= 1e-12).all()
    assert min(feasible) >= value - FEASIBILITY_TOLERANCE * multipliers.sum() - 1e-8
    assert feasible[-1] - lower[-1] <= 1e-6 < feasible[0] - lower[0]

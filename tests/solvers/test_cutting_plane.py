from __future__ import annotations

import numpy as np
import pytest
from oracles.goals import Rules, grid_rows, problem, smooth_rows
from oracles.instances import instance
from oracles.problem3 import least

from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.majorize import cutting_plane as choosers
from ratecli.solvers.majorize import cutting_plane as svm
from ratecli.solvers.majorize.convex import (
    FEASIBILITY_TOLERANCE,
    ConvexProblem,
    ConvexSolution,
    RampProblem,
    StoppingRule,
)
from ratecli.solvers.majorize.cutting_plane import (
    CutChooser,
    CutSolution,
    CuttingPlane,
    UpperModel,
    solve_master,
)
from ratecli.solvers.majorize.majorization import make_ramp_problem
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

GAP = 1e-4
GOAL = StoppingRule(0.0, 1e4, 10.0, absolute=GAP)
CHOOSERS = pytest.mark.parametrize("chooser", [choosers.model_maximizer, choosers.center_of_mass])

SMALL = [
    ({"p": "positive_rate[g=b] >= 0.8 * positive_rate[g=a]"}, 1),
    ({"r": "recall >= 0.8"}, 2),
    ({"c": "positive_rate <= 0.3"}, 1),
    ({"p": "precision >= 0.8"}, 2),
    ({"r": "recall >= 0.7", "c": "positive_rate <= 0.6"}, 0),
    ({"c": "churn <= 0.4", "p": "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"}, 0),
]
BY_RULES = pytest.mark.parametrize(("rules", "seed"), SMALL)


def first(goals: Problem, intercept: str = "regularized") -> ConvexProblem:
    """Problem 3 anchored at w = 0."""
    ramp = make_ramp_problem(Majorize(intercept=intercept), goals)
    return ConvexProblem.tight_at(ramp, np.zeros(len(ramp.rows)))


def solved(
    convex: ConvexProblem, chooser: CutChooser = choosers.center_of_mass, cuts: int = 100
) -> CutSolution:
    method = CuttingPlane(GOAL, svm.newton_svm(), chooser, cuts)
    return method.solve(convex, np.zeros(convex.ramp.rows.width))


def is_solution(convex: ConvexProblem, found: ConvexSolution) -> None:
    optimum = least(convex)
    assert optimum
    values = convex.values(found.w)
    assert found.converged
    assert found.feasible
    assert (values[1:] <= FEASIBILITY_TOLERANCE).all()
    assert found.value == pytest.approx(values[0], abs=1e-12)
    assert found.lower <= optimum[0] + 1e-8
    assert optimum[0] - 1e-6 <= found.value <= found.lower + GAP + 1e-12
    # what multipliers are worth: the least Lagrangian, and no price without a need. They are the
    # model's highest, where the dual function may lie a few gaps below it
    svm_at = least(convex.lagrangian(found.multipliers))
    assert svm_at
    assert (found.multipliers >= 0).all()
    assert optimum[0] - svm_at[0] <= 4 * GAP
    assert (found.multipliers * -values[1:] <= GAP).all()


@CHOOSERS
@BY_RULES
@pytest.mark.parametrize("intercept", ["unregularized", "none"])
def test_the_gap_is_as_promised(rules, seed, chooser, intercept):
    convex = first(problem(grid_rows(seed), Rules(rules)), intercept)
    if least(convex):
        is_solution(convex, solved(convex, chooser))
    else:
        assert not solved(convex, chooser).feasible


@BY_RULES
def test_liblinear_inside_comes_as_close_as_it_is_exact(rules, seed):
    convex = first(problem(grid_rows(seed), Rules(rules)))
    optimum = least(convex)
    assert optimum
    inner = svm.liblinear_svm(0, 1e-6, 100_000)
    found = CuttingPlane(GOAL, inner, choosers.center_of_mass, 100).solve(convex, np.zeros(3))
    assert found.feasible
    assert found.converged
    assert optimum[0] - 1e-6 <= found.value <= optimum[0] + GAP + 1e-5


@CHOOSERS
def test_toy_of_two_points_under_a_coverage_constraint(chooser):
    """Protocols of Goh et al. 2016, vector 9.3; the penalty is tiny, not absent."""
    rows = DesignMatrix(np.array([[1.0], [-1.0]]), "unregularized")
    coefficients = np.array([[-0.5, 0.5], [0.5, 0.5]])
    ramp = RampProblem.of(rows, coefficients, np.array([0.5, -0.25]), 1e-4)
    convex = ConvexProblem.tight_at(ramp, np.zeros(2))
    goal = StoppingRule(0.0, 1e4, 10.0, absolute=1e-9)
    found = CuttingPlane(goal, svm.newton_svm(), chooser, 100).solve(convex, np.zeros(2))
    # w = 1/4 and b = -1/4 here: the score is <w, x> - b in the paper
    np.testing.assert_allclose(found.w, [0.25, -0.25], atol=1e-3)
    np.testing.assert_allclose(found.multipliers, [1.0], atol=1e-3)
    assert found.value == pytest.approx(0.25 + 5e-5 / 16, abs=1e-6)
    assert ramp.values(found.w)[1] == pytest.approx(0, abs=1e-6)


def test_the_model_of_two_cuts_has_its_maximum_between_them():
    """Vector 9.3: cuts v / 4 and 1/2 - v / 4; the mixture behind it takes half of each point."""
    columns = np.array([[0.0, 0.5], [0.25, -0.25]])
    plan = solve_master(columns, ceiling=10.0)
    assert plan.value == pytest.approx(0.25)
    np.testing.assert_allclose(plan.multipliers, [1.0])
    np.testing.assert_allclose(plan.mixture, [0.5, 0.5])
    assert not plan.excess.any()
    for v, h in ((0.0, 0.0), (1.0, 0.25), (4.0, -0.5)):
        assert UpperModel(columns, 10.0, 0.0, plan.multipliers).at(np.array([v])) == h


def test_without_a_feasible_mixture_excess_costs_the_ceiling():
    columns = np.array([[0.0, 0.5], [0.25, 0.1]])
    plan = solve_master(columns, ceiling=2.0)
    np.testing.assert_allclose(plan.excess, [0.25])
    np.testing.assert_allclose(plan.multipliers, [2.0])
    assert plan.value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("chooser", "part"), [(choosers.model_maximizer, 0.5), (choosers.center_of_mass, 0.7)]
)
def test_knowing_the_solution_saves_svms(chooser, part):
    """At the center of mass less: the body's other columns have to be cut off again."""
    convex = first(problem(smooth_rows(0, n=200), Rules({"r": "recall >= 0.8", "f": "fpr <= 0.4"})))
    method = CuttingPlane(GOAL, svm.newton_svm(), chooser, 100)
    found = method.solve(convex, np.zeros(6))
    again = method.solve(convex, found.w, found)
    assert again.work <= part * found.work
    assert again.value <= found.value + 1e-9


@CHOOSERS
def test_a_constraint_far_from_zero_needs_a_larger_box_and_gets_it(chooser):
    """Tiny coefficients stand for the same rule; its multiplier is far above the first box."""
    goals = Rules({"c": "0.001 * positive_rate <= 0.0003"})
    small = solved(first(problem(grid_rows(1), goals)), chooser)
    plain = solved(first(problem(grid_rows(1), Rules({"c": "positive_rate <= 0.3"}))), chooser)
    assert small.feasible
    assert small.multipliers[0] > 100
    assert small.multipliers[0] * 1e-3 == pytest.approx(plain.multipliers[0], abs=0.02)
    # of FEASIBLE times the multiplier
    assert small.value == pytest.approx(plain.value, abs=5e-4)


def test_svms_are_exact_enough_for_centers_that_lie_low():
    """A center of mass may be a sixth of the way up: SVMs asked for half of the gap learned nothing
    there, and the search stood still.
    """
    convex = instance(0, 5, "none", "rates")
    found = solved(convex)
    is_solution(convex, found)
    assert found.work <= 60


@CHOOSERS
def test_a_hopeless_search_is_short(chooser):
    convex = first(
        problem(smooth_rows(0), Rules({"r": "recall >= 0.9", "c": "positive_rate <= 0.01"}))
    )
    found = solved(convex, chooser)
    assert not found.feasible
    assert found.work <= 10
    assert found.excess.max() > 0.1


def test_what_is_cut_short_is_told():
    convex = first(problem(smooth_rows(0), Rules({"c": "positive_rate <= 0.3"})))
    few = CuttingPlane(GOAL, svm.liblinear_svm(0, 1e-9, 2), choosers.center_of_mass, 30)
    found = few.solve(convex, np.zeros(6))
    assert not found.converged
    assert found.feasible
    assert solved(convex).converged
    one = solved(convex, cuts=1)
    assert one.work == 1
    assert not one.converged

from __future__ import annotations

import numpy as np
import pytest
from oracles.goals import Rules, grid_rows, problem, smooth_rows
from oracles.problem3 import Hinges, best_dual_bound, by_slsqp, dual_bound, toy_dual

from ratecli.solvers.liblinear import with_ones
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.cutting_plane import (
    FEASIBLE,
    Columns,
    ConvexSolution,
    CuttingPlane,
    choose,
    master,
)
from ratecli.solvers.majorize.inner import liblinear, newton
from ratecli.solvers.majorize.solver import Majorize
from ratecli.solvers.problem import Problem

GAP = 1e-4
SVM_ERROR = 5e-5
"""A dual value is what LIBLINEAR reached, slightly above the true one."""

SMALL = [
    ({"p": "positive_rate[g=b] >= 0.8 * positive_rate[g=a]"}, 1),
    ({"r": "recall >= 0.8"}, 2),
    ({"c": "positive_rate <= 0.3"}, 1),
    ({"p": "precision >= 0.8"}, 2),
    ({"c": "churn <= 0.2"}, 2),
    ({"r": "recall >= 0.7", "c": "positive_rate <= 0.6"}, 0),
    ({"c": "churn <= 0.2", "p": "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"}, 0),
]


METHOD = CuttingPlane(newton(GAP / 10), gap=GAP, cuts=30, ceiling=1e4, hopeless=10.0)


def first(goals: Problem) -> ConvexProblem:
    """Problem 3 anchored at w = 0."""
    ramp, _ = Majorize().ramp_problem(goals)
    return ConvexProblem.tight_at(ramp, np.zeros(ramp.X.shape[0]))


def solved(convex: ConvexProblem, method: CuttingPlane = METHOD) -> ConvexSolution:
    m, d = len(convex.flat) - 1, convex.ramp.X.shape[1]
    return method.solve(convex, Columns.of(convex, np.zeros((d, 1))), np.zeros(m))


@pytest.mark.parametrize(("rules", "seed"), SMALL)
def test_the_gap_is_as_promised(rules, seed):
    convex = first(problem(grid_rows(seed), Rules(rules)))
    hinges = Hinges.of(convex)
    found, smooth = solved(convex), by_slsqp(hinges)
    bound = best_dual_bound(hinges, found.multipliers)
    assert (smooth[1:] <= 1e-7).all()
    assert smooth[0] == pytest.approx(bound, abs=2e-6), "the oracles disagree"
    assert found.feasible
    assert found.gap <= GAP
    assert bound - 1e-9 <= found.value <= bound + found.gap + SVM_ERROR


@pytest.mark.parametrize(("rules", "seed"), SMALL)
def test_values_are_those_of_the_point(rules, seed):
    convex = first(problem(grid_rows(seed), Rules(rules)))
    found = solved(convex)
    values = Hinges.of(convex).values(found.w)
    assert found.value == pytest.approx(values[0], abs=1e-12)
    assert (values[1:] <= FEASIBLE).all()


@pytest.mark.parametrize(("rules", "seed"), SMALL)
def test_multipliers_are_positive_optimal_and_complementary(rules, seed):
    convex = first(problem(grid_rows(seed), Rules(rules)))
    hinges, found = Hinges.of(convex), solved(convex)
    slack = -hinges.values(found.w)[1:]
    assert (found.multipliers >= 0).all()
    assert found.value - dual_bound(hinges, found.multipliers) <= 2e-3
    assert (found.multipliers * slack <= 2e-3).all()


def test_toy_of_two_points_under_a_coverage_constraint():
    """Protocols of Goh et al. 2016, vector 9.3; the regularizer is tiny, not absent."""
    X = with_ones(np.array([[1.0], [-1.0]]))
    coefficients = np.array([[-0.5, 0.5], [0.5, 0.5]])
    ramp = RampProblem(X, coefficients, np.array([0.5, -0.25]), 1e-4)
    convex = ConvexProblem.tight_at(ramp, np.zeros(2))
    for v in (0.0, 0.5, 1.5, 2.0):
        w = newton(1e-6)(convex, np.array([v])).weights
        lagrangian = np.array([1.0, v]) @ convex.values(w[:, None])[:, 0]
        assert lagrangian == pytest.approx(toy_dual(v), abs=1e-3)
    found = solved(convex)
    # w = 1/4 and b = -1/4 here: the score is <w, x> - b in the paper
    np.testing.assert_allclose(found.w, [0.25, -0.25], atol=2e-3)
    np.testing.assert_allclose(found.multipliers, [1.0], atol=2e-3)
    assert found.value == pytest.approx(0.25, abs=2e-4)
    assert ramp.values(found.w)[1] == pytest.approx(0, abs=2e-4)


def test_the_model_of_two_cuts_has_its_maximum_between_them():
    """Vector 9.3: cuts v / 4 and 1/2 - v / 4; the mixture behind it takes half of each point."""
    columns = Columns(np.array([[0.0, 1.0]]), np.array([[0.0, 0.5], [0.25, -0.25]]))
    plan = master(columns, ceiling=10.0)
    assert plan.value == pytest.approx(0.25)
    np.testing.assert_allclose(plan.multipliers, [1.0])
    np.testing.assert_allclose(plan.mixture, [0.5, 0.5])
    assert not plan.excess.any()


def test_without_a_feasible_mixture_excess_costs_the_ceiling():
    columns = Columns(np.array([[0.0, 1.0]]), np.array([[0.0, 0.5], [0.25, 0.1]]))
    plan = master(columns, ceiling=2.0)
    np.testing.assert_allclose(plan.excess, [0.25])
    np.testing.assert_allclose(plan.multipliers, [2.0])
    assert plan.value == pytest.approx(0.5)


def test_one_multiplier_is_cut_in_the_middle_of_what_can_be_best():
    """h(v) = min(v / 4, 1/2 - v / 4) is at least 1/8 between 1/2 and 3/2."""
    columns = Columns(np.zeros((1, 2)), np.array([[0.0, 0.5], [0.25, -0.25]]))
    plan = master(columns, ceiling=10.0)
    for lower, wanted in ((0.125, 1.0), (0.2, 1.0), (-1.0, 3.0)):
        v = choose(columns, plan, lower, np.zeros(1), 10.0)
        # at -1 the lower end is the box: half of 0 and 6
        np.testing.assert_allclose(v, [wanted])


@pytest.mark.parametrize("seed", [0, 1])
def test_order_of_the_constraints_does_not_matter(seed):
    convex = first(
        problem(
            smooth_rows(seed, n=200),
            Rules({"o": "max_gap(tpr, by=g) <= 0.05", "r": "recall >= 0.6"}),
        )
    )
    turn = np.concatenate([[0], np.random.default_rng(seed).permutation(7) + 1])
    other = ConvexProblem(
        RampProblem(
            convex.ramp.X, convex.ramp.coefficients[turn], convex.ramp.constants[turn], convex.ramp.l2
        ),
        convex.up[turn],
        convex.down[turn],
        convex.flat[turn],
    )  # fmt: skip
    one, two = solved(convex), solved(other)
    assert one.feasible
    assert two.feasible
    assert abs(one.value - two.value) <= GAP + SVM_ERROR


def test_knowing_the_solution_saves_svms():
    convex = first(problem(smooth_rows(0, n=200), Rules({"o": "max_gap(tpr, by=g) <= 0.05"})))
    found = solved(convex)
    again = METHOD.solve(convex, found.columns, found.multipliers)
    assert again.minimizations < found.minimizations / 2
    assert again.value <= found.value + 1e-9


def test_a_constraint_far_from_zero_needs_a_larger_box_and_gets_it():
    """Tiny coefficients stand for the same rule; its multiplier is far above the first box."""
    goals = Rules({"c": "0.001 * positive_rate <= 0.0003"})
    small = solved(first(problem(grid_rows(1), goals)))
    plain = solved(first(problem(grid_rows(1), Rules({"c": "positive_rate <= 0.3"}))))
    assert small.feasible
    assert small.multipliers[0] > 100
    assert small.multipliers[0] * 1e-3 == pytest.approx(plain.multipliers[0], abs=0.02)
    assert small.value == pytest.approx(plain.value, abs=GAP + SVM_ERROR)


def test_a_hopeless_search_is_short():
    convex = first(
        problem(smooth_rows(0), Rules({"r": "recall >= 0.9", "c": "positive_rate <= 0.01"}))
    )
    found = solved(convex)
    assert not found.feasible
    assert found.minimizations <= 10
    assert found.excess.max() > 0.1


def test_an_svm_that_does_not_converge_is_told():
    convex = first(problem(smooth_rows(0), Rules({"c": "positive_rate <= 0.3"})))

    found = solved(convex, CuttingPlane(liblinear(0, 1e-9, 2), GAP, 30, 1e4, 10.0))
    assert not found.converged
    assert found.feasible
    assert solved(convex).converged

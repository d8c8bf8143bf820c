from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.goals import Rules, grid_rows, problem, smooth_rows
from oracles.instances import first_problem, instance
from oracles.problem3 import check_solution, least, toy_dual

from ratecli.solvers.design_matrix import DesignMatrix, Intercept
from ratecli.solvers.majorize import cutting_plane
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
from ratecli.solvers.majorize.convex import ConvexProblem, ConvexSolution, RampProblem, StoppingRule
from ratecli.solvers.majorize.cutting_plane import (
    CuttingPlane,
    center_of_mass,
    fit_svm_by_liblinear,
    solve_master,
)

GAP = 1e-4
GOAL = StoppingRule(0.0, 1e4, 10.0, absolute=GAP)
CHOOSERS = pytest.mark.parametrize("centered", [False, True])

SMALL = [
    ({"p": "positive_rate[g=b] >= 0.8 * positive_rate[g=a]"}, 1),
    ({"r": "recall >= 0.8"}, 2),
    ({"c": "positive_rate <= 0.3"}, 1),
    ({"p": "precision >= 0.8"}, 2),
    ({"r": "recall >= 0.7", "c": "positive_rate <= 0.6"}, 0),
    ({"c": "churn <= 0.4", "p": "positive_rate[g=b] >= 0.9 * positive_rate[g=a]"}, 0),
]
BY_RULES = pytest.mark.parametrize(("rules", "seed"), SMALL)


def solved(convex: ConvexProblem, centered: bool = True, cuts: int = 100) -> ConvexSolution:
    method = CuttingPlane(GOAL, centered, cuts)
    return method.solve(convex, np.zeros(convex.ramp.rows.width))


def is_solution(convex: ConvexProblem, found: ConvexSolution) -> None:
    """Also its multipliers: the least Lagrangian, and no price without a need.

    They are the model's highest, where the dual function may lie a few gaps below it.
    """
    check_solution(convex, found, GAP)
    assert (found.multipliers >= 0).all()
    assert least(convex)[0] - least(convex.lagrangian(found.multipliers))[0] <= 4 * GAP
    assert (found.multipliers * -convex.values(found.w)[1:] <= GAP).all()


@CHOOSERS
@BY_RULES
@pytest.mark.parametrize("intercept", ["unregularized", "none"])
def test_cutting_plane_solves_to_the_requested_gap(rules, seed, centered, intercept):
    convex = first_problem(problem(grid_rows(seed), Rules(rules)), intercept)
    if least(convex):
        is_solution(convex, solved(convex, centered))
    else:
        assert not solved(convex, centered).feasible


def test_the_model_of_two_cuts_has_its_maximum_between_them():
    """Vector 9.3: cuts v / 4 and 1/2 - v / 4; the mixture behind it takes half of each point."""
    columns = np.array([[0.0, 0.5], [0.25, -0.25]])
    plan = solve_master(columns, ceiling=10.0)
    np.testing.assert_allclose(plan.multipliers, [1.0])
    np.testing.assert_allclose(plan.weights, [0.5, 0.5])
    assert not plan.excess.any()


def test_without_a_feasible_mixture_excess_costs_the_ceiling():
    columns = np.array([[0.0, 0.5], [0.25, 0.1]])
    plan = solve_master(columns, ceiling=2.0)
    np.testing.assert_allclose(plan.excess, [0.25])
    np.testing.assert_allclose(plan.multipliers, [2.0])


@CHOOSERS
def test_warm_start_saves_svms(centered):
    rules = Rules({"r": "recall >= 0.8", "f": "fpr <= 0.4"})
    convex = first_problem(problem(smooth_rows(0, n=200), rules))
    method = CuttingPlane(GOAL, centered, 100)
    found = method.solve(convex, np.zeros(6))
    again = method.solve(convex, found.w, found)
    assert again.work <= (0.7 if centered else 0.5) * found.work
    assert again.value <= found.value + 1e-9


@CHOOSERS
def test_box_grows_for_a_large_multiplier(centered):
    """Tiny coefficients stand for the same rule; its multiplier is far above the first box."""
    small, plain = (
        solved(first_problem(problem(grid_rows(1), Rules({"c": rule}))), centered)
        for rule in ("0.001 * positive_rate <= 0.0003", "positive_rate <= 0.3")
    )
    assert small.feasible
    assert small.multipliers[0] > 100
    assert small.multipliers[0] * 1e-3 == pytest.approx(plain.multipliers[0], abs=0.02)
    # of FEASIBLE times the multiplier
    assert small.value == pytest.approx(plain.value, abs=5e-4)


def test_svms_are_exact_enough_for_low_centers_of_mass():
    """At a low center of mass SVMs of half the gap learned nothing, and the search stood still."""
    convex = instance(0, 5, "none", "rates")
    found = solved(convex)
    is_solution(convex, found)
    assert found.work <= 60


@CHOOSERS
def test_infeasible_search_ends_early(centered):
    rules = Rules({"r": "recall >= 0.9", "c": "positive_rate <= 0.01"})
    convex = first_problem(problem(smooth_rows(0), rules))
    found = solved(convex, centered)
    assert not found.feasible
    assert found.work <= 10
    assert found.excess.max() > 0.1


def test_early_stop_is_reported_as_not_converged(monkeypatch):
    convex = first_problem(problem(smooth_rows(0), Rules({"c": "positive_rate <= 0.3"})))
    two_passes = partial(fit_svm_by_liblinear, tolerance=1e-9, passes=2)
    monkeypatch.setattr(cutting_plane, "fit_svm_by_liblinear", two_passes)
    few = CuttingPlane(GOAL, centered=True, cuts=30, seed=0)
    found = few.solve(convex, np.zeros(6))
    assert not found.converged
    assert found.feasible
    assert solved(convex).converged
    one = solved(convex, cuts=1)
    assert one.work == 1
    assert not one.converged


TENT = np.array([[0.0, 0.5], [0.25, -0.25]])
"""h(v) = min(v / 4, 1/2 - v / 4), highest at v = 1: vector 9.3 of the protocols of Goh et al. 2016."""


def center(columns: np.ndarray, lower: float = 0.0, ceiling: float = 1.0) -> np.ndarray:
    return center_of_mass(columns, ceiling, lower, solve_master(columns, ceiling).multipliers)


def random_columns(seed: int, m: int) -> np.ndarray:
    """Cuts through random points above 0 in the box [0, 1]^m."""
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(m, 4))
    at, height = rng.random((4, m)), rng.uniform(0.2, 1.0, size=4)
    return np.vstack([height - np.einsum("sm,ms->s", at, slopes), slopes])


def inside(columns: np.ndarray, count: int) -> np.ndarray:
    """Points v (k, m) of points (v, t) uniform in the body above 0, by rejection."""
    rng = np.random.default_rng(0)
    v = rng.uniform(0, 1, size=(count, len(columns) - 1))
    highest = solve_master(columns, 1.0).multipliers
    t = rng.uniform(0, max((columns[0] + highest @ columns[1:]).min(), 0), size=count)
    return v[t < (columns[0] + v @ columns[1:]).min(axis=1)]


@pytest.mark.parametrize(
    ("columns", "lower", "ceiling", "expected"),
    [
        (TENT, 0.0, 10.0, 1.0),
        (TENT, 0.2, 10.0, 1.0),
        # h(v) = min(v, 1.5 - v / 2): a triangle with corners at v = 0, 1 and 3
        ([[0.0, 1.5], [1.0, -0.5]], 0.0, 10.0, 4 / 3),
        # h(v) = v on [0, 2], above 1: a triangle with corners (1, 1), (2, 1), (2, 2)
        ([[0.0], [1.0]], 1.0, 2.0, 5 / 3),
        (TENT, 0.25, 10.0, 1.0),
        (TENT, 0.3, 10.0, 1.0),
    ],
    ids=["symmetric", "low", "skew", "cut off by the box", "without interior", "empty"],
)
def test_center_of_a_triangle_is_the_mean_of_its_corners(columns, lower, ceiling, expected):
    assert center(np.array(columns), lower, ceiling) == pytest.approx([expected])


def test_center_of_a_flat_body_is_in_the_box():
    assert 0 <= center(TENT * 1e-12, ceiling=10.0)[0] <= 10


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(max_examples=15)
def test_the_center_is_the_mean_of_points_inside(seed, m):
    columns = random_columns(seed, m)
    points = inside(columns, 40_000)
    assume(len(points) >= 2000)
    spread = points.std(axis=0) / np.sqrt(len(points))
    assert (np.abs(center(columns) - points.mean(axis=0)) <= 5 * spread).all()


def test_with_many_multipliers_the_center_of_the_largest_ball_is_inside():
    columns = random_columns(3, 5)
    found = center(columns)
    assert (columns[0] + found @ columns[1:]).min() > 0
    assert ((found > 0) & (found < 1)).all()


def lagrangian(seed: int, intercept: Intercept, kind: str) -> ConvexProblem:
    convex = instance(seed, 2, intercept, kind)
    return convex.lagrangian(np.random.default_rng(seed).uniform(0, 2, size=2))


@pytest.mark.parametrize("kind", ["dense", "sparse", "merged"])
@pytest.mark.parametrize("intercept", ["regularized", "none"])
def test_svms_of_liblinear_are_close_to_the_optimum(intercept, kind):
    for seed in range(3):
        convex = lagrangian(seed, intercept, kind)
        optimum = least(convex)
        w, converged = fit_svm_by_liblinear(convex, 0, 1e-7, 1_000_000)
        assert converged
        assert optimum[0] - 1e-8 <= convex.values(w)[0] <= optimum[0] + 1e-5


@pytest.mark.parametrize("seed", [None, 0])
def test_a_problem_without_costs_is_left_at_zero(seed):
    ramp = RampProblem.of(DesignMatrix(np.ones((4, 2))), np.zeros((1, 4)), np.array([0.5]), 1.0)
    convex = ConvexProblem.tight_at(ramp, np.zeros(4))
    fit = CuttingPlane(GOAL, centered=True, cuts=9, seed=seed).solve(convex, np.zeros(3))
    assert fit.converged
    assert not fit.w.any()


def test_dual_function_of_two_points_under_a_coverage_constraint():
    """Protocols of Goh et al. 2016, vector 9.3; the penalty is tiny, not absent."""
    rows = DesignMatrix(np.array([[1.0], [-1.0]]), "unregularized")
    coefficients = np.array([[-0.5, 0.5], [0.5, 0.5]])
    ramp = RampProblem.of(rows, coefficients, np.array([0.5, -0.25]), 1e-6)
    convex = ConvexProblem.tight_at(ramp, np.zeros(2))
    for v, wanted in ((0.0, 0.0), (0.5, 0.125), (1.0, 0.25), (1.5, 0.125), (2.0, 0.0)):
        exact = AugmentedLagrangian(StoppingRule(0.0, absolute=1e-7))
        fit = exact.solve(convex.lagrangian(np.array([v])), np.zeros(2))
        assert fit.lower == pytest.approx(wanted, abs=2e-6)
        assert toy_dual(v) == pytest.approx(wanted, abs=1e-9)

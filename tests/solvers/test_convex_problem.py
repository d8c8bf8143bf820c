from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.goals import Rules, forms, grid_rows, problem
from oracles.problem3 import Hinges, by_slsqp, dual_bound
from scipy import sparse

from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.inner import liblinear, newton
from ratecli.solvers.majorize.solver import Majorize

ROWS, FEATURES, GOALS = 6, 2, 2
numbers = st.floats(-3, 3, allow_nan=False, width=32)


def matrix(rows: int, columns: int) -> st.SearchStrategy[np.ndarray]:
    row = st.lists(numbers, min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(lambda x: np.array(x, dtype=float))


@st.composite
def ramps(draw) -> RampProblem:
    constants = draw(matrix(1, GOALS + 1))[0]
    l2 = draw(st.floats(0.0, 2.0))
    return RampProblem(draw(matrix(ROWS, FEATURES)), draw(matrix(GOALS + 1, ROWS)), constants, l2)


def positive_bound(z, anchor):
    """The definition (Goh et al. 2016, section 2.1): the hinge up to 1/2, else 1."""
    return np.where(anchor <= 0.5, np.maximum(0, 0.5 + z), 1.0)


def bounds_of_one_row(sign, z, anchor):
    """What `ConvexProblem` makes of one row that a yes (sign 1) or a no (-1) costs 1."""
    one = RampProblem(np.eye(1), np.array([[sign]]), np.array([float(sign < 0)]), 0.0)
    return [
        ConvexProblem.tight_at(one, np.array([at])).values(np.array([[score]]))[0, 0]
        for score, at in zip(z, anchor, strict=True)
    ]


def test_bounds_of_the_ramp():
    """Protocols of Goh et al. 2016, vector 9.1."""
    z, at = np.array([[0.5, 0.5], [1, 0.5], [1, 0.6], [-1, 0.6], [-1, 0.2]]).T
    np.testing.assert_allclose(bounds_of_one_row(1.0, z, at), [1, 1.5, 1, 1, 0])
    z, at = np.array([[-0.5, -0.5], [-1, -0.5], [-1, -0.6], [2, -0.6], [0, 0], [0.75, -0.5]]).T
    np.testing.assert_allclose(bounds_of_one_row(-1.0, z, at), [1, 1.5, 1, 1, 0.5, 0], atol=1e-15)


@given(ramps(), matrix(1, FEATURES), matrix(1, FEATURES))
@settings(max_examples=100, deadline=None)
def test_a_convex_problem_bounds_the_ramp_problem_and_is_tight_at_its_anchor(problem, at, w):
    at, w = at[0], w[0]
    convex = ConvexProblem.tight_at(problem, problem.X @ at)
    np.testing.assert_allclose(convex.values(at[:, None])[:, 0], problem.values(at), atol=1e-9)
    assert (convex.values(w[:, None])[:, 0] >= problem.values(w) - 1e-9).all()


@given(ramps(), matrix(1, FEATURES), matrix(2, FEATURES), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_a_convex_problem_is_convex(problem, at, ends, share):
    convex = ConvexProblem.tight_at(problem, problem.X @ at[0])
    middle = share * ends[0] + (1 - share) * ends[1]
    values = convex.values(np.stack([*ends, middle], axis=1))
    assert (values[:, 2] <= share * values[:, 0] + (1 - share) * values[:, 1] + 1e-9).all()


def test_terms_are_bounded_one_by_one_as_in_the_paper():
    """a p is a times the positive bound, -a p is a times the negative bound, less a."""
    rng = np.random.default_rng(0)
    X, coefficients = rng.normal(size=(30, 3)), rng.normal(size=(2, 30))
    at, w = rng.normal(size=3), rng.normal(size=3)
    ramp_problem = RampProblem(X, coefficients, np.array([0.1, -0.2]), 0.5)
    up, down = positive_bound(X @ w, X @ at), positive_bound(-X @ w, -X @ at)
    wanted = np.where(coefficients > 0, coefficients * up, -coefficients * (down - 1)).sum(axis=1)
    wanted += [0.1 + 0.25 * (w @ w), -0.2]
    found = ConvexProblem.tight_at(ramp_problem, X @ at).values(w[:, None])[:, 0]
    np.testing.assert_allclose(found, wanted)


def test_objectives_beyond_those_of_any_decisions():
    """1.5 at most and -2 at least, plus 0.25; a constant has no range and counts as 1."""
    ramp_problem = RampProblem(np.eye(3), np.array([[1.0, -2.0, 0.5]]), np.array([0.25]), 0.0)
    assert ramp_problem.beyond(0) == 1.75
    assert ramp_problem.beyond(2) == 1.75 + 2 * 3.5
    assert RampProblem(np.eye(3), np.zeros((1, 3)), np.array([0.25]), 0.0).beyond(2) == 2.25


@pytest.mark.parametrize("multiplier", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("inner", [newton(1e-7), liblinear(0, 1e-6, 100_000)])
def test_the_weighted_svm_minimizes_the_lagrangian(inner, seed, multiplier):
    goals = problem(grid_rows(seed), Rules({"p": "positive_rate[g=b] >= positive_rate[g=a]"}))
    ramp_problem, _ = Majorize().ramp_problem(goals)
    anchor = np.random.default_rng(seed).normal(size=ramp_problem.X.shape[0])
    convex = ConvexProblem.tight_at(ramp_problem, anchor)
    v = np.array([multiplier])
    fit = inner(convex, v)
    reached = np.array([1.0, multiplier]) @ convex.values(fit.weights[:, None])[:, 0]
    bound = dual_bound(Hinges.of(convex), v)
    assert fit.converged
    assert bound - 1e-9 <= reached <= bound + 1e-5
    assert fit.lower is None or bound - 1e-6 <= fit.lower <= reached


def test_dense_and_sparse_rows_have_the_same_values():
    goals = problem(grid_rows(3), Rules({"c": "positive_rate <= 0.4"}))
    dense, _ = Majorize().ramp_problem(goals)
    thin = RampProblem(sparse.csr_array(dense.X), dense.coefficients, dense.constants, dense.l2)
    anchor, W = dense.X @ np.array([0.3, -0.2, 0.1]), np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(
        ConvexProblem.tight_at(thin, anchor).values(W),
        ConvexProblem.tight_at(dense, anchor).values(W),
    )


@pytest.mark.parametrize("inner", [newton(1e-7), liblinear(0)])
def test_a_problem_without_costs_is_left_at_zero(inner):
    ramp_problem = RampProblem(np.ones((4, 2)), np.zeros((2, 4)), np.array([0.5, -1.0]), 1.0)
    convex = ConvexProblem.tight_at(ramp_problem, np.zeros(4))
    fit = inner(convex, np.array([1.0]))
    assert fit.converged
    assert not fit.weights.any()


def test_rules_become_rows_of_the_ramp_problem():
    """The equality of both ways to the same numbers, and `lambda = 2 l2`."""
    goals = problem(grid_rows(1), Rules({"r": "recall >= 0.8", "o": "max_gap(tpr, by=g) <= 0.1"}))
    ramp_problem, names = Majorize(intercept="none").ramp_problem(goals)
    coefficients, constants = forms(goals)
    assert names == ["r"] + ["o"] * 6
    np.testing.assert_array_equal(ramp_problem.coefficients, coefficients)
    np.testing.assert_array_equal(ramp_problem.constants, constants)
    assert ramp_problem.l2 == 2 / 40


def test_smooth_program_and_dual_bound_agree_on_a_first_problem():
    goals = problem(grid_rows(0), Rules())
    ramp_problem, _ = Majorize().ramp_problem(goals)
    hinges = Hinges.of(ConvexProblem.tight_at(ramp_problem, np.zeros(40)))
    assert by_slsqp(hinges)[0] == pytest.approx(dual_bound(hinges, np.zeros(0)), abs=1e-6)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.goals import Rules, forms, grid_rows, problem
from oracles.instances import INTERCEPTS, KINDS, instance
from oracles.problem3 import least
from scipy import sparse

from ratecli.models.linear import ramp as ramp_of
from ratecli.solvers.design_matrix import DesignMatrix, merge_equal_rows
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.majorization import make_ramp_problem
from ratecli.solvers.majorize.solver import Majorize

ROWS, FEATURES, GOALS = 6, 2, 2
numbers = st.floats(-3, 3, allow_nan=False, width=32)


def matrix(rows: int, columns: int) -> st.SearchStrategy[np.ndarray]:
    row = st.lists(numbers, min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(lambda x: np.array(x, dtype=float))


@st.composite
def ramps(draw) -> RampProblem:
    constants = draw(matrix(1, GOALS + 1))[0]
    rows = DesignMatrix(draw(matrix(ROWS, FEATURES)), draw(st.sampled_from(INTERCEPTS)))
    up, down = (np.abs(draw(matrix(GOALS + 1, ROWS))) for _ in range(2))
    return RampProblem(rows, up, down, constants, draw(st.floats(0.0, 2.0)))


def weights(problem: RampProblem, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=problem.rows.width)


def bounds_of_one_row(sign, z, anchor):
    """What `ConvexProblem` makes of one row that a yes (sign 1) or a no (-1) costs 1."""
    one = RampProblem.of(
        DesignMatrix(np.eye(1), "none"), np.array([[sign]]), np.array([float(sign < 0)]), 0.0
    )
    return [
        ConvexProblem.tight_at(one, np.array([at])).values(np.array([score]))[0]
        for score, at in zip(z, anchor, strict=True)
    ]


def test_bounds_of_the_ramp():
    """Protocols of Goh et al. 2016, vector 9.1."""
    np.testing.assert_allclose(
        ramp_of(np.array([-1, -0.5, -0.2, 0, 0.3, 0.5, 1])), [0, 0, 0.3, 0.5, 0.8, 1, 1]
    )
    z, at = np.array([[0.5, 0.5], [1, 0.5], [1, 0.6], [-1, 0.6], [-1, 0.2]]).T
    np.testing.assert_allclose(bounds_of_one_row(1.0, z, at), [1, 1.5, 1, 1, 0])
    z, at = np.array([[-0.5, -0.5], [-1, -0.5], [-1, -0.6], [2, -0.6], [0, 0], [0.75, -0.5]]).T
    np.testing.assert_allclose(bounds_of_one_row(-1.0, z, at), [1, 1.5, 1, 1, 0.5, 0], atol=1e-15)


@given(ramps(), st.integers(0, 1000), st.sampled_from([0.0, 0.01]))
@settings(max_examples=50)
def test_a_convex_problem_bounds_the_ramp_problem_and_is_tight_at_its_anchor(problem, seed, ties):
    at, w = weights(problem, seed), weights(problem, seed + 1)
    convex = ConvexProblem.tight_at(problem, problem.rows.scores(at), ties)
    loose = convex.values(at) - problem.values(at)
    assert (np.abs(loose) <= 1e-9 + ties * (problem.up + problem.down).sum(axis=1)).all()
    assert (loose >= -1e-9).all()
    assert (convex.values(w) >= problem.values(w) - 1e-9).all()


@given(ramps(), st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=50)
def test_a_convex_problem_is_convex(problem, seed, share):
    convex = ConvexProblem.tight_at(problem, problem.rows.scores(weights(problem, seed)))
    one, two = weights(problem, seed + 1), weights(problem, seed + 2)
    middle = convex.values(share * one + (1 - share) * two)
    assert (middle <= share * convex.values(one) + (1 - share) * convex.values(two) + 1e-9).all()


def test_a_score_near_a_corner_gets_the_other_bound_with_ties():
    rows = DesignMatrix(np.eye(1), "none")
    one = RampProblem.of(rows, np.ones((1, 1)), np.zeros(1), 0.0)
    for anchor, ties, at_2 in ((0.499, 0.0, 2.5), (0.499, 0.01, 1.0), (0.48, 0.01, 2.5)):
        convex = ConvexProblem.tight_at(one, np.array([anchor]), ties)
        assert convex.values(np.array([2.0]))[0] == at_2


def test_objectives_beyond_those_of_any_decisions():
    """1.5 at most and -2 at least, plus 0.25; a constant has no range and counts as 1."""
    rows = DesignMatrix(np.eye(3), "none")
    ramp_problem = RampProblem.of(rows, np.array([[1.0, -2.0, 0.5]]), np.array([0.25]), 0.0)
    assert ramp_problem.spread == 3.5
    assert ramp_problem.beyond(0) == 1.75
    assert ramp_problem.beyond(2) == 1.75 + 2 * 3.5
    assert RampProblem.of(rows, np.zeros((1, 3)), np.array([0.25]), 0.0).beyond(2) == 2.25


# --- duality


@pytest.mark.parametrize("kind", KINDS)
def test_weak_duality_holds_for_any_point_multipliers_and_slopes(kind):
    rng = np.random.default_rng(0)
    for intercept in ("regularized", "none"):
        convex = instance(1, 3, intercept, kind)
        for _ in range(20):
            v = rng.exponential(size=3)
            up, down = convex.bounds(v)
            slopes = rng.uniform(-down, up)
            w = rng.normal(size=convex.ramp.rows.width)
            values = convex.values(w)
            assert convex.dual(v, slopes) <= values[0] + v @ values[1:] + 1e-9
            pull = convex.ramp.rows.pull(slopes)
            assert convex.dual(v, slopes, pull) == convex.dual(v, slopes)


@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_the_lagrangian_is_the_objective_and_the_constraints_at_their_multipliers(intercept):
    convex = instance(3, 4, intercept, "sparse")
    rng = np.random.default_rng(0)
    v, w = rng.exponential(size=4), rng.normal(size=convex.ramp.rows.width)
    alone = convex.lagrangian(v)
    assert alone.constraints == 0
    values = convex.values(w)
    np.testing.assert_allclose(alone.values(w), [values[0] + v @ values[1:]])
    np.testing.assert_allclose(alone.bounds(np.zeros(0)), convex.bounds(v))


@pytest.mark.parametrize("kind", KINDS)
def test_clarabel_oracle_has_no_duality_gap(kind):
    """Its multipliers make an SVM whose least value is that of the problem: it is right by itself."""
    for intercept in INTERCEPTS:
        convex = instance(2, 2, intercept, kind)
        optimum = least(convex)
        assert optimum
        svm = least(convex.lagrangian(optimum[1]))
        assert svm
        assert svm[0] == pytest.approx(optimum[0], abs=1e-7)


# --- from rules


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_merging_rows_preserves_all_values(seed, intercept):
    """Points of a grid coincide; ramps and bounds at any weights stay what they are."""
    rules = Rules({"r": "recall >= 0.8", "o": "max_gap(tpr, by=g) <= 0.1", "c": "churn <= 0.2"})
    goals = problem(grid_rows(seed, n=80), rules)
    merged = make_ramp_problem(Majorize(intercept=intercept), goals)
    plain = RampProblem.of(DesignMatrix(goals.X, intercept), *forms(goals), 2 * goals.l2)
    assert len(merged.rows) < 50 < len(plain.rows)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        at, w = rng.normal(size=(2, merged.rows.width)) * 0.5
        np.testing.assert_allclose(merged.values(w), plain.values(w), atol=1e-13)
        one, two = (
            ConvexProblem.tight_at(each, each.rows.scores(at)).values(w) for each in (merged, plain)
        )
        np.testing.assert_allclose(one, two, atol=1e-13)


X = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]])


def test_only_an_unregularized_bias_has_no_penalty():
    assert DesignMatrix(X, "regularized").penalties(0.5).tolist() == [0.5, 0.5, 0.5]
    assert DesignMatrix(X, "unregularized").penalties(0.5).tolist() == [0.5, 0.5, 0.0]
    assert DesignMatrix(X, "none").penalties(0.5).tolist() == [0.5, 0.5]


@given(st.integers(0, 10_000), st.booleans())
def test_merged_rows_preserve_weighted_sums(seed, thin):
    """Of any function of the features: here of scores by random weights."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-1, 2, size=(50, 3)).astype(float)
    costs = rng.random((2, 50)) * (rng.random(50) < 0.8)
    few, summed = merge_equal_rows(sparse.csr_array(points) if thin else points, costs)
    kept = sparse.csr_array(few).toarray()
    assert len(np.unique(kept, axis=0)) == len(kept) <= 27
    w = rng.normal(size=3)
    np.testing.assert_allclose(summed @ np.exp(kept @ w), costs @ np.exp(points @ w), rtol=1e-12)


def test_rows_without_costs_are_dropped():
    few, costs = merge_equal_rows(X, np.array([[1.0, 0.0, 2.0]]))
    assert sorted(zip(few.tolist(), costs[0], strict=True)) == [([1, 2], 1), ([3, 0], 2)]
    none, costs = merge_equal_rows(X, np.zeros((2, 3)))
    assert none.shape == (0, 2)
    assert costs.shape == (2, 0)


def test_different_rows_with_one_key_are_not_merged():
    key = np.random.default_rng(0).normal(size=2)
    rows = np.tile(np.diag(key[::-1]), (10, 1))
    costs = np.ones((1, 20))
    assert len(set((rows @ key).tolist())) == 1
    few, summed = merge_equal_rows(rows, costs)
    assert few is rows
    assert summed is costs

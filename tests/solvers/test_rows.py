from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ratecli.solvers.design_matrix import DesignMatrix, merge_equal_rows

X = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]])


def test_only_an_unregularized_bias_has_no_penalty():
    assert DesignMatrix(X, "regularized").penalties(0.5).tolist() == [0.5, 0.5, 0.5]
    assert DesignMatrix(X, "unregularized").penalties(0.5).tolist() == [0.5, 0.5, 0.0]
    assert DesignMatrix(X, "none").penalties(0.5).tolist() == [0.5, 0.5]


@given(st.integers(0, 10_000), st.booleans())
def test_merged_rows_keep_every_weighted_sum(seed, thin):
    """Of any function of the features: here of scores by random weights."""
    rng = np.random.default_rng(seed)
    points = rng.integers(-1, 2, size=(50, 3)).astype(float)
    costs = rng.random((2, 50)) * (rng.random(50) < 0.8)
    few, summed = merge_equal_rows(sparse.csr_array(points) if thin else points, costs)
    kept = sparse.csr_array(few).toarray()
    assert len(np.unique(kept, axis=0)) == len(kept) <= 27
    w = rng.normal(size=3)
    np.testing.assert_allclose(summed @ np.exp(kept @ w), costs @ np.exp(points @ w), rtol=1e-12)


def test_rows_that_cost_nothing_are_left_out():
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

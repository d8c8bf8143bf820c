from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ratecli.solvers.liblinear import fit_liblinear

X = np.random.default_rng(0).normal(size=(30, 3))
SIGNS = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1.0, -1.0)
LOSSES = pytest.mark.parametrize("loss", ["hinge", "logistic"])


def wide(X: np.ndarray) -> sparse.csr_array:
    """With 64-bit indices, as read from a file."""
    narrow = sparse.csr_array(X)
    indices, starts = narrow.indices.astype(np.int64), narrow.indptr.astype(np.int64)
    return sparse.csr_array((narrow.data, indices, starts), shape=X.shape)


@LOSSES
@pytest.mark.parametrize("signs", [SIGNS, np.ones(30), -np.ones(30)], ids=["both", "up", "down"])
def test_every_form_of_the_rows_gives_the_same_weights(loss, signs):
    costs = np.linspace(0.1, 2, 30)
    dense, thin, long = (
        fit_liblinear(loss, rows, signs, costs, seed=1, tolerance=1e-6, iterations=10_000)
        for rows in (X, sparse.csr_array(X), wide(X))
    )
    assert dense.converged
    np.testing.assert_allclose(thin.weights, dense.weights, atol=1e-6)
    np.testing.assert_array_equal(long.weights, thin.weights)


@LOSSES
def test_weights_are_costs_not_shares(loss):
    """Rows that cost nothing change nothing; larger costs fit closer."""
    costs = np.where(np.arange(30) < 20, 1.0, 0.0)
    options = {"seed": 0, "tolerance": 1e-8, "iterations": 100_000}
    some = fit_liblinear(loss, X, SIGNS, costs, **options)
    fewer = fit_liblinear(loss, X[:20], SIGNS[:20], costs[:20], **options)
    np.testing.assert_allclose(some.weights, fewer.weights, atol=1e-4)
    larger = fit_liblinear(loss, X, SIGNS, 9 * costs, **options)
    assert np.linalg.norm(larger.weights) > np.linalg.norm(some.weights)

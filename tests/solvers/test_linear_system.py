from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ratecli.solvers.majorize import linear, rows
from ratecli.solvers.majorize.convex import RampProblem
from ratecli.solvers.majorize.linear import solved
from ratecli.solvers.majorize.rows import Rows


def by_gradients(monkeypatch, products):
    """Always, at 0 products an entry; never, at any number of them."""
    monkeypatch.setattr(linear, "PRODUCTS", products)
    monkeypatch.setattr(linear, "CHEAP", -1.0)


def ramp_of(X, intercept, l2):
    """A problem of these rows, none of which costs anything."""
    costs = np.zeros((1, X.shape[0]))
    return RampProblem(Rows(X, intercept), costs, costs, np.zeros(1), l2)


@pytest.mark.parametrize("products", [np.inf, 0.0])
@pytest.mark.parametrize("shape", [(0, 5), (3, 8), (20, 6)])
@pytest.mark.parametrize("constraints", [0, 2])
@pytest.mark.parametrize("stored", [np.array, sparse.csr_array])
@pytest.mark.parametrize("small", [0, rows.SMALL])
def test_every_side_solves_the_same_system(
    products, shape, constraints, stored, small, monkeypatch
):
    """In weights for (20, 6), in rows for the others, or by conjugate gradients."""
    by_gradients(monkeypatch, products)
    monkeypatch.setattr(linear, "EXACT", 1e-12)
    monkeypatch.setattr(rows, "SMALL", small)
    rng = np.random.default_rng(0)
    X, chosen = rng.normal(size=(shape[0] + 4, shape[1])), np.arange(2, shape[0] + 2)
    for intercept, ones in (("none", 0), ("regularized", 1)):
        A = np.hstack([X[chosen], np.ones((len(chosen), ones))])
        extra, right = rng.normal(size=(constraints, A.shape[1])), rng.normal(size=A.shape[1])
        matrix = np.diag(np.full(A.shape[1], 0.3)) + 3.0 * (A.T @ A + extra.T @ extra)
        found = solved(ramp_of(stored(X), intercept, 0.3), chosen, extra, 3.0, right)
        np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=1e-8, atol=1e-10)


def test_a_weight_without_penalty_and_without_rows_gets_a_little_curvature():
    ramp = ramp_of(np.ones((1, 1)), "unregularized", 2.0)
    found = solved(ramp, np.zeros(0, dtype=np.intp), np.zeros((0, 2)), 1.0, np.ones(2))
    np.testing.assert_allclose(found, [0.5, 1 / (2 * linear.FREE)])


def test_conjugate_gradients_are_as_exact_as_newton_needs(monkeypatch):
    by_gradients(monkeypatch, 0.0)
    rng = np.random.default_rng(1)
    X, right = rng.normal(size=(50, 30)), rng.normal(size=30)
    found = solved(ramp_of(X, "none", 1e-3), np.arange(50), np.zeros((0, 30)), 1.0, right)
    left = 1e-3 * found + X.T @ (X @ found) - right
    assert np.linalg.norm(left) <= 2 * linear.EXACT * np.linalg.norm(right)

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ratecli.solvers.majorize import linear
from ratecli.solvers.majorize.linear import solved


def by_gradients(monkeypatch, products):
    """Always, at 0 products an entry; never, at any number of them."""
    monkeypatch.setattr(linear, "PRODUCTS", products)
    monkeypatch.setattr(linear, "CHEAP", -1.0)


@pytest.mark.parametrize("products", [np.inf, 0.0])
@pytest.mark.parametrize("shape", [(0, 5), (3, 8), (20, 6)])
@pytest.mark.parametrize("constraints", [0, 2])
@pytest.mark.parametrize("stored", [np.array, sparse.csr_array])
def test_every_side_solves_the_same_system(products, shape, constraints, stored, monkeypatch):
    """In weights for (20, 6), in rows for the others, or by conjugate gradients."""
    by_gradients(monkeypatch, products)
    monkeypatch.setattr(linear, "EXACT", 1e-12)
    rng = np.random.default_rng(0)
    rows, extra = rng.normal(size=shape), rng.normal(size=(constraints, shape[1]))
    penalties, right = rng.uniform(0.1, 1, size=shape[1]), rng.normal(size=shape[1])
    matrix = np.diag(penalties) + 3.0 * (rows.T @ rows + extra.T @ extra)
    found = solved(stored(rows), extra, 3.0, penalties, right)
    np.testing.assert_allclose(found, np.linalg.solve(matrix, right), rtol=1e-8, atol=1e-10)


def test_a_weight_without_penalty_and_without_rows_gets_a_little_curvature():
    found = solved(np.zeros((0, 2)), np.zeros((0, 2)), 1.0, np.array([2.0, 0.0]), np.ones(2))
    np.testing.assert_allclose(found, [0.5, 1 / (2 * linear.FREE)])


def test_conjugate_gradients_are_as_exact_as_newton_needs(monkeypatch):
    by_gradients(monkeypatch, 0.0)
    rng = np.random.default_rng(1)
    rows, penalties, right = rng.normal(size=(50, 30)), np.full(30, 1e-3), rng.normal(size=30)
    found = solved(rows, np.zeros((0, 30)), 1.0, penalties, right)
    left = penalties * found + rows.T @ (rows @ found) - right
    assert np.linalg.norm(left) <= 2 * linear.EXACT * np.linalg.norm(right)

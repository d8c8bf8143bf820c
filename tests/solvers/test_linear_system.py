from __future__ import annotations

import numpy as np
import pytest
from oracles.instances import INTERCEPTS
from scipy import sparse

from ratecli.models.base import Array, Features
from ratecli.solvers.design_matrix import DesignMatrix, Intercept
from ratecli.solvers.majorize import newton as linear
from ratecli.solvers.majorize.convex import RampProblem
from ratecli.solvers.majorize.newton import solve_newton_system


def by_gradients(monkeypatch, products):
    """Always, at 0 products an entry; never, at any number of them."""
    monkeypatch.setattr(linear, "CG_COST", products)
    monkeypatch.setattr(linear, "CHEAP_PRODUCTS", -1.0)


def of(X: Features, intercept: Intercept, l2: float) -> RampProblem:
    return RampProblem.of(DesignMatrix(X, intercept), np.zeros((1, X.shape[0])), np.zeros(1), l2)


def system(ramp: RampProblem, chosen: Array, extra: Array, sigma: float) -> Array:
    """Written out, with what stands for the penalty where there is none."""
    penalties = np.maximum(ramp.penalties, linear.UNPENALIZED_CURVATURE * ramp.penalties.max())
    rows = ramp.rows.filled[chosen]
    return np.diag(penalties) + sigma * (rows.T @ rows + extra.T @ extra)


@pytest.mark.parametrize("products", [np.inf, 0.0])
@pytest.mark.parametrize("shape", [(0, 5), (3, 8), (20, 6)])
@pytest.mark.parametrize("constraints", [0, 2])
@pytest.mark.parametrize("stored", [np.array, sparse.csr_array])
def test_every_side_solves_the_same_system(products, shape, constraints, stored, monkeypatch):
    """In weights for (20, 6), in rows for the others, or by conjugate gradients."""
    by_gradients(monkeypatch, products)
    monkeypatch.setattr(linear, "CG_TOLERANCE", 1e-12)
    rng, (count, width) = np.random.default_rng(0), shape
    for intercept in INTERCEPTS:
        ramp = of(stored(rng.normal(size=(25, width - (intercept != "none")))), intercept, 0.3)
        chosen, extra = rng.permutation(25)[:count], rng.normal(size=(constraints, width))
        right, matrix = rng.normal(size=width), system(ramp, chosen, extra, 3.0)
        found = solve_newton_system(ramp, chosen, extra, 3.0, right)
        # a bias that no row holds is large, and as exact as its part of the system
        np.testing.assert_allclose(matrix @ found, right, atol=1e-8)

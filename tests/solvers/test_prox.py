from __future__ import annotations

import numpy as np
import pytest
from oracles.instances import INTERCEPTS, instance
from scipy.optimize import minimize

from ratecli.solvers.majorize.convex import ConvexProblem
from ratecli.solvers.majorize.newton import ProximalOperator, ProxPoint

PRICE = 1e3


def searched(
    problem: ConvexProblem, u: np.ndarray, sigma: float
) -> tuple[ProximalOperator, ProxPoint]:
    m = problem.constraints
    prox = ProximalOperator(problem, sigma, np.zeros(m), PRICE, 1e-10)
    return prox, prox.nearest(u, np.zeros(m))


def by_slsqp(problem: ConvexProblem, u: np.ndarray, sigma: float) -> float:
    """The least F(y) + sigma / 2 |y - u|^2 with a slack for each hinge."""
    n = len(u)
    start = np.concatenate([u, np.maximum(0, 0.5 + u), np.maximum(0, 0.5 - u)])
    cost = np.hstack([np.zeros((len(problem.flat), n)), problem.up, problem.down])
    eye, zero = np.eye(n), np.zeros((n, n))
    above = np.vstack([
        np.hstack([-eye, eye, zero]), np.hstack([eye, zero, eye]), -cost[1:]
    ])  # fmt: skip
    limits = np.concatenate([np.full(2 * n, -0.5), -problem.flat[1:]])

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        moved = x[:n] - u
        slope = cost[0].copy()
        slope[:n] += sigma * moved
        return float(problem.flat[0] + cost[0] @ x + sigma / 2 * moved @ moved), slope

    found = minimize(
        objective, start, jac=True, method="SLSQP", bounds=[(None, None)] * n + [(0, None)] * 2 * n,
        constraints={"type": "ineq", "fun": lambda x: above @ x + limits, "jac": lambda _: above},
        options={"maxiter": 500, "ftol": 1e-13},
    )  # fmt: skip
    assert found.success
    return float(found.fun)


@pytest.mark.parametrize("constraints", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["one-hot", "rates", "merged", "rule and reverse"])
def test_the_nearest_point_is_what_a_generic_optimizer_finds(kind, constraints):
    for seed in range(3):
        problem = instance(seed, constraints, "none", kind)
        rng = np.random.default_rng(seed)
        u, sigma = rng.normal(size=len(problem.ramp.rows)), 10 ** rng.uniform(-2, 1)
        prox, found = searched(problem, u, sigma)
        moved = found.y - u
        value = problem.at(found.y)[0] + sigma / 2 * moved @ moved
        assert value == pytest.approx(by_slsqp(problem, u, sigma), abs=1e-7)
        assert found.value == pytest.approx(value, abs=1e-8)
        assert (problem.at(found.y)[1:] <= 1e-9).all()
        up, down = problem.bounds(found.v)
        assert (found.slopes <= up).all()
        assert (found.slopes >= -down).all()
        np.testing.assert_allclose(found.slopes, sigma * (u - found.y), atol=1e-12 * max(1, sigma))
        assert (found.v >= 0).all()
        np.testing.assert_allclose(found.v * problem.at(found.y)[1:], 0, atol=1e-8)
        assert prox.at(u, found.v).value == found.value


def test_a_margin_is_kept():
    problem = instance(1, 2, "none", "dense")
    u = np.random.default_rng(0).normal(size=len(problem.ramp.rows))
    margin = np.array([0.003, 0.001])
    found = ProximalOperator(problem, 0.05, margin, PRICE, 1e-10).nearest(u, np.zeros(2))
    assert found.v.any()
    assert (problem.at(found.y)[1:] <= -margin + 1e-9).all()
    np.testing.assert_allclose(found.values[1:], problem.at(found.y)[1:] + margin)


@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_groups_against_each_other_both_ways_need_few_searches(intercept, monkeypatch):
    """Six constraints of rank two, as `max_gap` over three groups makes; a Newton step cut off at
    its box went on for the most steps allowed, and stopped short.
    """
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=60)
    shares = np.stack([(group == g) / (group == g).sum() for g in range(3)])
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    gaps = np.stack([shares[a] - shares[b] for a, b in pairs])
    base = instance(1, 6, intercept, "dense")
    one = np.abs(rng.normal(size=(1, 60))) / 60
    problem = ConvexProblem(
        base.ramp, np.vstack([one, np.maximum(gaps, 0)]), np.vstack([one, np.maximum(-gaps, 0)]),
        np.append(0.0, -np.maximum(-gaps, 0).sum(axis=1) - 0.02),
    )  # fmt: skip
    counted = []
    at = ProximalOperator.at
    monkeypatch.setattr(ProximalOperator, "at", lambda *given: counted.append(1) or at(*given))
    for seed in range(20):
        u = np.random.default_rng(seed).normal(size=60)
        _, found = searched(problem, u, 0.02)
        assert (problem.at(found.y)[1:] <= 1e-9).all()
        np.testing.assert_allclose(found.v * problem.at(found.y)[1:], 0, atol=1e-9)
    assert len(counted) <= 20 * 40

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ratecli.solvers.bounded_qp import minimize_quadratic
from ratecli.solvers.gradient_steps import Stepper


def quadratic(seed: int, size: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """A curvature, often of less than full rank, and a slope."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, int(rng.integers(1, size + 1))))
    return rng, root @ root.T, rng.normal(size=size)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=100)
def test_minimize_quadratic_satisfies_kkt_in_a_box(seed, size):
    """At each bound the function falls only to the outside; elsewhere it is flat."""
    rng, curvature, slope = quadratic(seed, size)
    low, high = -rng.uniform(0, 2, size) * (rng.random(size) < 0.8), rng.uniform(0, 2, size)
    found = minimize_quadratic(curvature, slope, (low, high), np.zeros(size))
    falls = slope - curvature @ found
    assert ((low <= found) & (found <= high)).all()
    assert (falls[found < high - 1e-12] <= 1e-6).all()
    assert (falls[found > low + 1e-12] >= -1e-6).all()


def test_a_linear_function_has_its_minimum_on_a_bound():
    box = np.array([-1.0, -3.0]), np.array([2.0, 1.0])
    found = minimize_quadratic(np.zeros((2, 2)), np.array([1.0, -1.0]), box, np.zeros(2))
    assert found.tolist() == [2.0, -3.0]


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_minimize_quadratic_with_fixed_sum_matches_slsqp(seed, size):
    rng, curvature, slope = quadratic(seed, size)
    total = 10 ** rng.uniform(-1, 2)
    high = np.where(rng.random(size) < 0.3, total, np.inf)
    start = np.eye(size)[int(rng.integers(size))] * total
    bounds = np.zeros(size), high
    found = minimize_quadratic(curvature, slope * total, bounds, start, fixed_sum=True)
    assert found.min() >= 0
    assert (found <= high).all()
    assert found.sum() == pytest.approx(total)

    def value(x: np.ndarray) -> float:
        return float(x @ curvature @ x / 2 - slope @ x)

    even = {"type": "eq", "fun": lambda x: x.sum() - 1}
    start, box = np.full(size, 1 / size), [(0, 1)] * size
    best = minimize(value, start, constraints=even, bounds=box, method="SLSQP", tol=1e-12).fun
    assert value(found / total) <= best + 1e-7 * max(1, abs(best))


def test_steps_of_plain_gradients():
    assert Stepper("sgd", 0.5).step(np.array([2.0, -4.0])).tolist() == [1.0, -2.0]

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ratecli.solvers.gradient_steps import Stepper
from ratecli.solvers.majorize.newton import minimize_in_box


def quadratic(seed: int, size: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """A curvature, often of less than full rank, and a slope."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, int(rng.integers(1, size + 1))))
    return rng, root @ root.T, rng.normal(size=size)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=100)
def test_minimize_in_box_satisfies_kkt(seed, size):
    """At each bound the function falls only to the outside; elsewhere it is flat."""
    rng, curvature, slope = quadratic(seed, size)
    low, high = -rng.uniform(0, 2, size) * (rng.random(size) < 0.8), rng.uniform(0, 2, size)
    found = minimize_in_box(curvature, slope, low, high)
    falls = slope - curvature @ found
    assert ((low <= found) & (found <= high)).all()
    assert (falls[found < high - 1e-12] <= 1e-6).all()
    assert (falls[found > low + 1e-12] >= -1e-6).all()


def test_a_linear_function_has_its_minimum_on_a_bound():
    box = np.array([-1.0, -3.0]), np.array([2.0, 1.0])
    found = minimize_in_box(np.zeros((2, 2)), np.array([1.0, -1.0]), *box)
    assert found.tolist() == [2.0, -3.0]


def test_steps_of_plain_gradients():
    assert Stepper("sgd", 0.5).step(np.array([2.0, -4.0])).tolist() == [1.0, -2.0]

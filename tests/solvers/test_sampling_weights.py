from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from ratecli.solvers.filtering.target import maximize_kept_rows, optimal_sampling_weights

HALF = np.array([0.5, 0.5])
VECTORS = {
    "two": ([[0.8, 0.2], [0.4, 0.6]], [0.5, 0.5], [0.25, 0.75], [1 / 3, 1.0], 2 / 3, 0.0),
    "rare": ([[0.8, 0.2], [0.4, 0.6]], [0.75, 0.25], [0.25, 0.75], [1 / 9, 1.0], 1 / 3, 0.0),
    "out": ([[0.9, 0.1], [0.7, 0.3]], [0.5, 0.5], [0, 1], [0, 1], 0.5, 0.28284),
    "three": (
        [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]],
        [1 / 3] * 3,
        [0.40476, 0.30952, 0.28571],
        None,
        None,
        0.0,
    ),
    "far": ([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]], [0.5, 0.5], [0, 1], [0, 1], 0.5, 0.29439),
}


def uniform(A):
    return np.full(np.shape(A)[1], 1 / np.shape(A)[1])


def instance(seed: int, rows: int, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.full(groups, 0.7), size=rows)
    return A, rng.dirichlet(np.ones(rows)), rng.dirichlet(np.full(groups, 3.0))


SIZES = st.tuples(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 7))


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_algorithm_1(name):
    A, shares, mix, keep, kept, imbalance = VECTORS[name]
    found = optimal_sampling_weights(np.array(A), np.array(shares), uniform(A))
    assert found.mix == pytest.approx(mix, abs=1e-5)
    assert found.imbalance == pytest.approx(imbalance, abs=1e-5)
    if keep is not None:
        assert found.keep == pytest.approx(keep, abs=1e-9)
        assert found.keep @ shares == pytest.approx(kept, abs=1e-9)


@pytest.mark.parametrize(("name", "residual"), [("out", 0.26261), ("far", 0.26227), ("two", 0.0)])
def test_relaxed_weights_have_a_nearer_point_but_the_same_imbalance(name, residual):
    A, shares, _, _, _, imbalance = VECTORS[name]
    found = optimal_sampling_weights(np.array(A), np.array(shares), uniform(A), relaxed=True)
    assert found.imbalance == pytest.approx(imbalance, abs=1e-5)
    assert np.linalg.norm(found.nearest - uniform(A)) == pytest.approx(residual, abs=1e-5)


@given(SIZES)
@settings(max_examples=80, deadline=None)
def test_weights_are_optimal(size):
    A, shares, target = instance(*size)
    found = optimal_sampling_weights(A, shares, target)
    slopes = A @ (found.mix @ A - target)
    assert found.mix.min() >= 0
    assert found.mix.sum() == pytest.approx(1.0)
    # Karush, Kuhn, Tucker on the simplex: no value is of more use than those that are kept
    assert found.mix @ slopes - slopes.min() <= 1e-8
    assert found.keep.max() == 1.0
    assert (found.keep * shares) @ A / (found.keep @ shares) == pytest.approx(found.induced)


@given(SIZES)
@settings(max_examples=40, deadline=None)
def test_relaxed_weights_are_those_of_non_negative_least_squares(size):
    A, shares, target = instance(*size)
    q, residual = nnls(A.T, target)
    found = optimal_sampling_weights(A, shares, target, relaxed=True)
    assert np.linalg.norm(found.nearest - target) == pytest.approx(residual, abs=1e-8)
    assert found.nearest == pytest.approx(q @ A, abs=1e-6)


@given(SIZES, st.floats(0.05, 1.0))
@settings(max_examples=80, deadline=None)
def test_weights_with_a_minimum_kept_share_are_optimal(size, kept):
    A, shares, target = instance(*size)
    found = optimal_sampling_weights(A, shares, target, kept=kept)
    assert found.keep @ shares >= kept - 1e-6
    slopes, most = A @ (found.mix @ A - target), shares / kept
    free = found.mix < most - 1e-7
    used = found.mix > 1e-7
    # on a simplex with a most for each value: what could be more is of no more use than what could be less
    if free.any() and used.any():
        assert slopes[used].max() - slopes[free].min() <= 1e-5


@given(SIZES, st.booleans())
@settings(max_examples=60, deadline=None)
def test_maximize_kept_rows_preserves_shares_and_keeps_more(size, relaxed):
    A, shares, target = instance(*size)
    some = optimal_sampling_weights(A, shares, target, relaxed=relaxed)
    keep = maximize_kept_rows(A, shares, some)
    mix = keep * shares / (keep @ shares)
    assert mix @ A == pytest.approx(some.induced, abs=1e-7)
    assert keep @ shares >= some.keep @ shares - 1e-7
    assert keep.max() == 1.0
    assert keep.min() >= 0.0


def test_equivalent_values_are_all_kept():
    """Two values that are alike: one of them alone would do, and half of the rows would be lost."""
    A = np.array([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1]])
    found = maximize_kept_rows(
        A, np.array([0.3, 0.3, 0.4]), optimal_sampling_weights(A, np.array([0.3, 0.3, 0.4]), HALF)
    )
    assert found == pytest.approx([1.0, 1.0, 0.0], abs=1e-7)


@pytest.mark.parametrize("seed", range(40))
def test_rare_values_do_not_reduce_the_kept_share(seed):
    A, _, target = instance(seed, 4, 3)
    shares = 10 ** np.random.default_rng(seed).uniform(-6, 0, size=4)
    shares /= shares.sum()
    some = optimal_sampling_weights(A, shares, target, kept=1.0)
    assert maximize_kept_rows(A, shares, some) @ shares >= some.keep @ shares


def test_value_without_rows_is_never_kept():
    found = optimal_sampling_weights(np.array([[0.8, 0.2], [np.nan, np.nan], [0.4, 0.6]]),
                     np.array([0.5, 0.0, 0.5]), HALF)  # fmt: skip
    assert found.keep == pytest.approx([1 / 3, 0, 1])
    assert found.induced == pytest.approx(HALF)


def test_intersecting_groups_have_their_own_targets():
    """Appendix A.2: sex (2) and age (3) side by side, each adding up to 1."""
    A = np.array([[0.9, 0.1, 0.5, 0.3, 0.2], [0.2, 0.8, 0.1, 0.3, 0.6], [0.5, 0.5, 0.3, 0.4, 0.3]])
    target = np.array([0.5, 0.5, 1 / 3, 1 / 3, 1 / 3])
    found = optimal_sampling_weights(A, np.array([0.5, 0.2, 0.3]), target)
    q = found.mix
    assert np.linalg.norm(q @ A - target) == pytest.approx(found.imbalance)
    slopes = A @ (q @ A - target)
    assert q @ slopes - slopes.min() <= 1e-9

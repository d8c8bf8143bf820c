from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratecli.datasets.deployed_model import CrossedBins, bin_values, quantile_cuts


def naive(crosses: CrossedBins, bins: np.ndarray) -> np.ndarray:
    """One row and one feature at a time."""
    rows = []
    for row in bins:
        pairs = zip(row, crosses.levels, strict=True)
        features = [[float(b == own) for b in range(n)] for own, n in pairs]
        crossed = [
            float(a == row[i] and b == row[j])
            for i, j in crosses.pairs
            for a in range(crosses.levels[i])
            for b in range(crosses.levels[j])
        ]
        rows.append([value for each in features for value in each] + crossed)
    return np.array(rows).reshape(len(bins), crosses.width)


@st.composite
def tables(draw: st.DrawFn) -> tuple[CrossedBins, np.ndarray]:
    levels = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    every = list(combinations(range(len(levels)), 2))
    pairs = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    row = st.tuples(*(st.integers(0, n - 1) for n in levels))
    rows = draw(st.lists(row, max_size=6))
    return CrossedBins(levels, tuple(pairs)), np.array(rows, dtype=np.int64).reshape(
        -1, len(levels)
    )


@given(tables())
def test_features_equal_those_of_a_plain_loop(drawn: tuple[CrossedBins, np.ndarray]):
    crosses, bins = drawn
    matrix, shares = crosses.features(bins), crosses.shares(bins).toarray()
    assert matrix.shape == (len(bins), crosses.width)
    np.testing.assert_array_equal(matrix.toarray(), naive(crosses, bins))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(shares > 0, matrix.toarray() == 1)


def test_crossing_31_columns_of_8_bins():
    crosses = CrossedBins((8,) * 31, tuple(combinations(range(31), 2)))
    matrix = crosses.features(np.random.default_rng(0).integers(0, 8, (50, 31), dtype=np.int8))
    assert crosses.width == matrix.shape[1] == 30_008
    assert set(np.diff(matrix.indptr)) == {496}
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert (np.diff(matrix.indices.reshape(50, 496), axis=1) > 0).all()
    assert set(matrix.data) == {1.0}


@pytest.mark.parametrize("bins", [[[0, 2]], [[-1, 0]], [[3, 0]]])
def test_bins_outside_the_levels_of_a_column(bins: list[list[int]]):
    with pytest.raises(ValueError, match="levels of its column"):
        CrossedBins((3, 2), ()).features(np.array(bins))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.integers(2, 9))
def test_ties_leave_no_bin_empty(values: list[int], bins: int):
    column = np.array(values, dtype=float)
    cuts = quantile_cuts(column, bins)
    assert (np.diff(cuts) > 0).all()
    assert len(cuts) < bins
    assert (np.bincount(bin_values(column, cuts), minlength=len(cuts) + 1) > 0).all()


def test_cuts_are_quantiles_and_belong_to_the_lower_bin():
    values = np.random.default_rng(1).permutation(800) / 7
    assert np.bincount(bin_values(values, quantile_cuts(values, 8))).tolist() == [100] * 8
    values, cuts = np.array([-9.0, 0.0, 0.1, 2.0, 3.0]), np.array([0.0, 2.0])
    assert bin_values(values, cuts).tolist() == [0, 0, 1, 1, 2]

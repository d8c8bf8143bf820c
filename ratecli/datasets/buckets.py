"""Features of columns cut into bins: one for each bin, one for each pair of bins.

A row has exactly one of a column's features, and one of each pair's of columns that are crossed,
whatever its values: rules linear in them are sums of step functions of one column and of two. What it
has is 1 (`CrossedBins.features`), or 1 by the number of those, k, so that they add up to 1 (`shares`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]

_BLOCK = 8192
"""Rows handled at once, so that what is needed for a while stays small."""


def quantile_cuts(values: Floats, bins: int) -> Floats:
    """The inner `bins`-quantiles of (n,) values, increasing; fewer than `bins` - 1 where values tie.

    They are values that occur, but not the greatest, so that no bin is empty for `values` itself.
    """
    inner = np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf")
    return np.unique(inner[inner < values.max()])


def bin_values(values: Floats, cuts: Floats) -> NDArray[np.int64]:
    """The bin of each value, 0 to len(cuts): bin b holds cuts[b - 1] < value <= cuts[b]."""
    return np.searchsorted(cuts, values, side="left")


@dataclass(frozen=True)
class CrossedBins:
    """The features of columns with `levels[j]` bins each, of which `pairs` (i, j) are crossed.

    In this order: the bins of column 0, of column 1, ...; then for each pair (i, j) the bins of j
    with bin 0 of i, with bin 1 of i, ...
    """

    levels: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of_all(cls, levels: tuple[int, ...]) -> CrossedBins:
        """Every column crossed with every other."""
        return cls(levels, tuple(combinations(range(len(levels)), 2)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Features of each column, then of each pair."""
        crossed = tuple(self.levels[i] * self.levels[j] for i, j in self.pairs)
        return self.levels + crossed

    @property
    def width(self) -> int:
        return sum(self.sizes)

    def features(self, bins: NDArray[np.integer]) -> sparse.csr_array:
        """(n, width) zeros and ones of (n, len(levels)) bins, with sorted indices of 32 bits.

        Raises ValueError for a bin that its column does not have.
        """
        if len(bins) and not ((bins >= 0) & (bins < np.array(self.levels))).all():
            raise ValueError("a bin is negative or not below the levels of its column")
        shape = (len(bins), len(self.sizes))
        indices = np.empty(shape, dtype=np.int32)
        for start in range(0, len(bins), _BLOCK):
            rows = slice(start, start + _BLOCK)
            indices[rows] = self._indices(bins[rows].astype(np.int32))
        starts = np.arange(0, indices.size + 1, shape[1])
        matrix = sparse.csr_array(
            (np.ones(indices.size), indices.ravel(), _narrow_indices(starts)),
            shape=(len(bins), self.width),
        )
        matrix.has_canonical_format = True
        return matrix

    def shares(self, bins: NDArray[np.integer]) -> sparse.csr_array:
        """The features divided by their number k in a row: a score is the mean of k weights."""
        matrix = self.features(bins)
        matrix.data /= len(self.sizes)
        return matrix

    def _indices(self, bins: NDArray[np.int32]) -> NDArray[np.int32]:
        """(n, ones a row) increasing numbers of the features that the rows have."""
        first, second = np.array(self.pairs, dtype=np.int64).reshape(-1, 2).T
        levels = np.array(self.levels, dtype=np.int32)
        crossed = bins[:, first] * levels[second] + bins[:, second]
        offsets = np.cumsum((0, *self.sizes[:-1]), dtype=np.int32)
        return np.hstack([bins, crossed]) + offsets


def _narrow_indices(starts: NDArray[np.int64]) -> NDArray[np.integer]:
    """32 bits where they do: scipy widens the indices, too, where they do not."""
    fits = starts[-1] <= np.iinfo(np.int32).max
    return starts.astype(np.int32) if fits else starts

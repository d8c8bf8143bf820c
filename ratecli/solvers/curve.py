"""Thresholds on scores: what all thresholds that differ in some decision do to sums and rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array
from ratecli.rates.matrix import RateMatrix

SCORE_TIE = 1e-12
"""Scores closer than this, relative to the largest, count as equal: another matrix product may
round the same row differently, and it must get the same decision.
"""
OUTER_DISTANCE = 1.0
"""Distance of the outermost thresholds (all positive, none positive) from the scores."""


@dataclass(frozen=True)
class RateCurve:
    """All T thresholds on the scores of n rows, from no positive decision to only positive ones.

    Whoever chooses a threshold compares sums along this curve: `sums` of weights, such as the
    numbers of positive decisions by kind of row; `rates` of a rate matrix; or costs (`cheapest`).

    Attributes
    ----------
    order
        (n,) the rows by decreasing score.
    counts
        (T,) how many of them are positive at each threshold, ascending from 0 to n.
    thresholds
        (T,) descending, midway between neighbouring scores; scores above them are positive.
    """

    order: NDArray[np.intp]
    counts: NDArray[np.intp]
    thresholds: Array

    @classmethod
    def of(cls, scores: Array, *, keep_zero: bool = False) -> RateCurve:
        """Return the curve of scores (n,), n at least 1.

        With `keep_zero`, 0 replaces the threshold midway between its two neighbours, unless it is a
        score: a classifier's own threshold then stays as it is.
        """
        order = _by_decreasing_score(scores)
        ranked = scores[order]
        tie = SCORE_TIE * max(float(np.abs(ranked).max()), 1.0)
        counts = np.flatnonzero(np.concatenate([[True], -np.diff(ranked) > tie, [True]]))
        first, last = ranked[0] + 2 * OUTER_DISTANCE, ranked[-1] - 2 * OUTER_DISTANCE
        ends = np.concatenate([[first], ranked, [last]])
        thresholds = 0.5 * (ends[counts] + ends[counts + 1])
        if keep_zero and np.abs(scores).min() > tie:
            thresholds[counts == (scores > 0).sum()] = 0.0
        return cls(order, counts, thresholds)

    def sums(self, weights: Array | sparse.csr_array) -> Array:
        """Return the sums (..., T) of weights (..., n) over the rows with a positive decision.

        Rows of a sparse (Q, n) are expanded one after another, so that memory is bounded by the
        result.
        """
        if isinstance(weights, np.ndarray):
            reached = np.zeros((*weights.shape[:-1], len(self.order) + 1))
            np.cumsum(weights[..., self.order], axis=-1, out=reached[..., 1:])
            return reached[..., self.counts]
        found = np.empty((weights.shape[0], len(self.counts)))
        for q, own in enumerate(found):
            part = slice(*weights.indptr[q : q + 2])
            row = np.bincount(weights.indices[part], weights.data[part], len(self.order))
            own[:] = self.sums(np.asarray(row, dtype=float))
        return found

    def rates(self, matrix: RateMatrix) -> Array:
        """Return the rates (K, T) of a matrix of n rows at each threshold; NaN for empty rates.

        Sums are divided last, so that with weights of 1 the rates are exact to the last bit.
        """
        totals = np.where(matrix.totals > 0, matrix.totals, np.nan)
        return np.asarray((self.sums(matrix.sums) + matrix.constants[:, None]) / totals[:, None])

    def cheapest(self, costs: Array) -> float:
        """Return the threshold with the smallest total cost (n,) of positive decisions."""
        return float(self.thresholds[np.argmin(self.sums(costs))])


def _by_decreasing_score(scores: Array) -> NDArray[np.intp]:
    """Return the rows (n,) by decreasing score; rows with equal scores keep their order.

    NumPy's default sort is five times as fast as its stable one, but the order of equal scores, and
    so the last digit of a sum, depends on the processor. So equal scores are sorted again, by row.
    """
    order, count = np.argsort(-scores), len(scores)
    larger = np.append(0, np.cumsum(np.diff(scores[order]) != 0, dtype=np.int64))
    return order if larger[-1] == count - 1 else np.sort(larger * count + order) % count

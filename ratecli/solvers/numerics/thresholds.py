"""Enumeration of all thresholds on given scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array

SCORE_TIE = 1e-12
"""Scores closer than this, relative to the largest, count as equal: another matrix product may
round the same row differently, and it must get the same decision.
"""
OUTER_DISTANCE = 1.0
"""Distance of the outermost thresholds (all positive, none positive) from the scores."""


@dataclass(frozen=True)
class Thresholds:
    """All T thresholds on the scores of m rows, from no positive decision to only positive ones.

    Attributes
    ----------
    order
        (m,) the rows by decreasing score.
    counts
        (T,) how many of them are positive at each threshold, ascending from 0 to m.
    values
        (T,) the thresholds, descending, midway between neighbouring scores.
    """

    order: NDArray[np.intp]
    counts: NDArray[np.intp]
    values: Array

    @classmethod
    def of(cls, scores: Array) -> Thresholds:
        """Return all thresholds on scores (m,), m at least 1."""
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        tie = SCORE_TIE * max(float(np.abs(ranked).max()), 1.0)
        counts = np.flatnonzero(np.concatenate([[True], -np.diff(ranked) > tie, [True]]))
        first, last = ranked[0] + 2 * OUTER_DISTANCE, ranked[-1] - 2 * OUTER_DISTANCE
        ends = np.concatenate([[first], ranked, [last]])
        return cls(order, counts, 0.5 * (ends[counts] + ends[counts + 1]))

    def positive_sums(self, weights: Array) -> Array:
        """Return the sums (..., T) of weights (..., m) over the rows with a positive decision."""
        reached = np.cumsum(weights[..., self.order], axis=-1)
        return np.concatenate([0.0 * reached[..., :1], reached], axis=-1)[..., self.counts]

    def cheapest(self, costs: Array) -> float:
        """Return the threshold with the smallest total cost (m,) of positive decisions."""
        return float(self.values[np.argmin(self.positive_sums(costs))])

"""All that one threshold on given scores can do to rates: a step function, known exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates.matrix import RateMatrix

SCORE_TIE = 1e-12
"""Scores nearer than this, relative to the largest, are one: in another matrix product the same row
may get another last bit, and is to be decided alike."""

OUTER_MARGIN = 1.0
"""How far the thresholds of all yes and of all no lie beyond the scores: that of an SVM."""


@dataclass(frozen=True)
class ThresholdRates:
    """The T ways to say yes above a threshold, from all yes to all no.

    Attributes
    ----------
    thresholds
        (T,) ascending, midway between neighbouring scores.
    rates
        (K, T) the rates of the matrix at each: sums of row weights, divided last, so that with
        weights of 1 they are exact to the last bit.
    """

    thresholds: Array
    rates: Array

    @classmethod
    def of(cls, scores: Array, matrix: RateMatrix, own: float) -> ThresholdRates:
        """All cuts of scores (n,), n at least 1: n log n steps, and n for each rate.

        The threshold `own` stays as it is where it lies between two neighbours.
        """
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        tie = SCORE_TIE * max(float(np.abs(ranked).max()), OUTER_MARGIN)
        inner = 1 + np.flatnonzero(np.diff(ranked) > tie)
        sums = [_suffix_sums(row.toarray().ravel()[order])[[0, *inner, -1]] for row in matrix.sums]
        rates = (np.stack(sums) + matrix.constants[:, None]) / matrix.totals[:, None]
        return cls(_place_thresholds(ranked, inner, tie, own), rates)


def _place_thresholds(ranked: Array, inner: NDArray[np.intp], tie: float, own: float) -> Array:
    """Thresholds below the first, between the others at `inner`, and above the last score."""
    below, above = ranked[[*(inner - 1), -1]], ranked[[0, *inner]]
    middles = below[:-1] + 0.5 * (above[1:] - below[:-1])
    found = np.concatenate([above[:1] - OUTER_MARGIN, middles, below[-1:] + OUTER_MARGIN])
    near = np.append(-np.inf, below) + tie < own, own < np.append(above, np.inf) - tie
    return np.where(near[0] & near[1], own, found)


def _suffix_sums(ranked: Array) -> Array:
    """(n + 1,) sums of the last n, n - 1, ..., 0 numbers."""
    return np.append(np.cumsum(ranked[::-1])[::-1], 0.0)

"""Exact binomial bounds (Clopper and Pearson)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy import special

from ratecli.models.base import Array
from ratecli.solvers.safety.bound import Bound, shares, unit
from ratecli.solvers.safety.samples import Measured, Moments, Predicted

STEP = 1e-4
"""Step of the difference of a beta quantile in the (fractional) count, relative to the rows' root."""


class ClopperPearson(Bound):
    """Beta quantiles for counts (Clopper and Pearson 1934).

    Measurements that are not at an end of their range (the probabilities of a randomized classifier)
    are decided first: each row is 1 with the probability that its place in the range says, drawn once.
    The mean stays the same, so the bound is exact for it, and for the randomized classifier.
    """

    name: ClassVar[str] = "clopper_pearson"
    exact: ClassVar[bool] = True
    means: ClassVar[str] = (
        "from counts of decisions; those of a randomized classifier are drawn once"
    )

    def _above(self, samples: Sequence[Measured], delta: float, rng: np.random.Generator) -> float:
        widths = np.array([sample.range[1] - sample.range[0] for sample in samples])
        rows = np.array([float(sample.values.size) for sample in samples])
        counts = np.array([_count(sample, rng) for sample in samples])
        rates = upper_rate(counts, rows, delta * shares(widths, rows))
        return math.fsum(s.range[0] for s in samples) + float(widths @ rates)

    def _expected(self, moments: Sequence[Moments], delta: float) -> Predicted:
        lows, highs = np.array([part.range for part in moments]).T
        rows = np.array([float(part.rows) for part in moments])
        widths = highs - lows
        rates = (np.array([part.mean for part in moments]) - lows) / widths
        deltas = delta * shares(widths, rows)
        step = STEP * np.sqrt(rows)
        above, below = np.minimum(rates * rows + step, rows), np.maximum(rates * rows - step, 0)
        rise = upper_rate(above, rows, deltas) - upper_rate(below, rows, deltas)
        value = lows.sum() + widths @ upper_rate(rates * rows, rows, deltas)
        return Predicted(float(value), rise / (above - below) * rows, np.zeros(len(moments)))


def upper_rate(counts: Array, rows: Array, delta: Array | float) -> Array:
    """Return upper limits of probabilities from counts, which may be fractions."""
    full = counts >= rows
    missing = np.where(full, 1.0, rows - counts)
    return np.where(full, 1.0, special.betainccinv(counts + 1.0, missing, delta))


def _count(sample: Measured, rng: np.random.Generator) -> float:
    _, values = unit(sample)
    if np.isin(values, (0.0, 1.0)).all():
        return float(values.sum())
    return float((rng.random(values.size) < values).sum())

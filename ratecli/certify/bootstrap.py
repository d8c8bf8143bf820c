"""The BCa bootstrap limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy import special

from ratecli.certify.bound import Bound, BoundedSample, PredictedBound, SampleSizes
from ratecli.models.base import Array

RESAMPLES, MAX_RESAMPLES = 1999, 49_999
BEYOND = 20
"""Expected number of resamples above the limit: a small delta takes more resamples."""
TIE_TOLERANCE = 1e-9
"""Resampled means within this share of a standard error of the mean count as equal to it."""
BATCH = 2**18
DISTINCT = 64


class Bootstrap(Bound):
    """The bias-corrected and accelerated limit of Efron (1987), each sample resampled on its own.

    The acceleration is the jackknife's, which has a closed form for a sum of means. A sample
    without variance is bounded by its mean. Predictions use the normal distribution.
    """

    name: ClassVar[str] = "bootstrap"
    exact: ClassVar[bool] = False
    means: ClassVar[str] = "from resampled rows: wrong for rare events and few rows"
    needs_range: ClassVar[bool] = False
    least_rows: ClassVar[int] = 2

    def _above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        centred = [sample.values - sample.values.mean() for sample in samples]
        mean = sum(float(sample.values.mean()) for sample in samples)
        variance = sum(float((column**2).sum()) / column.size**2 for column in centred)
        if not variance > 0:
            return mean
        third = sum(float((column**3).sum()) / column.size**3 for column in centred)
        size = min(max(RESAMPLES, math.ceil(BEYOND / delta)), MAX_RESAMPLES)
        # centred values: sums of resamples can then be compared with 0 without rounding errors
        sums = sum((_resample_means(column, size, rng) for column in centred), np.zeros(size))
        tie = TIE_TOLERANCE * math.sqrt(variance)
        below = ((sums < -tie).mean() + (sums <= tie).mean()) / 2
        bias = special.ndtri(min(max(below, 0.5 / size), 1 - 0.5 / size))
        shifted = bias + special.ndtri(1 - delta)
        shrunk = 1 - third / variance**1.5 / 6 * shifted
        level = special.ndtr(bias + shifted / shrunk) if shrunk > 0 else 1.0
        return mean + float(np.quantile(sums, level))

    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        rows = sizes.rows
        quantile = float(special.ndtri(1 - delta))
        error = float(np.hypot.reduce(deviations / np.sqrt(rows)))
        # if all deviations are 0, the slopes are the one-sided ones in each deviation alone
        slopes = deviations / rows / error if error > 0 else 1 / np.sqrt(rows)
        value = float(means.sum()) + quantile * error
        return PredictedBound(value, np.ones(rows.size), quantile * slopes)


def _resample_means(values: Array, size: int, rng: np.random.Generator) -> Array:
    """Return (size,) means of resamples of the values."""
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= DISTINCT:
        drawn = rng.multinomial(values.size, counts / values.size, size=size)
        return np.asarray(drawn @ distinct / values.size)
    batch = max(1, BATCH // values.size)
    means = [
        values[
            rng.integers(values.size, size=(min(batch, size - start), values.size), dtype=np.int32)
        ].mean(axis=1)
        for start in range(0, size, batch)
    ]
    return np.concatenate(means)

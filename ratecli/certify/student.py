"""Student's t bound, and Welch's for sums of several means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy import special

from ratecli.certify.bound import Bound, BoundedSample, PredictedBound, SampleSizes
from ratecli.models.base import Array

T_SLOPE_STEP = 1e-4
"""Relative step of the central difference of a t quantile in its degrees of freedom."""


class StudentT(Bound):
    """Mean plus a t quantile times the standard error (Student 1908).

    For several means, the degrees of freedom are those of Welch (1947) and Satterthwaite (1946). A
    sample without variance is bounded by its mean, which is one reason why the bound is not exact.
    """

    name: ClassVar[str] = "student_t"
    exact: ClassVar[bool] = False
    means: ClassVar[str] = (
        "as if means were normally distributed: wrong for rare events and few rows"
    )
    needs_range: ClassVar[bool] = False
    least_rows: ClassVar[int] = 2

    def _above(
        self,
        samples: Sequence[BoundedSample],
        delta: float,
        rng: np.random.Generator,  # noqa: ARG002  nothing is random
    ) -> float:
        mean = sum(float(sample.values.mean()) for sample in samples)
        deviations = np.array([sample.values.std(ddof=1) for sample in samples])
        rows = np.array([float(sample.values.size) for sample in samples])
        return mean + _half_width(deviations, rows, delta)[0]

    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        half, slopes = _half_width(deviations, sizes.rows, delta)
        return PredictedBound(float(means.sum()) + half, np.ones(means.size), slopes)


def _half_width(deviations: Array, rows: Array, delta: float) -> tuple[float, Array]:
    """Return t times the standard error, and its slopes in the deviations.

    If all deviations are 0, the slopes are the one-sided ones in each deviation alone.
    """
    if deviations.size == 1:  # needed for every candidate, and quantiles are slow
        slope = _single_half_width(float(rows[0]), delta)
        return slope * float(deviations[0]), np.array([slope])
    variances = deviations**2 / rows
    if not (total := variances.sum()) > 0:
        return 0.0, np.array([_single_half_width(each, delta) for each in rows.tolist()])
    weights = (variances / total) ** 2 / (rows - 1)
    freedom = 1 / weights.sum()
    error, quantile = np.sqrt(total), special.stdtrit(freedom, 1 - delta)
    error_slopes = deviations / rows / error
    # d ln(freedom) = 2 d ln(total) - d ln(sum of weights)
    freedom_slopes = freedom * (
        4 * deviations / rows / total
        - 4 * weights / np.where(deviations > 0, deviations, 1) / weights.sum()
    )
    less, more = special.stdtrit(
        freedom * np.array([1 - T_SLOPE_STEP, 1 + T_SLOPE_STEP]), 1 - delta
    )
    quantile_slope = (more - less) / (2 * T_SLOPE_STEP * freedom)
    slopes = quantile * error_slopes + error * freedom_slopes * quantile_slope
    return float(quantile * error), slopes


@lru_cache(maxsize=1024)
def _single_half_width(rows: float, delta: float) -> float:
    """Return the half-width for one mean with a deviation of 1."""
    return float(special.stdtrit(rows - 1, 1 - delta)) / math.sqrt(rows)

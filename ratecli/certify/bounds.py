"""The confidence bounds by name, those that need only moments, and the choice for given samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from scipy import special

from ratecli.certify.betting import Betting
from ratecli.certify.binomial import ClopperPearson
from ratecli.certify.bound import (
    Bound,
    BoundedSample,
    PredictedBound,
    SumMoments,
    scale_to_unit,
)
from ratecli.models.base import Array

AUTO: Final = "auto"


class Hoeffding(Bound):
    """Mean plus `sqrt(ln(1/delta)/2 sum_i (b_i - a_i)^2 / n_i)` (Hoeffding 1963, Theorem 2).

    The theorem covers sums of independent variables with any ranges, so delta need not be divided
    among several means.
    """

    name = "hoeffding"
    exact = True
    means = "from the range of the measurements alone"

    def expected(self, parts: SumMoments, delta: float) -> PredictedBound:
        half = math.sqrt(math.log(1 / delta) / 2 * float((parts.widths**2 / parts.rows).sum()))
        value = float(parts.means.sum()) + half
        return PredictedBound(value, np.ones(parts.rows.size), np.zeros(parts.rows.size))


class EmpiricalBernstein(Bound):
    """Mean plus `s sqrt(2 ln(2/delta) / n) + 7 (b - a) ln(2/delta) / (3 (n - 1))`.

    Theorem 4 of Maurer and Pontil (2009); s^2 has n - 1 in its denominator. Several means are
    bounded separately, each at most by the end of its range. Delta is divided among them in
    proportion to width / sqrt(rows), like their largest possible standard errors, which nearly
    minimizes the sum and depends on no measurement.
    """

    name = "empirical_bernstein"
    exact = True
    means = "from the variance and the range of the measurements"
    least_rows = 2

    def expected(self, parts: SumMoments, delta: float) -> PredictedBound:
        errors = parts.widths / np.sqrt(parts.rows)
        logs = np.log(2 / (delta * errors / errors.sum()))
        slopes = np.sqrt(2 * logs / parts.rows)
        margins = 7 * parts.widths * logs / (3 * (parts.rows - 1))
        limits = parts.means + slopes * parts.deviations + margins
        inside = (limits < parts.highs).astype(float)
        value = float(np.minimum(limits, parts.highs).sum())
        return PredictedBound(value, inside, inside * slopes)


T_SLOPE_STEP = 1e-4
"""Relative step of the central difference of a t quantile in its degrees of freedom."""


class StudentT(Bound):
    """Mean plus a t quantile times the standard error (Student 1908).

    For several means, the degrees of freedom are those of Welch (1947) and Satterthwaite (1946). A
    sample without variance is bounded by its mean, which is one reason why the bound is not exact.
    If all deviations are 0, the slopes are the one-sided ones in each deviation alone.
    """

    name = "student_t"
    exact = False
    means = "as if means were normally distributed: wrong for rare events and few rows"
    needs_range = False
    least_rows = 2

    def expected(self, parts: SumMoments, delta: float) -> PredictedBound:
        rows, deviations = parts.rows, parts.deviations
        point, ones = float(parts.means.sum()), np.ones(rows.size)
        variances = deviations**2 / rows
        if rows.size == 1 or not (total := variances.sum()) > 0:
            slopes = np.array([_t_half_width(each, delta) for each in rows.tolist()])
            return PredictedBound(point + float(slopes @ deviations), ones, slopes)
        weights = (variances / total) ** 2 / (rows - 1)
        freedom = 1 / weights.sum()
        error, quantile = np.sqrt(total), special.stdtrit(freedom, 1 - delta)
        error_slopes = deviations / rows / error
        # d ln(freedom) = 2 d ln(total) - d ln(sum of weights)
        freedom_slopes = freedom * (
            4 * deviations / rows / total
            - 4 * weights / np.where(deviations > 0, deviations, 1) / weights.sum()
        )
        near = freedom * np.array([1 - T_SLOPE_STEP, 1 + T_SLOPE_STEP])
        less, more = special.stdtrit(near, 1 - delta)
        quantile_slope = (more - less) / (2 * T_SLOPE_STEP * freedom)
        slopes = quantile * error_slopes + error * freedom_slopes * quantile_slope
        return PredictedBound(point + float(quantile * error), ones, slopes)


@lru_cache(maxsize=1024)
def _t_half_width(rows: float, delta: float) -> float:
    """Return the half-width for one mean with a deviation of 1; cached, as quantiles are slow."""
    return float(special.stdtrit(rows - 1, 1 - delta)) / math.sqrt(rows)


RESAMPLES, MAX_RESAMPLES = 1999, 49_999
RESAMPLES_ABOVE = 20
"""Expected number of resamples above the limit: a small delta takes more resamples."""
TIE_TOLERANCE = 1e-9
"""Resampled means within this share of a standard error of the mean count as equal to it."""
BATCH = 2**18
MAX_DISTINCT = 64
"""Samples with at most this many distinct values are resampled by their counts."""


class Bootstrap(Bound):
    """The bias-corrected and accelerated limit of Efron (1987), each sample resampled on its own.

    The acceleration is the jackknife's, which has a closed form for a sum of means. A sample
    without variance is bounded by its mean. Predictions use the normal distribution.
    """

    name = "bootstrap"
    exact = False
    means = "from resampled rows: wrong for rare events and few rows"
    needs_range = False
    least_rows = 2

    def above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        centred = [sample.values - sample.values.mean() for sample in samples]
        mean = sum(float(sample.values.mean()) for sample in samples)
        variance = sum(float((column**2).sum()) / column.size**2 for column in centred)
        if not variance > 0:
            return mean
        third = sum(float((column**3).sum()) / column.size**3 for column in centred)
        size = min(max(RESAMPLES, math.ceil(RESAMPLES_ABOVE / delta)), MAX_RESAMPLES)
        # centred values: sums of resamples can then be compared with 0 without rounding errors
        sums = sum((_resample_means(column, size, rng) for column in centred), np.zeros(size))
        tie = TIE_TOLERANCE * math.sqrt(variance)
        below = ((sums < -tie).mean() + (sums <= tie).mean()) / 2
        bias = special.ndtri(min(max(below, 0.5 / size), 1 - 0.5 / size))
        shifted = bias + special.ndtri(1 - delta)
        shrunk = 1 - third / variance**1.5 / 6 * shifted
        level = special.ndtr(bias + shifted / shrunk) if shrunk > 0 else 1.0
        return mean + float(np.quantile(sums, level))

    def expected(self, parts: SumMoments, delta: float) -> PredictedBound:
        quantile = float(special.ndtri(1 - delta))
        roots = np.sqrt(parts.rows)
        error = float(np.hypot.reduce(parts.deviations / roots))
        # if all deviations are 0, the slopes are the one-sided ones in each deviation alone
        slopes = parts.deviations / parts.rows / error if error > 0 else 1 / roots
        value = float(parts.means.sum()) + quantile * error
        return PredictedBound(value, np.ones(roots.size), quantile * slopes)


def _resample_means(values: Array, size: int, rng: np.random.Generator) -> Array:
    """Return (size,) means of resamples of the values."""
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= MAX_DISTINCT:
        drawn = rng.multinomial(values.size, counts / values.size, size=size)
        return np.asarray(drawn @ distinct / values.size)
    means, batch = [], max(1, BATCH // values.size)
    for start in range(0, size, batch):
        shape = min(batch, size - start), values.size
        means.append(values[rng.integers(values.size, size=shape, dtype=np.int32)].mean(axis=1))
    return np.concatenate(means)


BOUNDS: dict[str, Bound] = {
    bound.name: bound()
    for bound in (ClopperPearson, Betting, EmpiricalBernstein, Hoeffding, StudentT, Bootstrap)
}


DECISIONS_GAIN = 2.2
"""Squared ratio of the widths of `betting` and `clopper_pearson` if measurements are 0 or 1.

For delta 0.05 and 300 to 5,000 rows, the widths were 2.46 and 1.66 standard errors.
"""


def choose_bound(name: str, parts: Sequence[BoundedSample]) -> Bound:
    """Return the bound of a name; `auto` chooses an exact one if ranges are known.

    That is `clopper_pearson` if all measurements are 0/1 (or at the ends of another range), or so
    many that sampling the others as decisions makes it no wider than `betting`, else `betting`. For
    unknown ranges, `auto` is `student_t`, which is approximate.

    The choice must not depend on the tested rows. A deterministic classifier is known to have 0/1
    measurements; for a randomized one, choose by measurements of other rows.

    Raises
    ------
    KeyError
        If there is no bound of that name.
    """
    if name != AUTO:
        return BOUNDS[name]
    needed = [part for part in parts if part.coefficient != 0]
    if not all(math.isfinite(end) for part in needed for end in part.range):
        return BOUNDS["student_t"]
    sampled = measured = 0.0
    for part in needed:
        if part.usable and part.range[0] < part.range[1]:
            width, values = scale_to_unit(part)
            weight = (part.coefficient * width) ** 2 / part.rows
            sampled += weight * float((values * (1 - values)).mean())
            measured += weight * float(values.var())
    few = measured + sampled <= DECISIONS_GAIN * measured
    return BOUNDS["clopper_pearson" if few else "betting"]

"""The confidence bounds by name, those that need only moments, and the choice for given samples."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from scipy import special

from ratecli.certify.base import (
    Bound,
    BoundedSample,
    SumMoments,
    scale_to_unit,
)
from ratecli.certify.betting import Betting
from ratecli.certify.binomial import ClopperPearson
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

    def expected(self, parts: SumMoments, delta: float) -> Array:
        half = math.sqrt(math.log(1 / delta) / 2 * float((parts.widths**2 / parts.rows).sum()))
        return np.asarray(parts.means.sum(axis=-1) + half)


def _divide_delta(parts: SumMoments, delta: float) -> Array:
    """Return (k,) shares of delta for means that are bounded separately.

    They are proportional to width / sqrt(rows), like the largest possible standard errors, which
    nearly minimizes the sum and depends on no measurement; equal if a range is infinite.
    """
    errors = parts.widths / np.sqrt(parts.rows)
    if not np.isfinite(errors).all():
        errors = np.ones(errors.size)
    return np.asarray(delta * errors / errors.sum())


FIRST_ROWS = 1 / 20
"""Share of the rows that choose a level for clipping, as in Thomas et al. (2015)."""


class EmpiricalBernstein(Bound):
    """Mean plus `s sqrt(2 ln(2/delta) / n) + 7 (b - a) ln(2/delta) / (3 (n - 1))`.

    Theorem 4 of Maurer and Pontil (2009); s^2 has n - 1 in its denominator. Several means are
    bounded separately, each at most by the end of its range.

    Without a lower end a, smaller values are replaced by a level, which can only increase the mean
    (Thomas, Theocharous and Ghavamzadeh 2015, theorem 1). The level is chosen on a random 5 % of
    the rows, which are then left out, so that the bound they predict is smallest.
    """

    name = "empirical_bernstein"
    exact = True
    means = "from the variance and the range of the measurements, clipped to a range if one-sided"
    needs = "upper"
    least_rows = 2

    def above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        if all(math.isfinite(sample.range[0]) for sample in samples):
            return super().above(samples, delta, rng)
        share = delta / len(samples)
        return self.upper([_clip_below(sample, share, rng) for sample in samples], delta, rng)

    def expected(self, parts: SumMoments, delta: float) -> Array:
        """Predict the bound; without a lower end, at the level where its estimated loss is least.

        Clipping at t below the mean increases it by at most s^2 / (4 t), typically by a quarter of
        that, and the range then ends at t below the mean.
        """
        logs = np.log(2 / _divide_delta(parts, delta))
        slopes = np.sqrt(2 * logs / parts.rows)
        clipped = ~np.isfinite(parts.lows)
        widths = np.where(clipped, parts.highs - parts.means, parts.widths)
        margins = 7 * widths * logs / (3 * (parts.rows - 1))
        slopes += clipped * np.sqrt(7 * logs / (12 * (parts.rows - 1)))
        limits = parts.means + slopes * parts.deviations + margins
        return np.asarray(np.minimum(limits, parts.highs).sum(axis=-1))


def _clip_below(sample: BoundedSample, delta: float, rng: np.random.Generator) -> BoundedSample:
    """Return all rows but the first 5 %, clipped at one of the values of those."""
    if math.isfinite(sample.range[0]):
        return sample
    values, high = rng.permutation(sample.values), sample.range[1]
    count = math.ceil(FIRST_ROWS * values.size)
    first, rows, log = np.sort(high - values[:count]), values.size - count, math.log(2 / delta)
    # mean and variance of the first rows, clipped at each of them
    above = np.arange(count)[::-1]
    means = (np.cumsum(first) + above * first) / count
    variances = (np.cumsum(first**2) + above * first**2) / count - means**2
    errors = np.sqrt(2 * log * np.maximum(variances, 0) / rows)
    best = np.argmax(means - errors - 7 * first * log / (3 * max(rows - 1, 1)))
    level = high - float(first[best])
    return BoundedSample(np.maximum(values[count:], level), (level, high))


class Anderson(Bound):
    """The mean of the distribution function that is lowered by `sqrt(ln(1/delta) / (2 n))`.

    Anderson (1969), with the inequality of Dvoretzky, Kiefer and Wolfowitz (1956) and the constant
    of Massart (1990), which holds for delta up to 1/2. The smallest values are thus replaced by the
    upper end of the range. Several means are bounded separately.
    """

    name = "anderson"
    exact = True
    means = "from the distribution of the measurements and the upper end of their range"
    needs = "upper"

    def above(
        self,
        samples: Sequence[BoundedSample],
        delta: float,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> float:
        total, parts = 0.0, SumMoments.of(samples)
        for sample, shift in zip(samples, _shifts(parts, delta).tolist(), strict=True):
            steps = np.maximum(np.arange(sample.rows + 1) / sample.rows - shift, 0.0)
            total += float(np.diff(steps) @ np.sort(sample.values)) + shift * sample.range[1]
        return total

    def expected(self, parts: SumMoments, delta: float) -> Array:
        """Predict the bound as if the smallest values were exponentially distributed."""
        shifts = _shifts(parts, delta)
        smallest = parts.means + parts.deviations * np.log(shifts)
        limits = parts.means + shifts * (parts.highs - np.maximum(smallest, parts.lows))
        return np.asarray(limits.sum(axis=-1))


def _shifts(parts: SumMoments, delta: float) -> Array:
    """Return (k,) how far the distribution functions are lowered, at most 1."""
    shares = np.minimum(_divide_delta(parts, delta), 0.5)
    return np.minimum(np.sqrt(np.log(1 / shares) / (2 * parts.rows)), 1.0)


class StudentT(Bound):
    """Mean plus a t quantile times the standard error (Student 1908).

    For several means, the degrees of freedom are those of Welch (1947) and Satterthwaite (1946). A
    sample without variance is bounded by its mean, which is one reason why the bound is not exact.
    """

    name = "student_t"
    exact = False
    means = "as if means were normally distributed: wrong for rare events and few rows"
    needs = "none"
    least_rows = 2

    def expected(self, parts: SumMoments, delta: float) -> Array:
        variances, point = parts.deviations**2 / parts.rows, parts.means.sum(axis=-1)
        if parts.rows.size == 1:
            return np.asarray(point + _t_half_width(*parts.rows, delta) * parts.deviations[..., 0])
        total = variances.sum(axis=-1)
        known = np.where(total > 0, total, 1.0)
        weights = (variances / known[..., None]) ** 2 / (parts.rows - 1)
        freedom = 1 / np.where(total > 0, weights.sum(axis=-1), 1.0)
        return np.asarray(point + special.stdtrit(freedom, 1 - delta) * np.sqrt(total))


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
    needs = "none"
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

    def expected(self, parts: SumMoments, delta: float) -> Array:
        errors = np.sqrt((parts.deviations**2 / parts.rows).sum(axis=-1))
        return np.asarray(parts.means.sum(axis=-1) + special.ndtri(1 - delta) * errors)


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
    for bound in (
        ClopperPearson,
        Betting,
        EmpiricalBernstein,
        Anderson,
        Hoeffding,
        StudentT,
        Bootstrap,
    )
}


DECISIONS_GAIN = 2.2
"""Squared ratio of the widths of `betting` and `clopper_pearson` if measurements are 0 or 1.

For delta 0.05 and 300 to 5,000 rows, the widths were 2.46 and 1.66 standard errors.
"""


def choose_bound(name: str, parts: Sequence[BoundedSample], signs: Collection[int] = (1,)) -> Bound:
    """Return the bound of a name; `auto` chooses an exact one if ranges are known.

    That is `clopper_pearson` if all measurements are 0/1 (or at the ends of another range), or so
    many that sampling the others as decisions makes it no wider than `betting`, else `betting`. If
    only ends are unknown that `betting` does not need, it is `betting`. For other unknown ranges,
    `auto` is `student_t`, which is approximate.

    `signs` are the sides of the sum that are bounded: 1 for upper and -1 for lower bounds.

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
    ends = (part.range[sign * part.coefficient > 0] for part in needed for sign in signs)
    if not all(map(math.isfinite, ends)):
        return BOUNDS["student_t"]
    if not all(math.isfinite(end) for part in needed for end in part.range):
        return BOUNDS["betting"]
    sampled = measured = 0.0
    for part in needed:
        if part.usable and part.range[0] < part.range[1]:
            width, values = scale_to_unit(part)
            weight = (part.coefficient * width) ** 2 / part.rows
            sampled += weight * float((values * (1 - values)).mean())
            measured += weight * float(values.var())
    few = measured + sampled <= DECISIONS_GAIN * measured
    return BOUNDS["clopper_pearson" if few else "betting"]

"""Interface of one-sided confidence bounds, and the scaling and clipping they share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates.interval import Interval


def power_of_2(coefficients: Sequence[float]) -> float:
    """Return a power of 2 near the largest of finite coefficients, 1 if all are 0.

    Dividing coefficients by it keeps their squares from overflowing and causes no rounding.
    """
    most = max(map(abs, coefficients), default=0.0)
    return math.ldexp(1.0, math.frexp(most)[1] - 1) if most else 1.0


@dataclass(frozen=True)
class BoundedSample:
    """Independent measurements of the rows of one group, each within a range known beforehand.

    Attributes
    ----------
    values
        (n,) measurements.
    range
        Minimum and maximum that could be measured on any row; possibly infinite.
    """

    values: Array
    range: Interval = (0.0, 1.0)

    @property
    def binary(self) -> bool:
        """Whether every measurement is at one of the ends of the range."""
        return bool(np.isin(self.values, self.range).all())


@dataclass(frozen=True)
class WeightedSample:
    """`coefficient` times the mean of a group; the groups of one sum must be disjoint."""

    coefficient: float
    sample: BoundedSample


@dataclass(frozen=True)
class SampleMoments:
    """What is known about a term before its rows are seen: its mean and standard deviation.

    Attributes
    ----------
    coefficient, range
        As in `WeightedSample` and its sample.
    mean, deviation
        Of the measurements; the deviation has n - 1 in its denominator.
    rows
        Expected number of rows of the sample.
    """

    coefficient: float
    mean: float
    deviation: float
    rows: int
    range: Interval = (0.0, 1.0)


@dataclass(frozen=True)
class SampleSizes:
    """The parts of samples that moments do not change: (k,) rows, minimum and maximum values."""

    rows: Array
    lows: Array
    highs: Array

    @classmethod
    def of(cls, parts: Sequence[SampleMoments]) -> SampleSizes:
        lows, highs = np.array([part.range for part in parts]).reshape(-1, 2).T
        return cls(np.array([float(part.rows) for part in parts]), lows, highs)

    @property
    def widths(self) -> Array:
        return self.highs - self.lows

    def some(self, places: NDArray[np.intp]) -> SampleSizes:
        return SampleSizes(self.rows[places], self.lows[places], self.highs[places])


@dataclass(frozen=True)
class PredictedBound:
    """A predicted upper bound, and its (P,) slopes in the means and deviations of the terms."""

    value: float
    by_mean: Array
    by_deviation: Array


Measurements = Mapping[str, Array]
"""(n,) arrays of a classifier's outputs on n rows, by `rates.table.Measurement`."""


ROUNDING = 1e-9
"""Tolerance for measurements outside their range, relative to max(1, |ends of the range|)."""


class Bound(ABC):
    """An upper confidence bound on `sum_i c_i mu_i`, where mu_i are means of independent samples.

    Subclasses bound a plain sum of means: every sample has been multiplied by its coefficient, lies
    within its range, is finite, and has at least `least_rows` rows. Constants (a coefficient of 0,
    or a range of one point) are simply added. For uninformative samples, the upper end of the range
    is added, which is sound: samples with too few rows, or with an unbounded range if the bound
    `needs_range`. Which samples these are depends only on sizes and ranges.

    Attributes
    ----------
    name
        As in an experiment file.
    exact
        Whether the error probability is at most delta for every distribution in the range and every
        number of rows; otherwise it tends to delta as the number of rows grows.
    means
        What the bound assumes and guarantees, in one sentence.
    """

    name: ClassVar[str]
    exact: ClassVar[bool]
    means: ClassVar[str]
    needs_range: ClassVar[bool] = True
    least_rows: ClassVar[int] = 1

    def upper(
        self, parts: Sequence[WeightedSample], delta: float, rng: np.random.Generator
    ) -> float:
        """Return a number that is at least the sum with probability at least 1 - delta.

        The result is clipped to the sum's range. For a lower bound, negate the coefficients and the
        result. A measurement that is not finite gives infinity, whatever its coefficient is.

        Raises
        ------
        ValueError
            If delta is not in (0, 1), a coefficient is not finite, or measurements are outside
            their range by more than rounding.
        """
        _check_delta(delta)
        scale = _coefficient_unit(parts)
        samples = [
            _scaled_sample(replace(part, coefficient=part.coefficient / scale)) for part in parts
        ]
        if not all(np.isfinite(sample.values).all() for sample in samples):
            return math.inf
        ranges = [sample.range for sample in samples]
        live = [self._teaches(sample.range, sample.values.size) for sample in samples]
        known = sum(
            sample.range[1] for sample, is_live in zip(samples, live, strict=True) if not is_live
        )
        if any(live):
            known += self._above([samples[i] for i in np.flatnonzero(live)], delta, rng)
        return scale * _clipped(known, ranges)

    def predicted(self, parts: Sequence[SampleMoments], delta: float) -> PredictedBound:
        """Return the bound to expect on samples with these moments; never use it as a certificate.

        Its slopes are 0 where it is at an end of the sum's range. Moments that are not finite give
        infinity.

        Raises
        ------
        ValueError
            If delta is not in (0, 1), or a mean is outside its range by more than rounding.
        """
        means = np.array([part.mean for part in parts], dtype=float)
        deviations = np.array([part.deviation for part in parts], dtype=float)
        return self.forecast(parts, delta)(means, deviations)

    def forecast(self, parts: Sequence[SampleMoments], delta: float) -> BoundPredictor:
        """Return `predicted` as a function of the moments of samples with these sizes and ranges.

        Raises
        ------
        ValueError
            If delta is not in (0, 1), or a range is invalid.
        """
        _check_delta(delta)
        for part in parts:
            _check_range(part.range, np.zeros(0))
        scale = _coefficient_unit(parts)
        coefficients = [part.coefficient / scale for part in parts]
        pairs = zip(coefficients, parts, strict=True)
        ranges = [_scaled_range(coefficient, part.range) for coefficient, part in pairs]
        live = [
            i
            for i, (ends, part) in enumerate(zip(ranges, parts, strict=True))
            if self._teaches(ends, part.rows)
        ]
        scaled = [replace(part, range=ends) for part, ends in zip(parts, ranges, strict=True)]
        return BoundPredictor(
            self,
            delta,
            scale,
            np.array(coefficients),
            SampleSizes.of(parts),
            np.array(live, dtype=np.intp),
            SampleSizes.of([scaled[i] for i in live]),
            sum(ends[1] for i, ends in enumerate(ranges) if i not in live),
            (sum(low for low, _ in ranges), sum(high for _, high in ranges)),
        )

    def _teaches(self, ends: Interval, rows: int) -> bool:
        if ends[0] == ends[1] or rows < self.least_rows:
            return False
        return not self.needs_range or all(map(math.isfinite, ends))

    @abstractmethod
    def _above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        """Bound the sum of the means of at least one sample; the caller clips the result."""

    @abstractmethod
    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        """Predict the bound on the sum of (k,) means of at least one sample; coefficients are 1."""


@dataclass(frozen=True)
class BoundPredictor:
    """Predicts a bound from the moments of k samples; see `Bound.predicted`.

    Attributes
    ----------
    scale
        Unit of the coefficients.
    coefficients, sizes
        Of all samples as they are measured.
    live, scaled
        Indices of the informative samples, and their sizes after multiplication by coefficients.
    known
        Sum of the upper ends of the other samples.
    ends
        The range of the sum.
    """

    bound: Bound
    delta: float
    scale: float
    coefficients: Array
    sizes: SampleSizes
    live: NDArray[np.intp]
    scaled: SampleSizes
    known: float
    ends: Interval

    def __call__(self, means: Array, deviations: Array) -> PredictedBound:
        """Predict at (k,) means and deviations. ValueError if a mean is outside its range."""
        by_mean, by_deviation = np.zeros((2, means.size))
        # This runs for every candidate, and for a few numbers Python is faster than NumPy.
        if not all(map(math.isfinite, means.tolist() + deviations.tolist())):
            return PredictedBound(math.inf, by_mean, by_deviation)
        value, live, inside = self.known, self.live, self._inside(means)
        if live.size:
            factors, sizes = self._factors
            found = self.bound.expected(
                self.scaled, factors * inside[live], sizes * deviations[live], self.delta
            )
            value += found.value
            by_mean[live] = self.scale * factors * found.by_mean
            by_deviation[live] = self.scale * sizes * found.by_deviation
        clipped = math.inf if math.isnan(value) else min(max(value, self.ends[0]), self.ends[1])
        if clipped != value:
            by_mean, by_deviation = np.zeros((2, means.size))
        return PredictedBound(self.scale * clipped, by_mean, by_deviation)

    @cached_property
    def _factors(self) -> tuple[Array, Array]:
        """Coefficients of the informative samples, and their absolute values."""
        factors = self.coefficients[self.live]
        return factors, np.abs(factors)

    def _inside(self, means: Array) -> Array:
        """Clip means to their ranges; raise ValueError if one is outside by more than rounding."""
        inside = np.minimum(np.maximum(means, self.sizes.lows), self.sizes.highs)
        if inside.tolist() != means.tolist():
            for i in np.flatnonzero(inside != means).tolist():
                ends = float(self.sizes.lows[i]), float(self.sizes.highs[i])
                _check_range(ends, means[i : i + 1])
        return inside


def scale_to_unit(sample: BoundedSample) -> tuple[float, Array]:
    """Return the width of a finite range, and the values rescaled from the range to [0, 1]."""
    low, high = sample.range
    return high - low, (sample.values - low) / (high - low)


def split_delta(widths: Array, rows: Array) -> Array:
    """Divide delta among bounds of several means, in proportion to width / sqrt(rows).

    The largest possible standard errors are proportional to this, and it nearly minimizes the sum
    of the bounds. It depends on no measurement, which keeps the bounds valid.
    """
    errors = widths / np.sqrt(rows)
    return np.asarray(errors / errors.sum())


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, not {delta}")


def _coefficient_unit(parts: Sequence[WeightedSample] | Sequence[SampleMoments]) -> float:
    coefficients = [part.coefficient for part in parts]
    if not all(map(math.isfinite, coefficients)):
        raise ValueError(f"a coefficient must be a finite number, not {max(coefficients, key=abs)}")
    return power_of_2(coefficients)


def _scaled_sample(part: WeightedSample) -> BoundedSample:
    """Multiply a sample by its coefficient; clip its values, and turn non-finite ones into NaN."""
    values = np.asarray(part.sample.values, dtype=np.float64)
    low, high = part.sample.range
    _check_range(part.sample.range, values[np.isfinite(values)])
    with np.errstate(invalid="ignore"):
        scaled = part.coefficient * np.where(
            np.isfinite(values), np.clip(values, low, high), values
        )
    ends = _scaled_range(part.coefficient, part.sample.range)
    # measurements that are not finite become NaN, even if the coefficient is 0
    return BoundedSample(np.where(np.isfinite(values), scaled, math.nan), ends)


def _scaled_range(coefficient: float, ends: Interval) -> Interval:
    if coefficient == 0:
        return 0.0, 0.0
    low, high = sorted((coefficient * ends[0], coefficient * ends[1]))
    return low, high


def _check_range(ends: Interval, values: Array) -> None:
    low, high = ends
    if not low <= high or low == math.inf or high == -math.inf:
        raise ValueError(f"no range of measurements: [{low}, {high}]")
    slack = ROUNDING * max(1.0, *(abs(end) for end in ends if math.isfinite(end)), 0.0)
    if values.size and (values.min() < low - slack or values.max() > high + slack):
        found = f"[{values.min():.6g}, {values.max():.6g}]"
        raise ValueError(f"measurements in {found} are outside their range [{low:g}, {high:g}]")


def _clipped(value: float, ranges: Sequence[Interval]) -> float:
    """Clip the value to the range of a sum; return infinity for NaN."""
    if math.isnan(value):
        return math.inf
    return min(max(value, sum(low for low, _ in ranges)), sum(high for _, high in ranges))

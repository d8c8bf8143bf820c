"""What every one-sided confidence bound answers, and what is the same for all of them."""

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
    """One near the largest of finite coefficients, 1 if there is none but 0.

    In units of it squares of coefficients are numbers that there are, and nothing else changes: a power
    of 2 is divided by without rounding.
    """
    most = max(map(abs, coefficients), default=0.0)
    return math.ldexp(1.0, math.frexp(most)[1] - 1) if most else 1.0


@dataclass(frozen=True)
class BoundedSample:
    """Independent measurements of rows of one group, each within a range known beforehand.

    Attributes
    ----------
    values
        (n,) measurements.
    range
        Least and largest value that could be measured, whatever the rows are; it may be infinite.
    """

    values: Array
    range: Interval = (0.0, 1.0)

    @property
    def binary(self) -> bool:
        """Whether every measurement is at one of the ends of the range."""
        return bool(np.isin(self.values, self.range).all())


@dataclass(frozen=True)
class WeightedSample:
    """`coefficient` times the mean of a group; parts of one sum are of groups without common rows."""

    coefficient: float
    sample: BoundedSample


@dataclass(frozen=True)
class SampleMoments:
    """What can be said of a part before its rows are seen: from a mean and a standard deviation.

    Attributes
    ----------
    coefficient, range
        As those of a part.
    mean, deviation
        Of the measurements; the deviation with n - 1 in the denominator.
    rows
        How many rows the sample is expected to have.
    """

    coefficient: float
    mean: float
    deviation: float
    rows: int
    range: Interval = (0.0, 1.0)


@dataclass(frozen=True)
class SampleSizes:
    """What moments do not change of samples: (k,) rows, and the least and largest measurements."""

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
    """An upper bound that is expected, and its (P,) slopes in the means and deviations of the parts."""

    value: float
    by_mean: Array
    by_deviation: Array


Measurements = Mapping[str, Array]
"""(n,) arrays by `rates.table.Measurement`: what a classifier says of n rows, each in the place of p."""


ROUNDING = 1e-9
"""How far outside its range a measurement may be, relative to the larger of 1 and the range's ends."""


class Bound(ABC):
    """An upper confidence bound on `sum_i c_i mu_i`, the mu_i being means of independent samples.

    What a subclass sees is a sum of means: every sample has been multiplied by its coefficient, lies
    within its range, is finite, and has at least `least_rows` rows. Constants (a coefficient of 0, or
    a range that is one point) cost nothing: they are added. So is the upper end of the range of a
    sample that teaches nothing, which is sound: one with too few rows, or of an unbounded range where
    the bound `needs_range`. Which samples these are depends on sizes and ranges alone.

    Attributes
    ----------
    name
        As in an experiment file.
    exact
        Whether the probability of a mistake is at most delta for every distribution in the range and
        every number of rows; otherwise it tends to delta as rows are added.
    means
        What the bound assumes and promises, in a sentence.
    """

    name: ClassVar[str]
    exact: ClassVar[bool]
    means: ClassVar[str]
    needs_range: ClassVar[bool] = True
    least_rows: ClassVar[int] = 1

    def upper(
        self, parts: Sequence[WeightedSample], delta: float, rng: np.random.Generator
    ) -> float:
        """At least the sum with probability 1 - delta at least, within the sum's range.

        A lower bound is minus the upper bound of the sum with coefficients negated. A measurement
        that is not finite gives infinity, whatever its coefficient is.

        Raises
        ------
        ValueError
            If delta is not in (0, 1), or measurements are outside their range by more than rounding.
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
        """The bound that is expected on samples with such moments; never a certificate.

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
        """`predicted` for samples of such sizes and ranges, whatever their moments are.

        Raises
        ------
        ValueError
            If delta is not in (0, 1), or there is no such range.
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
        """Bound the sum of the means of one sample or more; clipping is the caller's."""

    @abstractmethod
    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        """Predict the bound on the sum of the means (k,) of one sample or more; all coefficients are 1."""


@dataclass(frozen=True)
class BoundPredictor:
    """What a bound is expected to be at moments of k samples: see `Bound.predicted`.

    Attributes
    ----------
    scale
        What coefficients are in units of.
    coefficients, sizes
        Of all samples as they are measured.
    live, scaled
        Which samples teach something, and their sizes once they are multiplied by their coefficients.
    known
        Upper ends of the others, added up.
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
        """At (k,) means and deviations; ValueError for a mean outside its range."""
        by_mean, by_deviation = np.zeros((2, means.size))
        # of a few numbers Python asks faster than NumPy, and this is asked for every candidate
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
        """Of the live samples, and their sizes."""
        factors = self.coefficients[self.live]
        return factors, np.abs(factors)

    def _inside(self, means: Array) -> Array:
        """Within their ranges, where they are but for rounding."""
        inside = np.minimum(np.maximum(means, self.sizes.lows), self.sizes.highs)
        if inside.tolist() != means.tolist():
            for i in np.flatnonzero(inside != means).tolist():
                ends = float(self.sizes.lows[i]), float(self.sizes.highs[i])
                _check_range(ends, means[i : i + 1])
        return inside


def scale_to_unit(sample: BoundedSample) -> tuple[float, Array]:
    """Return the width of a finite range, and the values as shares of it in [0, 1]."""
    low, high = sample.range
    return high - low, (sample.values - low) / (high - low)


def split_delta(widths: Array, rows: Array) -> Array:
    """Divide delta over bounds of several means, in proportion to width / sqrt(rows).

    That is what the largest standard errors are in proportion to, and nearly what makes the sum of
    the bounds least. It looks at no measurement, as it must not.
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
    """Multiply a sample by its coefficient: values within their range, NaN and infinity kept."""
    values = np.asarray(part.sample.values, dtype=np.float64)
    low, high = part.sample.range
    _check_range(part.sample.range, values[np.isfinite(values)])
    with np.errstate(invalid="ignore"):
        scaled = part.coefficient * np.where(
            np.isfinite(values), np.clip(values, low, high), values
        )
    ends = _scaled_range(part.coefficient, part.sample.range)
    # 0 times infinity is not a number either: a broken measurement stays one
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
    """Return the value within the range of a sum; infinity for what is not a number."""
    if math.isnan(value):
        return math.inf
    return min(max(value, sum(low for low, _ in ranges)), sum(high for _, high in ranges))

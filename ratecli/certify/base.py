"""Interface of one-sided confidence bounds, and the scaling and clipping they share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from ratecli.models.base import Array
from ratecli.rates.functions import Interval

MIN_GROUP_ROWS = 2
"""Groups with fewer rows certify nothing: their deviation cannot be estimated."""


@dataclass(frozen=True)
class BoundedSample:
    """Independent measurements of the rows of one group; the groups of one sum are disjoint.

    Attributes
    ----------
    values
        (n,) measurements within the range, or not finite.
    range
        Minimum and maximum that could be measured on any row; possibly infinite.
    coefficient
        Factor of the sample's mean in the sum that is bounded.
    """

    values: Array
    range: Interval = (0.0, 1.0)
    coefficient: float = 1.0

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def usable(self) -> bool:
        """Whether the sample can certify anything: finite measurements of enough rows."""
        return self.rows >= MIN_GROUP_ROWS and bool(np.isfinite(self.values).all())

    def moments(self) -> SampleMoments:
        """Return the moments, to predict the bound on a sample of the same size.

        The deviation is NaN with fewer than 2 rows, the mean is NaN without rows, and both are NaN
        if a measurement is not finite.
        """
        with np.errstate(invalid="ignore"):  # infinities of both signs
            mean = float(self.values.mean()) if self.rows else math.nan
        mean = mean if math.isfinite(mean) else math.nan
        apart = self.values - mean
        deviation = math.sqrt(apart @ apart / (self.rows - 1)) if self.rows > 1 else math.nan
        return SampleMoments(self.coefficient, mean, deviation, self.rows, self.range)


@dataclass(frozen=True)
class SampleMoments:
    """What is known about a sample before its rows are seen: its mean and standard deviation.

    Attributes
    ----------
    coefficient, range
        As in `BoundedSample`.
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


class SumMoments(NamedTuple):
    """Sizes and ranges (k,) of the samples of a sum whose coefficients are 1, and their moments.

    Means and deviations are (..., k): several sets of moments are predicted at once.
    """

    rows: Array
    lows: Array
    highs: Array
    means: Array
    deviations: Array

    @classmethod
    def of(cls, samples: Sequence[BoundedSample]) -> SumMoments:
        rows = np.array([float(sample.rows) for sample in samples])
        means = np.array([sample.values.mean() for sample in samples])
        deviations = [sample.values.std(ddof=min(sample.rows - 1, 1)) for sample in samples]
        lows, highs = np.array([sample.range for sample in samples]).T
        return cls(rows, lows, highs, means, np.array(deviations))

    @property
    def widths(self) -> Array:
        return self.highs - self.lows


@dataclass(frozen=True)
class PredictedBound:
    """A predicted upper bound, and its (P,) slopes in the means and deviations of the terms."""

    value: float
    by_mean: Array
    by_deviation: Array


class Bound(ABC):
    """An upper confidence bound on `sum_i c_i mu_i`, where mu_i are means of independent samples.

    Subclasses bound a plain sum of means: every sample has been multiplied by its coefficient, lies
    within its range, is finite, and has at least `least_rows` rows. Constants (a coefficient of 0,
    or a range of one point) are simply added. For uninformative samples, the upper end of the range
    is added, which is sound: samples with too few rows, or without an end that the bound needs.
    Which samples these are depends only on sizes and ranges.

    Attributes
    ----------
    name
        As in an experiment file.
    exact
        Whether the error probability is at most delta for every distribution in the range and every
        number of rows; otherwise it tends to delta as the number of rows grows.
    means
        What the bound assumes and guarantees, in one sentence.
    needs
        Which ends of the ranges must be finite, after multiplication by the coefficients.
    """

    name: ClassVar[str]
    exact: ClassVar[bool]
    means: ClassVar[str]
    needs: ClassVar[Literal["both", "upper", "none"]] = "both"
    least_rows: ClassVar[int] = 1

    def upper(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        """Return a number that is at least the sum with probability at least 1 - delta.

        The result is clipped to the sum's range. For a lower bound, negate the coefficients and the
        result. A measurement that is not finite gives infinity, whatever its coefficient is.
        """
        predictor = BoundPredictor(self, samples, delta)
        if not all(np.isfinite(sample.values).all() for sample in samples):
            return math.inf
        scaled = []
        ends = zip(predictor.lows.tolist(), predictor.highs.tolist(), strict=True)
        for i, range_ in zip(predictor.live, ends, strict=True):
            scaled.append(BoundedSample(predictor.factors[i] * samples[i].values, range_))
        above = self.above(scaled, delta, rng) if scaled else 0.0
        return predictor.unit * predictor.clipped(predictor.known + above)

    def predicted(self, parts: Sequence[SampleMoments], delta: float) -> PredictedBound:
        """Return the bound to expect on samples with these moments; never use it as a certificate.

        Its slopes are 0 where it is at an end of the sum's range. Moments that are not finite give
        infinity.
        """
        means = np.array([part.mean for part in parts], dtype=float)
        deviations = np.array([part.deviation for part in parts], dtype=float)
        return BoundPredictor(self, parts, delta)(means, deviations)

    def above(
        self,
        samples: Sequence[BoundedSample],
        delta: float,
        rng: np.random.Generator,  # noqa: ARG002  for bounds that sample or resample
    ) -> float:
        """Bound the sum of the means of at least one sample; the caller clips the result.

        By default, the bound is a function of the moments of the samples: see `expected`.
        """
        return float(self.expected(SumMoments.of(samples), delta))

    @abstractmethod
    def expected(self, parts: SumMoments, delta: float) -> Array:
        """Predict the bounds (...) on the sum of the means of at least one sample."""


SLOPE_STEP = 1e-4
"""Step of the difference quotients of bounds, as a share of the range over the root of the rows."""


class BoundPredictor:
    """Predicts a bound from the moments of k samples with given sizes and ranges.

    See `Bound.predicted`.

    Attributes
    ----------
    coefficients, unit, factors
        (k,) coefficients; a power of 2 near the largest summand; and their quotients. Everything is
        computed in this unit, so that squares of tiny coefficients are not rounded to 0.
    ranges
        (k, 2) ends of the ranges of the measurements.
    live, rows, lows, highs
        Indices of the informative samples, their numbers of rows, and the ends of their ranges
        after multiplication by factors.
    known
        Sum of the upper ends of the other samples, in units.
    ends
        The range of the sum, in units.
    """

    def __init__(
        self, bound: Bound, parts: Sequence[BoundedSample] | Sequence[SampleMoments], delta: float
    ) -> None:
        self.bound, self.delta = bound, delta
        self.coefficients = np.array([part.coefficient for part in parts])
        self.ranges = np.array([part.range for part in parts], dtype=float).reshape(-1, 2)
        scaled, factors = np.zeros_like(self.ranges), self.coefficients[:, None]
        np.multiply(factors, self.ranges, out=scaled, where=factors != 0)
        most = np.abs(np.where(np.isfinite(scaled), scaled, factors)).max(initial=0.0)
        self.unit = math.ldexp(1.0, math.frexp(most)[1] - 1) if most else 1.0
        self.factors = self.coefficients / self.unit
        lows, highs = np.sort(scaled / self.unit, axis=1).T
        rows = np.array([float(part.rows) for part in parts])
        live = (lows != highs) & (rows >= bound.least_rows)
        if bound.needs != "none":
            live &= np.isfinite(highs)
        if bound.needs == "both":
            live &= np.isfinite(lows)
        self.live = np.flatnonzero(live).tolist()
        self.rows, self.lows, self.highs = rows[live], lows[live], highs[live]
        self.known = float(highs[~live].sum())
        self.ends = float(lows.sum()), float(highs.sum())
        self.lowest = np.append(self.lows, np.zeros(len(self.live)))
        self.highest = np.append(self.highs, np.full(len(self.live), np.inf))

    def __call__(self, means: Array, deviations: Array, *, sloped: bool = True) -> PredictedBound:
        """Predict at (k,) means, which are clipped to their ranges, and deviations.

        Slopes are difference quotients, one-sided at an end of the range of a mean or deviation;
        they are 0 unless `sloped`.
        """
        by_mean, by_deviation = np.zeros((2, means.size))
        # This runs for every candidate, and for a few numbers Python is faster than NumPy.
        if not all(map(math.isfinite, means.tolist() + deviations.tolist())):
            return PredictedBound(math.inf, by_mean, by_deviation)
        value, live = self.known, self.live
        if live:
            inside = np.minimum(np.maximum(means, self.ranges[:, 0]), self.ranges[:, 1])[live]
            sizes = np.abs(self.factors[live])
            point = np.append(self.factors[live] * inside, sizes * deviations[live])
            expected = self._expected(point[None])
            value += float(expected[0])
        clipped = self.clipped(value)
        if live and sloped and clipped == value:
            by_mean[live], by_deviation[live] = np.reshape(self._slopes(point), (2, -1))
            by_mean *= self.coefficients
            by_deviation *= np.abs(self.coefficients)
        return PredictedBound(self.unit * clipped, by_mean, by_deviation)

    def _expected(self, points: Array) -> Array:
        """Return the bounds (m,) at moments (m, 2 l): the means of the live samples come first."""
        means, deviations = points[:, : len(self.live)], points[:, len(self.live) :]
        parts = SumMoments(self.rows, self.lows, self.highs, means, deviations)
        return self.bound.expected(parts, self.delta)

    def _slopes(self, point: Array) -> Array:
        """Return the slopes (2 l,) of the bound at moments (2 l,)."""
        sizes = np.maximum(np.abs(point), np.roll(np.abs(point), len(self.live)))
        widths = np.tile(self.highs - self.lows, 2)
        scales = np.where(np.isfinite(widths), widths, np.where(sizes > 0, sizes, 1.0))
        steps = np.diag(SLOPE_STEP * scales / np.sqrt(np.tile(self.rows, 2)))
        above = np.minimum(point + steps, np.maximum(point, self.highest))
        below = np.maximum(point - steps, np.minimum(point, self.lowest))
        rise, fall = np.reshape(self._expected(np.vstack([above, below])), (2, -1))
        return np.asarray((rise - fall) / (above - below).diagonal())

    def clipped(self, value: float) -> float:
        """Clip a value to the range of the sum; return infinity for NaN."""
        return math.inf if math.isnan(value) else min(max(value, self.ends[0]), self.ends[1])


def scale_to_unit(sample: BoundedSample) -> tuple[float, Array]:
    """Return the width of a finite range, and the values rescaled from the range to [0, 1]."""
    low, high = sample.range
    return high - low, (sample.values - low) / (high - low)

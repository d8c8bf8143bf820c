"""What every one-sided confidence bound answers, and what is the same for all of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from ratecli.models.base import Array
from ratecli.rates.interval import Interval
from ratecli.solvers.safety.samples import Measured, Moments, Part, Predicted

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

    def upper(self, parts: Sequence[Part], delta: float, rng: np.random.Generator) -> float:
        """At least the sum with probability 1 - delta at least, within the sum's range.

        A lower bound is minus the upper bound of the sum with coefficients negated. A measurement
        that is not finite gives infinity, whatever its coefficient is.

        Raises
        ------
        ValueError
            If delta is not in (0, 1), or measurements are outside their range by more than rounding.
        """
        _check_delta(delta)
        scale = _unit(parts)
        samples = [_measured(replace(part, coefficient=part.coefficient / scale)) for part in parts]
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

    def predicted(self, parts: Sequence[Moments], delta: float) -> Predicted:
        """The bound that is expected on samples with such moments; never a certificate.

        Its slopes are 0 where it is at an end of the sum's range. Moments that are not finite give
        infinity.

        Raises
        ------
        ValueError
            If delta is not in (0, 1), or a mean is outside its range by more than rounding.
        """
        _check_delta(delta)
        by_mean, by_deviation = np.zeros(len(parts)), np.zeros(len(parts))
        if not all(math.isfinite(part.mean) and math.isfinite(part.deviation) for part in parts):
            return Predicted(math.inf, by_mean, by_deviation)
        scale = _unit(parts)
        scaled = [_scaled(replace(part, coefficient=part.coefficient / scale)) for part in parts]
        live = [i for i, part in enumerate(scaled) if self._teaches(part.range, part.rows)]
        value = sum(part.range[1] for i, part in enumerate(scaled) if i not in live)
        if live:
            expected = self._expected([scaled[i] for i in live], delta)
            value += expected.value
            coefficients = np.array([parts[i].coefficient for i in live])
            by_mean[live] = coefficients * expected.by_mean
            by_deviation[live] = np.abs(coefficients) * expected.by_deviation
        clipped = _clipped(value, [part.range for part in scaled])
        inside = float(clipped == value)
        return Predicted(scale * clipped, inside * by_mean, inside * by_deviation)

    def _teaches(self, ends: Interval, rows: int) -> bool:
        if ends[0] == ends[1] or rows < self.least_rows:
            return False
        return not self.needs_range or all(map(math.isfinite, ends))

    @abstractmethod
    def _above(self, samples: Sequence[Measured], delta: float, rng: np.random.Generator) -> float:
        """Bound the sum of the means of one sample or more; clipping is the caller's."""

    @abstractmethod
    def _expected(self, moments: Sequence[Moments], delta: float) -> Predicted:
        """Predict the bound on the sum of the means; all coefficients are 1."""


def unit(sample: Measured) -> tuple[float, Array]:
    """Return the width of a finite range, and the values as shares of it in [0, 1]."""
    low, high = sample.range
    return high - low, (sample.values - low) / (high - low)


def shares(widths: Array, rows: Array) -> Array:
    """Divide delta over bounds of several means, in proportion to width / sqrt(rows).

    That is what the largest standard errors are in proportion to, and nearly what makes the sum of
    the bounds least. It looks at no measurement, as it must not.
    """
    errors = widths / np.sqrt(rows)
    return np.asarray(errors / errors.sum())


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, not {delta}")


def _unit(parts: Sequence[Part] | Sequence[Moments]) -> float:
    """Return a power of 2 near the largest coefficient, 1 if there is none but 0.

    In units of it squares of coefficients are numbers that there are, and nothing else changes: a power
    of 2 is divided by without rounding.
    """
    sizes = [abs(part.coefficient) for part in parts if part.coefficient]
    if not all(map(math.isfinite, sizes)):
        raise ValueError(f"a coefficient must be a finite number, not {max(sizes)}")
    return math.ldexp(1.0, math.frexp(max(sizes))[1] - 1) if sizes else 1.0


def _measured(part: Part) -> Measured:
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
    return Measured(np.where(np.isfinite(values), scaled, math.nan), ends)


def _scaled(part: Moments) -> Moments:
    _check_range(part.range, np.array([part.mean]))
    mean = min(max(part.mean, part.range[0]), part.range[1])
    return replace(
        part,
        coefficient=1.0,
        mean=part.coefficient * mean,
        deviation=abs(part.coefficient) * part.deviation,
        range=_scaled_range(part.coefficient, part.range),
    )


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

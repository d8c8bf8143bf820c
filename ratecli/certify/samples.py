"""Measurements of rows as the samples that confidence bounds are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

"""Means and shares with 95 % confidence intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import betaincinv, stdtrit

LEVEL = 0.95


@dataclass(frozen=True)
class IntervalEstimate:
    """A mean with its confidence interval; `n` counts the values used, `nan` the ones left out.

    A mean has a Student-t interval of half-width `half`, which requires at least two values, all
    finite. Without values there is no mean. A share of trials has an `exact` interval, which is
    asymmetric.
    """

    mean: float | None
    half: float | None
    n: int
    nan: int = 0
    exact: tuple[float, float] | None = None

    @property
    def finite(self) -> bool:
        return self.mean is not None and math.isfinite(self.mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.exact is not None:
            return self.exact
        if self.mean is None or self.half is None:
            return None
        return self.mean - self.half, self.mean + self.half

    @property
    def low(self) -> float | None:
        return self.interval[0] if self.interval else None

    @property
    def high(self) -> float | None:
        return self.interval[1] if self.interval else None


NO_ESTIMATE = IntervalEstimate(None, None, 0)


def estimate_mean(values: Iterable[float]) -> IntervalEstimate:
    everything = list(values)
    numbers = [value for value in everything if not math.isnan(value)]
    n, nan = len(numbers), len(everything) - len(numbers)
    if not numbers:
        return IntervalEstimate(None, None, 0, nan)
    if not all(map(math.isfinite, numbers)):
        return IntervalEstimate(_infinite(numbers), None, n, nan)
    mean = float(statistics.mean(numbers))
    if n == 1:
        return IntervalEstimate(mean, None, n, nan)
    quantile = float(stdtrit(n - 1, (1 + LEVEL) / 2))
    return IntervalEstimate(mean, quantile * statistics.stdev(numbers) / math.sqrt(n), n, nan)


def estimate_share(count: int, n: int, unknown: int = 0) -> IntervalEstimate:
    """Estimate a share, `count` of `n` trials, with the interval of Clopper and Pearson (1934).

    `unknown` is the number of trials left out of both.
    """
    if not n:
        return IntervalEstimate(None, None, 0, unknown)
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, n - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - tail)) if count < n else 1.0
    return IntervalEstimate(count / n, None, n, unknown, (low, high))


def _infinite(numbers: list[float]) -> float:
    """Return the mean of numbers that include infinities: the infinity, or NaN if both occur."""
    infinite = {number for number in numbers if math.isinf(number)}
    return infinite.pop() if len(infinite) == 1 else math.nan

"""Confidence bounds by betting against a mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from scipy import optimize

from ratecli.certify.bets import compute_stakes
from ratecli.certify.bound import Bound, BoundedSample, PredictedBound, SampleSizes, scale_to_unit
from ratecli.models.base import Array

MAX_BRACKET = 100.0
"""Values are clipped here, so that an infinite end does not slow down the search."""


def find_root_above(
    value: Callable[[float], float], low: float, high: float, tolerance: float
) -> float:
    """Return a point where the value is at least 0, usually the first one to within the tolerance.

    Every returned point has been tested, except `high`, where the caller must know that the value
    is at least 0. A bound found by this search is thus as sound as one evaluation, for any
    function.
    """

    def cut(point: float) -> float:
        return min(max(value(point), -MAX_BRACKET), MAX_BRACKET)

    if high <= low or cut(low) >= 0:
        return min(low, high)
    if cut(high) < 0:
        return high
    root: float = optimize.brentq(cut, low, high, xtol=tolerance / 2)
    while root < high and cut(root) < 0:
        root, tolerance = root + tolerance / 2, 2 * tolerance
    return min(root, high)


NUISANCE = 0.02
"""Share of delta for the upper limits of the single means in a sum."""
TOLERANCE = 1e-9
LogWealth = Callable[[float], float]


class Betting(Bound):
    """The mean at which a gambler betting that it is too high has 1/delta times the initial wealth.

    Waudby-Smith and Ramdas (2024), section 4: predictable plug-in bets (`compute_stakes`) on rows
    in random order. The bets do not depend on the tested mean m, so the wealth increases in m and
    the bound is a root. If the mean is at least m, the wealth is a supermartingale, so the bound is
    exact.

    Several means share one game, with bets proportional to w_i / n_i for weights w_i. The product
    of the wealths is a supermartingale for the true means, so they are in the set where it is below
    1/delta. The bound is the largest sum in that set. Whether a sum c is in the set is decided by
    the smallest wealth over all means with that sum: each logarithm is concave, hence above its
    chord over the possible range of its mean, and a greedy algorithm finds the smallest sum of
    chords. A share NUISANCE of delta is spent on upper limits of the single means, which shorten
    the chords.
    """

    name: ClassVar[str] = "betting"
    exact: ClassVar[bool] = True
    means: ClassVar[str] = "from bets on the measurements of rows in random order"

    def _above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        scaled = [scale_to_unit(sample) for sample in samples]
        weights = np.array([width for width, _ in scaled])
        values = [rng.permutation(column) for _, column in scaled]
        low = math.fsum(sample.range[0] for sample in samples)
        if len(values) == 1:
            return low + float(weights[0]) * _mean_limit(values[0], delta)
        own = NUISANCE * delta / len(values)
        limits = np.array([_mean_limit(column, own) for column in values])
        return low + _sum_limit(values, weights, limits, (1 - NUISANCE) * delta)

    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        # imports numba, which takes about 0.3 s
        from ratecli.certify.betting_prediction import expected_excess  # noqa: PLC0415

        level = delta if means.size == 1 else (1 - NUISANCE) * delta
        excess = expected_excess(sizes, means, deviations, level)
        return PredictedBound(
            float(means.sum()) + excess.value,
            1 + excess.by_mean,
            excess.by_deviation,
        )


def _log_wealth(values: Array, stakes: Array) -> LogWealth:
    return lambda mean: float(np.log1p(stakes * (mean - values)).sum())


def _mean_limit(values: Array, delta: float) -> float:
    (stakes,) = compute_stakes([values], np.ones(1), delta)
    wealth = _log_wealth(values, stakes)
    goal = math.log(1 / delta)
    return find_root_above(lambda mean: wealth(mean) - goal, 0.0, 1.0, TOLERANCE)


def _sum_limit(values: Sequence[Array], weights: Array, limits: Array, delta: float) -> float:
    """Return the largest weighted sum of means, each below its limit, that is not ruled out."""
    games = zip(values, compute_stakes(values, weights, delta), strict=True)
    wealths = [_log_wealth(column, stakes) for column, stakes in games]
    goal, high = math.log(1 / delta), float(weights @ limits)

    def excess(total: float) -> float:
        return _lower_bound_wealth(wealths, weights, limits, total) - goal

    return find_root_above(excess, 0.0, high, TOLERANCE * float(weights.sum()))


def _lower_bound_wealth(
    wealths: Sequence[LogWealth], weights: Array, limits: Array, total: float
) -> float:
    """Bound a sum of concave functions from below, over all means with this weighted sum.

    Each mean is at least the total minus the limits of the others. Between its ends, a function is
    above its chord; the chords with the smallest slopes are used first.
    """
    lows = np.maximum(0.0, limits - (weights @ limits - total) / weights)
    highs = np.minimum(limits, lows + (total - weights @ lows) / weights)
    at_lows = np.array([wealth(low) for wealth, low in zip(wealths, lows, strict=True)])
    at_highs = np.array([wealth(high) for wealth, high in zip(wealths, highs, strict=True)])
    room = weights * (highs - lows)
    rises = np.divide(at_highs - at_lows, room, out=np.zeros_like(room), where=room > 0)
    order = np.argsort(rises)
    before = np.concatenate(([0.0], np.cumsum(room[order])[:-1]))
    taken = np.clip(total - weights @ lows - before, 0.0, room[order])
    return float(at_lows.sum() + rises[order] @ taken)

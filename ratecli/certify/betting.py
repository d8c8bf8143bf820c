"""Confidence bounds by betting against a mean, with stakes from the rows before each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from ratecli.certify.base import Bound, BoundedSample, SumMoments, scale_to_unit
from ratecli.models.base import Array

MAX_BRACKET = 100.0
"""Values are clipped here, so that an infinite end does not slow down the search."""


def find_root_above(value: Callable[[float], float], high: float, tolerance: float) -> float:
    """Return a point from 0 to `high` where the value is at least 0.

    It is usually the first such point, to within the tolerance. Every returned point has been
    tested, except `high`, where the caller must know that the value is at least 0. A bound found by
    this search is thus as sound as one evaluation, for any function.
    """

    def cut(point: float) -> float:
        return min(max(value(point), -MAX_BRACKET), MAX_BRACKET)

    if high <= 0 or cut(0.0) >= 0:
        return min(0.0, high)
    if cut(high) < 0:
        return high
    root: float = optimize.brentq(cut, 0.0, high, xtol=tolerance / 2)
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

    If a range has no lower end, each mean is bounded separately, at an equal share of delta: the
    distances of the values from the upper end are not negative, and such bets need no more (Orabona
    and Jun 2023).
    """

    name = "betting"
    exact = True
    means = "from bets on the measurements of rows in random order"
    needs = "upper"

    def above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        if any(math.isinf(sample.range[0]) for sample in samples):
            columns = [rng.permutation(sample.range[1] - sample.values) for sample in samples]
            least = math.fsum(_lower_mean_limit(each, delta / len(columns)) for each in columns)
            return math.fsum(sample.range[1] for sample in samples) - least
        scaled = [scale_to_unit(sample) for sample in samples]
        weights = np.array([width for width, _ in scaled])
        values = [rng.permutation(column) for _, column in scaled]
        low = math.fsum(sample.range[0] for sample in samples)
        if len(values) == 1:
            return low + float(weights[0]) * _mean_limit(values[0], delta)
        own = NUISANCE * delta / len(values)
        limits = np.array([_mean_limit(column, own) for column in values])
        return low + _sum_limit(values, weights, limits, (1 - NUISANCE) * delta)

    def expected(self, parts: SumMoments, delta: float) -> Array:
        if np.isinf(parts.lows).any():
            return _expected_one_sided(parts, delta / parts.rows.size)
        level = delta if parts.rows.size == 1 else (1 - NUISANCE) * delta
        return np.asarray(parts.means.sum(axis=-1) + _expected_excess(parts, level))


def _log_wealth(values: Array, stakes: Array) -> LogWealth:
    return lambda mean: float(np.log1p(stakes * (mean - values)).sum())


def _mean_limit(values: Array, delta: float) -> float:
    (stakes,) = compute_stakes([values], np.ones(1), delta)
    wealth = _log_wealth(values, stakes)
    goal = math.log(1 / delta)
    return find_root_above(lambda mean: wealth(mean) - goal, 1.0, TOLERANCE)


def _sum_limit(values: Sequence[Array], weights: Array, limits: Array, delta: float) -> float:
    """Return the largest weighted sum of means, each below its limit, that is not ruled out."""
    games = zip(values, compute_stakes(values, weights, delta), strict=True)
    wealths = [_log_wealth(column, stakes) for column, stakes in games]
    goal, high = math.log(1 / delta), float(weights @ limits)

    def excess(total: float) -> float:
        return _lower_bound_wealth(wealths, weights, limits, total) - goal

    return find_root_above(excess, high, TOLERANCE * float(weights.sum()))


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


PRIOR_VARIANCE = 0.25
"""Counts as one row before the first: the largest possible variance in [0, 1]."""


def compute_stakes(values: Sequence[Array], weights: Array, delta: float) -> list[Array]:
    """Return a stake in [0, 1) for each row: a row x multiplies the wealth by 1 + stake (m - x).

    The samples are played in parallel: row j of n is played at time (j + 1/2) / n, and a stake
    depends only on rows of earlier times. Stakes aim at the best bet for a sum of weighted means
    whose variances are the running ones; see `stake_size`.
    """
    rows = [column.size for column in values]
    ratios = weights / np.array(rows)
    variances = [_running_variance(column) for column in values]
    return [
        ratio
        / ratios.max()
        * stake_size(_sum_variances(variances, weights, rows, n), ratios.max(), delta)
        for ratio, n in zip(ratios, rows, strict=True)
    ]


def stake_size(variance: NDArray[np.inexact], ratio: float, delta: float) -> NDArray[np.inexact]:
    """Return the largest stake among the samples, given the variance of the weighted sum of means.

    The stake a = ratio sqrt(2 ln(1/delta) / variance) is optimal to second order (Waudby-Smith and
    Ramdas 2024, equation 26; ratio is w / n). By the Poisson distribution, x / (1 + x) with x = a +
    a^2 / 3 is optimal for rare events and any a; for small a both agree. It stays below 1, so that
    no row can make the wealth zero.
    """
    best = ratio * np.sqrt(2 * math.log(1 / delta) / variance)
    odds = best + best**2 / 3
    return np.asarray(odds / (1 + odds))


def _running_variance(values: Array) -> Array:
    """Return (n + 1,) variance estimates, where estimate j uses the first j rows."""
    counts = np.arange(1, values.size + 1)
    means = (0.5 + np.cumsum(values)) / (counts + 1)
    squares = PRIOR_VARIANCE + np.cumsum((values - means) ** 2)
    return np.concatenate(([PRIOR_VARIANCE], squares / (counts + 1)))


def _sum_variances(
    variances: Sequence[Array], weights: Array, rows: Sequence[int], n: int
) -> Array:
    """Return (n,) estimated variances of the sum of means before each row of a sample of n rows."""
    total = np.zeros(n)
    twice = 2 * np.arange(n) + 1
    for seen, weight, size in zip(variances, weights, rows, strict=True):
        # number of j' with (j' + 1/2) / size < (j + 1/2) / n, in integers so that ties are exact
        earlier = -((n - twice * size) // (2 * n))
        total += weight**2 / size * seen[earlier]
    return total


LARGEST_LOG = 500.0
"""Limits below the largest value divided by exp(LARGEST_LOG) are 0."""


def _lower_mean_limit(values: Array, delta: float) -> float:
    """Return a lower limit of the mean of values that are at least 0, without an upper end.

    A row y multiplies the wealth by 1 + stake (y / m - 1). Stakes do not depend on the tested mean
    m, so the wealth decreases in m and the limit is a root.
    """
    if not (scale := float(values.max())) > 0:
        return 0.0
    values = values / scale
    stakes, goal = _one_sided_stakes(values, delta), math.log(1 / delta)

    def excess(log: float) -> float:
        """Return the excess of the log wealth at the mean scale / exp(log)."""
        return float(np.log1p(stakes * (values * math.exp(log) - 1)).sum()) - goal

    high = 1.0
    while excess(high) < 0:
        high *= 2
        if high > LARGEST_LOG:
            return 0.0
    return scale * math.exp(-find_root_above(excess, high, TOLERANCE))


def _one_sided_stakes(values: Array, delta: float) -> Array:
    """Return a stake in [0, 1) for each row, which depends only on the earlier rows.

    They follow from the number of equal rows, `sum(y)^2 / sum(y^2)`: so many rows of one value,
    among rows of 0, would have the same mean and deviation as the earlier rows.
    """
    earlier = np.arange(values.size)
    sums, squares = (np.concatenate(([0.0], np.cumsum(y)[:-1])) for y in (values, values**2))
    equal = np.divide(sums**2, squares, out=np.zeros(values.size), where=squares > 0)
    return np.asarray(_one_sided_stake(earlier, equal, values.size, delta), dtype=float)


def _one_sided_stake(earlier: Any, equal: NDArray[np.inexact], rows: Any, delta: float) -> Any:
    """Return stakes for rows after earlier ones; see `_one_sided_stakes`.

    The stake sqrt(2 ln(1/delta) / (rows * ratio)), where ratio is the variance divided by the
    squared mean, is optimal to second order. If large values are rare, the best stake is below
    1 / ratio. Half an equal row stands for larger values that the earlier rows may have missed.
    """
    ratio = (np.maximum(earlier - equal, 0) + 0.5) / (equal + 0.5)
    return 1 / (np.sqrt(rows * ratio / (2 * math.log(1 / delta))) + 1 + ratio / 2)


PREDICTION_NODES = 32
MIN_MEAN = 1e-9
NEWTON_TOLERANCE, NEWTON_STEPS = 1e-12, 100


def _expected_excess(parts: SumMoments, delta: float) -> Array:
    """Return the expected excess D (...) of the bound over the sum of means.

    D is where the expected logarithm of the wealth is ln(1/delta), for values that are either 0 or
    one larger number and have the given moments (true of 0/1 decisions). The bets are those for the
    expected running variances.
    """
    widths, rows = parts.widths, parts.rows
    means = np.maximum((parts.means - parts.lows) / widths, MIN_MEAN)
    spreads = parts.deviations / widths
    goal, room = math.log(1 / delta), (1 - means) @ widths
    growth = _expected_growth(widths, rows, delta)
    # where no wealth rules out any mean, the excess is all the room
    open_ = (room > 0) & (growth(means, spreads, room)[0] >= goal)
    errors = ((widths * spreads) ** 2 / rows).sum(axis=-1)
    excess = np.minimum(np.sqrt(2 * goal * errors), room / 2)
    for k in range(NEWTON_STEPS):
        grown, rise = growth(means, spreads, excess)
        step = np.where(open_, np.maximum((goal - grown) / rise, -excess), 0.0)
        # The growth is concave: every step but the first is upward, until only rounding is left.
        step = np.maximum(step, 0.0) if k else step
        if k and (step <= NEWTON_TOLERANCE * room).all():
            break
        excess = excess + step
    return np.where(open_, excess, room)


MAX_VARIATION, MAX_EXPONENT = 1e6, 700.0
"""Larger numbers would overflow; predicted limits are 0 there up to rounding."""


def _expected_one_sided(parts: SumMoments, delta: float) -> Array:
    """Predict separate bounds for values that are 0 or one larger number below their upper ends.

    The stakes are those after all rows. A limit is the mean below the upper end times a function of
    the coefficient of variation.
    """
    means = parts.highs - parts.means
    near = means * MAX_VARIATION > parts.deviations
    most = np.full(means.shape, MAX_VARIATION)
    ratio = np.divide(parts.deviations, means, out=most, where=near) ** 2
    stake = _one_sided_stake(parts.rows, parts.rows / (1 + ratio), parts.rows, delta)
    exponent = (1 + ratio) * math.log(1 / delta) / parts.rows - ratio * np.log(1 - stake)
    limits = stake * (1 + ratio) / (np.expm1(np.minimum(exponent, MAX_EXPONENT)) + stake)
    return np.asarray((parts.highs - means * limits).sum(axis=-1))


def _expected_growth(
    widths: Array, rows: Array, delta: float
) -> Callable[..., tuple[Array, Array]]:
    """Return the expected log wealth as a function of means, deviations and the tested excess.

    The function takes means and deviations (..., P) as shares of the ranges, and the excess D (...)
    of the tested sum of means over the true one, and also returns the derivative in D. The excess
    is distributed over the means in proportion to their squared standard errors at equal variances.
    The function is concave in D. Stakes are those of `stake_size` at T times.
    """
    times, spans = _prediction_times(float(rows.max()))
    ratios = (widths / rows)[:, None]
    own = ratios / (widths @ ratios)
    plays = rows[:, None] * spans
    prior_shares = 1 / (times * rows[:, None] + 1)

    def growth(means: Array, spreads: Array, excess: Array) -> tuple[Array, Array]:
        means, spreads = means[..., None], spreads[..., None]  # (..., P, 1); all else (..., P, T)
        excess = excess[..., None, None]
        variances = np.minimum(spreads**2, means * (1 - means))
        seen = variances + (PRIOR_VARIANCE - variances) * prior_shares
        error = (widths[:, None] * ratios * seen).sum(axis=-2, keepdims=True)
        stake = stake_size(error, ratios.max(), delta) * ratios / ratios.max()
        jump = means + variances / means
        chance = means / jump
        win = 1 + stake * (means + excess * own)
        loss = win - stake * jump
        grown = plays * (np.log(win) + chance * np.log(loss / win))
        rise = plays * stake * own * ((1 - chance) / win + chance / loss)
        return grown.sum(axis=(-2, -1)), rise.sum(axis=(-2, -1))

    return growth


@lru_cache
def _prediction_times(rows: float) -> tuple[Array, Array]:
    """Return times in (0, 1), denser near 0 where few rows are seen, and the spans around them."""
    edges = np.concatenate(([0.0], np.geomspace(1 / rows, 1.0, PREDICTION_NODES)))
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)

"""Exact bounds on rates of decisions, computed from counts."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ratecli.certify.base import Bound, BoundedSample, SumMoments, scale_to_unit
from ratecli.models.base import Array


def clopper_pearson_upper(
    counts: Array | float, rows: Array | float, delta: Array | float
) -> Array:
    """Return upper limits of rates with error probability delta (Clopper and Pearson 1934).

    Counts may be fractional. The lower limit is 1 minus the upper limit for rows - counts.
    """
    counts, rows = np.asarray(counts, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    full = counts >= rows
    missing = np.where(full, 1.0, rows - counts)
    return np.where(full, 1.0, special.betainccinv(counts + 1.0, missing, delta))


NUISANCE = 0.005
"""Share of delta for the limits of the single rates."""
LINES = 700
"""Grid lines for each rate; the loss is 1/1400 of the range of the sum within those limits."""
MIN_LINES = 100
ELEMENTS = 2_000_000
"""Maximum size of the probability tables: there are fewer lines for large counts."""
DEVIATIONS = 6.5
"""Counts beyond so many standard deviations are not enumerated; their probability is added."""
ROUNDING = 1e-9


def pair_limit(counts: Array, rows: Array, weights: Array, delta: float) -> float:
    """Return an upper limit on `weights @ p` from independent counts ~ Binomial(rows, p).

    counts, rows and weights are (2,) arrays, the weights positive. Outcomes are ordered by the
    approximate limit of `_RateInterval.order`; the outcomes up to the observed one form a region R.
    The limit u is Buehler's (1957; Kabaila and Lloyd 2003): R has a probability of at most delta
    for every p with `weights @ p >= u`. If R contains an outcome, it contains all outcomes with
    smaller counts, so its probability decreases in both rates. The worst p with a sum of at least u
    is therefore on the line `weights @ p = u`, and for the piece of the line in a grid cell, the
    cell's lower corner is worse still.

    Rates are restricted to limits of their own, each with error probability NUISANCE delta / 4; R
    gets the rest of delta (Berger and Boos 1994).
    """
    sides = zip(counts, rows, weights, strict=True)
    pair = [_RateInterval.around(*side, NUISANCE * delta / 4) for side in sides]
    few, many = sorted(pair, key=lambda rate: rate.window.size)
    lines = min(max(ELEMENTS // (few.window.size + many.window.size), MIN_LINES), LINES)
    step = (few.room + many.room) / (2 * lines)
    masses, missed = few.masses(step)
    table, beyond = many.masses(step)
    # (lines of many, counts of few): probability of being in R
    last = _last_in_region(few, many, min(delta, 0.5))
    below = np.where(last < 0, 0.0, np.cumsum(table, axis=1)[:, np.maximum(last, 0)])
    goal = (1 - NUISANCE) * delta * (1 - ROUNDING)

    def rejected(steps: int) -> bool:
        first = np.arange(max(0, steps - beyond.size), min(steps, missed.size))
        second = steps - 1 - first
        if not first.size:
            return True
        # along the line, one rate increases as the other decreases
        falling = below[second[-1] : second[0] + 1][::-1]
        region = np.einsum("ij,ij->i", masses[first[0] : first[-1] + 1], falling)
        return bool((region + missed[first] + beyond[second]).max() <= goal)

    low = few.weight * few.low + many.weight * many.low
    seen = int((weights @ (counts / rows) - low) / step)
    low_steps, all_steps = max(seen, 0), missed.size + beyond.size
    steps = low_steps + bisect_left(range(low_steps, all_steps), True, key=rejected)
    return min(low + step * steps, few.weight + many.weight)


@dataclass(frozen=True)
class _RateInterval:
    """A rate between limits, and the (W,) counts that are likely for rates between them."""

    count: float
    rows: float
    weight: float
    low: float
    high: float
    window: Array

    @classmethod
    def around(cls, count: float, rows: float, weight: float, delta: float) -> _RateInterval:
        """Build from a count; each limit has an error probability of at most delta."""
        high = float(clopper_pearson_upper(count, rows, delta))
        low = 1 - float(clopper_pearson_upper(rows - count, rows, delta))
        first, last = (
            rows * rate + sign * (DEVIATIONS * math.sqrt(rows * rate * (1 - rate)) + 10)
            for rate, sign in ((low, -1), (high, 1))
        )
        window = np.arange(max(0.0, math.floor(first)), min(rows, math.ceil(last)) + 1)
        return cls(count, rows, weight, low, high, window)

    @property
    def room(self) -> float:
        return self.weight * (self.high - self.low)

    def order(self, delta: float) -> tuple[Array, Array]:
        """Return (W,) weighted estimates, and squared distances of their limits from them.

        Outcomes are ordered by the sum of estimates plus the root of the sum of squares (Zou and
        Donner 2008), which increases in each count because limits do. It is close to the limit that
        is sought, so R hardly favours either rate along a line, and little is lost at the worst p.
        """
        estimates = self.window / self.rows
        above = np.maximum(clopper_pearson_upper(self.window, self.rows, delta) - estimates, 0.0)
        return self.weight * estimates, (self.weight * above) ** 2

    def masses(self, step: float) -> tuple[Array, Array]:
        """Return (L, W) probabilities of the likely counts and (L,) the total of all other counts.

        The L lines are `step` apart in the sum, starting at the lower limit of the rate. The W
        probabilities are scaled to sum to 1, which slightly overestimates each of them.
        """
        lines = max(1, math.ceil(self.room / step))
        rates = self.low + np.arange(lines) * step / self.weight
        rates = np.clip(rates, 1e-300, 1 - 1e-16)
        first, last = self.window[0], self.window[-1]
        ratios = np.log((self.rows - self.window[:-1]) / self.window[1:])
        logs = np.multiply.outer(special.logit(rates), self.window - first)
        logs += np.concatenate(([0.0], np.cumsum(ratios)))
        masses = special.softmax(logs, axis=1)
        others = np.zeros(lines)
        if first > 0:
            others += special.betaincc(first, self.rows - first + 1, rates)
        if last < self.rows:
            others += special.betainc(last + 1, self.rows - last, rates)
        return masses, others


def _last_in_region(few: _RateInterval, many: _RateInterval, delta: float) -> NDArray[np.intp]:
    """Return, for each count of `few`, the index of the last count of `many` in R; -1 if none.

    Ties up to rounding are included in R, which makes R larger.
    """
    estimates, squares = few.order(delta)
    others, other_squares = many.order(delta)

    def at(i: NDArray[np.intp] | int, j: NDArray[np.intp] | int) -> Array:
        return np.asarray(estimates[i] + others[j] + np.sqrt(squares[i] + other_squares[j]))

    seen = at(int(few.count - few.window[0]), int(many.count - many.window[0]))
    seen = seen + ROUNDING * (few.weight + many.weight)
    every = np.arange(few.window.size)
    low, high = np.full(every.size, -1), np.full(every.size, many.window.size)
    while (high - low).max() > 1:
        middle = (low + high) // 2
        inside = (middle < 0) | (at(every, np.maximum(middle, 0)) <= seen)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


class ClopperPearson(Bound):
    """Limits of Clopper and Pearson (1934) for one rate, and of `pair_limit` for the sum of two.

    For three or more rates, delta is divided among pairs: rates are sorted by width / sqrt(rows),
    to which their largest standard errors are proportional, neighbours are bounded together, and
    the shares of delta are proportional to the errors of the pairs. Only sizes are used, not
    measurements.

    Measurements that are not at an end of their range (the probabilities of a randomized
    classifier) are first turned into decisions: each row is sampled once as 1 with the probability
    given by its position in the range. The mean does not change, so the bound is exact for it and
    for the randomized classifier.
    """

    name = "clopper_pearson"
    exact = True
    means = "from counts of decisions; those of a randomized classifier are sampled once"

    def above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        widths = np.array([sample.range[1] - sample.range[0] for sample in samples])
        rows = np.array([float(sample.values.size) for sample in samples])
        counts = np.array([_count(sample, rng) for sample in samples])
        total = math.fsum(sample.range[0] for sample in samples)
        for pair, share in _mean_pairs(widths, rows):
            own = counts[pair], rows[pair]
            if pair.size == 1:
                total += float(widths[pair] @ clopper_pearson_upper(*own, share * delta))
            else:
                total += pair_limit(*own, widths[pair], share * delta)
        return total

    def expected(self, parts: SumMoments, delta: float) -> Array:
        """Predict the limit of a pair by the order of its outcomes (Zou and Donner 2008)."""
        rates, total = (parts.means - parts.lows) / parts.widths, parts.means.sum(axis=-1)
        for pair, share in _mean_pairs(parts.widths, parts.rows):
            own, rows = rates[..., pair], parts.rows[pair]
            above = clopper_pearson_upper(own * rows, rows, share * delta) - own
            total = total + np.sqrt(((parts.widths[pair] * above) ** 2).sum(axis=-1))
        return np.asarray(total)


def _mean_pairs(widths: Array, rows: Array) -> list[tuple[NDArray[np.intp], float]]:
    """Return the indices of means that are bounded together, and their share of delta."""
    errors = widths / np.sqrt(rows)
    order = np.argsort(-errors, kind="stable")
    pairs = [order[i : i + 2] for i in range(0, order.size, 2)]
    sizes = np.array([np.hypot.reduce(errors[pair]) for pair in pairs])
    return list(zip(pairs, (sizes / sizes.sum()).tolist(), strict=True))


def _count(sample: BoundedSample, rng: np.random.Generator) -> float:
    """Return the number of positive decisions, sampled with the probability of each row.

    Every row takes one random number, so that similar classifiers have similar counts.
    """
    _, values = scale_to_unit(sample)
    return float((rng.random(values.size) < values).sum())

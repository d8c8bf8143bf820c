"""Exact bounds on rates of decisions, from counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ratecli.certify.bound import Bound, BoundedSample, PredictedBound, SampleSizes, scale_to_unit
from ratecli.models.base import Array


def clopper_pearson_upper(
    counts: Array | float, rows: Array | float, delta: Array | float
) -> Array:
    """Return upper limits of rates, wrong with a probability of delta (Clopper and Pearson 1934).

    Counts may be fractions. The lower limit is 1 minus the upper limit for rows - counts.
    """
    counts, rows = np.asarray(counts, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    full = counts >= rows
    missing = np.where(full, 1.0, rows - counts)
    return np.where(full, 1.0, special.betainccinv(counts + 1.0, missing, delta))


NUISANCE = 0.005
"""Share of delta for the limits of the single rates."""
LINES = 700
"""Of the grid, for each rate: the loss is 1/1400 of what the sum can be within those limits."""
MIN_LINES = 100
ELEMENTS = 2_000_000
"""Of the tables of probabilities: where counts are many, lines are fewer."""
DEVIATIONS = 6.5
"""Counts further away are not looked at one by one; all of their probability is added."""
ROUNDING = 1e-9


def pair_limit(counts: Array, rows: Array, weights: Array, delta: float) -> float:
    """Return an upper limit on `weights @ p` from independent counts ~ Binomial(rows, p).

    counts, rows and weights are (2,) arrays, the weights positive. Outcomes are ordered by the
    approximate limit `_Rate` makes; those no later than the one seen are a region R. The limit u is
    Buehler's (1957; Kabaila and Lloyd 2003): no p with `weights @ p >= u` makes R more probable than
    delta. With an outcome R contains those of smaller counts, so its probability falls in both
    rates: of all p with a sum of u or more, those on the line `weights @ p = u` are the worst, and of
    a piece of the line that is in a cell of a grid, the cell's lower corner is worse still.

    Rates are looked at within limits of their own, each of which is wrong with a probability of a
    quarter of NUISANCE delta; R has what is left of delta (Berger and Boos 1994).
    """
    pair = [
        _Rate.around(*each, NUISANCE * delta / 4)
        for each in zip(counts, rows, weights, strict=True)
    ]
    few, many = sorted(pair, key=lambda rate: rate.window.size)
    lines = min(max(ELEMENTS // (few.window.size + many.window.size), MIN_LINES), LINES)
    step = (few.room + many.room) / (2 * lines)
    masses, missed = few.masses(step)
    table, beyond = many.masses(step)
    # (lines of many, counts of few): how probable it is that the outcome is in R
    last = _last_in_region(few, many, min(delta, 0.5))
    below = np.where(last < 0, 0.0, np.cumsum(table, axis=1)[:, np.maximum(last, 0)])
    goal = (1 - NUISANCE) * delta * (1 - ROUNDING)

    def rejected(steps: int) -> bool:
        first = np.arange(max(0, steps - beyond.size), min(steps, missed.size))
        second = steps - 1 - first
        if not first.size:
            return True
        # along the line one rate grows as the other falls
        falling = below[second[-1] : second[0] + 1][::-1]
        region = np.einsum("ij,ij->i", masses[first[0] : first[-1] + 1], falling)
        return bool((region + missed[first] + beyond[second]).max() <= goal)

    low = few.weight * few.low + many.weight * many.low
    seen = int((weights @ (counts / rows) - low) / step)
    steps = _first_accepted(rejected, max(seen, 0), missed.size + beyond.size)
    return min(low + step * steps, few.weight + many.weight)


@dataclass(frozen=True)
class _Rate:
    """A rate between limits, and the (W,) counts that are likely for it there."""

    count: float
    rows: float
    weight: float
    low: float
    high: float
    window: Array

    @classmethod
    def around(cls, count: float, rows: float, weight: float, delta: float) -> _Rate:
        """Make one from a count; each limit is wrong with a probability of delta at most."""
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
        """Return (W,) weighted estimates, and squares of what their limits are above them.

        Estimates are added, and the root of the sum of squares (Zou and Donner 2008): the sum grows in
        each count, since limits do. It is near the limit that is sought, so R hardly prefers a rate to
        another on its line, and little is lost in the worst.
        """
        estimates = self.window / self.rows
        above = np.maximum(clopper_pearson_upper(self.window, self.rows, delta) - estimates, 0.0)
        return self.weight * estimates, (self.weight * above) ** 2

    def masses(self, step: float) -> tuple[Array, Array]:
        """Return (L, W) probabilities of likely counts and (L,) those of all others together.

        L lines are `step` of the sum apart, from the lower limit of the rate. The W probabilities are
        scaled to sum to 1, which makes each a little more than it is.
        """
        lines = max(1, math.ceil(self.room / step))
        rates = self.low + np.arange(lines) * step / self.weight
        rates = np.clip(rates, 1e-300, 1 - 1e-16)
        first, last = self.window[0], self.window[-1]
        ratios = np.log((self.rows - self.window[:-1]) / self.window[1:])
        logs = np.multiply.outer(special.logit(rates), self.window - first)
        logs += np.concatenate(([0.0], np.cumsum(ratios)))
        logs -= logs.max(axis=1, keepdims=True)
        np.exp(logs, out=logs)
        logs /= logs.sum(axis=1, keepdims=True)
        others = np.zeros(lines)
        if first > 0:
            others += special.betaincc(first, self.rows - first + 1, rates)
        if last < self.rows:
            others += special.betainc(last + 1, self.rows - last, rates)
        return logs, others


def _last_in_region(few: _Rate, many: _Rate, delta: float) -> NDArray[np.intp]:
    """Return, for each count of one rate, the place of the last count of the other in R; -1: none.

    What counts as a tie by rounding is in R, which makes R larger.
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


def _first_accepted(accepts: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number in [low, high] from which on all are accepted; the last one is."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if accepts(middle) else (middle + 1, high)
    return low


SLOPE_STEP = 1e-4
"""Of the difference of a limit in the (fractional) count, relative to the root of the rows."""


class ClopperPearson(Bound):
    """Limits of Clopper and Pearson (1934) for one rate, and of `pair_limit` for the sum of two.

    Of three rates or more, delta is divided over pairs: rates are sorted by width / sqrt(rows), which
    their largest standard errors are in proportion to, neighbours are bounded together, and shares are
    in proportion to the errors of the pairs. This looks at sizes alone.

    Measurements that are not at an end of their range (the probabilities of a randomized classifier)
    are decided first: each row is 1 with the probability that its place in the range says, drawn once.
    The mean stays the same, so the bound is exact for it, and for the randomized classifier.
    """

    name: ClassVar[str] = "clopper_pearson"
    exact: ClassVar[bool] = True
    means: ClassVar[str] = (
        "from counts of decisions; those of a randomized classifier are drawn once"
    )

    def _above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        widths = np.array([sample.range[1] - sample.range[0] for sample in samples])
        rows = np.array([float(sample.values.size) for sample in samples])
        counts = np.array([_count(sample, rng) for sample in samples])
        total = math.fsum(sample.range[0] for sample in samples)
        for pair, share in _mean_pairs(widths, rows):
            if pair.size == 1:
                total += float(
                    widths[pair] @ clopper_pearson_upper(counts[pair], rows[pair], share * delta)
                )
            else:
                total += pair_limit(counts[pair], rows[pair], widths[pair], share * delta)
        return total

    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        """Predict the limit of a pair by what orders its outcomes (Zou and Donner 2008)."""
        rows, widths = sizes.rows, sizes.widths
        rates = (means - sizes.lows) / widths
        slopes = np.ones(rates.size)
        value = float(means.sum())
        for pair, share in _mean_pairs(widths, rows):
            limits, rises = _limits(rates[pair], rows[pair], share * delta)
            above = widths[pair] * (limits - rates[pair])
            if (size := float(np.hypot.reduce(above))) > 0:
                value += size
                slopes[pair] += above / size * (rises - 1)
        return PredictedBound(value, slopes, np.zeros_like(deviations))


def _mean_pairs(widths: Array, rows: Array) -> list[tuple[NDArray[np.intp], float]]:
    """Return the places of means that are bounded together, and the share of delta they have."""
    errors = widths / np.sqrt(rows)
    order = np.argsort(-errors, kind="stable")
    pairs = [order[i : i + 2] for i in range(0, order.size, 2)]
    sizes = np.array([np.hypot.reduce(errors[pair]) for pair in pairs])
    return list(zip(pairs, (sizes / sizes.sum()).tolist(), strict=True))


def _limits(rates: Array, rows: Array, delta: float) -> tuple[Array, Array]:
    """Return upper limits of rates and their slopes, by the difference of two limits near by."""
    step, counts = SLOPE_STEP * np.sqrt(rows), rates * rows
    above, below = np.minimum(counts + step, rows), np.maximum(counts - step, 0)
    limits, highs, lows = clopper_pearson_upper(np.stack([counts, above, below]), rows, delta)
    return limits, (highs - lows) * rows / (above - below)


def _count(sample: BoundedSample, rng: np.random.Generator) -> float:
    _, values = scale_to_unit(sample)
    if np.isin(values, (0.0, 1.0)).all():
        return float(values.sum())
    return float((rng.random(values.size) < values).sum())

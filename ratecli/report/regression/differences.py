"""Differences of measured values from pinned ones, and their confidence intervals.

A *family* is one metric of one variant of one algorithm on one split, at all its sweep points.
These measure the same quantity with about the same noise, so their variance estimates are pooled.

For paired seeds, a difference is the mean of d_s = now_s - was_s over the seeds s; for two
independent samples it is the difference of their means. In sample j (there is a single sample, of
differences, if paired), point k has values of n_jk seeds, points k and l have n_jkl seeds in
common, and C_jkl is the sum over these seeds of the products of their deviations from the means.
The pooled variance and its uncertainty are

    s_j = sum_k C_jkk / N_j,   q_j = sum_kl C_jkl^2 / (n_jkl - 1) / N_j^2,   N_j = sum_k (n_jk - 1).

A point's standard error is the square root of the larger of V_k = sum_j s_j / n_jk and the same sum
with its own variances: among few seeds some agree by chance, so that their own variance alone would
suggest that there is no noise. Its degrees of freedom are df_k = V_k^2 / sum_j (q_j / n_jk^2). For
a single point these are the ones of Student (paired) or of Welch and Satterthwaite (two samples).
Perfectly correlated points give no more degrees of freedom than one point, independent points give
more. Products over few seeds overestimate q, so the formula errs on the safe side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri, stdtrit

BySeed = Mapping[int, float]
"""Values of one comparison by seed, for all seeds; NaN where a seed has no value."""

MIN_SEEDS = 5
"""Minimum number of seeds for an interval: with fewer, a loss is never significant."""
MIN_SAMPLE = 2
"""Minimum number of values for a variance, if there are enough seeds but some lack a value."""
POWER = 0.9
"""Probability of detecting a loss with the number of seeds that `needed` returns."""


@dataclass(frozen=True)
class MeanDifference:
    """Difference of two means, now minus before.

    Attributes
    ----------
    was, now
        The means.
    sizes
        Number of seeds on either side.
    paired
        Whether the same seeds are compared.
    largest
        Largest absolute change of a single seed; infinite for two samples, where it is unknown.
    error
        The standard error, None if there are not enough seeds.
    df
        Degrees of freedom of Student's t.
    """

    was: float
    now: float
    sizes: tuple[int, int]
    paired: bool
    largest: float
    error: float | None = None
    df: float = math.inf

    @property
    def value(self) -> float:
        return self.now - self.was

    @property
    def seeds(self) -> int:
        """The number of pairs, or the size of the smaller of two samples."""
        return min(self.sizes)

    def interval(self, tail: float) -> tuple[float, float] | None:
        """Return the bounds that the difference exceeds with probability at most `tail` each."""
        if self.error is None:
            return None
        half = -float(stdtrit(self.df, tail)) * self.error if self.error else 0.0
        return self.value - half, self.value + half

    def needed(self, loss: float, tail: float) -> int:
        """Return about how many seeds per side are needed to detect a `loss` with probability 0.9.

        This is the n with loss = (t + z) error sqrt(m / n), where t is the Student quantile at
        `tail`, z the normal quantile at 0.9, and m the harmonic mean of the sizes. Zero without an
        interval.
        """
        if not self.error:
            return 0
        size = 2 / sum(1 / each for each in self.sizes)
        reach = float(ndtri(POWER) - stdtrit(self.df, tail)) * self.error
        return math.ceil(size * (reach / loss) ** 2)


def is_paired(was: BySeed, now: BySeed) -> bool:
    """Return whether to compare seeds as pairs.

    This is the case if enough seeds are on both sides, or if some are and either side has too few.
    """
    common = len(was.keys() & now.keys())
    return common >= MIN_SEEDS or (common > 0 and min(len(was), len(now)) < MIN_SEEDS)


def enough_seeds(was: BySeed, now: BySeed) -> bool:
    """Return whether there are enough seeds to tell a difference from noise."""
    common = len(was.keys() & now.keys())
    return (common if is_paired(was, now) else min(len(was), len(now))) >= MIN_SEEDS


def mean_differences(was: Sequence[BySeed], now: Sequence[BySeed]) -> list[MeanDifference | None]:
    """Return the differences of one family by point; None where there is nothing to compare.

    Paired seeds are compared where both sides have a value. If too few seeds do, or if seeds are
    not paired, the values of each side form a sample. A single pair uses the variance of other
    points, or has no interval.
    """
    sides = list(zip(was, now, strict=True))
    pairs = [_pair_seeds(*each, MIN_SAMPLE) for each in sides]
    if _pool_variances(pairs, paired=True).free >= MIN_SEEDS - 1:
        pairs = [_pair_seeds(*each, 1) for each in sides]
    spread = {paired: _pool_variances(pairs, paired=paired) for paired in (True, False)}
    return [None if each is None else _difference(each, spread[each.paired]) for each in pairs]


@dataclass(frozen=True)
class _SeedSamples:
    """The finite values to compare at one point by seed, of the same seeds if paired.

    `certain` is whether an interval can be computed.
    """

    was: BySeed
    now: BySeed
    paired: bool
    certain: bool

    @cached_property
    def samples(self) -> tuple[BySeed, ...]:
        if self.paired:
            return ({seed: self.now[seed] - before for seed, before in self.was.items()},)
        return self.was, self.now

    @property
    def size(self) -> int:
        return min(len(self.was), len(self.now))

    @property
    def moved(self) -> bool:
        return not self.paired or any(self.samples[0].values())


def _pair_seeds(was: BySeed, now: BySeed, least: int) -> _SeedSamples | None:
    """Select the values to compare; `least` is the minimum number of pairs for an interval."""
    before, after = (
        {seed: number for seed, number in each.items() if math.isfinite(number)}
        for each in (was, now)
    )
    common = [seed for seed in before if seed in after]
    pairs, many = is_paired(was, now), enough_seeds(was, now)
    if many and not (pairs and len(common) >= least) and min(len(before), len(after)) >= MIN_SAMPLE:
        return _SeedSamples(before, after, paired=False, certain=True)
    if not pairs or not common:
        return None
    before, after = ({seed: side[seed] for seed in common} for side in (before, after))
    return _SeedSamples(before, after, paired=True, certain=many and len(common) >= least)


def _difference(pair: _SeedSamples, common: _PooledVariance) -> MeanDifference:
    was, now = (float(np.mean(list(each.values()))) for each in (pair.was, pair.now))
    largest = max(map(abs, pair.samples[0].values())) if pair.paired else math.inf
    found = MeanDifference(was, now, (len(pair.was), len(pair.now)), pair.paired, largest)
    if not pair.certain:
        return found
    if not pair.moved:
        return replace(found, error=0.0)
    variance, df = common.of([len(each) for each in pair.samples])
    several = (list(each.values()) for each in pair.samples if len(each) >= MIN_SAMPLE)
    own = sum(float(np.var(each, ddof=1)) / len(each) for each in several)
    return replace(found, error=math.sqrt(max(own, variance)), df=df)


@dataclass(frozen=True)
class _PooledVariance:
    """Pooled estimates: s_j and q_j of each sample, and the smallest N_j; 0 without points."""

    variances: Sequence[float]
    doubts: Sequence[float]
    free: float

    def of(self, sizes: Sequence[int]) -> tuple[float, float]:
        """Return V of a point with these sample sizes, and its degrees of freedom."""
        found = sum(each / n for each, n in zip(self.variances, sizes, strict=True))
        doubt = sum(each / n**2 for each, n in zip(self.doubts, sizes, strict=True))
        return found, found**2 / doubt if doubt else math.inf


def _pool_variances(pairs: Sequence[_SeedSamples | None], *, paired: bool) -> _PooledVariance:
    """Pool the points with several seeds where not all differences are 0."""
    given = (pair for pair in pairs if pair is not None and pair.paired is paired)
    kept = [pair for pair in given if pair.certain and pair.moved and pair.size >= MIN_SAMPLE]
    found = [
        _pool_sample(list(sample)) for sample in zip(*(pair.samples for pair in kept), strict=True)
    ]
    variances, doubts, free = zip(*found, strict=True) if found else ((), (), (0.0,))
    return _PooledVariance(variances, doubts, min(free))


def _pool_sample(points: Sequence[BySeed]) -> tuple[float, float, float]:
    """Return s_j, q_j and N_j of one sample."""
    seeds = list({seed: None for each in points for seed in each})
    numbers = np.array([[each.get(seed, math.nan) for seed in seeds] for each in points])
    there = np.isfinite(numbers).astype(float)
    kept = np.where(there > 0, numbers, 0.0)
    apart = there * (kept - kept.sum(axis=1, keepdims=True) / there.sum(axis=1, keepdims=True))
    products, free = apart @ apart.T, there @ there.T - 1
    total = float(np.trace(free))
    doubts = products**2 / np.maximum(free, 1.0) * (free > 0)
    return float(np.trace(products)) / total, float(doubts.sum()) / total**2, total


@dataclass(frozen=True)
class UndefinedSeeds:
    """Seeds with an undefined metric at one sweep point, among trials that returned a classifier.

    Attributes
    ----------
    was, now
        The seeds without a finite value.
    before, after
        All seeds.
    paired
        Whether the same seeds are compared.
    plenty
        Whether there are enough seeds to tell a loss from noise.
    """

    was: frozenset[int]
    now: frozenset[int]
    before: frozenset[int]
    after: frozenset[int]
    paired: bool
    plenty: bool

    @property
    def moved(self) -> bool:
        """Whether other seeds are undefined than before; any seed, if they are unpaired."""
        return self.was != self.now if self.paired else bool(self.was or self.now)

    @property
    def more(self) -> bool:
        """Whether the share of undefined seeds increased."""
        return len(self.now) * len(self.before) > len(self.was) * len(self.after)

    @property
    def told(self) -> str:
        before, after = len(self.before), len(self.after)
        return f"undefined at {len(self.now)} of {after} seeds, {len(self.was)} of {before} pinned"


def compare_undefined(was: BySeed, now: BySeed, answered: tuple[BySeed, BySeed]) -> UndefinedSeeds:
    """Compare undefined values.

    `was` and `now` have all seeds, `answered` those with a classifier.
    """
    pairs = is_paired(was, now)
    common = answered[0].keys() & answered[1].keys()
    seeds = [frozenset(common if pairs else each) for each in answered]
    lacking = [
        frozenset(seed for seed in own if not math.isfinite(numbers[seed]))
        for own, numbers in zip(seeds, answered, strict=True)
    ]
    return UndefinedSeeds(
        was=lacking[0],
        now=lacking[1],
        before=seeds[0],
        after=seeds[1],
        paired=pairs,
        plenty=enough_seeds(was, now),
    )


def undefined_chance(points: Sequence[UndefinedSeeds]) -> tuple[float, float]:
    """Return the probability that noise alone gives at least this increase in undefined seeds.

    The second number is the smallest probability that could have been reached. Either all `points`
    are paired or none is.
    """
    if points[0].paired:
        steps: Counter[int] = Counter()
        for each in points:
            steps.update(each.now)
            steps.subtract(each.was)
        more = sum(step > 0 for step in steps.values())
        moved = more + sum(step < 0 for step in steps.values())
        return _binomial_tail(more, moved), _binomial_tail(moved, moved)
    was, now, before, after = (
        len(frozenset().union(*sets))
        for sets in zip(*((p.was, p.now, p.before, p.after) for p in points), strict=True)
    )
    sizes = was + now, before + after, after
    return _hypergeometric_tail(now, *sizes), _hypergeometric_tail(min(was + now, after), *sizes)


def _binomial_tail(heads: int, thrown: int) -> float:
    """Return the probability of at least so many heads."""
    ways = sum(math.comb(thrown, k) for k in range(heads, thrown + 1))
    return float(ways / 2**thrown)


def _hypergeometric_tail(marked: int, all_marked: int, cards: int, hand: int) -> float:
    """Return the probability of at least so many marked cards in a hand."""
    ways = (
        math.comb(all_marked, k) * math.comb(cards - all_marked, hand - k)
        for k in range(marked, min(all_marked, hand) + 1)
    )
    return sum(ways) / math.comb(cards, hand)

"""Differences of measured values from pinned ones, their intervals, and undefined values.

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

BySeed = Mapping[int, float | None]
"""Values by seed: NaN or infinite where a value is undefined, None without a classifier."""

MIN_SEEDS = 5
"""Minimum number of seeds for an interval: with fewer, a loss is never significant."""
MIN_SAMPLE = 2
"""Minimum number of values for a variance, if there are enough seeds but some lack a value."""
POWER = 0.9
"""Probability of detecting a loss with the number of seeds that `needed` returns."""


@dataclass(frozen=True)
class SeedPair:
    """The pinned and the current values of one metric at one sweep point, for all seeds."""

    was: BySeed
    now: BySeed

    @cached_property
    def common(self) -> int:
        return len(self.was.keys() & self.now.keys())

    @property
    def paired(self) -> bool:
        """Whether to compare seeds as pairs.

        This is so if enough seeds are on both sides, or if some are and either side has too few.
        """
        fewest = min(len(self.was), len(self.now))
        return self.common >= MIN_SEEDS or (self.common > 0 and fewest < MIN_SEEDS)

    @property
    def enough(self) -> bool:
        """Whether there are enough seeds to tell a difference from noise."""
        return (self.common if self.paired else min(len(self.was), len(self.now))) >= MIN_SEEDS

    @cached_property
    def answered(self) -> tuple[frozenset[int], frozenset[int]]:
        """The seeds with a classifier before and now; if paired, those with one both times."""
        was, now = (
            frozenset(seed for seed, value in side.items() if value is not None)
            for side in (self.was, self.now)
        )
        return (was & now, was & now) if self.paired else (was, now)

    @cached_property
    def undefined(self) -> tuple[frozenset[int], frozenset[int]]:
        """The seeds with a classifier and without a finite value, before and now."""
        was, now = (
            frozenset(seed for seed in seeds if not math.isfinite(side[seed] or 0.0))
            for side, seeds in zip((self.was, self.now), self.answered, strict=True)
        )
        return was, now

    @property
    def undefined_changed(self) -> bool:
        """Whether other seeds are undefined than before; any seed, if they are unpaired."""
        was, now = self.undefined
        return was != now if self.paired else bool(was or now)

    @property
    def undefined_text(self) -> str:
        before, after = map(len, self.answered)
        was, now = map(len, self.undefined)
        return f"undefined at {now} of {after} seeds, {was} of {before} pinned"


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


def mean_differences(family: Sequence[SeedPair]) -> list[MeanDifference | None]:
    """Return the differences of one family by point; None where there is nothing to compare.

    Paired seeds are compared where both sides have a value. If too few seeds do, or if seeds are
    not paired, the values of each side form a sample. A single pair uses the variance of other
    points, or has no interval.
    """
    points = [_select_samples(each, MIN_SAMPLE) for each in family]
    if sum(each.size - 1 for each in _pooled_points(points, paired=True)) >= MIN_SEEDS - 1:
        points = [_select_samples(each, 1) for each in family]
    pools = {
        paired: [_pool_sample(each) for each in zip(*samples, strict=True)]
        for paired in (True, False)
        if (samples := [each.samples for each in _pooled_points(points, paired=paired)])
    }
    return [
        None if each is None else _difference(each, pools.get(each.paired, [])) for each in points
    ]


Sample = dict[int, float]
"""Finite values by seed."""


@dataclass(frozen=True)
class _PointSamples:
    """The finite values to compare at one point, and their samples: differences if paired.

    `certain` is whether an interval can be computed.
    """

    was: Sample
    now: Sample
    samples: tuple[Sample, ...]
    certain: bool

    @property
    def paired(self) -> bool:
        return len(self.samples) == 1

    @property
    def size(self) -> int:
        return min(map(len, self.samples))

    @property
    def moved(self) -> bool:
        return not self.paired or any(self.samples[0].values())


def _select_samples(pair: SeedPair, least: int) -> _PointSamples | None:
    """Select the values to compare; `least` is the minimum number of pairs for an interval."""
    was, now = (
        {seed: value for seed, value in side.items() if value is not None and math.isfinite(value)}
        for side in (pair.was, pair.now)
    )
    pairs = [seed for seed in was if seed in now] if pair.paired else []
    if pair.enough and len(pairs) < least and min(len(was), len(now)) >= MIN_SAMPLE:
        return _PointSamples(was, now, (was, now), certain=True)
    if not pairs:
        return None
    was, now = ({seed: side[seed] for seed in pairs} for side in (was, now))
    changes = {seed: now[seed] - was[seed] for seed in pairs}
    return _PointSamples(was, now, (changes,), certain=pair.enough and len(pairs) >= least)


def _pooled_points(points: Sequence[_PointSamples | None], *, paired: bool) -> list[_PointSamples]:
    """Return the points with several seeds where not all differences are 0."""
    return [
        each
        for each in points
        if each and each.paired is paired and each.certain and each.moved and each.size > 1
    ]


def _pool_sample(points: Sequence[Sample]) -> tuple[float, float]:
    """Return s_j and q_j of one sample."""
    seeds = list({seed: None for each in points for seed in each})
    values = np.array([[each.get(seed, math.nan) for seed in seeds] for each in points])
    there = np.isfinite(values).astype(float)
    deviations = np.nan_to_num(values - np.nanmean(values, axis=1, keepdims=True))
    products, free = deviations @ deviations.T, there @ there.T - 1
    total = float(np.trace(free))
    doubts = products**2 / np.maximum(free, 1.0) * (free > 0)
    return float(np.trace(products)) / total, float(doubts.sum()) / total**2


def _difference(point: _PointSamples, pool: Sequence[tuple[float, float]]) -> MeanDifference:
    was, now = (float(np.mean(list(each.values()))) for each in (point.was, point.now))
    largest = max(map(abs, point.samples[0].values())) if point.paired else math.inf
    sizes = len(point.was), len(point.now)
    found = MeanDifference(was, now, sizes, point.paired, largest)
    if not point.certain:
        return found
    if not point.moved:
        return replace(found, error=0.0)
    pooled = sum(s / len(each) for each, (s, _) in zip(point.samples, pool, strict=True))
    doubt = sum(q / len(each) ** 2 for each, (_, q) in zip(point.samples, pool, strict=True))
    own = sum(
        float(np.var(list(each.values()), ddof=1)) / len(each)
        for each in point.samples
        if len(each) >= MIN_SAMPLE
    )
    df = pooled**2 / doubt if doubt else math.inf
    return replace(found, error=math.sqrt(max(own, pooled)), df=df)


def undefined_chance(points: Sequence[SeedPair]) -> tuple[float, float]:
    """Return the probability that noise alone gives at least this increase in undefined seeds.

    The second number is the smallest probability that could have been reached. Either all `points`
    are paired or none is: the tests of McNemar and Fisher, where a seed counts once for all points.
    """
    if not any(any(each.undefined) for each in points):
        return 1.0, 1.0
    from scipy.stats import binom, hypergeom  # noqa: PLC0415  slow, and rarely needed

    if points[0].paired:
        steps: Counter[int] = Counter()
        for each in points:
            was, now = each.undefined
            steps.update(now)
            steps.subtract(was)
        more = sum(step > 0 for step in steps.values())
        moved = more + sum(step < 0 for step in steps.values())
        chance, least = binom.sf([more - 1, moved - 1], moved, 0.5)
    else:
        gone, lost, before, after = (
            len(frozenset().union(*side))
            for side in zip(*((*each.undefined, *each.answered) for each in points), strict=True)
        )
        highest = min(gone + lost, after)
        chance, least = hypergeom.sf([lost - 1, highest - 1], before + after, gone + lost, after)
    return float(chance), float(least)

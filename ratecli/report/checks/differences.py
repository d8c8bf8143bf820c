"""How far numbers lie from what they were, and between which ends that difference may lie.

A *family* is one metric of one variant of one algorithm on one split, at all its sweep points: these
measure the same thing with about the same noise, so that they share what the seeds tell of it.

Paired, a difference is the mean of d_s = now_s - was_s over n seeds s; of two samples it is the
difference of their means. With S_j the (K, K) covariance, over the n_j seeds of sample j (of the
differences alone if paired), of the numbers of the K points, let V = sum_j S_j / n_j. A point's
standard error is the root of the larger of V_kk and the mean of V's diagonal: of few seeds some agree by
chance, and their own spread would then say that there is no noise. Its degrees of freedom are Welch's,

    df = tr(V)^2 / sum_j ( |S_j / n_j|_F^2 / (n_j - 1) ),

which for K = 1 are those of Student (paired) or of Welch and Satterthwaite (two samples). Points that
move together give no more of them than one point does, independent ones more; as a covariance of few
seeds overstates |S|_F, the formula errs to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

BySeed = Mapping[int, float]
"""Finite numbers of one comparison by seed."""

PLENTY = 5
"""Seeds from which on an interval tells anything: with fewer a loss is never certain enough."""


@dataclass(frozen=True)
class Difference:
    """Of means, now less before.

    Attributes
    ----------
    was, now
        The means.
    seeds
        How many seeds it rests on, of two samples those of the smaller one.
    paired
        Whether the same seeds are compared.
    largest
        The most that one seed moved; infinite of two samples, where nobody knows.
    error
        The standard error, None for fewer than `PLENTY` seeds.
    df
        Degrees of freedom of Student's t.
    """

    was: float
    now: float
    seeds: int
    paired: bool
    largest: float
    error: float | None = None
    df: float = math.inf

    @property
    def value(self) -> float:
        return self.now - self.was

    def interval(self, tail: float) -> tuple[float, float] | None:
        """The ends beyond each of which the difference lies with a probability of at most `tail`."""
        if self.error is None:
            return None
        half = -float(stdtrit(self.df, tail)) * self.error if self.error else 0.0
        return self.value - half, self.value + half


def differences(was: Sequence[BySeed], now: Sequence[BySeed]) -> list[Difference | None]:
    """Those of one family, point by point; None where there is nothing to compare.

    Seeds that both have are paired if there are plenty of them, or not plenty of others; else all
    seeds of either side are a sample.
    """
    pairs = [_pair(before, after) for before, after in zip(was, now, strict=True)]
    spread = {paired: _common(pairs, paired=paired) for paired in (True, False)}
    return [None if each is None else _difference(each, spread[each.paired]) for each in pairs]


@dataclass(frozen=True)
class _Pair:
    """What is compared of one point: numbers by seed, of the same seeds if paired."""

    was: BySeed
    now: BySeed
    paired: bool

    @property
    def samples(self) -> tuple[list[float], ...]:
        if self.paired:
            return ([self.now[seed] - before for seed, before in self.was.items()],)
        return list(self.was.values()), list(self.now.values())

    @property
    def moved(self) -> bool:
        return not self.paired or any(self.samples[0])

    @property
    def seeds(self) -> int:
        return min(len(self.was), len(self.now))


def _pair(was: BySeed, now: BySeed) -> _Pair | None:
    common = [seed for seed in was if seed in now]
    several = min(len(was), len(now)) >= PLENTY
    if len(common) >= PLENTY or (common and not several):
        own = {seed: was[seed] for seed in common}, {seed: now[seed] for seed in common}
        return _Pair(*own, paired=True)
    return _Pair(was, now, paired=False) if several else None


def _difference(pair: _Pair, common: _Spread) -> Difference:
    was, now = (float(np.mean(list(each.values()))) for each in (pair.was, pair.now))
    largest = max(map(abs, pair.samples[0])) if pair.paired else math.inf
    if pair.seeds < PLENTY:
        return Difference(was, now, pair.seeds, pair.paired, largest)
    if not pair.moved:
        return Difference(was, now, pair.seeds, pair.paired, largest, 0.0)
    if common is NO_SPREAD:
        common = _spread([pair])
    own = sum(float(np.var(sample, ddof=1)) / len(sample) for sample in pair.samples)
    error = math.sqrt(max(own, common.variance))
    return Difference(was, now, pair.seeds, pair.paired, largest, error, common.df)


@dataclass(frozen=True)
class _Spread:
    """What points say together: the mean variance of their differences, and its degrees of freedom."""

    variance: float
    df: float


NO_SPREAD = _Spread(0.0, math.inf)


def _common(pairs: Sequence[_Pair | None], *, paired: bool) -> _Spread:
    """That of all points with plenty of seeds that moved at all, if their seeds are the same."""
    given = (pair for pair in pairs if pair is not None and pair.paired is paired)
    found = [pair for pair in given if pair.seeds >= PLENTY and pair.moved]
    same = len({(tuple(pair.was), tuple(pair.now)) for pair in found}) == 1
    return _spread(found) if same else NO_SPREAD


def _spread(pairs: Sequence[_Pair]) -> _Spread:
    """`pairs` have the same seeds."""
    total, squares = np.zeros((len(pairs), len(pairs))), 0.0
    for sample in zip(*(pair.samples for pair in pairs), strict=True):
        n = len(sample[0])
        own = np.atleast_2d(np.cov(np.array(sample))) / n
        total += own
        squares += float(np.sum(own**2)) / (n - 1)
    trace = float(np.trace(total))
    return _Spread(trace / len(pairs), trace**2 / squares if squares else math.inf)

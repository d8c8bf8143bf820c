"""Differences of measured values from pinned ones, with their confidence intervals.

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
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Numbers = NDArray[np.float64]

MIN_SEEDS = 5
"""Minimum number of seeds for an interval: with fewer, noise cannot be estimated."""
POWER = 0.9
"""Probability of detecting a loss with the number of seeds that `needed` returns."""


class SeedDesign(NamedTuple):
    """How the seeds of two sides are compared: as pairs or as samples, and with an interval or not.

    Seeds are paired if enough are on both sides, or if some are and either side has too few.
    """

    paired: bool
    enough: bool

    @classmethod
    def of(cls, was: Collection[int], now: Collection[int]) -> SeedDesign:
        common, fewest = len({*was} & {*now}), min(len(was), len(now))
        paired = common >= MIN_SEEDS or (common > 0 and fewest < MIN_SEEDS)
        return cls(paired, (common if paired else fewest) >= MIN_SEEDS)


@dataclass(frozen=True)
class MeanDifference:
    """Difference of two means, now minus before.

    Attributes
    ----------
    was, now
        The means.
    seeds
        Number of pairs, or size of the smaller of two samples.
    largest
        Largest absolute change of a single seed; infinite for two samples, where it is unknown.
    error
        The standard error, None if it cannot be estimated.
    df
        Degrees of freedom of Student's t.
    """

    was: float
    now: float
    seeds: int
    largest: float
    error: float | None = None
    df: float = math.inf

    @property
    def value(self) -> float:
        return self.now - self.was

    def interval(self, tail: float) -> tuple[float, float] | None:
        """Return the bounds that the difference exceeds with probability at most `tail` each."""
        if self.error is None:
            return None
        half = -float(stdtrit(self.df, tail)) * self.error if self.error else 0.0
        return self.value - half, self.value + half

    def needed(self, loss: float, tail: float) -> int:
        """Return about how many seeds are needed to detect a `loss`; 0 without an interval.

        This is the n with loss = (t + z) error sqrt(seeds / n), where t is the Student quantile at
        `tail` and z the normal quantile at `POWER`.
        """
        if not self.error:
            return 0
        reach = float(ndtri(POWER) - stdtrit(self.df, tail)) * self.error
        return math.ceil(self.seeds * (reach / loss) ** 2)


def mean_differences(
    was: pd.DataFrame, now: pd.DataFrame, design: SeedDesign
) -> list[MeanDifference | None]:
    """Return the differences of one family by point; None where there is nothing to compare.

    The frames have a row for each point and a column for each seed. Seeds whose value is undefined
    or missing, of pairs on either side, are left out. Points of paired seeds that have no pair left
    are compared as two samples if both sides have several values.
    """
    before, after = (side.to_numpy(dtype=float) for side in (was, now))
    before, after = (np.where(np.isfinite(side), side, math.nan) for side in (before, after))
    found = _differences(before, after, design)
    if design.paired and design.enough:
        # for a standard error, each side needs two defined values
        several = [np.isfinite(side).sum(axis=1) > 1 for side in (before, after)]
        unpaired = np.flatnonzero([each is None for each in found] & several[0] & several[1])
        others = _differences(before[unpaired], after[unpaired], SeedDesign(False, enough=True))
        for k, other in zip(unpaired.tolist(), others, strict=True):
            found[k] = other
    return found


def _differences(was: Numbers, now: Numbers, design: SeedDesign) -> list[MeanDifference | None]:
    """Return the differences of values by point and seed, which are NaN where there is none."""
    changes = now - was
    if design.paired:
        was, now = (np.where(np.isnan(changes), math.nan, side) for side in (was, now))
    sizes = np.minimum(np.isfinite(was).sum(axis=1), np.isfinite(now).sum(axis=1))
    if not design.paired and not design.enough:
        sizes[:] = 0
    found: list[MeanDifference | None] = [None] * len(sizes)
    rows = np.flatnonzero(sizes)
    largest = np.full(len(sizes), math.inf)
    if design.paired:
        largest[rows] = np.nanmax(np.abs(changes[rows]), axis=1)
    samples = [changes[rows]] if design.paired else [was[rows], now[rows]]
    errors = _standard_errors(samples) if design.enough else [(None, math.inf)] * len(rows)
    for k, (error, df) in zip(rows.tolist(), errors, strict=True):
        means = float(np.nanmean(was[k])), float(np.nanmean(now[k]))
        found[k] = MeanDifference(*means, int(sizes[k]), float(largest[k]), error, df)
    return found


def _standard_errors(samples: Sequence[Numbers]) -> list[tuple[float | None, float]]:
    """Return the standard error of each point, and its degrees of freedom.

    The error is 0 if no pair changed. Such points are not pooled.
    """
    moved = np.any([np.nan_to_num(values).any(axis=1) for values in samples], axis=0)
    moved |= len(samples) > 1
    own, pooled, doubt = np.zeros((3, len(moved)))
    for values in samples:
        there = np.isfinite(values)
        sizes = there.sum(axis=1)
        deviations = np.nan_to_num(values - np.nanmean(values, axis=1, keepdims=True))
        own += (deviations**2).sum(axis=1) / np.maximum(sizes - 1, 1) / sizes
        several = moved & (sizes > 1)
        total = (sizes - 1)[several].sum()
        if not total:
            return [(None if each else 0.0, math.inf) for each in moved]
        products = deviations[several] @ deviations[several].T
        common = there[several].astype(float)
        free = common @ common.T - 1
        doubts = products**2 / np.maximum(free, 1.0) * (free > 0)
        pooled += np.trace(products) / total / sizes
        doubt += doubts.sum() / total**2 / sizes**2
    errors = np.sqrt(np.maximum(own, pooled)).tolist()
    freedom = np.divide(pooled**2, doubt, out=np.full(len(doubt), math.inf), where=doubt > 0)
    return [
        (error, df) if each else (0.0, math.inf)
        for each, error, df in zip(moved, errors, freedom.tolist(), strict=True)
    ]

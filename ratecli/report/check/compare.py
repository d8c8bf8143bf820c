"""Compare an experiment's results with its pinned reference, and judge the differences.

If the seeds differ, a metric is compared on each split and as the mean over the rows of all splits.
Violations below 0 count as 0, as slack does not matter. Two shares of trials are compared like
metrics: `solution_rate`, of the seeds whose trial found a solution, and `undefined.METRIC`, of the
sweep points where METRIC is undefined, if there are any. Means leave such values out.

A metric *regressed* if its mean over seeds got worse by more than the tolerance and the interval of
the difference excludes 0. If only noise changes the values, then with a probability of 95 % no
metric of a file regresses (Bonferroni correction over the metrics that changed by more than the
tolerance at some seed: no other metric can regress). If any value is undefined, half of the 5 %
are for shares of undefined values. With fewer than `MIN_SEEDS` seeds, noise
cannot be estimated, and any difference beyond the tolerance counts. A metric without a known
direction of improvement *changed* if this holds in either direction.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ratecli.config.base import SOLUTION_RATE
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates.metrics import Direction
from ratecli.report.check.findings import Finding, Verdict
from ratecli.report.check.reference import PinnedTrials
from ratecli.report.groups import CONCLUSIVE

FINISHED = CONCLUSIVE | {"diverged"}
"""Statuses of trials that may be pinned: they are reproducible."""
LEVEL = 0.05
"""Largest probability that noise makes any metric of a file fail."""
TOLERANCE = 0.001
"""Default tolerance, 0.1 percentage points, because results differ slightly between CPUs.

With the kernels of five CPUs, rates of `experiments/adult-check.yaml` differ by at most 0.0003.
"""
HALF_A_POINT = 0.005
"""Loss for which `Finding.needed` is computed, relative for values above 1."""
UNDEFINED_PREFIX = "undefined."
"""Metrics with this prefix are the shares of sweep points at which a metric is undefined."""
BROKEN_HELP = "find out why; trials.csv says how the trials ended"
"""What to do about a model that has no results, although the reference has."""
FAMILY = ["algorithm", "variant", "split", "metric"]
"""What the same metric has in common at all sweep points."""


@dataclass(frozen=True)
class ComparisonTerms:
    """The terms of a comparison.

    `tolerance` is absolute, or relative for values above 1. `better` is the direction in which each
    metric improves. `rows` is the number of rows of each split, in the order of splits.
    """

    tolerance: float
    better: Mapping[str, Direction]
    rows: Mapping[str, int] = field(default_factory=dict)

    def direction(self, metric: str) -> Direction:
        """Return the direction in which a metric improves."""
        low = metric.startswith((VIOLATION_PREFIX, UNDEFINED_PREFIX))
        return Direction.LOW if low else self.better.get(metric, Direction.EITHER)

    def at(self, was: float) -> float:
        """Return the tolerance for a value."""
        return self.tolerance * max(1.0, abs(was))


@dataclass(frozen=True)
class MetricFamily:
    """Pinned and current values (K, seeds) of one metric at K sweep points, and their findings.

    Values are infinite where they are undefined, and NaN where a trial has none. The findings have
    no verdicts yet.
    """

    findings: Sequence[Finding]
    was: pd.DataFrame
    now: pd.DataFrame

    @property
    def is_defined(self) -> bool:
        return not any(np.isinf(side.to_numpy()).any() for side in (self.was, self.now))

    @property
    def undefined(self) -> MetricFamily:
        """The shares of sweep points where the metric is undefined, by seed.

        A seed counts once for all sweep points, because its values there are similar.
        """
        first = self.findings[0]
        found = replace(first, metric=UNDEFINED_PREFIX + first.metric, point={})
        shares = (
            np.isinf(side).sum() / side.notna().sum().where(lambda count: count > 0)
            for side in (self.was, self.now)
        )
        return MetricFamily([found], *(share.to_frame().T for share in shares))


def compare_points(
    now: Sequence[PinnedTrials], was: Sequence[PinnedTrials], terms: ComparisonTerms
) -> list[Finding]:
    """Compare results; what cannot be compared comes first."""
    known, found = {each.key: each for each in was}, list[Finding]()
    design = SeedDesign.of(*({seed for each in side for seed in each.seeds} for side in (was, now)))
    pairs: list[tuple[PinnedTrials, PinnedTrials]] = []
    for each in now:
        before = known.pop(each.key, None)
        if before is None:
            found.append(_finding(each, detail="it is not pinned"))
        elif reason := _new_silence(each, before):
            found.append(_finding(each, detail=reason, help=BROKEN_HELP))
        elif FINISHED.issuperset(each.statuses):  # `inconclusive_findings` reports the others
            pairs.append((before, each))
    gone = "it is pinned but no longer in the file"
    found += [_finding(each, detail=gone) for each in known.values()]
    compared = list(_families(pairs, design, terms.rows)) if pairs else []
    found += [each for each in compared if isinstance(each, Finding)]
    families = [each for each in compared if isinstance(each, MetricFamily)]
    return found + judge_families(families, design, terms)


def _new_silence(now: PinnedTrials, was: PinnedTrials) -> str:
    """Return which trials ended without a result, unlike in the reference; "" if none did."""
    new = [
        f"{status} at seed {seed}"
        for seed, status in now.status.items()
        if status not in CONCLUSIVE and was.status.get(seed) != status
    ]
    known = FINISHED.issuperset(now.statuses)
    return f"it ended as {', '.join(new)}, unlike in the reference" if new and known else ""


def _families(
    pairs: Sequence[tuple[PinnedTrials, PinnedTrials]], design: SeedDesign, rows: Mapping[str, int]
) -> Iterator[MetricFamily | Finding]:
    """Yield the values to compare, and findings about metrics that only one side has.

    Violations are at least 0. A point without any values on one side has only its solution rate.
    """
    points = {each.key: each for _, each in pairs}
    sides = []
    for side in zip(*pairs, strict=True):
        found = {(*each.key, "", "", SOLUTION_RATE): each.solved for each in side}
        for pair, each in zip(pairs, side, strict=True):
            if all(p.numbers for p in pair):
                found |= each.rows
        names = ["algorithm", "point", *FAMILY[1:]]
        index = pd.MultiIndex.from_tuples(found, names=names)
        values = pd.DataFrame([*found.values()], index, dtype=float)
        if design.enough and not design.paired:
            values = _with_all_splits(values, rows)
        violations = values.index.get_level_values("metric").str.startswith(VIOLATION_PREFIX)
        sides.append(values.mask(violations[:, None] & (values < 0), 0.0))
    was, now = sides[0].align(sides[1], axis=1)

    def finding(place: tuple[str, str, str, str, str], **more: Any) -> Finding:
        return _finding(
            points[place[:2]], variant=place[2], split=place[3], metric=place[4], **more
        )

    for place in was.index.symmetric_difference(now.index, sort=False):
        gone = place in was.index
        detail = "it is pinned but no longer measured" if gone else "it is not pinned"
        yield finding(place, detail=detail)
    now = now[now.index.isin(was.index)]
    was, findings = was.reindex(now.index), list(map(finding, now.index))
    for own in now.groupby(FAMILY, sort=False).indices.values():
        yield MetricFamily([findings[k] for k in own], was.iloc[own], now.iloc[own])


def _with_all_splits(values: pd.DataFrame, rows: Mapping[str, int]) -> pd.DataFrame:
    """Add the mean of each metric over the rows of all splits, for comparisons of other seeds.

    Other seeds assign the same rows to other splits. The error on a small test set is uncertain,
    while the mean over all rows is not, because a high error on one split goes with a low error on
    another.
    """
    index = values.index.to_frame(index=False)
    shown = index["split"].isin(rows) & ~index["metric"].str.startswith(VIOLATION_PREFIX)
    own, keys = values[shown.to_numpy()], ["algorithm", "point", "variant", "metric"]
    splits = own.index.get_level_values("split")
    weights = pd.Series(splits.map(rows).to_numpy(dtype=float), own.index)
    parts = own.mul(weights, axis=0).groupby(keys, sort=False)
    whole = parts.sum().where(parts.count().eq(parts.size(), axis=0))
    whole = whole.div(weights.groupby(keys, sort=False).sum(), axis=0)[parts.size() > 1]
    names = splits.to_series(own.index).groupby(keys, sort=False)
    joined = names.agg(lambda each: " + ".join(sorted(each, key=list(rows).index)))
    whole = whole.set_index(joined[whole.index].rename("split"), append=True)
    order = ["algorithm", "point", *FAMILY[1:]]
    found: pd.DataFrame = pd.concat([values, whole.reorder_levels(order)])
    return found


def _finding(now: PinnedTrials, **more: Any) -> Finding:
    """Return a finding about an algorithm at a sweep point, not compared yet."""
    return Finding(algorithm=now.algorithm, point=now.point, **more)


def judge_families(
    families: Sequence[MetricFamily], design: SeedDesign, terms: ComparisonTerms
) -> list[Finding]:
    """Return the findings on values, then on shares of undefined values, with their verdicts."""
    undefined = [each.undefined for each in families if not each.is_defined]
    level = LEVEL / 2 if undefined else LEVEL
    tests = (families, undefined)
    return [each for tested in tests for each in _judge(tested, design, level, terms)]


def _judge(
    families: Sequence[MetricFamily], design: SeedDesign, level: float, terms: ComparisonTerms
) -> list[Finding]:
    """Return the findings with their verdicts.

    If there is only noise, none of them fails with a probability of at least 1 - `level`.
    """
    differences = [mean_differences(each.was, each.now, design) for each in families]
    tests = sum(
        found is not None and found.error is not None and found.largest > terms.at(found.was)
        for family in differences
        for found in family
    )
    tail = level / max(1, tests)
    return [
        _judge_one(finding, values, difference, tail, terms)
        for family, found in zip(families, differences, strict=True)
        for finding, difference, *values in zip(
            family.findings, found, family.was.to_numpy(), family.now.to_numpy(), strict=True
        )
    ]


def _judge_one(
    finding: Finding,
    sides: Sequence[Numbers],
    found: MeanDifference | None,
    tail: float,
    terms: ComparisonTerms,
) -> Finding:
    """Return a finding with its verdict; `tail` is the level of its interval."""
    metric = finding.metric
    was_defined, now_defined = (bool(np.isfinite(side).any()) for side in sides)
    if not was_defined and not now_defined:
        return replace(finding, verdict=Verdict.SAME, detail="undefined, as in the reference")
    if found is None and was_defined and not now_defined:
        detail = "it is undefined at every seed, unlike in the reference"
        return replace(finding, detail=detail, help=BROKEN_HELP)
    if found is None:
        return replace(finding, detail="too few seeds in common to compare")
    direction = terms.direction(metric)
    directed = direction in {Direction.LOW, Direction.HIGH}
    tail = tail if directed else tail / 2
    paired = np.isfinite(found.largest)
    seeds = f"{found.seeds} seed{'s' * (found.seeds > 1)}"
    how = f"paired over {seeds}" if found.error is not None else f"{seeds}: no interval"
    # half a point means little for shares of trials and violations: they are not means over rows
    over_rows = not metric.startswith((SOLUTION_RATE, VIOLATION_PREFIX, UNDEFINED_PREFIX))
    loss = HALF_A_POINT * max(1.0, abs(found.was))
    return replace(
        finding,
        verdict=_verdict(found, tail, direction, terms),
        was=found.was,
        now=found.now,
        interval=found.interval(tail),
        seeds=found.seeds,
        left_out=int(np.isinf(sides).any(axis=0).sum()),
        needed=found.needed(loss, tail) if directed and over_rows and not paired else 0,
        detail=how if paired else f"two samples of {seeds} or more",
    )


def _verdict(
    found: MeanDifference, tail: float, direction: Direction, terms: ComparisonTerms
) -> Verdict:
    low, high = found.interval(tail) or (found.value, found.value)
    if abs(found.value) <= terms.at(found.was) or low <= 0 <= high:
        return Verdict.SAME
    if direction not in {Direction.LOW, Direction.HIGH}:
        return Verdict.CHANGED
    worse = (found.value > 0) is (direction is Direction.LOW)
    return Verdict.REGRESSED if worse else Verdict.IMPROVED


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
    means = [np.nanmean(side[rows], axis=1).tolist() for side in (was, now)]
    for k, (error, df), one, other in zip(rows.tolist(), errors, *means, strict=True):
        found[k] = MeanDifference(one, other, int(sizes[k]), float(largest[k]), error, df)
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

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
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ratecli.config.base import SOLUTION_RATE
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates.metrics import Direction
from ratecli.report.expectations import Verdict
from ratecli.report.groups import CONCLUSIVE, group_by
from ratecli.report.regression.findings import Finding
from ratecli.report.regression.reference import (
    PinnedTrials,
    VariantMetric,
)
from ratecli.report.regression.statistics import (
    BySeed,
    MeanDifference,
    SeedDesign,
    mean_differences,
)

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
class SeedSeries:
    """The pinned and the current values of one metric, and its finding without a verdict."""

    finding: Finding
    values: tuple[BySeed, BySeed]

    @property
    def undefined(self) -> set[int]:
        """The seeds whose value is undefined on either side."""
        return {seed for side in self.values for seed in side if not math.isfinite(side[seed])}

    @property
    def family(self) -> tuple[str, ...]:
        """What the same metric has in common at all sweep points."""
        found = self.finding
        return found.algorithm, found.variant, found.split, found.metric


def compare_points(
    now: Sequence[PinnedTrials], was: Sequence[PinnedTrials], terms: ComparisonTerms
) -> list[Finding]:
    """Compare results; what cannot be compared comes first."""
    known = {each.key: each for each in was}
    design = SeedDesign.of(*({seed for each in side for seed in each.seeds} for side in (was, now)))
    compared: list[Finding | SeedSeries] = []
    for each in now:
        if before := known.pop(each.key, None):
            compared += _compare_point(each, before, design, terms.rows)
        else:
            compared.append(_finding(each, detail="it is not pinned"))
    gone = "it is pinned but no longer in the file"
    compared += [_finding(each, detail=gone) for each in known.values()]
    series = [each for each in compared if isinstance(each, SeedSeries)]
    families = list(group_by(series, lambda each: each.family).values())
    undefined = [[_undefined_series(own)] for own in families if any(s.undefined for s in own)]
    level = LEVEL / 2 if undefined else LEVEL
    found = [each for each in compared if isinstance(each, Finding)]
    for tested in (families, undefined):
        found += _judge(tested, design, level, terms)
    return found


def _compare_point(
    now: PinnedTrials, was: PinnedTrials, design: SeedDesign, rows: Mapping[str, int]
) -> Iterator[Finding | SeedSeries]:
    """Yield all comparisons of an algorithm at a sweep point."""
    if not FINISHED.issuperset(now.statuses):
        return  # `check.inconclusive_findings` reports it
    silent = [seed for seed, status in now.status.items() if status not in CONCLUSIVE]
    if new := [seed for seed in silent if was.status.get(seed) != now.status[seed]]:
        listed = ", ".join(f"{now.status[seed]} at seed {seed}" for seed in new)
        detail = f"it ended as {listed}, unlike in the reference"
        yield _finding(now, detail=detail, help=BROKEN_HELP)
        return
    yield SeedSeries(_finding(now, metric=SOLUTION_RATE), (was.solved, now.solved))
    sides: list[Mapping[VariantMetric, BySeed]] = [was.numbers, now.numbers]
    if not all(sides):
        return
    if design.enough and not design.paired:
        sides = [_with_all_splits(side, rows) for side in sides]
    before, after = sides
    for place in dict.fromkeys([*before, *after]):
        variant, split, metric = place
        found = _finding(now, variant=variant, split=split, metric=metric)
        if place in after and place in before:
            values = _values(metric, before[place]), _values(metric, after[place])
            yield SeedSeries(found, values)
        else:
            detail = "it is not pinned" if place in after else "it is pinned but no longer measured"
            yield replace(found, detail=detail)


def _with_all_splits(
    numbers: Mapping[VariantMetric, BySeed], rows: Mapping[str, int]
) -> dict[VariantMetric, BySeed]:
    """Add the mean of each metric over the rows of all splits, for comparisons of other seeds.

    Other seeds assign the same rows to other splits. The error on a small test set is uncertain,
    while the mean over all rows is not, because a high error on one split goes with a low error on
    another.
    """
    found = dict(numbers)
    for variant, metric in sorted({(variant, metric) for variant, _, metric in numbers}):
        splits = [split for split in rows if (variant, split, metric) in numbers]
        if len(splits) > 1 and not metric.startswith(VIOLATION_PREFIX):
            parts = [(rows[split], numbers[variant, split, metric]) for split in splits]
            total = sum(count for count, _ in parts)
            found[variant, " + ".join(splits), metric] = {
                seed: sum(count * part.get(seed, math.nan) for count, part in parts) / total
                for seed in parts[0][1]
            }
    return found


def _values(metric: str, values: BySeed) -> BySeed:
    """Return the values to compare: violations are at least 0."""
    if not metric.startswith(VIOLATION_PREFIX):
        return values
    return {seed: max(value, 0.0) for seed, value in values.items()}


def _undefined_series(family: Sequence[SeedSeries]) -> SeedSeries:
    """Return the shares of sweep points where a metric is undefined, by seed.

    A seed counts once for all sweep points, because its values there are similar.
    """
    first = family[0].finding
    found = replace(first, metric=UNDEFINED_PREFIX + first.metric, point={})
    shares: tuple[dict[int, float], dict[int, float]] = {}, {}
    for side, own in enumerate(shares):
        points = [each.values[side] for each in family]
        for seed in {seed for values in points for seed in values}:
            values = [point[seed] for point in points if seed in point]
            own[seed] = 1 - np.isfinite(values).mean()
    return SeedSeries(found, shares)


def _finding(now: PinnedTrials, **more: Any) -> Finding:
    """Return a finding about an algorithm at a sweep point, not compared yet."""
    return Finding(algorithm=now.algorithm, point=now.point, **more)


def _judge(
    families: Iterable[Sequence[SeedSeries]],
    design: SeedDesign,
    level: float,
    terms: ComparisonTerms,
) -> list[Finding]:
    """Return the findings with their verdicts.

    If there is only noise, none of them fails with a probability of at least 1 - `level`.
    """
    differences: list[tuple[SeedSeries, MeanDifference | None]] = []
    for own in families:
        values = mean_differences([each.values for each in own], design)
        differences += zip(own, values, strict=True)
    tests = sum(
        each is not None and each.error is not None and each.largest > terms.at(each.was)
        for _, each in differences
    )
    tail = level / max(1, tests)
    return [_judge_one(series, each, tail, terms) for series, each in differences]


def _judge_one(
    series: SeedSeries, found: MeanDifference | None, tail: float, terms: ComparisonTerms
) -> Finding:
    """Return the finding of a series; `tail` is the level of its interval."""
    metric = series.finding.metric
    if not any(math.isfinite(value) for side in series.values for value in side.values()):
        undefined = "undefined, as in the reference"
        return replace(series.finding, verdict=Verdict.SAME, detail=undefined)
    if found is None:
        detail = "no seed has a value on both sides, and two samples would be too small"
        was, now = (any(map(math.isfinite, side.values())) for side in series.values)
        if was and not now:
            detail = "it is undefined at every seed, unlike in the reference"
            return replace(series.finding, detail=detail, help=BROKEN_HELP)
        return replace(series.finding, detail=detail)
    direction = terms.direction(metric)
    directed = direction in {Direction.LOW, Direction.HIGH}
    tail = tail if directed else tail / 2
    paired = math.isfinite(found.largest)
    seeds = f"{found.seeds} seed{'s' * (found.seeds > 1)}"
    how = f"paired over {seeds}" if found.error is not None else f"{seeds}: no interval"
    # half a point means little for shares of trials and violations: they are not means over rows
    over_rows = not metric.startswith((SOLUTION_RATE, VIOLATION_PREFIX, UNDEFINED_PREFIX))
    loss = HALF_A_POINT * max(1.0, abs(found.was))
    return replace(
        series.finding,
        verdict=_verdict(found, tail, direction, terms),
        was=found.was,
        now=found.now,
        interval=found.interval(tail),
        seeds=found.seeds,
        left_out=len(series.undefined),
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

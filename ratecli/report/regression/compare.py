"""Compare an experiment's results with its pinned reference, and judge the differences.

If the seeds differ, a metric is compared on each split and as the mean over the rows of all splits.
Violations below 0 count as 0, as slack does not matter. Two shares of trials are compared like
metrics: `solution_rate`, of the seeds whose trial found a solution, and `undefined.METRIC`, of the
sweep points at which a metric that is ever undefined is so. Means leave such values out.

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
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from ratecli.config.base import SOLUTION_RATE
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.ledger.view import Ledger
from ratecli.rates.metrics import Direction
from ratecli.report.expectations import Verdict
from ratecli.report.groups import CONCLUSIVE, group_by
from ratecli.report.regression.findings import Finding
from ratecli.report.regression.reference import (
    PinnedTrials,
    Reference,
    dataset_digests,
    pin_points,
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


@dataclass(frozen=True)
class ComparisonTerms:
    """The terms of a comparison.

    `tolerance` is absolute, or relative for values above 1. `better` is the direction in which each
    metric improves. `rows` is the number of rows of each split, in the order of splits.
    """

    tolerance: float
    better: Mapping[str, Direction]
    rows: Mapping[str, int] = field(default_factory=dict)

    def direction(self, metric: str) -> Direction | None:
        """Return the direction in which a metric improves, None if it is not known."""
        low = metric.startswith((VIOLATION_PREFIX, UNDEFINED_PREFIX))
        found = Direction.LOW if low else self.better.get(metric, Direction.EITHER)
        return found if found in {Direction.LOW, Direction.HIGH} else None

    def at(self, was: float) -> float:
        """Return the tolerance for a value."""
        return self.tolerance * max(1.0, abs(was))


@dataclass(frozen=True)
class SeedSeries:
    """The pinned and the current values of one metric, and its finding without a verdict."""

    finding: Finding
    design: SeedDesign
    values: tuple[BySeed, BySeed]

    @property
    def undefined(self) -> set[int]:
        """The seeds whose value is undefined on either side."""
        sides = (side.items() for side in self.values)
        return {seed for seed, value in chain(*sides) if not math.isfinite(value)}

    @property
    def defined(self) -> bool:
        """Whether any value is defined."""
        return any(map(math.isfinite, chain(*(side.values() for side in self.values))))

    @property
    def of_rows(self) -> bool:
        """Whether the metric is an average over rows, not over trials and not cut off at 0."""
        metric = self.finding.metric
        return metric != SOLUTION_RATE and not metric.startswith(
            (VIOLATION_PREFIX, UNDEFINED_PREFIX)
        )

    @property
    def family(self) -> tuple[str | SeedDesign, ...]:
        """What the same metric has in common at all sweep points."""
        found = self.finding
        return found.algorithm, found.variant, found.split, found.metric, self.design


def compare_with_reference(
    ledger: Ledger, reference: Reference, terms: ComparisonTerms
) -> list[Finding]:
    """Compare every value with the pinned one, in plan order.

    If data sets changed, only this is reported, as they alone could explain different values.
    """
    now, was = dataset_digests(ledger), reference.data
    changes = dict.fromkeys(now.keys() - was.keys(), "is not pinned")
    changes |= dict.fromkeys(was.keys() - now.keys(), "is pinned and no longer in the file")
    other = "is not what was pinned: its file or its options are others"
    changes |= {name: other for name in now.keys() & was.keys() if now[name] != was[name]}
    if changes:
        return [
            Finding(detail=f"data set '{name}' {change}", loc=("datasets", name))
            for name, change in sorted(changes.items())
        ]
    return compare_points(pin_points(ledger), reference.trials, terms)


def compare_points(
    now: Iterable[PinnedTrials], was: Iterable[PinnedTrials], terms: ComparisonTerms
) -> list[Finding]:
    """Compare results on the same data, in the order of `now`.

    Points that no longer exist come last.
    """
    known = {each.key: each for each in was}
    found: list[Finding | SeedSeries] = []
    for each in now:
        before = known.pop(each.key, None)
        if before is None:
            found.append(_finding(each, detail="it is not pinned"))
        else:
            found += _compare_point(each, before, terms.rows)
    gone = "it is pinned and no longer in the file"
    found += [_finding(each, detail=gone) for each in known.values()]
    return judge_series(found, terms)


def _compare_point(
    now: PinnedTrials, was: PinnedTrials, rows: Mapping[str, int]
) -> Iterator[Finding | SeedSeries]:
    """Yield all comparisons of an algorithm at a sweep point."""
    if not FINISHED.issuperset(now.statuses):
        return  # `check.inconclusive_findings` reports it
    silent = [seed for seed, status in now.status.items() if status not in CONCLUSIVE]
    if new := [seed for seed in silent if was.status.get(seed) != now.status[seed]]:
        listed = ", ".join(f"{now.status[seed]} at seed {seed}" for seed in new)
        yield _finding(now, detail=f"it is {listed}, which is not pinned")
        return
    design = SeedDesign.of(was.seeds, now.seeds)
    yield SeedSeries(_finding(now, metric=SOLUTION_RATE), design, (was.solved, now.solved))
    before, after = was.numbers, now.numbers
    if not before or not after:
        return
    for place in dict.fromkeys([*before, *after]):
        variant, split, metric = place
        found = _finding(now, variant=variant, split=split, metric=metric)
        if place in after and place in before:
            values = _values(metric, before[place]), _values(metric, after[place])
            yield SeedSeries(found, design, values)
        else:
            detail = "it is not pinned" if place in after else "it is pinned and no longer measured"
            yield replace(found, detail=detail)
    if design.enough and not design.paired:
        yield from _compare_all_splits(now, was, rows)


def _compare_all_splits(
    now: PinnedTrials, was: PinnedTrials, rows: Mapping[str, int]
) -> Iterator[SeedSeries]:
    """Yield a comparison of each metric over the rows of all splits, for other seeds.

    Other seeds assign the same rows to other splits. The error on a small test set is uncertain,
    while the mean over all rows is not, because a high error on one split goes with a low error on
    another.
    """
    places = was.numbers.keys() & now.numbers.keys()
    for variant, metric in sorted({(variant, metric) for variant, _, metric in places}):
        splits = [split for split in rows if (variant, split, metric) in places]
        if len(splits) > 1 and not metric.startswith(VIOLATION_PREFIX):
            before, after = (
                _mean([(rows[split], each.numbers[variant, split, metric]) for split in splits])
                for each in (was, now)
            )
            found = _finding(now, variant=variant, split=" + ".join(splits), metric=metric)
            yield SeedSeries(found, SeedDesign.of(was.seeds, now.seeds), (before, after))


def _mean(parts: Sequence[tuple[int, BySeed]]) -> BySeed:
    """Return the mean by seed, weighted by numbers of rows."""
    total = sum(rows for rows, _ in parts)
    return {
        seed: sum(rows * numbers.get(seed, math.nan) for rows, numbers in parts) / total
        for seed in parts[0][1]
    }


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
    was, now = (_undefined_shares(each.values[side] for each in family) for side in (0, 1))
    return SeedSeries(found, family[0].design, (was, now))


def _undefined_shares(points: Iterable[BySeed]) -> BySeed:
    flags: dict[int, list[bool]] = {}
    for values in points:
        for seed, value in values.items():
            flags.setdefault(seed, []).append(not math.isfinite(value))
    return {seed: statistics.fmean(several) for seed, several in flags.items()}


def _finding(now: PinnedTrials, **more: Any) -> Finding:
    """Return a finding about an algorithm at a sweep point, not compared yet."""
    return Finding(algorithm=now.algorithm, point=now.point, **more)


def judge_series(found: Sequence[Finding | SeedSeries], terms: ComparisonTerms) -> list[Finding]:
    """Replace each series by its finding, with a verdict, and add those on undefined values."""
    series = [each for each in found if isinstance(each, SeedSeries)]
    families = list(group_by(series, lambda each: each.family).values())
    undefined = [[_undefined_series(own)] for own in families if any(s.undefined for s in own)]
    level = LEVEL / 2 if undefined else LEVEL
    judged = {**_judge(families, level, terms), **_judge(undefined, level, terms)}
    every = (*found, *(each for (each,) in undefined))
    return [judged[id(each)] if isinstance(each, SeedSeries) else each for each in every]


def _judge(
    families: Iterable[Sequence[SeedSeries]], level: float, terms: ComparisonTerms
) -> dict[int, Finding]:
    """Return the findings by ID of the series.

    If there is only noise, none of them fails with a probability of at least 1 - `level`.
    """
    differences: list[tuple[SeedSeries, MeanDifference | None]] = []
    for own in families:
        values = mean_differences([each.values for each in own], own[0].design)
        differences += zip(own, values, strict=True)
    tests = sum(
        each is not None and each.error is not None and each.largest > terms.at(each.was)
        for _, each in differences
    )
    tail = level / max(1, tests)
    return {id(series): _judge_one(series, each, tail, terms) for series, each in differences}


def _judge_one(
    series: SeedSeries, found: MeanDifference | None, tail: float, terms: ComparisonTerms
) -> Finding:
    """Return the finding of a series; `tail` is the level of its interval."""
    if not series.defined:
        undefined = "undefined, as it is pinned"
        return replace(series.finding, verdict=Verdict.SAME, detail=undefined)
    if found is None:
        detail = "no seed gave a number both times, and there are too few for two samples"
        return replace(series.finding, detail=detail)
    direction = terms.direction(series.finding.metric)
    tail = tail if direction else tail / 2
    needed = 0
    if direction and not series.design.paired and series.of_rows:
        needed = found.needed(HALF_A_POINT * max(1.0, abs(found.was)), tail)
    seeds = f"{found.seeds} seed{'s' * (found.seeds > 1)}"
    how = f"paired over {seeds}" if found.error is not None else f"{seeds}: no interval"
    return replace(
        series.finding,
        verdict=_verdict(found, tail, direction, terms),
        was=found.was,
        now=found.now,
        interval=found.interval(tail),
        seeds=found.seeds,
        left_out=len(series.undefined),
        needed=needed,
        detail=how if math.isfinite(found.largest) else f"two samples of {seeds} or more",
    )


def _verdict(
    found: MeanDifference, tail: float, direction: Direction | None, terms: ComparisonTerms
) -> Verdict:
    low, high = found.interval(tail) or (found.value, found.value)
    if abs(found.value) <= terms.at(found.was) or low <= 0 <= high:
        return Verdict.SAME
    if direction is None:
        return Verdict.CHANGED
    worse = (found.value > 0) is (direction is Direction.LOW)
    return Verdict.REGRESSED if worse else Verdict.IMPROVED

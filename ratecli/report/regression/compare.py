"""Compare an experiment's results with its pinned reference, and judge the differences.

If the seeds differ, a metric is compared on each split and as the mean over the rows of all splits.
Violations below 0 count as 0, as slack does not matter. Whether trials found a solution is compared
as the metric `solution_rate`. With fewer than `MIN_SEEDS` seeds, a value that became undefined, or
became defined, cannot be compared.

A metric *regressed* if its mean over seeds got worse by more than the tolerance and the interval of
the difference excludes 0. If only noise changes the values, then with a probability of 95 % no
metric of a file regresses (Bonferroni correction over the metrics that changed by more than the
tolerance at some seed: no other metric can regress). With fewer than `MIN_SEEDS` seeds, noise
cannot be estimated, and any difference beyond the tolerance counts. A metric without a known
direction of improvement *changed* if this holds in either direction.

Seeds with undefined values are left out and reported. If noise does not explain an increase in
their number, the comparison fails; if this is possible for any metric, these tests use half of the
5 %. It also fails if some values became undefined while all others are unchanged at all sweep
points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ratecli.config.base import SOLUTION_RATE
from ratecli.errors import Loc
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.ledger.view import Ledger
from ratecli.rates.metrics import Direction
from ratecli.report.groups import CONCLUSIVE
from ratecli.report.regression.findings import CheckVerdict, Finding
from ratecli.report.regression.reference import (
    OBJECTIVE,
    PinnedTrials,
    Reference,
    VariantMetric,
    dataset_digests,
    pin_trials,
    trials_by_point,
)
from ratecli.report.regression.statistics import (
    BySeed,
    MeanDifference,
    SeedPair,
    mean_differences,
    undefined_chance,
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
"""Half a percentage point; relative for values above 1, like the tolerance."""
PIN_AGAIN = "if that is meant, pin again: `ratecli pin {file}`"
"""Suggestion with a placeholder for the file's path, which only the caller knows."""


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
        low = metric.startswith(VIOLATION_PREFIX)
        found = Direction.LOW if low else self.better.get(metric, Direction.EITHER)
        return found if found in {Direction.LOW, Direction.HIGH} else None

    def at(self, was: float) -> float:
        """Return the tolerance for a value."""
        return self.tolerance * max(1.0, abs(was))


@dataclass(frozen=True)
class SeedSeries:
    """The values of one comparison, and its finding without a verdict."""

    finding: Finding
    values: SeedPair

    @property
    def family(self) -> tuple[str, ...]:
        found = self.finding
        return found.algorithm, found.variant, found.split, found.metric


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
            _not_compared(f"data set '{name}' {change}", ("datasets", name))
            for name, change in sorted(changes.items())
        ]
    points = (pin_trials(ledger, trials) for trials in trials_by_point(ledger))
    return compare_points(points, reference.trials, terms)


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
            found.append(_of_point(each, "it is not pinned"))
        else:
            found += _compare_point(each, before, terms.rows)
    gone = "it is pinned and no longer in the file"
    return judge_series([*found, *(_of_point(each, gone) for each in known.values())], terms)


def _compare_point(
    now: PinnedTrials, was: PinnedTrials, rows: Mapping[str, int]
) -> Iterator[Finding | SeedSeries]:
    """Yield all comparisons of an algorithm at a sweep point."""
    if not FINISHED.issuperset(now.statuses):
        return  # `check.inconclusive_findings` reports it
    silent = [seed for seed, status in now.status.items() if status not in CONCLUSIVE]
    if new := [seed for seed in silent if was.status.get(seed) != now.status[seed]]:
        listed = ", ".join(f"{now.status[seed]} at seed {seed}" for seed in new)
        yield _of_point(now, f"it is {listed}, which is not pinned")
        return
    yield SeedSeries(_at(now, ("", "", SOLUTION_RATE)), SeedPair(was.solved, now.solved))
    before, after = was.numbers, now.numbers
    for place in dict.fromkeys([*before, *after]):
        found = _at(now, place)
        if place in after and place in before:
            yield _seed_series(found, SeedPair(before[place], after[place]))
        elif after and before:
            detail = "it is not pinned" if place in after else "it is pinned and no longer measured"
            yield replace(found, detail=detail)
    seeds = SeedPair(was.solved, now.solved)
    if seeds.enough and not seeds.paired:
        yield from _compare_all_splits(now, was, rows)


def _compare_all_splits(
    now: PinnedTrials, was: PinnedTrials, rows: Mapping[str, int]
) -> Iterator[Finding | SeedSeries]:
    """Yield a comparison of each metric over the rows of all splits, for other seeds.

    Other seeds assign the same rows to other splits. The error on a small test set is uncertain,
    while the mean over all rows is not, because a high error on one split goes with a low error on
    another.
    """
    places = was.numbers.keys() & now.numbers.keys()
    for variant, metric in sorted({(variant, metric) for variant, _, metric in places}):
        splits = [split for split in rows if (variant, split, metric) in places]
        if len(splits) > 1 and not metric.startswith(VIOLATION_PREFIX):
            mean = (
                _mean([(rows[split], each.numbers[variant, split, metric]) for split in splits])
                for each in (was, now)
            )
            yield _seed_series(_at(now, (variant, " + ".join(splits), metric)), SeedPair(*mean))


def _mean(parts: Sequence[tuple[int, BySeed]]) -> dict[int, float | None]:
    """Return the mean by seed, weighted by rows; None where all parts are."""
    total = sum(count for count, _ in parts)
    found: dict[int, float | None] = {}
    for seed in parts[0][1]:
        values = [(count, numbers[seed]) for count, numbers in parts]
        known = [count * value for count, value in values if value is not None]
        found[seed] = sum(known) / total if len(known) == len(parts) else None
    return found


def _seed_series(found: Finding, values: SeedPair) -> Finding | SeedSeries:
    """Return the values to compare, or a finding if they cannot be compared."""
    was, now = values.was, values.now
    if not values.enough:
        for seed in was.keys() & now.keys():
            before, after = was[seed], now[seed]
            if before is not None and after is not None and not _both_defined(before, after):
                detail = f"it is {after:g} at seed {seed}, and {before:g} is pinned"
                return replace(found, detail=detail)
    if not any(
        value is not None and math.isfinite(value) for value in [*was.values(), *now.values()]
    ):
        return replace(found, verdict=CheckVerdict.SAME, detail="undefined, as it is pinned")
    if found.metric.startswith(VIOLATION_PREFIX):
        values = SeedPair(_at_least_zero(was), _at_least_zero(now))
    return SeedSeries(found, values)


def _both_defined(before: float, after: float) -> bool:
    """Return whether both are finite, or both are the same non-finite value."""
    if math.isfinite(before) or math.isfinite(after):
        return math.isfinite(before) and math.isfinite(after)
    return before == after or (math.isnan(before) and math.isnan(after))


def _at_least_zero(values: BySeed) -> BySeed:
    return {
        seed: max(value, 0.0) if value is not None and math.isfinite(value) else value
        for seed, value in values.items()
    }


def _not_compared(detail: str, loc: Loc) -> Finding:
    return Finding(CheckVerdict.NOT_COMPARED, "reference", detail=detail, help=PIN_AGAIN, loc=loc)


def _of_point(each: PinnedTrials, detail: str) -> Finding:
    found = _not_compared(detail, ("algorithms",))
    return replace(found, algorithm=each.algorithm, point=each.point)


def _at(now: PinnedTrials, place: VariantMetric) -> Finding:
    """Return a finding for a value that has not been compared yet."""
    variant, split, metric = place
    loc: Loc = ("metrics", metric)
    if metric.startswith(VIOLATION_PREFIX):
        loc = ("constraints", metric.removeprefix(VIOLATION_PREFIX))
    elif metric == SOLUTION_RATE:
        loc = ("algorithms",)
    elif metric == OBJECTIVE:
        loc = (OBJECTIVE,)
    found = _of_point(now, "")
    return replace(found, variant=variant, split=split, metric=metric, loc=loc)


def judge_series(found: Sequence[Finding | SeedSeries], terms: ComparisonTerms) -> list[Finding]:
    """Replace each series by its finding, with a verdict."""
    families: dict[tuple[str, ...], list[SeedSeries]] = {}
    for each in found:
        if isinstance(each, SeedSeries):
            families.setdefault(each.family, []).append(each)
    changes = {
        id(one.series): one for own in families.values() for one in _family_changes(own, terms)
    }
    reachable = {one.group for one in changes.values() if one.least <= LEVEL}
    level = LEVEL / 2 if reachable else LEVEL
    tests = sum(one.may_fail for one in changes.values())
    tails = level / max(1, tests), level / max(1, len(reachable))
    return [
        _verdict(changes[id(each)], *tails, terms) if isinstance(each, SeedSeries) else each
        for each in found
    ]


@dataclass(frozen=True)
class _SeriesChange:
    """The change of a series; `difference` is None if no seeds are left.

    Attributes
    ----------
    may_fail
        Whether it changed by more than the tolerance at some seed and has an interval.
    still
        Whether no series of its family changed by more than the tolerance.
    group
        Identifies the series whose undefined seeds are counted together.
    chance, least
        The probability that noise leaves at least so many more seeds of the group undefined, and
        the smallest probability that could have been reached.
    """

    series: SeedSeries
    difference: MeanDifference | None
    may_fail: bool
    still: bool
    group: tuple[object, ...]
    chance: float
    least: float


def _family_changes(own: Sequence[SeedSeries], terms: ComparisonTerms) -> Iterator[_SeriesChange]:
    differences = mean_differences([each.values for each in own])
    far = [each is not None and each.largest > terms.at(each.was) for each in differences]
    groups: dict[bool, list[SeedPair]] = {}
    for series in own:
        groups.setdefault(series.values.paired, []).append(series.values)
    chances = {paired: undefined_chance(pairs) for paired, pairs in groups.items()}
    for series, found, moved in zip(own, differences, far, strict=True):
        paired = series.values.paired
        may_fail = moved and found is not None and found.error is not None
        group = (paired, *series.family)
        yield _SeriesChange(series, found, may_fail, not any(far), group, *chances[paired])


def _verdict(
    change: _SeriesChange, tail: float, undefined_level: float, terms: ComparisonTerms
) -> Finding:
    """Judge a series; `tail` is the level of its interval."""
    finding, found, values = change.series.finding, change.difference, change.series.values
    (was, now), (before, after) = values.undefined, map(len, values.answered)
    missing = f"; {values.undefined_text}" if was or now else ""
    if found is None:
        detail = "no seed gave a number both times, and there are too few for two samples"
        other = "give the file the seeds that are pinned"
        help_ = PIN_AGAIN if values.undefined_changed else other
        return replace(finding, detail=detail + missing, help=help_)
    if len(now) * before > len(was) * after and change.chance <= undefined_level:
        return replace(finding, detail=f"it is {values.undefined_text}, more than noise explains")
    if now - was and found.paired and change.still:
        detail = f"it is {values.undefined_text}, though nothing moves at the others"
        return replace(finding, detail=detail)
    direction = terms.direction(finding.metric)
    tail = tail if direction else tail / 2
    verdict = _judge(found, tail, direction, terms)
    seeds = f"{found.seeds} seed{'s' * (found.seeds > 1)}"
    method = f"paired over {seeds}" if found.error is not None else f"{seeds}: no interval"
    return replace(
        finding,
        verdict=verdict,
        was=found.was,
        now=found.now,
        interval=found.interval(tail),
        seeds=found.seeds,
        left_out=len(was | now),
        needed=_needed(found, tail, finding.metric) if direction and not values.paired else 0,
        detail=(method if found.paired else f"two samples of {seeds} or more") + missing,
        remark=values.undefined_text if values.undefined_changed else "",
        help="" if verdict.good else PIN_AGAIN,
    )


def _judge(
    found: MeanDifference, tail: float, direction: Direction | None, terms: ComparisonTerms
) -> CheckVerdict:
    low, high = found.interval(tail) or (found.value, found.value)
    if abs(found.value) <= terms.at(found.was) or low <= 0 <= high:
        return CheckVerdict.SAME
    if direction is None:
        return CheckVerdict.CHANGED
    worse = (found.value > 0) is (direction is Direction.LOW)
    return CheckVerdict.REGRESSED if worse else CheckVerdict.IMPROVED


def _needed(found: MeanDifference, tail: float, metric: str) -> int:
    """Return how many seeds are needed to detect a loss of half a point, or 0 if not applicable."""
    if metric.startswith(VIOLATION_PREFIX) or metric == SOLUTION_RATE:
        return 0
    return found.needed(HALF_A_POINT * max(1.0, abs(found.was)), tail)

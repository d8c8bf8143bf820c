"""Compare an experiment's results with its pinned reference: selects which values to compare.

If the seeds differ, a metric is compared on each split and as the mean over the rows of all splits.
Violations below 0 count as 0, as slack does not matter. Whether trials found a solution is compared
as the metric `solution_rate`. With fewer than `MIN_SEEDS` seeds, a value that became undefined, or
became defined, cannot be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ratecli.config.base import SOLUTION_RATE
from ratecli.errors import Loc
from ratecli.experiment.meta import dataset_metadata
from ratecli.experiment.prepare import PreparedExperiment, list_missing_files
from ratecli.files import LEDGER_FILE
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.groups import CONCLUSIVE
from ratecli.report.regression.differences import BySeed, compare_undefined, enough_seeds, is_paired
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
from ratecli.report.regression.verdicts import PIN_AGAIN, ComparisonTerms, SeedSeries, judge_series
from ratecli.report.sheet import format_scalar

FINISHED = CONCLUSIVE | {"diverged"}
"""Statuses of trials that may be pinned: they are reproducible."""


class NothingStoredError(Exception):
    """There are no results to compare, for the reason given by the finding."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.told)


def load_current_results(prepared: PreparedExperiment, folder: Path) -> Ledger:
    """Return the current plan of the file with the results stored for it in `folder`.

    Results are looked up by trial key, so those of another file, other data or other code are
    ignored. Raise NothingStoredError if no trial of the file is stored.
    """
    ledger = folder / LEDGER_FILE
    if not ledger.is_file():
        raise _nothing(prepared, f"nothing is stored in '{folder}'")
    if absent := list_missing_files(prepared):
        told = (
            f"the data is not here ({', '.join(absent)}), so that nobody can tell of what the "
            f"results in '{folder}' are"
        )
        raise _nothing(prepared, told, f"`ratecli fetch {prepared.path}`")
    with LedgerStore(ledger, readonly=True) as store:
        before, results = store.plan(), store.results()
    plan = prepared.plan.planned
    if not any(trial.key in results for trial in plan):
        stale = " as it is now: the file, its data or the code changed since" if before else ""
        raise _nothing(prepared, f"no trial of the file{stale} is stored in '{folder}'")
    known = {
        "experiment": prepared.experiment.resolved(),
        "datasets": dataset_metadata(prepared),
        "versions": code_versions(),
    }
    return Ledger(plan, results, known)


def inconclusive_findings(ledger: Ledger, path: Path) -> Iterator[Finding]:
    """Yield a finding for each algorithm and reason why trials of it are missing or failed."""
    found: dict[tuple[str, str, str], list[PlannedTrial]] = {}
    for trial in ledger.plan:
        status = ledger.status(trial)
        if status not in FINISHED:
            found.setdefault((trial.label, status, ledger.reason(trial)), []).append(trial)
    for (label, status, reason), silent in found.items():
        planned = sum(trial.label == label for trial in ledger.plan)
        told = f"{len(silent)} of {planned} trials {_ended(status, reason)}"
        yield Finding(
            CheckVerdict.NOT_COMPARED,
            "run",
            algorithm=label,
            told=f"{told}, the first at {_where(silent[0])}",
            way_out=f"`ratecli run {path}` runs what is missing and tries again what failed",
            loc=("algorithms",),
        )


def _ended(status: str, reason: str) -> str:
    if status == NOT_RUN:
        return "are not stored for the file, its data and the code as they are now"
    return f"ended as {status} ({reason})" if reason else f"ended as {status}"


def _where(trial: PlannedTrial) -> str:
    point = [f"{name} = {format_scalar(value)}" for name, value in trial.point.items()]
    return ", ".join([*point, f"seed {trial.seed}"])


def _nothing(prepared: PreparedExperiment, told: str, way_out: str = "") -> NothingStoredError:
    way_out = way_out or f"`ratecli run {prepared.path}` first"
    return NothingStoredError(Finding(CheckVerdict.NOT_COMPARED, "run", told=told, way_out=way_out))


def compare_with_reference(
    ledger: Ledger, reference: Reference, terms: ComparisonTerms
) -> list[Finding]:
    """Compare every value with the pinned one, in plan order."""
    other = list(_other_data(ledger, reference))
    now = (pin_trials(ledger, point) for point in trials_by_point(ledger))
    return other or compare_points(now, reference.trials, terms)


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
        found += _compare_point(each, before)
        found += [] if before is None else _compare_all_splits(each, before, terms.rows)
    gone = "it is pinned and no longer in the file"
    return judge_series([*found, *(_not_compared(each, gone) for each in known.values())], terms)


def _other_data(ledger: Ledger, reference: Reference) -> Iterator[Finding]:
    """Yield findings for data sets that changed, as they alone could explain different values."""
    now, was = dataset_digests(ledger), reference.data
    for name in sorted(now.keys() | was.keys()):
        if name not in was:
            told = "is not pinned"
        elif name not in now:
            told = "is pinned and no longer in the file"
        elif now[name] != was[name]:
            told = "is not what was pinned: its file or its options are others"
        else:
            continue
        told = f"data set '{name}' {told}"
        loc: Loc = ("datasets", name)
        yield Finding(CheckVerdict.NOT_COMPARED, "reference", told=told, way_out=PIN_AGAIN, loc=loc)


def _compare_point(now: PinnedTrials, was: PinnedTrials | None) -> Iterator[Finding | SeedSeries]:
    """Yield all comparisons of an algorithm at a sweep point."""
    if was is None:
        yield _not_compared(now, "it is not pinned")
        return
    if not FINISHED.issuperset(now.statuses):
        return  # `inconclusive_findings` reports it
    silent = [seed for seed, status in now.status.items() if status not in CONCLUSIVE]
    if new := [seed for seed in silent if was.status.get(seed) != now.status[seed]]:
        listed = ", ".join(f"{now.status[seed]} at seed {seed}" for seed in new)
        yield _not_compared(now, f"it is {listed}, which is not pinned")
        return
    yield _solutions(now, was)
    before, after = was.numbers, now.numbers
    for place in [*before, *(place for place in after if place not in before)]:
        found = _at(now, place)
        if place not in after and after:
            yield replace(found, told="it is pinned and no longer measured")
        elif place not in before and before:
            yield replace(found, told="it is not pinned")
        elif place in after and place in before:
            yield _seed_series(found, (was.seeds, before[place]), (now.seeds, after[place]))


def _compare_all_splits(
    now: PinnedTrials, was: PinnedTrials, rows: Mapping[str, int]
) -> Iterator[Finding | SeedSeries]:
    """Yield a comparison of each metric over the rows of all splits, if the seeds differ.

    Other seeds assign the same rows to other splits. The error on a small test set is uncertain,
    while the mean over all rows is not, because a high error on one split goes with a low error on
    another.
    """
    seeds = [dict.fromkeys(each.seeds, 0.0) for each in (was, now)]
    if is_paired(*seeds) or not enough_seeds(*seeds):
        return
    before, after = was.numbers, now.numbers
    places = {(variant, metric): None for variant, _, metric in before.keys() & after.keys()}
    for variant, metric in sorted(places):
        splits = [s for s in rows if all((variant, s, metric) in own for own in (before, after))]
        if len(splits) > 1 and not metric.startswith(VIOLATION_PREFIX):
            sides = (
                _mean([(rows[s], own[variant, s, metric]) for s in splits])
                for own in (before, after)
            )
            found = _at(now, (variant, " + ".join(splits), metric))
            yield _seed_series(found, *zip((was.seeds, now.seeds), sides, strict=True))


def _mean(parts: Sequence[tuple[int, BySeed]]) -> dict[int, float]:
    """Return the mean by seed, weighted by rows."""
    total = sum(count for count, _ in parts)
    (_, first), *_ = parts
    return {
        seed: sum(count * numbers.get(seed, math.nan) for count, numbers in parts) / total
        for seed in first
    }


def _seed_series(found: Finding, *sides: tuple[Sequence[int], BySeed]) -> Finding | SeedSeries:
    """Return the values to compare, or a finding if they cannot be compared.

    Each side has its seeds, and the values of the seeds with a classifier.
    """
    floor = 0.0 if found.metric.startswith(VIOLATION_PREFIX) else -math.inf
    was, now = (
        {s: max(own[s], floor) if math.isfinite(own.get(s, math.nan)) else math.nan for s in seeds}
        for seeds, own in sides
    )
    (_, before), (_, after) = sides
    lacking = compare_undefined(was, now, (before, after))
    if not lacking.plenty:
        for seed in before.keys() & after.keys():
            if not _same_undefined(before[seed], after[seed]):
                told = f"it is {after[seed]:g} at seed {seed}, and {before[seed]:g} is pinned"
                return replace(found, told=told)
    if not any(map(math.isfinite, [*before.values(), *after.values()])):
        return replace(found, verdict=CheckVerdict.SAME, told="undefined, as it is pinned")
    return SeedSeries(found, was, now, lacking)


def _same_undefined(before: float, after: float) -> bool:
    """Return whether both are finite, or both are the same non-finite value."""
    if math.isfinite(before) or math.isfinite(after):
        return math.isfinite(before) and math.isfinite(after)
    return before == after or (math.isnan(before) and math.isnan(after))


def _solutions(now: PinnedTrials, was: PinnedTrials) -> SeedSeries:
    """Compare whether trials returned a classifier, coded as 1 or 0."""
    before, after = _solved(was), _solved(now)
    lacking = compare_undefined(before, after, (before, after))
    return SeedSeries(_at(now, ("", "", SOLUTION_RATE)), before, after, lacking)


def _solved(each: PinnedTrials) -> dict[int, float]:
    solved = {seed for numbers in each.numbers.values() for seed in numbers}
    return {seed: float(seed in solved) for seed in each.seeds}


def _at(now: PinnedTrials, place: VariantMetric) -> Finding:
    """Return a finding for a value that has not been compared yet."""
    variant, split, metric = place
    return replace(
        _not_compared(now, ""),
        variant=variant,
        split=split,
        metric=metric,
        loc=_loc(metric),
    )


def _loc(metric: str) -> Loc:
    if metric.startswith(VIOLATION_PREFIX):
        return "constraints", metric.removeprefix(VIOLATION_PREFIX)
    if metric == SOLUTION_RATE:
        return ("algorithms",)
    return (metric,) if metric == OBJECTIVE else ("metrics", metric)


def _not_compared(each: PinnedTrials, told: str) -> Finding:
    return Finding(
        CheckVerdict.NOT_COMPARED,
        "reference",
        algorithm=each.algorithm,
        point=each.point,
        told=told,
        way_out=PIN_AGAIN,
        loc=("algorithms",),
    )

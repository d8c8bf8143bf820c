"""Implementation of `ratecli check` and `ratecli pin` for one experiment file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ratecli.config.base import SOLUTION_RATE
from ratecli.config.experiment import Experiment
from ratecli.config.report import Expectation
from ratecli.errors import Diagnostic, FaultError, Loc
from ratecli.experiment.filter_stage import LEAST_SHARE_METRIC
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.files import atomic_write, report_write_errors
from ratecli.ledger.records import FILTER_STAGE_PREFIX
from ratecli.ledger.view import SPLITS, Ledger
from ratecli.rates.metrics import Direction, direction
from ratecli.rates.parser import parse_expression
from ratecli.rates.table import BALANCE_METRICS
from ratecli.report import expectations
from ratecli.report.regression.compare import (
    NothingStoredError,
    compare_with_reference,
    inconclusive_findings,
    load_current_results,
)
from ratecli.report.regression.differences import is_paired
from ratecli.report.regression.findings import CheckNote, CheckReport, CheckVerdict, Finding
from ratecli.report.regression.reference import (
    OBJECTIVE,
    Reference,
    build_reference,
    read_reference,
    reference_text,
)
from ratecli.report.regression.verdicts import PIN_AGAIN, ComparisonTerms
from ratecli.report.sheet import format_scalar

MAX_NAMED_SEEDS = 6
"""Up to this many seeds are listed; of more, the first two and the last."""
SEEDS_LOCATION: Loc = ("seeds",)
SEEDS_SUGGESTION = "give the file the seeds that are pinned, or pin again"


def check_notes(
    ledger: Ledger, known: Reference, findings: Sequence[Finding]
) -> Iterator[CheckNote]:
    """Yield notes on changed seeds, values undefined at some seeds, and undetectable losses."""
    planned = {trial.seed for trial in ledger.plan}
    yield from seed_notes({seed for each in known.trials for seed in each.seeds}, planned)
    good = [each for each in findings if each.verdict.good and each.against == "reference"]
    if odd := [each for each in good if each.remark]:
        more = f", and {len(odd) - 1} more" if len(odd) > 1 else ""
        told = f"seeds are left out where a number is undefined: {odd[0].what} is {odd[0].remark}"
        yield CheckNote(
            told + more, "--format json says how many seeds each comparison left out", odd[0].loc
        )
    if wide := [each for each in _most_certain(good) if each.needed > each.seeds]:
        worst = max(wide, key=lambda each: each.needed)
        told = (
            f"half a point of {worst.what} takes about {worst.needed} seeds to show as two samples"
        )
        yield CheckNote(
            f"{told}, and there are {worst.seeds}",
            f"{SEEDS_SUGGESTION}: pairs show more",
            SEEDS_LOCATION,
        )


def _most_certain(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Return each metric's finding on the split that detects a loss with the fewest seeds."""
    found: dict[tuple[str, ...], list[Finding]] = {}
    for each in findings:
        key = each.algorithm, each.variant, each.metric, repr(each.point)
        found.setdefault(key, []).append(each)
    return (min(own, key=lambda each: each.needed) for own in found.values())


def seed_notes(was: set[int], now: set[int]) -> Iterator[CheckNote]:
    """Yield a note if the file's seeds differ from the pinned ones."""
    both, gone, new = sorted(was & now), sorted(was - now), sorted(now - was)
    if not gone and not new:
        return
    if is_paired(*(dict.fromkeys(seeds, 0.0) for seeds in (was, now))):
        told = f"{len(both)} of {len(was)} seeds that are pinned are compared"
        told += f"; no longer in the file: {_listed(gone)}" if gone else ""
        told += f"; not pinned: {_listed(new)}" if new else ""
        yield CheckNote(told, SEEDS_SUGGESTION, SEEDS_LOCATION)
        return
    told = (
        f"{len(both) or 'none'} of {len(now)} seeds are pinned: {len(was)} and {len(now)} are "
        "compared as two samples"
    )
    yield CheckNote(told, SEEDS_SUGGESTION, SEEDS_LOCATION)


def _listed(seeds: Sequence[int]) -> str:
    if len(seeds) <= MAX_NAMED_SEEDS:
        return ", ".join(map(str, seeds))
    return f"{seeds[0]}, {seeds[1]}, ..., {seeds[-1]} ({len(seeds)})"


CHECK_VERDICTS = {
    expectations.ExpectationVerdict.DIFFERS: CheckVerdict.DIFFERS,
    expectations.ExpectationVerdict.NOT_MEASURED: CheckVerdict.NOT_COMPARED,
    expectations.ExpectationVerdict.HOLDS: CheckVerdict.HOLDS,
    expectations.ExpectationVerdict.NOT_CONTRADICTED: CheckVerdict.NOT_CONTRADICTED,
    expectations.ExpectationVerdict.BETTER: CheckVerdict.BETTER,
}
"""Figures that are only shown are not compared."""
SUGGESTIONS = {
    CheckVerdict.DIFFERS: "find out what moved it, or correct what the file expects",
    CheckVerdict.NOT_COMPARED: "see trials.csv for how the trials ended",
}


def expectation_findings(ledger: Ledger, entries: Sequence[Expectation]) -> Iterator[Finding]:
    """Yield the findings for expectations, by entry, then by group of trials."""
    for each in expectations.compare_expectations(ledger):
        if each.verdict in CHECK_VERDICTS:
            verdict, entry = CHECK_VERDICTS[each.verdict], each.entry
            yield Finding(
                verdict,
                "expect",
                algorithm=each.group.label,
                variant=each.group.variant,
                point=each.group.point,
                split=entry.split,
                metric=entry.metric,
                was=each.figure,
                now=each.ours.mean,
                seeds=each.ours.n,
                told=_finding_text(each),
                way_out=SUGGESTIONS.get(verdict, ""),
                loc=("expect", entries.index(entry)),
            )


def _finding_text(each: expectations.ExpectationComparison) -> str:
    if each.reason:
        return f"not measured, {each.reason}"
    entry = each.entry
    wanted = f"expected {expectations.SIGNS[entry.kind]}{each.figure:g}"
    within = "" if entry.within is None else f" within {format_scalar(entry.within)}"
    return f"{wanted}{within}" + (f" ({entry.source})" if entry.source else "")


FILTER_METRICS_TO_MINIMIZE = tuple(
    f"{FILTER_STAGE_PREFIX}{name}" for name in (*BALANCE_METRICS, OBJECTIVE)
)
"""Metrics of the filter before training that should be low; `LEAST_SHARE_METRIC` should be high."""


def check_results(
    prepared: PreparedExperiment, folder: Path, place: Path, tolerance: float
) -> CheckReport:
    """Compare the results in `folder` with the file's expectations and the reference at `place`."""
    name = prepared.experiment.name
    try:
        known = read_reference(place) if place.exists() else None
        ledger = load_current_results(prepared, folder)
    except NothingStoredError as nothing:
        return CheckReport(prepared.path, name, None, [nothing.finding])
    except FaultError as error:  # E506, E502, E503: continue with other files
        return CheckReport(prepared.path, name, None, list(map(_diagnostic_finding, error.faults)))
    found = list(inconclusive_findings(ledger, prepared.path))
    found += expectation_findings(ledger, prepared.experiment.expect)
    if known is None and not any(each.against == "expect" for each in found):
        told = (
            f"there is nothing to compare with: no reference at '{place}', "
            "and no number in `expect`"
        )
        way_out = (
            f"`ratecli pin {prepared.path}` once the numbers are right, or state some in `expect`"
        )
        found.append(Finding(CheckVerdict.NOT_COMPARED, "reference", told=told, way_out=way_out))
    if known is None:
        return CheckReport(prepared.path, name, None, _add_locations(prepared, found))
    found += _reference_findings(prepared, ledger, known, tolerance)
    versions = _changed_versions(known.versions, ledger.meta["versions"])
    remarks = list(check_notes(ledger, known, found))
    return CheckReport(
        prepared.path, name, place, _add_locations(prepared, found), versions, remarks
    )


def pin_reference(prepared: PreparedExperiment, folder: Path, place: Path) -> Reference:
    """Write the reference for the results in `folder` to `place`.

    Raises
    ------
    FaultError
        E507 if trials are missing or failed, E505 if the file cannot be written.
    """
    try:
        ledger = load_current_results(prepared, folder)
        found = list(inconclusive_findings(ledger, prepared.path))
    except NothingStoredError as nothing:
        found = [nothing.finding]
    if found:
        name = prepared.experiment.name
        raise FaultError(
            Diagnostic("E507", f"'{name}' cannot be pinned: {each.sentence}", each.way_out)
            for each in found
        )
    made = build_reference(ledger)
    with report_write_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, reference_text(made))
    return made


def metric_directions(experiment: Experiment) -> dict[str, Direction]:
    """Return the direction in which each metric improves."""
    found = {name: direction(parse_expression(rule)) for name, rule in experiment.metrics.items()}
    low = dict.fromkeys((OBJECTIVE, *FILTER_METRICS_TO_MINIMIZE), Direction.LOW)
    return found | low | dict.fromkeys((SOLUTION_RATE, LEAST_SHARE_METRIC), Direction.HIGH)


def rows_by_split(ledger: Ledger) -> dict[str, int]:
    """Return the number of rows of each split, summed over trials."""
    found: Counter[str] = Counter()
    for trial in ledger.plan:
        result = ledger.results.get(trial.key)
        found.update((result.info.get("rows") if result else None) or {})
    return {split: found[split] for split in SPLITS if split in found}


def _add_locations(prepared: PreparedExperiment, found: Sequence[Finding]) -> list[Finding]:
    """Set the location of findings about a whole algorithm to its entry in the file."""
    labels = [entry.label for entry in prepared.experiment.algorithms]
    return [
        replace(each, loc=("algorithms", labels.index(each.algorithm)))
        if each.loc == ("algorithms",) and each.algorithm in labels
        else each
        for each in found
    ]


def _diagnostic_finding(fault: Diagnostic) -> Finding:
    way_out = fault.help or ""
    return Finding(
        CheckVerdict.NOT_COMPARED, "reference", told=fault.message, way_out=way_out, code=fault.code
    )


def _reference_findings(
    prepared: PreparedExperiment, ledger: Ledger, known: Reference, tolerance: float
) -> list[Finding]:
    if known.name != prepared.experiment.name:
        told = f"the reference is one of '{known.name}'"
        return [
            Finding(CheckVerdict.NOT_COMPARED, "reference", told=told, way_out="name the right one")
        ]
    again = PIN_AGAIN.format(file=prepared.path)
    terms = ComparisonTerms(
        tolerance, metric_directions(prepared.experiment), rows_by_split(ledger)
    )
    return [
        replace(each, way_out=again) if each.way_out == PIN_AGAIN else each
        for each in compare_with_reference(ledger, known, terms)
    ]


def _changed_versions(was: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    pairs = {name: (was.get(name, "-"), now.get(name, "-")) for name in {**was, **now}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

"""Implementation of `ratecli check` and `ratecli pin` for one experiment file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ratecli.config.base import SOLUTION_RATE
from ratecli.config.experiment import Experiment
from ratecli.config.report import Expectation
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.filter_stage import LEAST_SHARE_METRIC
from ratecli.experiment.meta import dataset_metadata
from ratecli.experiment.prepare import PreparedExperiment, list_missing_files
from ratecli.files import LEDGER_FILE, atomic_write, report_write_errors
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import FILTER_STAGE_PREFIX, PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.rates.metrics import Direction, direction
from ratecli.rates.parser import parse_expression
from ratecli.rates.syntax import SPLITS
from ratecli.rates.table import BALANCE_METRICS
from ratecli.report.expectations import SIGNS, ExpectationVerdict, compare_expectations
from ratecli.report.regression.compare import (
    FINISHED,
    PIN_AGAIN,
    ComparisonTerms,
    compare_with_reference,
)
from ratecli.report.regression.findings import (
    CheckReport,
    CheckVerdict,
    Finding,
    FindingSource,
)
from ratecli.report.regression.reference import (
    OBJECTIVE,
    Reference,
    build_reference,
    read_reference,
    reference_text,
)
from ratecli.report.regression.statistics import SeedPair
from ratecli.report.sheet import format_scalar

MAX_NAMED_SEEDS = 6
"""Up to this many seeds are listed; of more, the first two and the last."""
SEEDS_SUGGESTION = "give the file the seeds that are pinned, or pin again"
FILTER_METRICS_TO_MINIMIZE = tuple(
    f"{FILTER_STAGE_PREFIX}{name}" for name in (*BALANCE_METRICS, OBJECTIVE)
)
"""Metrics of the filter before training that should be low; `LEAST_SHARE_METRIC` should be high."""


def check_results(
    prepared: PreparedExperiment, folder: Path, place: Path, tolerance: float
) -> CheckReport:
    """Compare the results in `folder` with the file's expectations and the reference at `place`."""
    experiment, path = prepared.experiment, prepared.path
    try:
        known = read_reference(place) if place.exists() else None
        ledger, found = load_current_results(prepared, folder)
    except FaultError as error:  # E506, E502, E503: continue with other files
        ledger, found = None, list(map(_from_diagnostic, error.faults))
    if ledger is None:
        return CheckReport(path, experiment.name, None, found)
    found += expectation_findings(ledger, experiment.expect)
    if known is None:
        if not any(each.against == "expect" for each in found):
            detail = f"no reference at '{place}', and no number in `expect`"
            help_ = f"`ratecli pin {path}` once the numbers are right, or state some in `expect`"
            detail = f"there is nothing to compare with: {detail}"
            found.append(_not_compared("reference", detail, help_))
        return CheckReport(path, experiment.name, None, _add_details(prepared, found))
    if known.name == experiment.name:
        better, rows = metric_directions(experiment), rows_by_split(ledger)
        terms = ComparisonTerms(tolerance, better, rows)
        found += compare_with_reference(ledger, known, terms)
    else:
        detail = f"the reference is one of '{known.name}'"
        found.append(_not_compared("reference", detail, "name the right one"))
    was, now = known.versions, ledger.meta["versions"]
    pairs = {name: (was.get(name, "-"), now.get(name, "-")) for name in {**was, **now}}
    versions = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    notes = [*check_notes(ledger, known, found)]
    found = _add_details(prepared, found)
    return CheckReport(path, experiment.name, place, found, versions, notes)


def pin_reference(prepared: PreparedExperiment, folder: Path, place: Path) -> Reference:
    """Write the reference for the results in `folder` to `place`.

    Raises
    ------
    FaultError
        E507 if trials are missing or failed, E505 if the file cannot be written.
    """
    ledger, found = load_current_results(prepared, folder)
    if ledger is None or found:
        name = prepared.experiment.name
        raise FaultError(
            Diagnostic("E507", f"'{name}' cannot be pinned: {each.sentence}", each.help)
            for each in found
        )
    made = build_reference(ledger)
    with report_write_errors(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(place, reference_text(made))
    return made


def load_current_results(
    prepared: PreparedExperiment, folder: Path
) -> tuple[Ledger | None, list[Finding]]:
    """Return the current plan of the file with the results stored for it in `folder`.

    Results are looked up by trial key, so those of another file, other data or other code are
    ignored. The findings say which trials are missing or failed, or why there are no results.
    """
    path, detail, help_ = prepared.path, "", f"`ratecli run {prepared.path}` first"
    plan, results = prepared.plan.planned, {}
    if not (folder / LEDGER_FILE).is_file():
        detail = f"nothing is stored in '{folder}'"
    elif absent := list_missing_files(prepared):
        detail = (
            f"files of the data are missing ({', '.join(absent)}), so results cannot be checked"
        )
        help_ = f"`ratecli fetch {path}`"
    else:
        with LedgerStore(folder / LEDGER_FILE, readonly=True) as store:
            before, results = store.plan(), store.results()
        if not any(trial.key in results for trial in plan):
            stale = " as it is now: the file, its data or the code changed since" if before else ""
            detail = f"no trial of the file{stale} is stored in '{folder}'"
    if detail:
        return None, [_not_compared("run", detail, help_)]
    known = {
        "experiment": prepared.experiment.resolved(),
        "datasets": dataset_metadata(prepared),
        "versions": code_versions(),
    }
    ledger = Ledger(plan, results, known)
    return ledger, list(inconclusive_findings(ledger, path))


def inconclusive_findings(ledger: Ledger, path: Path) -> Iterator[Finding]:
    """Yield a finding for each algorithm and reason why trials of it are missing or failed."""
    found: dict[tuple[str, str, str], list[PlannedTrial]] = {}
    for trial in ledger.plan:
        status = ledger.status(trial)
        if status not in FINISHED:
            found.setdefault((trial.label, status, ledger.reason(trial)), []).append(trial)
    for (label, status, reason), (first, *others) in found.items():
        planned = sum(trial.label == label for trial in ledger.plan)
        ended = f"ended as {status}" + (f" ({reason})" if reason else "")
        if status == NOT_RUN:
            ended = "are not stored for the file, its data and the code as they are now"
        point = [f"{name} = {format_scalar(value)}" for name, value in first.point.items()]
        where = ", ".join([*point, f"seed {first.seed}"])
        detail = f"{1 + len(others)} of {planned} trials {ended}, the first at {where}"
        help_ = f"`ratecli run {path}` runs what is missing and tries again what failed"
        yield replace(_not_compared("run", detail, help_), algorithm=label, loc=("algorithms",))


def expectation_findings(ledger: Ledger, entries: Sequence[Expectation]) -> Iterator[Finding]:
    """Yield the findings for expectations, by entry, then by group of trials."""
    for each in compare_expectations(ledger):
        entry, help_ = each.entry, ""
        within = "" if entry.within is None else f" within {format_scalar(entry.within)}"
        detail = f"expected {SIGNS[entry.kind]}{each.figure:g}{within}"
        detail += f" ({entry.source})" if entry.source else ""
        if each.verdict is ExpectationVerdict.SHOWN:
            continue
        if each.verdict is ExpectationVerdict.NOT_MEASURED:
            verdict = CheckVerdict.NOT_COMPARED
            help_ = "see trials.csv for how the trials ended"
        else:
            verdict = CheckVerdict(str(each.verdict))
        if verdict is CheckVerdict.DIFFERS:
            help_ = "find out what moved it, or correct what the file expects"
        yield Finding(
            verdict,
            "expect",
            algorithm=each.group.label,
            variant=each.group.variant,
            point=each.group.point,
            split=entry.split,
            metric=entry.metric,
            was=each.figure,
            now=each.measured.mean,
            seeds=each.measured.n,
            detail=f"not measured, {each.reason}" if each.reason else detail,
            help=help_,
            loc=("expect", entries.index(entry)),
        )


def _not_compared(against: FindingSource, detail: str, help_: str) -> Finding:
    return Finding(CheckVerdict.NOT_COMPARED, against, detail=detail, help=help_)


def _from_diagnostic(error: Diagnostic) -> Finding:
    found = _not_compared("reference", error.message, error.help or "")
    return replace(found, code=error.code)


def _add_details(prepared: PreparedExperiment, found: Sequence[Finding]) -> list[Finding]:
    """Name the file in suggestions, and set the location of findings about an algorithm."""
    labels = [entry.label for entry in prepared.experiment.algorithms]
    again = PIN_AGAIN.format(file=prepared.path)
    found = [replace(each, help=again) if each.help == PIN_AGAIN else each for each in found]
    return [
        replace(each, loc=("algorithms", labels.index(each.algorithm)))
        if each.loc == ("algorithms",) and each.algorithm in labels
        else each
        for each in found
    ]


def check_notes(
    ledger: Ledger, known: Reference, findings: Sequence[Finding]
) -> Iterator[Diagnostic]:
    """Yield notes on changed seeds, values undefined at some seeds, and undetectable losses."""
    planned = {trial.seed for trial in ledger.plan}
    yield from seed_notes({seed for each in known.trials for seed in each.seeds}, planned)
    good = [each for each in findings if each.verdict.good and each.against == "reference"]
    if odd := [each for each in good if each.remark]:
        more = f", and {len(odd) - 1} more" if len(odd) > 1 else ""
        detail = f"seeds are left out where a number is undefined: {odd[0].what} is {odd[0].remark}"
        help_ = "--format json says how many seeds each comparison left out"
        yield Diagnostic("W502", detail + more, help_, loc=odd[0].loc, key=True)
    fewest: dict[tuple[str, ...], Finding] = {}  # of each metric, on the split that needs fewest
    for each in sorted(good, key=lambda each: each.needed):
        fewest.setdefault((each.algorithm, each.variant, each.metric, repr(each.point)), each)
    wide = [each for each in fewest.values() if each.needed > each.seeds]
    if wide:
        worst = max(wide, key=lambda each: each.needed)
        yield _seeds_note(
            f"half a point of {worst.what} takes about {worst.needed} seeds to show as two "
            f"samples, and there are {worst.seeds}",
            f"{SEEDS_SUGGESTION}: pairs show more",
        )


def seed_notes(was: set[int], now: set[int]) -> Iterator[Diagnostic]:
    """Yield a note if the file's seeds differ from the pinned ones."""
    both, gone, new = sorted(was & now), sorted(was - now), sorted(now - was)
    if not gone and not new:
        return
    if SeedPair(dict.fromkeys(was), dict.fromkeys(now)).paired:
        detail = f"{len(both)} of {len(was)} seeds that are pinned are compared"
        detail += f"; no longer in the file: {_listed(gone)}" if gone else ""
        yield _seeds_note(detail + (f"; not pinned: {_listed(new)}" if new else ""))
    else:
        counts = f"{len(was)} and {len(now)} are compared as two samples"
        yield _seeds_note(f"{len(both) or 'none'} of {len(now)} seeds are pinned: {counts}")


def _seeds_note(detail: str, help_: str = SEEDS_SUGGESTION) -> Diagnostic:
    return Diagnostic("W502", detail, help_, loc=("seeds",), key=True)


def _listed(seeds: Sequence[int]) -> str:
    if len(seeds) <= MAX_NAMED_SEEDS:
        return ", ".join(map(str, seeds))
    return f"{seeds[0]}, {seeds[1]}, ..., {seeds[-1]} ({len(seeds)})"


def metric_directions(experiment: Experiment) -> Mapping[str, Direction]:
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

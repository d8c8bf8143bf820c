"""Implementation of `ratecli check` and `ratecli pin` for one experiment file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ratecli.config.experiment import Experiment
from ratecli.errors import Diagnostic, FaultError, Loc
from ratecli.experiment.prepare import PreparedExperiment, list_missing_files
from ratecli.experiment.report_facts import dataset_metadata
from ratecli.files import LEDGER_FILE, atomic_write, shell_command
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import OBJECTIVE, VIOLATION_PREFIX
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.rates.syntax import SPLITS
from ratecli.report.answer import goal_of, ignoring_labels, metric_directions
from ratecli.report.answer_text import answer_lines
from ratecli.report.check import reference as pins
from ratecli.report.check import settings
from ratecli.report.check.compare import FINISHED, UNDEFINED_PREFIX, ComparisonTerms, compare_points
from ratecli.report.check.expectations import compare_expectations
from ratecli.report.check.findings import CheckReport, Finding, Verdict
from ratecli.report.groups import group_by
from ratecli.report.sheet import format_point

UNMET_HELP = "the goal is no longer met: undo the change, or find its cause, before you pin again"
SEEDS_SUGGESTION = "use the pinned seeds in the file, or pin again"


def check_results(
    prepared: PreparedExperiment, folder: Path, place: Path, tolerance: float
) -> CheckReport:
    """Compare the results in `folder` with the file's expectations and the reference at `place`."""
    experiment = prepared.experiment
    report = CheckReport(prepared.path, experiment.name, None, [])
    try:
        known = pins.read_reference(place) if place.exists() else None
        ledger, found = load_current_results(prepared, folder)
    except FaultError as error:  # E506, E502, E503: continue with other files
        ledger, known = None, None
        found = [
            Finding(detail=each.message, help=each.help or "", code=each.code)
            for each in error.faults
        ]
    if ledger is not None:
        models = pins.answering_models(ledger)
        pinned = (known.answers if known else []) or models
        is_met = pins.are_goals_met(pinned, models)
        start = f"{format_point(goal_of(ledger) or {})}: "
        changed = not is_met or [each.name for each in models] != [each.name for each in pinned]
        answer = "\n".join(answer_lines(ledger)).removeprefix(start) if changed else ""
        baselines = {*ignoring_labels(ledger)} - {each.algorithm for each in pinned}
        report = replace(report, models=pinned, answer=answer, baselines=baselines)
        found += [
            each for each in compare_expectations(ledger) if each.verdict is not Verdict.SHOWN
        ]
        pin = prepared.command("pin", folder)
        if known is not None:
            again = f"if this change is intended, pin again: `{pin}`" if is_met else UNMET_HELP
            found += _reference_findings(prepared, ledger, known, tolerance, again=again)
            was, now = known.versions, ledger.meta["versions"]
            others = [name for name in {**was, **now} if was.get(name) != now.get(name)]
            versions = {name: (was.get(name, "-"), now.get(name, "-")) for name in others}
            notes = _notes(experiment, ledger, known, found)
            report = replace(report, reference=place, versions=versions, notes=notes)
        elif not any(each.against == "expect" for each in found):
            missing = f"no reference at '{place}', and nothing to judge in `expect`"
            help_ = f"run `{pin}` when the results are right, or add to `expect`"
            found.append(Finding(detail=f"there is nothing to compare with: {missing}", help=help_))
    found = [replace(each, loc=each.loc or _location(experiment, each)) for each in found]
    return replace(report, findings=found)


def _notes(
    experiment: Experiment, ledger: Ledger, known: pins.Reference, found: Sequence[Finding]
) -> list[Diagnostic]:
    """Return warnings about what changed in the file and its data since the results were pinned."""
    own = settings.experiment_settings(ledger.experiment)
    changes = settings.changed_settings(known.settings, own)
    data = settings.changed_data(changes, known.data, pins.dataset_digests(ledger))
    pinned_seeds = {seed for each in known.trials for seed in each.seeds}
    return [
        *settings.change_notes(experiment, changes, data),
        *seed_notes(pinned_seeds, {trial.seed for trial in ledger.plan}, found),
    ]


def _reference_findings(
    prepared: PreparedExperiment,
    ledger: Ledger,
    known: pins.Reference,
    tolerance: float,
    *,
    again: str,
) -> list[Finding]:
    """Return all comparisons with the reference.

    The help of failed ones is `again`, unless there is no result to pin.
    """
    if known.name != prepared.experiment.name:
        detail = f"the reference belongs to the experiment '{known.name}'"
        return [Finding(detail=detail, help="use the reference of this file")]
    better, rows = metric_directions(ledger), rows_by_split(ledger)
    terms = ComparisonTerms(tolerance, better, rows)
    found = compare_points(pins.pin_points(ledger), known.trials, terms)
    return [each if each.help or each.verdict.good else replace(each, help=again) for each in found]


def _location(experiment: Experiment, found: Finding) -> Loc:
    """Return the place in the file of the constraint, metric or algorithm of a finding."""
    places: dict[str, Loc] = {OBJECTIVE: (OBJECTIVE,)}
    places |= {name: ("metrics", name) for name in experiment.metrics}
    places |= {VIOLATION_PREFIX + name: ("constraints", name) for name in experiment.constraints}
    labels = [entry.label for entry in experiment.algorithms]
    metric = found.metric.removeprefix(UNDEFINED_PREFIX)
    if metric not in places and found.algorithm in labels:
        return ("algorithms", labels.index(found.algorithm))
    return places.get(metric, ("algorithms",) if found.algorithm else ("name",))


def pin_reference(prepared: PreparedExperiment, folder: Path, place: Path) -> pins.Reference:
    """Write the reference for the results in `folder` to `place`.

    Raises
    ------
    FaultError
        E507 if trials are missing or failed, E505 if the file cannot be written.
    """
    ledger, found = load_current_results(prepared, folder)
    if ledger is None or found:
        start = f"'{prepared.experiment.name}' cannot be pinned: "
        raise FaultError(Diagnostic("E507", start + each.sentence, each.help) for each in found)
    made = pins.build_reference(ledger)
    atomic_write(place, pins.reference_text(made), parents=True)
    return made


def load_current_results(
    prepared: PreparedExperiment, folder: Path
) -> tuple[Ledger | None, list[Finding]]:
    """Return the current plan of the file with the results stored for it in `folder`.

    Results are looked up by trial key, so those of another file, other data or other code are
    ignored. The findings say which trials are missing or failed, or why there are no results.
    """
    run, detail = prepared.command("run", folder), ""
    help_ = f"run `{run}` first"
    plan, results = prepared.plan.planned, {}
    if not (folder / LEDGER_FILE).is_file():
        detail = f"nothing is stored in '{folder}'"
    elif absent := list_missing_files(prepared):
        detail = (
            f"files of the data are missing ({', '.join(absent)}), so results cannot be checked"
        )
        help_ = f"run `{shell_command('fetch', prepared.path)}` first"
    else:
        with LedgerStore(folder / LEDGER_FILE, readonly=True) as store:
            results = store.results()
        if not any(trial.key in results for trial in plan):
            stale = "in its current form (the file, its data or the code has changed)"
            detail = f"no trial of the file {stale} is stored in '{folder}'"
            help_ += ". If it was run with --set, add the same --set here"
    if detail:
        return None, [Finding(against="run", detail=detail, help=help_)]
    known = {
        "experiment": prepared.experiment.stated(),
        "datasets": dataset_metadata(prepared),
        "versions": code_versions(),
    }
    ledger = Ledger(plan, results, known)
    return ledger, list(inconclusive_findings(ledger, run))


def inconclusive_findings(ledger: Ledger, run: str) -> Iterator[Finding]:
    """Yield a finding for each algorithm and reason why trials of it are missing or failed.

    `run` is the command that runs them.
    """
    unfinished = (trial for trial in ledger.plan if ledger.status(trial) not in FINISHED)
    found = group_by(
        unfinished, lambda trial: (trial.label, ledger.status(trial), ledger.reason(trial))
    )
    for (label, status, reason), (first, *others) in found.items():
        planned = sum(trial.label == label for trial in ledger.plan)
        ended = f"ended as {status}" + (f" ({reason})" if reason else "")
        if status == NOT_RUN:
            ended = "are not stored for the current file, data and code"
        where = ", ".join(filter(None, [format_point(first.point), f"seed {first.seed}"]))
        detail = f"{1 + len(others)} of {planned} trials {ended}, the first at {where}"
        help_ = f"`{run}` runs missing trials and retries failed ones"
        yield Finding(against="run", algorithm=label, detail=detail, help=help_)


def seed_notes(was: set[int], now: set[int], found: Iterable[Finding]) -> list[Diagnostic]:
    """Return a note if the file's seeds differ from the pinned ones.

    If two samples of so many seeds could hide a loss of half a percentage point, it says how many
    are needed to detect one in every metric, each on the split that needs fewest.
    """
    if was == now:
        return []
    detail = f"{len(was & now)} of {len(was)} pinned seeds are among the file's {len(now)}"
    metrics = group_by(
        (each for each in found if each.needed and each.verdict.good),
        lambda each: (each.algorithm, each.variant, each.metric, repr(each.point)),
    )
    fewest = [min(several, key=lambda each: each.needed) for several in metrics.values()]
    worst = max(fewest, key=lambda each: each.needed, default=None)
    if worst and worst.needed > worst.seeds:
        detail += f"; half a point in {worst.what} takes about {worst.needed} seeds to detect"
    return [Diagnostic("W502", detail, SEEDS_SUGGESTION, loc=("seeds",), key=True)]


def rows_by_split(ledger: Ledger) -> dict[str, int]:
    """Return the number of rows of each split, summed over trials."""
    found: Counter[str] = Counter()
    for trial in ledger.plan:
        result = ledger.results.get(trial.key)
        found.update((result.info.get("rows") if result else None) or {})
    return {split: found[split] for split in SPLITS if split in found}

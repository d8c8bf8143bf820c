"""What is stored of a file as it is now, with its data and code: what a run would find done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ratecli.experiment.meta import dataset_metadata
from ratecli.experiment.prepare import PreparedExperiment, list_missing_files
from ratecli.files import LEDGER_FILE
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.store import LedgerStore
from ratecli.ledger.view import NOT_RUN, Ledger
from ratecli.report.outcomes import CONCLUSIVE
from ratecli.report.regression.findings import CheckVerdict, Finding
from ratecli.report.sheet import format_scalar

FINISHED = CONCLUSIVE | {"diverged"}
"""How a trial may have ended that is pinned: run again it ends so again."""


class NothingStoredError(Exception):
    """There is nothing to look at, for the reason that the finding gives."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.told)


def load_current_results(prepared: PreparedExperiment, folder: Path) -> Ledger:
    """The plan of the file as it is now with the results that are stored for it in `folder`.

    Results are found by the keys of trials, so that nothing counts that was run of another file, other
    data or other code. Raises NothingError where no trial of it is stored.
    """
    ledger = folder / LEDGER_FILE
    if not ledger.is_file():
        raise _nothing(prepared, f"nothing is stored in '{folder}'")
    if absent := list_missing_files(prepared):
        told = f"the data is not here ({', '.join(absent)}), so that nobody can tell of what the results in '{folder}' are"
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
    """A finding for each algorithm and reason why trials of it are missing or failed."""
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

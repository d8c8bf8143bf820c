"""A run of one experiment: its open ledger, its record, and its outcome."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from ratecli.errors import Diagnostic
from ratecli.experiment.cases import used_plugins
from ratecli.experiment.meta import dataset_metadata, report_metadata
from ratecli.experiment.plan import Task
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.experiment.report_checks import (
    check_expected_variants,
    check_plot_variants,
    swept_names,
)
from ratecli.files import LEDGER_FILE, atomic_write, report_write_errors
from ratecli.ledger.provenance import build_manifest
from ratecli.ledger.records import END_WARNINGS_KEY, FAILED_STATUSES, PlannedTrial, TrialResult
from ratecli.ledger.store import LedgerStore, LedgerWriter
from ratecli.runner.warnings import constant_warnings, violation_warnings

NO_SOLUTION_STATUS = "no_solution_found"


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run.

    Attributes
    ----------
    counts
        Number of trials by status, including stored ones.
    ran
        Number of trials run this time.
    failed
        Name and result of each trial that failed.
    unsolved
        Name and result of each trial that found no solution.
    warnings
        Constraints violated on the test set (W402), models no better than a constant (W408),
        plotted variants that do not exist (W208).
    """

    folder: Path
    counts: Mapping[str, int]
    ran: int
    failed: tuple[tuple[str, TrialResult], ...]
    unsolved: tuple[tuple[str, TrialResult], ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


@dataclass(frozen=True)
class RunRequest:
    """An experiment to run, and its results folder."""

    prepared: PreparedExperiment
    folder: Path


class ExperimentRun:
    """An experiment that is being run, with its ledger open.

    `todo` are its trials that have to be run, `left` the keys of those not stored yet.
    The constructor replaces the stored plan and run record, and with `fresh` deletes all stored
    results. It raises FaultError (E502, E503, E505) if the folder or the ledger cannot be used.
    """

    def __init__(self, asked: RunRequest, *, fresh: bool, command: Sequence[str]) -> None:
        self.asked = asked
        self._started = datetime.now(UTC)
        self._command = command
        prepared, folder = asked.prepared, asked.folder
        with report_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        ledger = folder / LEDGER_FILE
        if fresh:
            with report_write_errors(ledger):
                ledger.unlink(missing_ok=True)
                # left by a killed run
                ledger.with_name(f"{LEDGER_FILE}-journal").unlink(missing_ok=True)
        self._write_record(None)
        self._store = LedgerStore(ledger)
        try:
            self._store.begin(prepared.plan.planned, report_metadata(prepared))
            known = self._store.known()
        except BaseException:
            self._store.close()
            raise
        self._writer = LedgerWriter(self._store)
        asked_for = {task.key for task in prepared.plan.tasks}
        self.names = {
            each.key: trial_display_name(each)
            for each in prepared.plan.planned
            if each.key in asked_for
        }
        self.todo: list[Task] = [task for task in prepared.plan.tasks if task.key not in known]
        self.left = {task.key for task in self.todo}

    def put(self, result: TrialResult) -> None:
        """Store a trial; also raise errors from storing earlier ones."""
        self._writer.put(result)
        self.left.discard(result.key)

    def take(self, results: Iterable[TrialResult]) -> None:
        """Store results of trials that are already known and need not be run."""
        for result in results:
            self.put(result)
        self.todo = [task for task in self.todo if task.key in self.left]

    def recall(self, key: str) -> TrialResult:
        """Return a stored trial of this experiment; raise KeyError if it is not stored."""
        self._writer.flush()
        return self._store.result(key)

    def close(self) -> None:
        self._writer.close()
        self._store.close()

    def finish(self) -> RunOutcome:
        """Complete the record and close the ledger, after all trials have ended."""
        self._writer.flush()
        results = self._store.results()
        warnings = _end_warnings(self.asked.prepared, results)
        self._store.note(END_WARNINGS_KEY, [f"{fault.code}: {fault.message}" for fault in warnings])
        self.close()
        self._write_record(datetime.now(UTC))
        ended = [results[task.key] for task in self.asked.prepared.plan.tasks]
        names = self.names
        failed = tuple(
            (names[result.key], result) for result in ended if result.status in FAILED_STATUSES
        )
        unsolved = tuple(
            (names[each.key], each) for each in ended if each.status == NO_SOLUTION_STATUS
        )
        counts = _status_counts(ended)
        return RunOutcome(self.asked.folder, counts, len(self.todo), failed, unsolved, warnings)

    def _write_record(self, ended: datetime | None) -> None:
        prepared, folder = self.asked.prepared, self.asked.folder
        resolved = prepared.experiment.resolved()
        text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=100)
        atomic_write(folder / "experiment.yaml", prepared.document.text)
        atomic_write(folder / "resolved.yaml", text)
        record = build_manifest(
            data=dataset_metadata(prepared),
            command=self._command or sys.argv,
            started=self._started,
            ended=ended,
            folder=Path.cwd(),
            deployed_model=prepared.deployed_model,
            plugins=used_plugins(prepared.experiment, swept_names(prepared.experiment)),
        )
        atomic_write(folder / "manifest.json", json.dumps(record, indent=2) + "\n")


def count_stored_trials(prepared: PreparedExperiment, folder: Path) -> int:
    """Return the number of planned trials that have a stored result."""
    if not (folder / LEDGER_FILE).is_file():
        return 0
    with LedgerStore(folder / LEDGER_FILE, readonly=True) as store:
        known = store.known()
    return sum(task.key in known for task in prepared.plan.tasks)


def trial_display_name(planned: PlannedTrial) -> str:
    """Return a trial's name in messages, such as `majorize kappa=0.8 seed=1`."""
    point = [f"{name}={value}" for name, value in planned.point.items()]
    return " ".join([planned.label, *point, f"seed={planned.seed}"])


def _end_warnings(
    prepared: PreparedExperiment, results: Mapping[str, TrialResult]
) -> tuple[Diagnostic, ...]:
    """Return the warnings that depend on results."""
    ended = [trial for trial in prepared.plan.planned if trial.key in results]
    trials = [(trial.label, results[trial.key]) for trial in ended]
    given = {(label, value.variant): None for label, found in trials for value in found.values}
    variants = {variant for _, variant in given}
    return (
        *violation_warnings(ended, results),
        *constant_warnings(ended, results),
        *check_plot_variants(prepared.experiment, prepared.document, variants),
        *check_expected_variants(prepared.experiment, prepared.document, given),
    )


def _status_counts(results: Sequence[TrialResult]) -> dict[str, int]:
    statuses = [result.status for result in results]
    return {status: statuses.count(status) for status in dict.fromkeys(statuses)}

"""Run the trials of one or several experiments, and store each in its experiment's ledger."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import permutations
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, Self

import yaml

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.checks.report import check_variants
from ratecli.experiment.forecast import TimeLeft
from ratecli.experiment.plan import Task
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.experiment.report_facts import dataset_metadata, report_metadata, used_plugins
from ratecli.files import FITS_FOLDER, LEDGER_FILE, RESOLVED_FILE, atomic_write, report_write_errors
from ratecli.ledger.provenance import build_manifest
from ratecli.ledger.records import (
    END_WARNINGS_KEY,
    FAILED_STATUSES,
    UNSOLVED_STATUSES,
    TrialResult,
)
from ratecli.ledger.store import LedgerStore, LedgerWriter, recover_ledger
from ratecli.render import terminal_safe
from ratecli.runner.end_warnings import end_warnings
from ratecli.runner.executors import EXECUTOR_CODES, Executor, TrialPool, run_tasks
from ratecli.runner.trial import run_trial

LINE_SECONDS, TERMINAL_SECONDS = 2.0, 0.2
"""Minimum seconds between lines in a file and on a terminal, so that logs stay readable."""


@dataclass(frozen=True)
class RunRequest:
    """An experiment to run, and its results folder."""

    prepared: PreparedExperiment
    folder: Path


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
        Name and result of each trial that found no solution or whose constraints are infeasible.
    unmet
        Name and result of each trial whose model violates a constraint that it should satisfy.
    warnings
        Constraints violated on the test set (W402), models no better than a constant (W408),
        plotted variants that do not exist (W208).
    """

    folder: Path
    counts: Mapping[str, int]
    ran: int
    failed: tuple[tuple[str, TrialResult], ...]
    unsolved: tuple[tuple[str, TrialResult], ...]
    unmet: tuple[tuple[str, TrialResult], ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


def run_experiments(
    requests: Sequence[RunRequest],
    executor: Executor,
    on_ended: Callable[[RunOutcome], object],
    on_fault: Callable[[RunRequest, FaultError], object] | None = None,
    *,
    fresh: bool = False,
    quiet: bool = False,
    command: Sequence[str] = (),
) -> None:
    """Run the trials of several experiments, one experiment after the other, on the same workers.

    A trial that another one of the experiments has stored is copied from there. The caller must
    hold the locks of the folders until the reports are written.

    Parameters
    ----------
    on_ended
        Called with the outcome of each experiment as soon as its trials have ended.
    on_fault
        Called when an experiment's folder or ledger fails. That experiment is dropped and the
        others continue. Without it, the error is raised.
    """

    @contextmanager
    def reporting(request: RunRequest) -> Iterator[None]:
        try:
            yield
        except FaultError as error:
            if on_fault is None or error.faults[0].code in EXECUTOR_CODES:
                raise
            on_fault(request, error)

    runs: list[ExperimentRun] = []
    with ExitStack() as stack:
        for request in requests:
            with reporting(request):
                runs.append(ExperimentRun(request, fresh=fresh, command=command))
                stack.callback(runs[-1].close)
        for run, other in permutations(runs, 2):
            run.copy_results(other)
        pool = stack.enter_context(executor.open_pool([task for run in runs for task in run.todo]))
        for k, run in enumerate(runs):
            with reporting(run.request):
                run.run_trials(pool, quiet=quiet, is_single=len(requests) == 1)
                for other in runs[k + 1 :]:
                    other.copy_results(run)
                on_ended(run.finish())


def count_stored_trials(prepared: PreparedExperiment, folder: Path) -> int:
    """Return the number of planned trials that have a stored result."""
    if not (folder / LEDGER_FILE).is_file():
        return 0
    with LedgerStore(folder / LEDGER_FILE, readonly=True) as store:
        known = store.known()
    return sum(task.key in known for task in prepared.plan.tasks)


class ExperimentRun:
    """An experiment that is being run, with its ledger open.

    `tasks` are its trials and `names` their names by key; `stored` has the seconds of those that
    need not run again. The constructor replaces the stored plan and run record, and with `fresh`
    deletes all stored results. It raises FaultError (E502, E503, E505) if the folder or the ledger
    cannot be used.
    """

    def __init__(self, request: RunRequest, *, fresh: bool, command: Sequence[str]) -> None:
        self.request = request
        self._started = datetime.now(UTC)
        self._command, self._ran = command, 0
        prepared, folder = request.prepared, request.folder
        ledger = folder / LEDGER_FILE
        with report_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if fresh:
            with report_write_errors(ledger):
                ledger.unlink(missing_ok=True)
                # left by a killed run
                ledger.with_name(f"{LEDGER_FILE}-journal").unlink(missing_ok=True)
        self._write_record(None)
        exists = ledger.is_file() and ledger.stat().st_size > 0
        self._damaged = recover_ledger(ledger) if exists else None
        self._store = LedgerStore(ledger)
        try:
            self._store.begin(prepared.plan.planned, report_metadata(prepared))
            self.stored = self._store.known()
        except BaseException:
            self._store.close()
            raise
        self._writer = LedgerWriter(self._store)
        self.tasks = {task.key: task for task in prepared.plan.tasks}
        self.names = {
            each.key: each.name for each in prepared.plan.planned if each.key in self.tasks
        }

    @property
    def todo(self) -> list[Task]:
        """The trials that have to be run."""
        return [task for key, task in self.tasks.items() if key not in self.stored]

    def put(self, result: TrialResult) -> None:
        self._writer.put(result)
        if result.status not in FAILED_STATUSES:
            self.stored[result.key] = result.seconds

    def result(self, key: str) -> TrialResult:
        """Return a result that was stored or put."""
        self._writer.flush()
        return self._store.result(key)

    def copy_results(self, other: ExperimentRun) -> None:
        """Store the results of another experiment that this one lacks.

        Trials with equal keys have equal results, but names of constraints are not in the key.
        """
        for task in (task for task in self.todo if task.key in other.stored):
            if _constraint_names(task) == _constraint_names(other.tasks[task.key]):
                with suppress(FaultError):  # each experiment reports its own ledger later
                    self.put(other.result(task.key))

    def run_trials(self, pool: TrialPool, *, quiet: bool, is_single: bool) -> None:
        """Run the trials that are not stored; show the progress unless `quiet`."""
        todo, plan = self.todo, self.request.prepared.plan
        self._ran = len(todo)
        prefix = "" if is_single else f"{self.request.prepared.experiment.name}: "
        names = {key: prefix + name for key, name in self.names.items()}
        trials = [each for each in plan.planned if each.key in self.tasks]
        left = TimeLeft(trials, plan.seconds, pool.capacity)
        for key in names.keys() & self.stored:
            left.end(key, self.stored[key])
        fits = self.request.folder.absolute().parent / FITS_FOLDER
        stored = len(names) - len(todo)
        with RunProgress(len(names), stored, names.__getitem__, left, quiet=quiet) as progress:

            def done(result: TrialResult) -> None:
                self.put(result)
                progress.done(result)

            run_tasks(pool, todo, partial(run_trial, fits=fits), done, self.result)

    def close(self) -> None:
        self._writer.close()
        self._store.close()

    def finish(self) -> RunOutcome:
        """Complete the record and close the ledger, after all trials have ended."""
        self._writer.flush()
        results = self._store.results()
        warnings = (*self._damage(), *_end_warnings(self.request.prepared, results))
        texts = [f"{fault.code}: {fault.message}" for fault in warnings]
        self._store.set_meta(END_WARNINGS_KEY, texts)
        self.close()
        self._write_record(datetime.now(UTC))
        ended = [(self.names[key], results[key]) for key in self.tasks]
        return RunOutcome(
            self.request.folder,
            Counter(result.status for _, result in ended),
            self._ran,
            tuple(each for each in ended if each[1].status in FAILED_STATUSES),
            tuple(each for each in ended if each[1].status in UNSOLVED_STATUSES),
            tuple(each for each in ended if each[1].status == "not_met"),
            warnings,
        )

    def _damage(self) -> Iterator[Diagnostic]:
        """Yield a warning if the ledger was damaged when the run began."""
        if self._damaged is None:
            return
        again = [self.names[key] for key in self._damaged if key in self.names]
        which = f": {', '.join(again)}" if again else ""
        message = f"the stored results were damaged, and what was not intact was run again{which}"
        yield Diagnostic("W504", message, "check the disk")

    def _write_record(self, ended: datetime | None) -> None:
        prepared, folder = self.request.prepared, self.request.folder
        resolved = prepared.experiment.stated()
        document = prepared.document  # without a text if it was passed from Python
        atomic_write(folder / "experiment.yaml", document.text or _yaml_text(document.data))
        atomic_write(folder / RESOLVED_FILE, _yaml_text(resolved))
        record = build_manifest(
            data=dataset_metadata(prepared),
            command=self._command,
            started=self._started,
            ended=ended,
            folder=Path.cwd(),
            deployed_model=prepared.deployed_model,
            plugins=used_plugins(prepared),
            models=dict(
                ChainMap(*(each.payload.case.model_versions() for each in prepared.plan.tasks))
            ),
        )
        atomic_write(folder / "manifest.json", json.dumps(record, indent=2) + "\n")


def _yaml_text(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def _end_warnings(
    prepared: PreparedExperiment, results: Mapping[str, TrialResult]
) -> tuple[Diagnostic, ...]:
    """Return the warnings that depend on results."""
    planned = prepared.plan.planned
    measured = {
        (trial.label, value.variant): None
        for trial in planned
        if trial.key in results
        for value in results[trial.key].values
    }
    return (
        *end_warnings(planned, results),
        *map(prepared.document.placed, check_variants(prepared.experiment, measured)),
    )


def _constraint_names(task: Task) -> tuple[str, ...]:
    return tuple(goal.name for goal in task.payload.case.constraints)


class RunProgress:
    """The progress of a run: on a terminal a line that changes, otherwise a line every two seconds.

    `stored` of the `total` trials have a result from an earlier run. If `quiet`, only failures are
    printed. `name` returns the display name of the trial with a key.
    """

    def __init__(
        self,
        total: int,
        stored: int,
        name: Callable[[str], str],
        left: TimeLeft,
        *,
        quiet: bool = False,
    ) -> None:
        self._total, self._stored, self._ended, self._failed = total, stored, 0, 0
        self._name, self._left, self._quiet, self._out = name, left, quiet, sys.stderr
        self._is_terminal = self._out.isatty()
        self._shown, self._waiting, self._begun = -math.inf, "", time.monotonic()

    def __enter__(self) -> Self:
        if self._stored < self._total:
            self._show("started")
        return self

    def __exit__(self, *error: object) -> None:
        if self._waiting or (self._is_terminal and not self._quiet):
            self._print(self._waiting)

    def done(self, result: TrialResult) -> None:
        """Show that a trial has ended."""
        name = self._name(result.key)
        self._ended += 1
        seconds = None if result.status == "error" else result.seconds
        self._left.end(result.key, seconds, time.monotonic() - self._begun)
        if result.status in FAILED_STATUSES:
            self._failed += 1
            self._print(f"error[E501]: {name}: {result.reason}")
        self._show(f"{name}: {result.status}, {result.seconds:.1f} s")

    def _show(self, what: str) -> None:
        """Show how many trials have ended, what happened last and the time left.

        If the last line was shown just before, this one waits for the end of the run.
        """
        if self._quiet:
            return
        asides = [f"{self._stored} stored before"] if self._stored else []
        asides += [f"{self._failed} failed"] if self._failed else []
        aside = f" ({', '.join(asides)})" if asides else ""
        count = f"{self._stored + self._ended:{len(str(self._total))}}/{self._total}"
        self._waiting = f"{count}{aside}  {what}"
        pause = TERMINAL_SECONDS if self._is_terminal else LINE_SECONDS
        if time.monotonic() - self._shown >= pause:
            self._print("; ".join(filter(None, (self._waiting, str(self._left)))), stays=False)
            self._shown, self._waiting = time.monotonic(), ""

    def _print(self, line: str, *, stays: bool = True) -> None:
        """Print a line; on a terminal, the next one replaces it unless it `stays`."""
        line, end = terminal_safe(line), "\n"
        if self._is_terminal:
            width = get_terminal_size().columns - 1
            line, end = f"\r\x1b[K{line if stays else line[:width]}", "\n" if stays and line else ""
        print(line, end=end, file=self._out, flush=True)

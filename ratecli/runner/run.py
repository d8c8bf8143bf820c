"""Run the trials of one or several experiments, and store each in its experiment's ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from ratecli.errors import FaultError
from ratecli.experiment.plan import Task
from ratecli.experiment.prepare import PreparedExperiment
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import TrialResult
from ratecli.runner.executors import Executor, Hooks
from ratecli.runner.experiment_run import (
    ExperimentRun,
    RunOutcome,
    RunRequest,
    count_stored_trials,
    trial_display_name,
)
from ratecli.runner.progress import RunProgress, open_progress
from ratecli.runner.trial import run_trial

__all__ = [
    "LEDGER_FILE",
    "RunOutcome",
    "RunRequest",
    "count_stored_trials",
    "run_experiment",
    "run_experiments",
    "trial_display_name",
]

OnEnded = Callable[[RunOutcome], object]
OnFault = Callable[[RunRequest, FaultError], object]
NamedTask = tuple[str, tuple[str, ...]]
"""The key of a trial, and the names of its constraints."""


def run_experiment(
    prepared: PreparedExperiment,
    folder: Path,
    executor: Executor,
    *,
    fresh: bool = False,
    quiet: bool = False,
    command: Sequence[str] = (),
) -> RunOutcome:
    """Run the trials that are not stored yet; write the ledger and the run record to `folder`.

    The caller must hold the folder's lock until the report is written.
    """
    outcomes: list[RunOutcome] = []
    asked = [RunRequest(prepared, folder)]
    run_experiments(asked, executor, outcomes.append, fresh=fresh, quiet=quiet, command=command)
    return outcomes[0]


def run_experiments(
    asked: Sequence[RunRequest],
    executor: Executor,
    on_ended: OnEnded,
    on_fault: OnFault | None = None,
    *,
    fresh: bool = False,
    quiet: bool = False,
    command: Sequence[str] = (),
) -> None:
    """Run the trials of several experiments in one batch, which keeps workers busy in between.

    A trial of several experiments runs once, under the wider of their limits. A trial that another
    experiment in the batch has stored is copied from there.

    Parameters
    ----------
    on_ended
        Called with the outcome of each experiment as soon as its own trials have ended.
    on_fault
        Called when an experiment's folder or ledger fails. That experiment is dropped and the
        others continue. Without it, the error is raised.
    """
    with ExitStack() as stack:
        batch = _Batch(on_ended, on_fault)
        for each in asked:
            batch.open(each, stack, fresh=fresh, command=command)
        with suppress(_AllExperimentsEndedError):
            batch.share()
            batch.run(executor, quiet=quiet)


class _AllExperimentsEndedError(Exception):
    """Raised to stop the executor when no experiment is left after one failed."""


class _Batch:
    def __init__(self, on_ended: OnEnded, on_fault: OnFault | None) -> None:
        self._on_ended = on_ended
        self._on_fault = on_fault
        self._all: list[ExperimentRun] = []
        self._live: list[ExperimentRun] = []

    def open(
        self, asked: RunRequest, stack: ExitStack, *, fresh: bool, command: Sequence[str]
    ) -> None:
        try:
            ongoing = ExperimentRun(asked, fresh=fresh, command=command)
        except FaultError as error:
            self._tell(asked, error)
            return
        stack.callback(ongoing.close)
        self._all.append(ongoing)
        self._live.append(ongoing)

    def share(self) -> None:
        """Copy stored results to experiments that lack them.

        Trials with equal keys have equal results.

        Copied results count as stored, like those of an earlier run.
        """
        holders = {
            (task.key, _constraint_names(task)): each
            for each in reversed(self._live)
            for task in each.asked.prepared.plan.tasks
            if task.key not in each.left
        }
        for each in list(self._live):
            try:
                if each in self._live:
                    each.take(self._held(each, holders))
            except FaultError as error:
                self._drop(each, error)

    def _held(
        self, each: ExperimentRun, holders: Mapping[NamedTask, ExperimentRun]
    ) -> Iterator[TrialResult]:
        """Yield results stored by other experiments; drop experiments with unreadable ledgers."""
        for task in each.todo:
            holder = holders.get((task.key, _constraint_names(task)))
            if holder in self._live:
                try:
                    yield holder.recall(task.key)
                except FaultError as error:
                    self._drop(holder, error)

    def run(self, executor: Executor, *, quiet: bool) -> None:
        names = self._names()
        tasks = self._tasks()
        stored = len(names) - len(tasks)
        with open_progress(len(names), stored, names.__getitem__, quiet=quiet) as bar:

            def done(result: TrialResult) -> None:
                self._store(result, bar)

            hooks = Hooks(self._recall, bar.start, self._is_wanted)
            for each in list(self._live):
                self._end(each)
            executor.run(tasks, run_trial, done, hooks)

    def _names(self) -> dict[str, str]:
        """Return each trial's display name, prefixed by its experiment if there are several."""
        several = len(self._all) > 1
        return {
            key: f"{each.asked.prepared.experiment.name}: {name}" if several else name
            for each in reversed(self._all)
            for key, name in each.names.items()
        }

    def _tasks(self) -> list[Task]:
        found: dict[str, Task] = {}
        for each in self._all:
            for task in each.todo:
                other = found.setdefault(task.key, task)
                found[task.key] = replace(other, limits=other.limits.wider(task.limits))
        return list(found.values())

    def _store(self, result: TrialResult, bar: RunProgress) -> None:
        mine = [each for each in self._live if result.key in each.left]
        for each in mine:
            try:
                each.put(result)
            except FaultError as error:
                self._drop(each, error)
        bar.done(result)
        for each in mine:
            self._end(each)

    def _end(self, each: ExperimentRun) -> None:
        """Finish an experiment that has no trials left to run."""
        if each.left or each not in self._live:
            return
        try:
            outcome = each.finish()
        except FaultError as error:
            self._drop(each, error)
            return
        self._live.remove(each)
        self._on_ended(outcome)

    def _drop(self, each: ExperimentRun, error: FaultError) -> None:
        self._live.remove(each)
        self._tell(each.asked, error)
        if not self._live:
            raise _AllExperimentsEndedError

    def _tell(self, asked: RunRequest, error: FaultError) -> None:
        if self._on_fault is None:
            raise error
        self._on_fault(asked, error)

    def _is_wanted(self, key: str) -> bool:
        """Return whether a live experiment plans the trial.

        It need not lack the result: other trials of it may depend on this one.
        """
        return any(key in each.names for each in self._live)

    def _recall(self, key: str) -> TrialResult:
        for each in self._live:
            if key in each.names:
                return each.recall(key)
        raise KeyError(key)


def _constraint_names(task: Task) -> tuple[str, ...]:
    """Return the names of a trial's constraints: not in its key, but used in its messages."""
    return tuple(goal.name for goal in task.payload.case.constraints)

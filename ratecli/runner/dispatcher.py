"""Dispatch scheduled trials to workers, and retry trials whose worker died."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Protocol

from ratecli.experiment.limits import TrialLimits
from ratecli.experiment.plan import Task
from ratecli.ledger.records import FAILED_STATUSES, TrialResult
from ratecli.runner.worker import TrialFunction, failure_result

RecallResult = Callable[[str], TrialResult]
"""Returns the stored result of a trial of an earlier run, with its models."""


@dataclass(frozen=True)
class ReadyTask:
    """A task whose dependencies have ended, with their results."""

    task: Task
    given: Mapping[str, TrialResult]

    def blocked(self) -> TrialResult | None:
        """Return the task's result if a trial it depends on failed, so that it cannot run."""
        for need, result in self.given.items():
            if result.status in FAILED_STATUSES:
                reason = f"needs trial {need[:12]}, which ended as {result.status}: {result.reason}"
                return TrialResult(self.task.key, "error", reason)
        return None


class Schedule:
    """The dependency graph of tasks. Tasks with equal keys are one task.

    A cycle raises `graphlib.CycleError`. Results are kept only as long as a task needs them.
    `recall` returns results of dependencies that are not among the tasks.
    """

    def __init__(self, tasks: Iterable[Task], recall: RecallResult | None = None) -> None:
        self._tasks = {task.key: task for task in tasks}
        self._recall = recall or _missing_result
        self._results: dict[str, TrialResult] = {}
        inner = {key: self._inner_needs(task) for key, task in self._tasks.items()}
        self._wanted = Counter(need for needs in inner.values() for need in needs)
        self._order = TopologicalSorter(inner)
        self._order.prepare()
        self._queue = deque(self._order.get_ready())

    def take(self) -> ReadyTask | None:
        """Return the next task that is ready, or None if there is none at the moment."""
        if not self._queue:
            return None
        task = self._tasks[self._queue.popleft()]
        return ReadyTask(task, {need: self._given(need) for need in task.needs})

    def finish(self, result: TrialResult) -> None:
        key = result.key
        if self._wanted[key]:
            self._results[key] = result
        for need in self._inner_needs(self._tasks[key]):
            self._wanted[need] -= 1
            if not self._wanted[need]:
                del self._results[need]
        self._order.done(key)
        self._queue.extend(self._order.get_ready())

    def _inner_needs(self, task: Task) -> list[str]:
        return [need for need in dict.fromkeys(task.needs) if need in self._tasks]

    def _given(self, need: str) -> TrialResult:
        return self._results[need] if need in self._tasks else self._recall(need)


def _missing_result(key: str) -> TrialResult:
    raise KeyError(f"trial {key} is needed but neither planned nor stored")


MAX_WORKER_DEATHS = 2
"""A trial fails after this many of its workers died."""

OnDone = Callable[[TrialResult], object]
OnStart = Callable[[str], object]
IsWanted = Callable[[str], bool]


@dataclass(frozen=True)
class Hooks:
    """Optional callbacks of an executor.

    `recall` returns the result of a dependency that is not among the tasks, `on_start` is called
    with the key of each trial that starts, and `wanted` decides just before a trial starts whether
    to run it.
    """

    recall: RecallResult | None = None
    on_start: OnStart | None = None
    wanted: IsWanted | None = None

    def started(self, key: str) -> None:
        if self.on_start is not None:
            self.on_start(key)


NO_HOOKS = Hooks()


@dataclass
class TrialQueue:
    """Supplies trials to run, and passes on their results."""

    schedule: Schedule
    on_done: OnDone
    hooks: Hooks

    def take(self) -> ReadyTask | None:
        """Return the next trial to run, and end trials that cannot run or are not wanted."""
        while ready := self.schedule.take():
            key = ready.task.key
            if self.hooks.wanted is not None and not self.hooks.wanted(key):
                self.schedule.finish(TrialResult(key, "error", "it is not wanted any more"))
            elif (blocked := ready.blocked()) is not None:
                self.end(blocked)
            else:
                return ready
        return None

    def end(self, result: TrialResult) -> None:
        self.on_done(result)
        self.schedule.finish(result)


class Dispatcher:
    """Runs the trials of a queue on a group of workers."""

    def __init__(self, desk: TrialQueue, workers: WorkerGroup, function: TrialFunction) -> None:
        self._desk = desk
        self._workers = workers
        self._function = function
        self._deaths: Counter[str] = Counter()
        self._out: dict[str, TaskMessage] = {}
        self._again: deque[TaskMessage] = deque()

    def work(self) -> None:
        """Run all trials. If an exception such as an interrupt ends the run, kill the workers."""
        try:
            while self._hand_out():
                for answer in self._workers.collect():
                    self._hear(answer)
        except BaseException:
            self._workers.kill()
            raise
        self._workers.dismiss()

    def _hand_out(self) -> bool:
        """Give trials to free workers; return False when everything is done."""
        while self._workers.has_room() and (parcel := self._next()):
            self._out[parcel.key] = parcel
            self._workers.hand(parcel)
        return self._workers.is_busy()

    def _next(self) -> TaskMessage | None:
        if self._again:
            return self._again.popleft()
        while ready := self._desk.take():
            try:
                parcel = TaskMessage.of(ready, self._function)
            except Exception as error:  # noqa: BLE001  pickling may raise anything
                self._desk.end(failure_result(ready.task.key, error))
                continue
            self._desk.hooks.started(parcel.key)
            return parcel
        return None

    def _hear(self, answer: WorkerAnswer) -> None:
        parcel = self._out.pop(answer.key)
        if isinstance(answer, WorkerDeath):
            self._deaths[answer.key] += answer.times
            if self._deaths[answer.key] < MAX_WORKER_DEATHS:
                self._again.append(parcel)
                return
            answer = answer.result()
        self._desk.end(answer)


@dataclass(frozen=True)
class TaskMessage:
    """A trial to send to a worker: its key, pickled function and arguments, and limits."""

    key: str
    content: bytes
    limits: TrialLimits

    @classmethod
    def of(cls, ready: ReadyTask, function: TrialFunction) -> TaskMessage:
        """Raise whatever pickling raises."""
        content = pickle.dumps((function, ready.task.payload, dict(ready.given)))
        return cls(ready.task.key, content, ready.task.limits)


@dataclass(frozen=True)
class WorkerDeath:
    """A trial's worker ended before it answered; `times` counts the workers that did so."""

    key: str
    how: str
    times: int = 1

    @classmethod
    def by(cls, key: str, exit_code: int | None) -> WorkerDeath:
        """Return the death of a process; a negative exit code means it was killed by a signal."""
        killed = exit_code is not None and exit_code < 0
        return cls(key, f"signal {-(exit_code or 0)}" if killed else f"exit code {exit_code}")

    def result(self) -> TrialResult:
        """Return the result of a trial whose workers died."""
        hint = "out of memory, or a crash in a compiled library?"
        reason = f"the worker process died each time it was tried ({self.how}); {hint}"
        return TrialResult(self.key, "error", reason)


WorkerAnswer = TrialResult | WorkerDeath


class WorkerGroup(Protocol):
    """Workers that run trials in parallel."""

    def has_room(self) -> bool:
        """Return whether another trial would start immediately."""

    def is_busy(self) -> bool:
        """Return whether any answer is outstanding."""

    def hand(self, parcel: TaskMessage) -> None:
        """Send a trial to a free worker."""

    def collect(self) -> list[WorkerAnswer]:
        """Wait for at least one answer."""

    def dismiss(self) -> None:
        """Release the workers after all trials have ended."""

    def kill(self) -> None:
        """Kill the workers and their trials."""

"""A schedule worked off by workers: who gets what, and what becomes of a trial whose worker died."""

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
"""Gives the result of a trial of an earlier run, with its models."""


@dataclass(frozen=True)
class ReadyTask:
    """A task whose needs have ended, with their results."""

    task: Task
    given: Mapping[str, TrialResult]

    def blocked(self) -> TrialResult | None:
        """How the task ends if it cannot run, because a trial that it needs failed."""
        for need, result in self.given.items():
            if result.status in FAILED_STATUSES:
                reason = f"needs trial {need[:12]}, which ended as {result.status}: {result.reason}"
                return TrialResult(self.task.key, "error", reason)
        return None


class Schedule:
    """The graph of tasks. One key given twice is one task; a cycle raises `graphlib.CycleError`.

    Results are kept only as long as a task needs them. `recall` answers for needs that are not
    among the tasks.
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
        """The next task that may start, if there is one now."""
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
"""How many workers may die of a trial."""

OnDone = Callable[[TrialResult], object]
OnStart = Callable[[str], object]
IsWanted = Callable[[str], bool]


@dataclass(frozen=True)
class Hooks:
    """What an executor may call beside a trial's function.

    `recall` gives the result of a trial that is needed but not among the tasks; `on_start` hears the
    key of each that starts; `wanted` says, when a trial's turn has come, whether to run it at all.
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
    """Gives out the trials that are to be run, and hears how they end."""

    schedule: Schedule
    on_done: OnDone
    hooks: Hooks

    def take(self) -> ReadyTask | None:
        """The next trial to run; those that cannot be run, or need not, end here."""
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
    """One run of some workers."""

    def __init__(self, desk: TrialQueue, workers: WorkerGroup, function: TrialFunction) -> None:
        self._desk = desk
        self._workers = workers
        self._function = function
        self._deaths: Counter[str] = Counter()
        self._out: dict[str, TaskMessage] = {}
        self._again: deque[TaskMessage] = deque()

    def work(self) -> None:
        """Until all is done. Whatever ends it early, an interrupt say, ends the workers as well."""
        try:
            while self._hand_out():
                for answer in self._workers.collect():
                    self._hear(answer)
        except BaseException:
            self._workers.kill()
            raise
        self._workers.dismiss()

    def _hand_out(self) -> bool:
        """Give work to whoever is free; False when all is done."""
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
            except Exception as error:  # noqa: BLE001  pickling raises what it likes
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
    """A trial as it goes to a worker: its key, how it is run (pickled), and what it may take."""

    key: str
    content: bytes
    limits: TrialLimits

    @classmethod
    def of(cls, ready: ReadyTask, function: TrialFunction) -> TaskMessage:
        """Raises what pickling raises."""
        content = pickle.dumps((function, ready.task.payload, dict(ready.given)))
        return cls(ready.task.key, content, ready.task.limits)


@dataclass(frozen=True)
class WorkerDeath:
    """A worker ended before it answered; `times` is how many did that the trial was given to."""

    key: str
    how: str
    times: int = 1

    @classmethod
    def by(cls, key: str, exit_code: int | None) -> WorkerDeath:
        """Of a process: it was killed where the exit code is negative."""
        killed = exit_code is not None and exit_code < 0
        return cls(key, f"signal {-(exit_code or 0)}" if killed else f"exit code {exit_code}")

    def result(self) -> TrialResult:
        """How a trial ends whose workers died."""
        hint = "out of memory, or a crash in a compiled library?"
        reason = f"the worker process died each time it was tried ({self.how}); {hint}"
        return TrialResult(self.key, "error", reason)


WorkerAnswer = TrialResult | WorkerDeath


class WorkerGroup(Protocol):
    """Those who run trials side by side, wherever they are."""

    def has_room(self) -> bool:
        """Whether one more trial would begin at once."""

    def is_busy(self) -> bool:
        """Whether an answer is still to come."""

    def hand(self, parcel: TaskMessage) -> None:
        """Give a trial to a free worker."""

    def collect(self) -> list[WorkerAnswer]:
        """Wait for some answers, at least one."""

    def dismiss(self) -> None:
        """All is done."""

    def kill(self) -> None:
        """End at once what runs."""

"""Which trial may run next, and what it gets from the trials that it needs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from ratecli.experiment.plan import Task
from ratecli.ledger.records import FAILED_STATUSES, TrialResult

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

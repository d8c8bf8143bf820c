"""The order in which trials run: a trial starts after those whose results it needs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from ratecli.experiment.plan import Task
from ratecli.ledger.records import FAILED_STATUSES, TrialResult

OnDone = Callable[[TrialResult], object]


def _missing_result(key: str) -> TrialResult:
    raise KeyError(f"trial {key} is needed but neither planned nor stored")


@dataclass(frozen=True)
class Hooks:
    """Callbacks of an executor.

    `recall` returns the result of a dependency that is not among the tasks, `on_start` is called
    with the key of each trial that starts, and `wanted` decides just before a trial starts whether
    to run it.
    """

    recall: Callable[[str], TrialResult] = _missing_result
    on_start: Callable[[str], object] = lambda _key: None
    wanted: Callable[[str], bool] = lambda _key: True


NO_HOOKS = Hooks()


class Schedule:
    """Supplies tasks whose dependencies have ended, and passes on results.

    Tasks with equal keys are one task. A cycle raises `graphlib.CycleError`. Results are kept only
    as long as a task needs them.
    """

    def __init__(self, tasks: Iterable[Task], on_done: OnDone, hooks: Hooks = NO_HOOKS) -> None:
        self._tasks = {task.key: task for task in tasks}
        self._on_done, self._hooks = on_done, hooks
        self._results: dict[str, TrialResult] = {}
        self._needs = {
            key: [need for need in dict.fromkeys(task.needs) if need in self._tasks]
            for key, task in self._tasks.items()
        }
        self._users = Counter(need for needs in self._needs.values() for need in needs)
        self._order = TopologicalSorter(self._needs)
        self._order.prepare()
        self._ready = deque(self._order.get_ready())

    def take(self) -> tuple[Task, Mapping[str, TrialResult]] | None:
        """Return the next task and the results that it needs, or None if none is ready.

        Tasks that are not wanted, or need the result of a trial that failed, are skipped.
        """
        while self._ready:
            task = self._tasks[self._ready.popleft()]
            if not self._hooks.wanted(task.key):
                self._finish(TrialResult(task.key, "error", "no remaining experiment needs it"))
                continue
            results = {
                need: self._results[need] if need in self._tasks else self._hooks.recall(need)
                for need in task.needs
            }
            failed = [each for each in results.values() if each.status in FAILED_STATUSES]
            if not failed:
                self._hooks.on_start(task.key)
                return task, results
            cause = f"needs trial {failed[0].key[:12]}, which ended as {failed[0].status}"
            self.end(TrialResult(task.key, "error", f"{cause}: {failed[0].reason}"))
        return None

    def end(self, result: TrialResult) -> None:
        """Pass on the result of a task that `take` has returned."""
        self._on_done(result)
        self._finish(result)

    def _finish(self, result: TrialResult) -> None:
        if self._users[result.key]:
            self._results[result.key] = result
        for need in self._needs[result.key]:
            self._users[need] -= 1
            if not self._users[need]:
                del self._results[need]
        self._order.done(result.key)
        self._ready.extend(self._order.get_ready())

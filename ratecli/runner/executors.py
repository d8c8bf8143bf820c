"""Executors, which run trials in this process, in several processes, or on a cluster.

A trial starts after those whose results it needs. Results do not depend on the executor.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.plan import UNLIMITED, Task
from ratecli.ledger.records import FAILED_STATUSES, TrialResult
from ratecli.runner.workers import (
    ProcessPool,
    TrialFunction,
    TrialRun,
    check_limits,
    failure_result,
    limit_to_one_thread,
    run_checked,
    run_guarded,
)

USUAL_JOBS = 2
"""Default number of processes. Each holds its own copy of the data, so not all cores are used."""

POLL_SECONDS = 1.0
"""Seconds between checks of a pool: a cluster may be lost, or get more workers."""

EXECUTOR_KINDS = "serial, processes, dask and dask://HOST:PORT"
CLUSTER_ADDRESS = re.compile(r"(dask|tcp|tls)://([^/\s]+:\d+)")

OnDone = Callable[[TrialResult], object]


def _missing_result(key: str) -> TrialResult:
    raise KeyError(f"trial {key} is needed but neither planned nor stored")


@dataclass(frozen=True)
class Hooks:
    """Callbacks of an executor.

    `recall` returns the result of a dependency that is not among the tasks, and `wanted` decides
    just before a trial starts whether to run it.
    """

    recall: Callable[[str], TrialResult] = _missing_result
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


class TrialPool(Protocol):
    """Runs trials. Futures are those of the standard library, or of Dask."""

    @property
    def capacity(self) -> int:
        """The number of trials that can run at the same time; raises E513 if a cluster is lost."""

    def submit(self, task: Task, run: TrialRun) -> Any:
        """Start a trial and return its future; raise whatever pickling `run` raises."""

    def result(self, future: Any) -> TrialResult:
        """Return the result of a trial that has ended."""


class Executor(ABC):
    """Runs tasks in an order that respects their dependencies."""

    def check(self) -> None:  # noqa: B027  most executors are always available
        """Raise FaultError (E512) if trials cannot run."""

    def run(
        self,
        tasks: Iterable[Task],
        function: TrialFunction,
        on_done: OnDone,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        """Call `on_done` with each task's result, in this thread, as soon as it is available.

        Exceptions of a trial and violations of its limits become its result. Exceptions of
        `on_done` and interrupts end the run. Raise FaultError: E511 if a limit cannot be enforced
        here, E512 if a cluster cannot be used, E513 if it is lost.
        """
        todo = list(tasks)
        if not todo:
            return
        for limits in {task.limits for task in todo}:
            check_limits(limits)
        schedule, running = Schedule(todo, on_done, hooks), 0
        ended: SimpleQueue[Any] = SimpleQueue()
        with self._open_pool(todo) as pool:
            while True:
                while running < pool.capacity and (ready := schedule.take()):
                    task, results = ready
                    run = partial(run_checked, function, task.payload, results)
                    try:
                        pool.submit(task, run).add_done_callback(ended.put)
                        running += 1
                    except Exception as error:  # noqa: BLE001  pickling may raise anything
                        schedule.end(failure_result(task.key, error))
                if not running:
                    return
                with suppress(Empty):
                    future = ended.get(timeout=POLL_SECONDS)
                    running -= 1
                    schedule.end(pool.result(future))

    @abstractmethod
    def _open_pool(self, tasks: Sequence[Task]) -> AbstractContextManager[TrialPool]:
        """Return a pool for the tasks, whose trials are killed if an exception ends its context."""


class _InlinePool:
    """Runs one trial at a time in this process."""

    capacity = 1

    def submit(self, task: Task, run: TrialRun) -> Future[TrialResult]:
        future: Future[TrialResult] = Future()
        future.set_result(run_guarded(task.key, run))
        return future

    def result(self, future: Future[TrialResult]) -> TrialResult:
        return future.result()


@contextmanager
def _open_inline_pool() -> Iterator[_InlinePool]:
    with limit_to_one_thread():
        yield _InlinePool()


@dataclass(frozen=True)
class SerialExecutor(Executor):
    """Runs one trial at a time in this process, or in a child process if any trial has limits."""

    def _open_pool(self, tasks: Sequence[Task]) -> AbstractContextManager[TrialPool]:
        if any(task.limits != UNLIMITED for task in tasks):
            return ProcessPool(1)
        return _open_inline_pool()


@dataclass(frozen=True)
class ProcessExecutor(Executor):
    """Runs up to `jobs` trials in parallel, in processes that are reused.

    A trial whose worker dies is retried once; other trials are not affected. A single trial without
    limits runs in this process, because starting a worker would import all libraries twice.
    """

    jobs: int

    def _open_pool(self, tasks: Sequence[Task]) -> AbstractContextManager[TrialPool]:
        if len(tasks) == 1 and tasks[0].limits == UNLIMITED:
            return _open_inline_pool()
        return ProcessPool(self.jobs)


@dataclass(frozen=True)
class DaskExecutor(Executor):
    """Runs up to `jobs` trials in parallel on the Dask cluster at `address`, or on a local one.

    If `address` is given, `jobs` may be None: as many trials as the cluster has threads. Deaths of
    workers and limits are handled as by `ProcessExecutor`.
    """

    address: str | None = None
    jobs: int | None = None

    def __post_init__(self) -> None:
        """Raise FaultError (E512) if Dask is not installed."""
        if find_spec("distributed") is None:
            raise FaultError(
                Diagnostic("E512", "Dask is not installed", "pip install 'ratecli[dask]'")
            )

    def check(self) -> None:
        """Raise FaultError (E512) if there is no cluster with workers at the address."""
        from ratecli.runner.dask_pool import connect_client  # noqa: PLC0415  optional dependency

        if self.address is not None:
            with connect_client(self.address):
                pass

    def _open_pool(self, tasks: Sequence[Task]) -> AbstractContextManager[TrialPool]:  # noqa: ARG002
        from ratecli.runner.dask_pool import open_dask_pool  # noqa: PLC0415  optional dependency

        return open_dask_pool(self.address, self.jobs)


def parse_executor(kind: str | None, jobs: int | None) -> Executor:
    """Return the executor for the options `--executor` and `--jobs`.

    `kind` is serial, processes, dask or the address of a running cluster. For anything else, raise
    E104 with the valid values.
    """
    if kind is not None and CLUSTER_ADDRESS.fullmatch(kind):
        return DaskExecutor(re.sub("^dask:", "tcp:", kind), jobs)
    many = jobs or min(USUAL_JOBS, os.cpu_count() or 1)
    match kind:
        case "dask":
            return DaskExecutor(None, many)
        case "processes":
            return ProcessExecutor(many)
        case "serial" if jobs is not None and jobs > 1:
            message = "one process runs one trial at a time: leave out --jobs"
            raise FaultError(Diagnostic("E104", message))
        case "serial":
            return SerialExecutor()
        case None:
            return SerialExecutor() if many == 1 else ProcessExecutor(many)
        case _:
            raise FaultError(Diagnostic("E104", f"'{kind}' is not one of {EXECUTOR_KINDS}"))

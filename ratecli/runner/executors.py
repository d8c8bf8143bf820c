"""Run trials in this process, in several processes, or on a cluster, with the same results."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from graphlib import TopologicalSorter
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any, Literal, Protocol

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
EXECUTOR_CODES = frozenset({"E511", "E512", "E513"})
"""Codes of errors of an executor."""
CLUSTER_ADDRESS = re.compile(r"(dask|tcp|tls)://([^/\s]+:\d+)")


class TrialPool(Protocol):
    """Runs trials. Futures are those of the standard library, or of Dask."""

    @property
    def capacity(self) -> int:
        """The number of trials that can run at the same time; raises E513 if a cluster is lost."""

    def submit(self, task: Task, run: TrialRun) -> Any:
        """Start a trial and return its future; raise whatever pickling `run` raises."""

    def result(self, future: Any) -> TrialResult:
        """Return the result of a trial that has ended."""


def run_tasks(
    pool: TrialPool,
    tasks: Iterable[Task],
    function: TrialFunction,
    on_done: Callable[[TrialResult], object],
    recall: Callable[[str], TrialResult],
) -> None:
    """Call `on_done` with each task's result, in this thread, as soon as it is available.

    A trial starts after those whose results it needs; `recall` returns a result that `on_done` got,
    or that of a trial that is not among the tasks. Tasks with equal keys are one task.

    Exceptions of a trial and violations of its limits become its result. Exceptions of `on_done`
    and interrupts end the run. Raise FaultError (E513) if a cluster is lost, CycleError if trials
    need one another.
    """
    by_key = {task.key: task for task in tasks}
    order = TopologicalSorter(
        {key: [need for need in task.needs if need in by_key] for key, task in by_key.items()}
    )
    order.prepare()
    ready, running, ended = deque(order.get_ready()), 0, SimpleQueue[Any]()

    def end(result: TrialResult) -> None:
        on_done(result)
        order.done(result.key)
        ready.extend(order.get_ready())

    while ready or running:
        while ready and running < pool.capacity:
            task = by_key[ready.popleft()]
            given = {need: recall(need) for need in task.needs}
            failed = next((each for each in given.values() if each.status in FAILED_STATUSES), None)
            if failed is not None:
                cause = f"needs trial {failed.key[:12]}, which ended as {failed.status}"
                end(TrialResult(task.key, "error", f"{cause}: {failed.reason}"))
                continue
            try:
                run = partial(run_checked, function, task.payload, given)
                pool.submit(task, run).add_done_callback(ended.put)
                running += 1
            except Exception as error:  # noqa: BLE001  pickling may raise anything
                end(failure_result(task.key, error))
        with suppress(Empty):
            future = ended.get(timeout=POLL_SECONDS if running else 0)
            running -= 1
            end(pool.result(future))


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
class Executor:
    """Where trials run.

    Attributes
    ----------
    kind
        `serial`: in this process, or in a child process if any trial has limits. `processes`: in
        processes that are reused; a trial whose worker dies is retried once, other trials are not
        affected. `dask`: in processes of the workers of a cluster, which handle limits and deaths
        alike.
    jobs
        Number of trials at the same time. On the cluster at an `address` it may be None: as many
        trials as the cluster has threads.
    address
        Of a Dask cluster; None for a local one that is started here.

    Raises
    ------
    FaultError
        E512 if Dask is not installed.
    """

    kind: Literal["serial", "processes", "dask"] = "serial"
    jobs: int | None = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if self.kind == "dask" and find_spec("distributed") is None:
            hint = "pip install 'ratecli[dask]'"
            raise FaultError(Diagnostic("E512", "Dask is not installed", hint))

    def check(self) -> None:
        """Raise FaultError (E512) if there is no cluster with workers at the address."""
        if self.address is not None:
            from ratecli.runner.dask_pool import connect_client  # noqa: PLC0415  optional

            with connect_client(self.address):
                pass

    def open_pool(self, tasks: Sequence[Task]) -> AbstractContextManager[TrialPool]:
        """Return a pool for the tasks, whose trials are killed if an exception ends its context.

        Raise FaultError: E511 if a limit cannot be enforced here, E512 if a cluster cannot be used.
        """
        limits = {task.limits for task in tasks}
        for each in limits:
            check_limits(each)
        # a worker for a single trial would import all libraries a second time
        is_inline = self.kind == "serial" or (self.kind == "processes" and len(tasks) == 1)
        if not tasks or (is_inline and limits == {UNLIMITED}):
            return _open_inline_pool()
        if self.kind == "dask":
            from ratecli.runner.dask_pool import open_dask_pool  # noqa: PLC0415  optional

            return open_dask_pool(self.address, self.jobs)
        return ProcessPool(self.jobs or 1)


def parse_executor(kind: str | None, jobs: int | None) -> Executor:
    """Return the executor for the options `--executor` and `--jobs`.

    `kind` is serial, processes, dask or the address of a running cluster. For anything else, raise
    E104 with the valid values.
    """
    if kind is not None and CLUSTER_ADDRESS.fullmatch(kind):
        return Executor("dask", jobs, re.sub("^dask:", "tcp:", kind))
    many = jobs or min(USUAL_JOBS, os.cpu_count() or 1)
    match kind or ("serial" if many == 1 else "processes"):
        case "dask" | "processes" as known:
            return Executor(known, many)
        case "serial" if jobs is None or jobs == 1:
            return Executor()
        case "serial":
            message = "one process runs one trial at a time: leave out --jobs"
            raise FaultError(Diagnostic("E104", message))
        case _:
            raise FaultError(Diagnostic("E104", f"'{kind}' is not one of {EXECUTOR_KINDS}"))

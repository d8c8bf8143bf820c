"""Executors, which run trials in this process, in several processes, or on a cluster.

Results do not depend on the executor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Protocol

from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.limits import UNLIMITED
from ratecli.experiment.plan import Task
from ratecli.runner.dispatcher import NO_HOOKS, Dispatcher, Hooks, OnDone, Schedule, TrialQueue
from ratecli.runner.worker import TrialFunction, limit_to_one_thread, run_checked, run_guarded
from ratecli.runner.worker_pool import WorkerPool

__all__ = ["NO_HOOKS", "DaskExecutor", "Executor", "Hooks", "ProcessExecutor", "SerialExecutor"]

USUAL_JOBS = 2
"""Default number of processes. Each holds its own copy of the data, so not all cores are used."""

EXECUTOR_KINDS = "serial, processes, dask and dask://HOST:PORT"
CLUSTER_ADDRESS = re.compile(r"(dask|tcp|tls)://([^/\s]+:\d+)")


class Executor(Protocol):
    """Runs tasks in an order that respects their dependencies."""

    def run(
        self,
        tasks: Iterable[Task],
        function: TrialFunction,
        on_done: OnDone,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        """Call `on_done` with each task's result, in this thread, as soon as it is available.

        Exceptions of a trial and violations of its limits become its result. Exceptions of
        `on_done` and interrupts end the run.
        """


@dataclass(frozen=True)
class SerialExecutor:
    """Runs one trial at a time in this process, or in a child process if any trial has limits."""

    def run(
        self,
        tasks: Iterable[Task],
        function: TrialFunction,
        on_done: OnDone,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        todo = list(tasks)
        if any(task.limits != UNLIMITED for task in todo):
            ProcessExecutor(1).run(todo, function, on_done, hooks)
            return
        desk = TrialQueue(Schedule(todo, hooks.recall), on_done, hooks)
        with limit_to_one_thread():
            while ready := desk.take():
                key = ready.task.key
                hooks.started(key)
                run = partial(run_checked, function, ready.task.payload, ready.given)
                desk.end(run_guarded(key, run))


@dataclass(frozen=True)
class ProcessExecutor:
    """Runs up to `jobs` trials in parallel, in processes that are reused.

    A trial whose worker dies is retried once; other trials are not affected. A single trial without
    limits runs in this process, because starting a worker would import all libraries twice.
    """

    jobs: int

    def run(
        self,
        tasks: Iterable[Task],
        function: TrialFunction,
        on_done: OnDone,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        todo = list(tasks)
        if len(todo) == 1 and todo[0].limits == UNLIMITED:
            SerialExecutor().run(todo, function, on_done, hooks)
            return
        desk = TrialQueue(Schedule(todo, hooks.recall), on_done, hooks)
        Dispatcher(desk, WorkerPool(self.jobs), function).work()


@dataclass(frozen=True)
class DaskExecutor:
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

    def run(
        self,
        tasks: Iterable[Task],
        function: TrialFunction,
        on_done: OnDone,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        """Raise FaultError: E512 if the cluster cannot be used, E513 if it is lost."""
        from ratecli.runner.dask_pool import open_dask_pool  # noqa: PLC0415  optional dependency

        todo = list(tasks)
        if not todo:
            return
        with open_dask_pool(self.address, self.jobs) as crew:
            Dispatcher(
                TrialQueue(Schedule(todo, hooks.recall), on_done, hooks), crew, function
            ).work()


def parse_executor(kind: str | None, jobs: int | None) -> Executor:
    """Return the executor for the options `--executor` and `--jobs`.

    `kind` is serial, processes, dask or the address of a running cluster. For anything else, raise
    ValueError with the valid values.
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
            raise ValueError("one process runs one trial at a time: leave out --jobs")
        case "serial":
            return SerialExecutor()
        case None:
            return SerialExecutor() if many == 1 else ProcessExecutor(many)
        case _:
            raise ValueError(f"'{kind}' is none of {EXECUTOR_KINDS}")

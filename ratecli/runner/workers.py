"""Worker processes. Each has its own pipe, so the death of one does not affect others."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import current_process, get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from queue import LifoQueue, SimpleQueue
from typing import Self

from ratecli.experiment.limits import TrialLimits, process_memory
from ratecli.experiment.plan import Task
from ratecli.ledger.records import TrialResult
from ratecli.runner.worker import TrialRun, failure_result, serve_trials

MAX_WORKER_DEATHS = 2
"""A trial fails after this many of its workers died."""
EXIT_SECONDS = 5.0

_start_lock = threading.Lock()


@dataclass(frozen=True)
class TaskMessage:
    """A trial to send to a worker: its key, the pickled function to call, and its limits."""

    key: str
    content: bytes
    limits: TrialLimits


def worker_death_result(key: str, how: str) -> TrialResult:
    """Return the result of a trial whose workers died."""
    hint = "out of memory, or a crash in a compiled library?"
    reason = f"the worker process died each time it was tried ({how}); {hint}"
    return TrialResult(key, "error", reason)


class Worker:
    """A process that runs trials, one at a time; started on demand with `environment` set.

    Only `kill` may be called while another thread runs a trial.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(environment or {})
        self._process: SpawnProcess | None = None
        self._killed = False

    def run(self, message: TaskMessage) -> TrialResult:
        """Run a trial; if its process dies, try it once more."""
        for _ in range(MAX_WORKER_DEATHS):
            try:
                return self._try(message)
            except (EOFError, OSError):
                exit_code = self._reap()
                if self._killed:
                    break
        how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        return worker_death_result(message.key, how)

    def kill(self) -> None:
        """Kill the process; a thread that runs a trial in it returns soon."""
        self._killed = True
        if self._process is not None:
            with suppress(ValueError):  # the process is being closed
                self._process.kill()

    def close(self) -> None:
        """Let the idle process exit, or kill it if that takes long."""
        if self._process is not None:
            self._pipe.close()
            self._process.join(EXIT_SECONDS)
            self._process.kill()
            self._reap()

    def _try(self, message: TaskMessage) -> TrialResult:
        """Run a trial once. Raise EOFError or OSError if its process dies."""
        is_new = self._process is None
        process = self._process or self._start()
        self._pipe.send((message.key, message.content))
        self._pipe.recv_bytes()  # everything that the trial needs has been imported
        limits, start = message.limits, time.monotonic()
        memory_before = 0 if limits.memory is None else process_memory(process.pid or 0)
        while not self._pipe.poll(limits.patience(time.monotonic() - start)):
            memory = 0 if limits.memory is None else process_memory(process.pid or 0)
            seconds = time.monotonic() - start
            exceeded = limits.broken(message.key, seconds, memory, memory_before)
            if exceeded is not None:
                process.kill()
                self._reap()
                # a process may hold memory from earlier trials: try again in a new one
                return exceeded if is_new or exceeded.status == "timeout" else self._try(message)
        content = self._pipe.recv_bytes()
        try:
            result: TrialResult = pickle.loads(content)  # noqa: S301  from our own worker
        except Exception as error:  # noqa: BLE001  unpickling may raise anything
            return failure_result(message.key, error)
        return result

    def _start(self) -> SpawnProcess:
        context = get_context("spawn")
        self._pipe, child_end = context.Pipe()
        arguments = (child_end, os.getpid(), self._environment)
        self._process = context.Process(target=serve_trials, args=arguments)
        with _start_lock, block_interrupts(), _allow_child_processes():
            self._process.start()
        child_end.close()
        if self._killed:
            self._process.kill()
        return self._process

    def _reap(self) -> int:
        """Wait until the process has ended; return its exit code."""
        assert self._process is not None
        self._pipe.close()
        self._process.join()
        exit_code = self._process.exitcode
        self._process.close()
        self._process = None
        return exit_code or 0


class ProcessPool:
    """Runs up to `jobs` trials in parallel, each in a worker process with a thread of its own."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._workers = [Worker() for _ in range(jobs)]
        self._free: LifoQueue[Worker] = LifoQueue()  # reuse processes before starting others
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(jobs)
        self._ended: SimpleQueue[Future[TrialResult]] = SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Release the workers; after an exception such as an interrupt, kill them first."""
        if kind is not None:
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown()
        for worker in self._workers:
            worker.close()

    def has_room(self, running: int) -> bool:
        return running < self._jobs

    def submit(self, task: Task, run: TrialRun) -> None:
        message = TaskMessage(task.key, pickle.dumps(run), task.limits)
        self._threads.submit(self._run, message).add_done_callback(self._ended.put)

    def wait(self) -> TrialResult:
        return self._ended.get().result()

    def _run(self, message: TaskMessage) -> TrialResult:
        worker = self._free.get()
        try:
            return worker.run(message)
        finally:
            self._free.put(worker)


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Block SIGINT while spawning: children would print tracebacks on Ctrl-C."""
    if sys.platform == "win32":
        yield
        return
    # start the tracker now: the first process would start it, which unblocks the signals
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _allow_child_processes() -> Iterator[None]:
    """Allow children of a Dask worker, a daemonic process; our processes exit with it."""
    settings = current_process()._config  # type: ignore[attr-defined]  # noqa: SLF001
    before = settings.pop("daemon", None)
    try:
        yield
    finally:
        if before is not None:
            settings["daemon"] = before

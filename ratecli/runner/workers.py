"""Run trials: in this process, or in worker processes that may die without affecting others.

Each trial runs in a single thread, and every exception becomes a result.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import current_process, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import LifoQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from threadpoolctl import threadpool_limits

from ratecli.errors import Diagnostic, FaultError, drop_library_warnings, exception_line
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import check_storable

if TYPE_CHECKING:  # a worker process needs memory and time for each import
    from ratecli.config.trials import LimitsSpec
    from ratecli.experiment.plan import Task

TrialFunction = Callable[[Any, Mapping[str, TrialResult]], TrialResult]
"""Runs one trial: (payload, results of the trials it depends on by key) -> its result."""
TrialRun = Callable[[], TrialResult]
"""Runs a trial whose arguments are known."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
ORPHAN_SECONDS = 0.5
MAX_WORKER_DEATHS = 2
"""A trial fails after this many of its workers died."""
EXIT_SECONDS = 5.0
HAS_PROC = Path("/proc/self/statm").is_file()
POLL_SECONDS = 0.02 if HAS_PROC else 0.25
"""Seconds between checks of limits: a process can fill 2 GB/s; without /proc a check takes 5 ms."""
MIB = 2.0**20

_start_lock = threading.Lock()


def run_checked(
    function: TrialFunction, payload: Any, given: Mapping[str, TrialResult]
) -> TrialResult:
    """Run a trial and check that its result can be stored, so that only this trial may fail."""
    result = function(payload, given)
    check_storable(result)
    return result


def run_guarded(key: str, run: TrialRun) -> TrialResult:
    """Run a trial and convert any exception except KeyboardInterrupt into an error result."""
    begun = time.perf_counter()
    try:
        return run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  one trial must not end the others
        return failure_result(key, error, time.perf_counter() - begun)


def failure_result(key: str, error: BaseException, seconds: float = 0.0) -> TrialResult:
    """Return the result of a trial that raised `error`."""
    text = "".join(traceback.format_exception(error))
    info = {"traceback": text.encode("utf-8", "backslashreplace").decode()}
    return TrialResult(key, "error", exception_line(error).removeprefix("E501: "), seconds, info)


@contextmanager
def limit_to_one_thread() -> Iterator[None]:
    """Limit numerical libraries to one thread, so that results do not depend on the thread count.

    The environment variables apply to libraries loaded later, `threadpool_limits` to loaded ones.
    """
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@dataclass(frozen=True)
class TaskMessage:
    """A trial to send to a worker: its key, the pickled function to call, and its limits."""

    key: str
    content: bytes
    limits: LimitsSpec

    @classmethod
    def of(cls, task: Task, run: TrialRun) -> TaskMessage:
        """Return the message; raise whatever pickling `run` raises."""
        return cls(task.key, pickle.dumps(run), task.limits)


def check_limits(limits: LimitsSpec) -> None:
    """Raise E511 if a limit cannot be enforced on this system."""
    if limits.memory is not None and not _process_memory(os.getpid()):
        message = "limits.memory cannot be enforced: this system does not report a process's memory"
        raise FaultError(Diagnostic("E511", message, "leave it out, or run elsewhere"))


def _limit_result(message: TaskMessage, seconds: float, held: int) -> TrialResult | None:
    """Return the result of a trial that exceeds a limit after some seconds, else None.

    `held` is the memory of its process in bytes; 0 if unknown.
    """
    limits = message.limits
    if limits.memory is not None and held > limits.memory:
        limit = f"the limit is {limits.memory / MIB:.0f} MiB"
        reason = f"its process held {held / MIB:.0f} MiB of memory, {limit}"
        return TrialResult(message.key, "error", reason, seconds)
    if limits.time is not None and seconds >= limits.time:
        reason = f"took longer than the time limit of {limits.time:g} s"
        return TrialResult(message.key, "timeout", reason, seconds)
    return None


def _process_memory(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended or this is unknown."""
    with suppress(OSError, ValueError, IndexError):
        if HAS_PROC:
            pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        output = subprocess.run(command, capture_output=True, check=False)  # noqa: S603  no shell
        return int(output.stdout) * 1024
    return 0


def worker_death_result(key: str, how: str) -> TrialResult:
    """Return the result of a trial whose workers died."""
    hint = "out of memory, or a crash in a compiled library?"
    reason = f"the worker process died each time it was tried ({how}); {hint}"
    return TrialResult(key, "error", reason)


class Worker:
    """A process that runs trials, one at a time; started on demand with `environment` set.

    The process ends when it has had nothing to do for `idle` seconds, unless that is None.
    Only `kill` may be called while another thread runs a trial.
    """

    def __init__(self, environment: Mapping[str, str], idle: float | None) -> None:
        self._environment, self._idle = dict(environment), idle
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
        if self._process is not None and not self._process.is_alive():  # it was idle
            self._reap()
        is_new = self._process is None
        process, limits = self._process or self._start(), message.limits
        unlimited = limits.time is None and limits.memory is None
        self._pipe.send((message.key, message.content))
        self._pipe.recv_bytes()  # everything that the trial needs has been imported
        start = time.monotonic()
        while not self._pipe.poll(None if unlimited else POLL_SECONDS):
            seconds = time.monotonic() - start
            held = 0 if limits.memory is None else _process_memory(process.pid or 0)
            exceeded = _limit_result(message, seconds, held)
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
        arguments = (child_end, os.getpid(), self._environment, self._idle)
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


def serve_trials(
    pipe: Connection, parent: int, environment: Mapping[str, str], idle: float | None
) -> None:
    """Run a worker process: answer requests until the pipe is closed, or idle for some seconds.

    An empty message precedes each answer, after everything that the trial needs has been imported.
    """
    # Ctrl-C reaches every process of the terminal; the parent decides how to handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    drop_library_warnings()
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    with limit_to_one_thread(), suppress(EOFError, ConnectionError):
        while pipe.poll(idle):
            key, content = pipe.recv()
            try:  # imports everything that the trial needs; the bytes come from the parent
                run = pickle.loads(content)  # noqa: S301
            except Exception as error:  # noqa: BLE001  unpickling may raise anything
                run = partial(failure_result, key, error)
            pipe.send_bytes(b"")
            result = run_guarded(key, run)
            try:
                answer = pickle.dumps(result)
            except Exception as error:  # noqa: BLE001  pickling may raise anything
                answer = pickle.dumps(failure_result(key, error))
            pipe.send_bytes(answer)


def _exit_with_parent(parent: int) -> None:
    """End this process soon after its parent ended, even during a trial."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_SECONDS)
    os._exit(1)


class ProcessPool:
    """Runs up to `capacity` trials in parallel, each in a worker process (see `Worker`)."""

    def __init__(
        self,
        capacity: int,
        environment: Mapping[str, str] = MappingProxyType({}),
        idle: float | None = None,
    ) -> None:
        self.capacity = capacity
        self._workers = [Worker(environment, idle) for _ in range(capacity)]
        self._free: LifoQueue[Worker] = LifoQueue()  # reuse processes before starting others
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(capacity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(kill=kind is not None)  # an exception such as an interrupt

    def submit(self, task: Task, run: TrialRun) -> Future[TrialResult]:
        message = TaskMessage.of(task, run)
        # an interrupt inside `submit` could leave its lock held, and `shutdown` would wait for ever
        with block_interrupts():
            return self._threads.submit(self.run, message)

    def result(self, future: Future[TrialResult]) -> TrialResult:
        return future.result()

    def run(self, message: TaskMessage) -> TrialResult:
        """Run a trial in a free worker."""
        worker = self._free.get()
        try:
            return worker.run(message)
        finally:
            self._free.put(worker)

    def close(self, *, kill: bool) -> None:
        """End all processes: kill them if a trial may be running, else let them exit."""
        if kill:
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown()
        for _ in self._workers:
            self._free.get().close()


@contextmanager
def block_interrupts() -> Iterator[None]:
    """Block SIGINT, as while spawning: children would print tracebacks on Ctrl-C."""
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

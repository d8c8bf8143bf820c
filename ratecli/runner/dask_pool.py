"""Run trials on the workers of a Dask cluster, either a running one or a local one started here."""

from __future__ import annotations

import logging
import math
import secrets
import signal
import threading
import time
import warnings
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, get_worker

from ratecli.datasets.files import data_folder
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.plan import Task
from ratecli.ledger.provenance import code_versions
from ratecli.ledger.records import TrialResult
from ratecli.runner.workers import (
    ProcessPool,
    TaskMessage,
    TrialRun,
    block_interrupts,
    check_limits,
    worker_death_result,
)
from ratecli.streaming.stream import SCHEDULER_VARIABLE

IDLE_SECONDS = 60.0
"""Processes of a run that submits nothing for this long end, as the run was probably killed."""


_pools: dict[str, ProcessPool] = {}
"""The processes of each run on this Dask worker, one per thread."""
_lock = threading.Lock()


def run_on_worker(
    run: str, versions: Mapping[str, str], environment: Mapping[str, str], message: TaskMessage
) -> TrialResult:
    """Run one trial of the run with this name.

    Raise FaultError: E512 if this worker has other package versions than in `versions`, E511 if it
    cannot enforce a limit.
    """
    _check_versions(versions)
    check_limits(message.limits)
    worker = get_worker()
    # use the scheduler address this worker knows: the driver may use a different one
    environment = {**environment, SCHEDULER_VARIABLE: worker.scheduler.address}
    with _lock:
        pool = ProcessPool(worker.state.nthreads, environment, IDLE_SECONDS)
        pool = _pools.setdefault(run, pool)
    return pool.run(message)


def end_run_processes(run: str) -> None:
    """End the processes of a run immediately, even during a trial."""
    with _lock:
        pool = _pools.pop(run, None)
    if pool is not None:
        pool.close(kill=True)


def _check_versions(versions: Mapping[str, str]) -> None:
    here = code_versions()
    other = [name for name, version in versions.items() if here.get(name) != version]
    if other:
        wrong = ", ".join(f"{name} {here.get(name)} instead of {versions[name]}" for name in other)
        hint = "results may depend on these: install the same versions everywhere"
        raise FaultError(Diagnostic("E512", f"a Dask worker has {wrong}", hint))


CONNECT_SECONDS = 10.0
DASK_POLL_SECONDS = 1.0
SHUTDOWN_SECONDS = 3.0
"""Maximum wait for workers to end a run's processes; workers not reached end them when idle."""
LOST_WORKER_SECONDS = 300.0
"""Maximum time without workers: a cluster that scales on demand needs minutes."""

# For local clusters: a trial whose worker died is given to another one, once. Waiting trials stay
# with the scheduler, where the death of a worker does not affect them.
DASK_SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.worker-saturation": 1.0,
}


class DaskPool:
    """Runs up to `jobs` trials in parallel, or as many as the cluster has threads."""

    def __init__(
        self, client: Client, jobs: int | None, is_interrupted: Callable[[], bool] = bool
    ) -> None:
        self._is_interrupted = is_interrupted
        self._name = secrets.token_hex(8)
        environment = {"RATECLI_DATA": str(data_folder().absolute())}
        self._run = (self._name, code_versions(), environment)
        self._client = client
        self._jobs = jobs
        self._keys: dict[Future[TrialResult], str] = {}
        self._is_lost = False
        self._threads = 0
        self._looked, self._seen = -math.inf, time.monotonic()

    @property
    def capacity(self) -> int:
        """The number of trials to submit; at least 1, as a cluster without workers may get some.

        Raise FaultError (E513) if the cluster is lost, and KeyboardInterrupt after Ctrl-C.
        """
        if self._is_interrupted():
            raise KeyboardInterrupt
        now = time.monotonic()
        if now - self._looked > DASK_POLL_SECONDS:
            try:
                self._threads = sum(self._client.nthreads().values())
            except (OSError, RuntimeError, ValueError) as error:
                raise self._lost("the scheduler no longer answers") from error
            self._looked, self._seen = now, now if self._threads else self._seen
            if now - self._seen > LOST_WORKER_SECONDS:
                raise self._lost(f"it has had no workers for {LOST_WORKER_SECONDS:g} s")
        return max(1, min(self._threads, self._jobs or self._threads))

    def submit(self, task: Task, run: TrialRun) -> Future[TrialResult]:
        message = TaskMessage.of(task, run)
        future = self._client.submit(run_on_worker, *self._run, message, pure=False, retries=0)
        self._keys[future] = task.key
        return future

    def result(self, future: Future[TrialResult]) -> TrialResult:
        """Return the result of a trial that has ended.

        Raise FaultError: E512 if workers cannot run trials, E513 if the cluster is lost.
        """
        key = self._keys.pop(future)
        if future.cancelled():
            raise self._lost("the scheduler is gone")
        try:
            error = future.exception()
            if error is None:
                return future.result()
        except OSError as closed:
            raise self._lost("the scheduler no longer answers") from closed
        if isinstance(error, KilledWorker):
            return worker_death_result(key, "a Dask worker was lost")
        if isinstance(error, FaultError):
            raise error
        message = f"the workers of the cluster cannot run trials: {type(error).__name__}: {error}"
        raise FaultError(
            Diagnostic("E512", message, "install the same version of ratecli on all workers")
        )

    def close(self) -> None:
        """End the run's processes. Losing a worker or the cluster is harmless at this point."""

        def end_processes() -> None:
            # the client may close during the call
            with suppress(OSError, RuntimeError, CancelledError):
                self._client.run(end_run_processes, self._name, on_error="ignore")

        # in a thread: calling a worker that just died would block for 30 s
        thread = threading.Thread(target=end_processes, daemon=True)
        thread.start()
        thread.join(SHUTDOWN_SECONDS)

    def kill(self) -> None:
        """End the run's processes, even if trials are running."""
        if not self._is_lost:
            with suppress(OSError, RuntimeError):  # report the error that ended the run instead
                self._client.cancel(list(self._keys))
            self.close()

    def _lost(self, why: str) -> FaultError:
        self._is_lost = True
        hint = "finished trials are stored: run again to continue"
        return FaultError(Diagnostic("E513", f"the Dask cluster is lost: {why}", hint))


@contextmanager
def open_dask_pool(address: str | None, jobs: int | None) -> Iterator[DaskPool]:
    """Connect to a running cluster, or start a local one for the duration of the context."""
    # Dask would warn of conditions that ratecli reports itself, and of models in large tasks
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "Sending large graph")
    place = start_local_cluster(jobs) if address is None else nullcontext(address)
    with place as cluster, connect_client(cluster) as client, defer_interrupts() as is_interrupted:
        pool = DaskPool(client, jobs, is_interrupted)
        try:
            yield pool
        except BaseException:
            pool.kill()
            raise
        pool.close()


@contextmanager
def defer_interrupts() -> Iterator[Callable[[], bool]]:
    """Record the first Ctrl-C instead of raising it; yield a function that tells if there was one.

    Raised at once, it could be lost: Python ignores exceptions in `__del__`, as of Dask's futures.
    A second Ctrl-C raises KeyboardInterrupt at once.
    """
    interrupted = False

    def record(_signal: int, _frame: object) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield bool
        return
    signal.signal(signal.SIGINT, record)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def start_local_cluster(jobs: int | None) -> Iterator[str]:
    """Start a local cluster of `jobs` single-threaded worker processes; yield its address."""
    with dask.config.set(DASK_SETTINGS):
        with block_interrupts():
            cluster = LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                dashboard_address=":0",
                scheduler_kwargs={"dashboard": False},
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
        with cluster:
            yield cluster.scheduler_address


@contextmanager
def connect_client(address: str) -> Iterator[Client]:
    """Connect to a cluster. Raise FaultError (E512) if it is unreachable or has no workers."""
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        hint = "is the address that of a running scheduler (`dask scheduler`)?"
        raise FaultError(
            Diagnostic("E512", f"no Dask scheduler at {address}: {error}", hint)
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            message = f"the Dask scheduler at {address} has had no worker for {CONNECT_SECONDS:g} s"
            hint = "start some: `dask worker ADDRESS`"
            raise FaultError(Diagnostic("E512", message, hint)) from error
        yield client

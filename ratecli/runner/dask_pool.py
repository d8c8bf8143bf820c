"""Run trials on the workers of a Dask cluster, either a running one or a local one started here."""

from __future__ import annotations

import logging
import secrets
import threading
import time
import warnings
from asyncio import CancelledError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, get_worker

from ratecli.datasets.download import data_folder
from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.provenance import code_versions
from ratecli.runner.dispatcher import TaskMessage, WorkerAnswer, WorkerDeath
from ratecli.runner.worker_pool import WorkerPool, block_interrupts
from ratecli.streaming.stream import SCHEDULER_VARIABLE

IDLE_SECONDS = 60.0
"""Processes of a run that submits nothing for this long end, as the run was probably killed."""


@dataclass(frozen=True)
class DaskRun:
    """Identifies a run: a unique name, package versions in its keys, environment variables."""

    name: str
    versions: Mapping[str, str]
    environment: Mapping[str, str]


@dataclass
class RunProcesses:
    """The processes of one run on this worker, each with cached data, at most one per thread."""

    free: list[WorkerPool] = field(default_factory=list)
    busy: list[WorkerPool] = field(default_factory=list)
    timer: threading.Timer | None = None

    def take(self, environment: Mapping[str, str]) -> WorkerPool:
        self.quiet()
        crew = self.free.pop() if self.free else WorkerPool(1, environment)
        self.busy.append(crew)
        return crew

    def give_back(self, crew: WorkerPool) -> None:
        self.busy.remove(crew)
        self.free.append(crew)

    def quiet(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


_processes_by_run: dict[str, RunProcesses] = {}
_processes_lock = threading.Lock()


def run_on_worker(run: DaskRun, parcel: TaskMessage) -> WorkerAnswer:
    """Run one trial. Raise FaultError (E512) if this worker has other package versions."""
    _check_versions(run.versions)
    with _processes_lock:
        room = _processes_by_run.setdefault(run.name, RunProcesses())
        # use the scheduler address this worker knows: the driver may use a different one
        crew = room.take({**run.environment, SCHEDULER_VARIABLE: get_worker().scheduler.address})
    try:
        crew.hand(parcel)
        (answer,) = crew.collect()
        return answer
    finally:
        with _processes_lock:
            room.give_back(crew)
            if not room.busy:
                room.timer = threading.Timer(IDLE_SECONDS, end_run_processes, (run.name,))
                room.timer.daemon = True
                room.timer.start()


def end_run_processes(name: str) -> None:
    """End the processes of a run immediately, even during a trial."""
    with _processes_lock:
        room = _processes_by_run.pop(name, RunProcesses())
        room.quiet()
        for crew in room.free:
            crew.kill()
        for crew in room.busy:
            crew.strike()


def _check_versions(versions: Mapping[str, str]) -> None:
    here = code_versions()
    other = [name for name, version in versions.items() if here.get(name) != version]
    if other:
        told = ", ".join(f"{name} {here.get(name)} instead of {versions[name]}" for name in other)
        hint = "numbers may hang on these: install the same versions everywhere"
        raise FaultError(Diagnostic("E512", f"a Dask worker has {told}", hint))


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

    def __init__(self, client: Client, jobs: int | None) -> None:
        environment = {"RATECLI_DATA": str(data_folder().absolute())}
        self._run = DaskRun(secrets.token_hex(8), code_versions(), environment)
        self._client = client
        self._jobs = jobs
        self._out: dict[Future[WorkerAnswer], str] = {}
        self._ended: SimpleQueue[Future[WorkerAnswer]] = SimpleQueue()
        self._is_lost = False
        self._threads = 0
        self._looked = self._seen = time.monotonic()
        self._look()

    def has_room(self) -> bool:
        """Return whether to submit another trial.

        One trial may always be submitted, as a cluster without workers may get some.
        """
        return len(self._out) < max(1, min(self._threads, self._jobs or self._threads))

    def is_busy(self) -> bool:
        return bool(self._out)

    def hand(self, parcel: TaskMessage) -> None:
        future = self._client.submit(run_on_worker, self._run, parcel, pure=False, retries=0)
        self._out[future] = parcel.key
        future.add_done_callback(self._ended.put)

    def collect(self) -> list[WorkerAnswer]:
        """Wait for an answer.

        Raise FaultError: E512 if workers cannot run trials, E513 if the cluster is lost.
        """
        while True:
            if time.monotonic() - self._looked > DASK_POLL_SECONDS:
                self._look()
            with suppress(Empty):
                return [self._answer(self._ended.get(timeout=DASK_POLL_SECONDS))]

    def dismiss(self) -> None:
        """End the run's processes. Losing a worker or the cluster is harmless at this point."""
        # in a thread: calling a worker that just died would block for 30 s
        telling = threading.Thread(target=self._tell, daemon=True)
        telling.start()
        telling.join(SHUTDOWN_SECONDS)

    def kill(self) -> None:
        if not self._is_lost:
            with suppress(OSError, RuntimeError):  # report the error that ended the run instead
                self._client.cancel(list(self._out))
            self.dismiss()

    def _tell(self) -> None:
        # the client may close during the call
        with suppress(OSError, RuntimeError, CancelledError):
            self._client.run(end_run_processes, self._run.name, on_error="ignore")

    def _look(self) -> None:
        """Update the number of threads. Raise FaultError (E513) if the cluster is lost."""
        try:
            self._threads = sum(self._client.nthreads().values())
        except (OSError, RuntimeError, ValueError) as error:
            raise self._lost("the scheduler does not answer any more") from error
        self._looked = time.monotonic()
        if self._threads:
            self._seen = self._looked
        elif self._looked - self._seen > LOST_WORKER_SECONDS:
            raise self._lost(f"it has had no workers for {LOST_WORKER_SECONDS:g} s")

    def _answer(self, future: Future[WorkerAnswer]) -> WorkerAnswer:
        key = self._out.pop(future)
        if future.cancelled():
            raise self._lost("the scheduler is gone")
        try:
            error = future.exception()
            if error is None:
                return future.result()
        except OSError as closed:
            raise self._lost("the scheduler does not answer any more") from closed
        if isinstance(error, KilledWorker):
            return WorkerDeath(key, "a Dask worker was lost", 1 + error.args[2])
        if isinstance(error, FaultError):
            raise error
        message = f"the workers of the cluster cannot run trials: {type(error).__name__}: {error}"
        raise FaultError(
            Diagnostic("E512", message, "they need ratecli of the same version as here")
        )

    def _lost(self, why: str) -> FaultError:
        self._is_lost = True
        hint = "what had ended is stored: run again to go on"
        return FaultError(Diagnostic("E513", f"the Dask cluster is lost: {why}", hint))


@contextmanager
def open_dask_pool(address: str | None, jobs: int | None) -> Iterator[DaskPool]:
    """Connect to a running cluster, or start a local one for the duration of the context."""
    place = start_local_cluster(jobs) if address is None else nullcontext(address)
    with _mute_dask_logs(), place as cluster, connect_client(cluster) as client:
        yield DaskPool(client, jobs)


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


@contextmanager
def _mute_dask_logs() -> Iterator[None]:
    """Suppress Dask's own messages about conditions that ratecli reports itself."""
    log = logging.getLogger("distributed")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # tasks may include the models of other trials
            warnings.filterwarnings("ignore", "Sending large graph")
            yield
    finally:
        log.setLevel(before)

"""Workers of a Dask cluster: one that is running, or one that is started here."""

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
from ratecli.streaming.sums import SCHEDULER_VARIABLE

IDLE_SECONDS = 60.0
"""When the processes leave of a run that no longer says anything: it was killed, perhaps."""


@dataclass(frozen=True)
class DaskRun:
    """Whose trials they are: a name of its own, the versions that its keys speak of, variables to be set."""

    name: str
    versions: Mapping[str, str]
    environment: Mapping[str, str]


@dataclass
class RunProcesses:
    """The processes of one run: as many as this worker has threads, each with its cached data."""

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
    """Run one trial. Raises FaultError, E512, where its numbers would be those of other versions."""
    _check_versions(run.versions)
    with _processes_lock:
        room = _processes_by_run.setdefault(run.name, RunProcesses())
        # the address that this worker knows: the driver may have come by another way
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
    """End the processes of a run at once, also in the middle of a trial."""
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
"""How long workers may take to hear that a run is over: who hears nothing of it finds out alone."""
LOST_WORKER_SECONDS = 300.0
"""How long a cluster may be without workers: one that grows on demand needs minutes."""

# Of a cluster started here: Dask gives a trial whose worker died to another one, once; what waits stays
# with the scheduler, out of reach of such a death.
DASK_SETTINGS = {
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.worker-saturation": 1.0,
}


class DaskPool:
    """Up to `jobs` trials at once, or as many as the cluster has threads."""

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
        """A cluster that has no worker now may have one soon: one trial may always wait there."""
        return len(self._out) < max(1, min(self._threads, self._jobs or self._threads))

    def is_busy(self) -> bool:
        return bool(self._out)

    def hand(self, parcel: TaskMessage) -> None:
        future = self._client.submit(run_on_worker, self._run, parcel, pure=False, retries=0)
        self._out[future] = parcel.key
        future.add_done_callback(self._ended.put)

    def collect(self) -> list[WorkerAnswer]:
        """Wait for an answer. FaultError: E512 where workers cannot run trials, E513 without a cluster."""
        while True:
            if time.monotonic() - self._looked > DASK_POLL_SECONDS:
                self._look()
            with suppress(Empty):
                return [self._answer(self._ended.get(timeout=DASK_POLL_SECONDS))]

    def dismiss(self) -> None:
        """All is done: that a worker is lost now, or the cluster, takes nothing away."""
        # in a thread: a worker that just died would be called for 30 s
        telling = threading.Thread(target=self._tell, daemon=True)
        telling.start()
        telling.join(SHUTDOWN_SECONDS)

    def kill(self) -> None:
        if not self._is_lost:
            with suppress(OSError, RuntimeError):  # what ends the run is told, not this
                self._client.cancel(list(self._out))
            self.dismiss()

    def _tell(self) -> None:
        with suppress(OSError, RuntimeError, CancelledError):  # the client may close meanwhile
            self._client.run(end_run_processes, self._run.name, on_error="ignore")

    def _look(self) -> None:
        """See how large the cluster is now, and whether it is there."""
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
    """The workers of a running cluster, or of one that lasts as long as this."""
    place = start_local_cluster(jobs) if address is None else nullcontext(address)
    with _mute_dask_logs(), place as cluster, connect_client(cluster) as client:
        yield DaskPool(client, jobs)


@contextmanager
def start_local_cluster(jobs: int | None) -> Iterator[str]:
    """The address of a cluster of so many workers, each a process with one thread."""
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
    """A client of the cluster at an address. FaultError, E512, where there is none, or none with workers."""
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
    """Without Dask's own messages about what is told here in other words."""
    log = logging.getLogger("distributed")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # a trial may need the models of others: they have to get there
            warnings.filterwarnings("ignore", "Sending large graph")
            yield
    finally:
        log.setLevel(before)

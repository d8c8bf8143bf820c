"""What a Dask worker does for a run: it watches a process of its own that runs the trials.

Not in the worker's own process, though that would be less work: a compiled loop that keeps Python's lock
would stop the worker from saying that it is alive, and a trial cannot be ended that shares its process.
One that crashes costs a process of ours, no worker of the cluster. It is also a fresh process for each
run: code that changed on disk is read anew.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from distributed import get_worker

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.provenance import code_versions
from ratecli.runner.messages import TaskMessage, WorkerAnswer
from ratecli.runner.worker_pool import WorkerPool
from ratecli.streaming.cluster import SCHEDULER_VARIABLE

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

"""A pool of worker processes. Each has its own pipe, so the death of one does not affect others."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import current_process, get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from ratecli.experiment.limits import process_memory
from ratecli.ledger.records import TrialResult
from ratecli.runner.dispatcher import TaskMessage, WorkerAnswer, WorkerDeath
from ratecli.runner.worker import failure_result, serve_trials

EXIT_SECONDS = 5.0


@dataclass
class Worker:
    """A worker process and its current trial.

    `begun` is the time (monotonic clock, seconds) when the trial started, after all imports,
    `before` the memory of the process at that time (bytes), and `fresh` whether the process has run
    no other trial.
    """

    process: SpawnProcess
    pipe: Connection
    parcel: TaskMessage | None = None
    begun: float | None = None
    before: int = 0
    fresh: bool = True

    def give(self, parcel: TaskMessage) -> None:
        """Send a trial. If the worker is dead, this shows when its answer is received."""
        self.parcel, self.begun, self.before = parcel, None, 0
        try:
            self.pipe.send((parcel.key, parcel.content))
        except ConnectionError:
            self.process.kill()

    def begins(self) -> None:
        """Record the start of the trial."""
        assert self.parcel is not None
        self.begun = time.monotonic()
        if self.parcel.limits.memory is not None:
            self.before = self._held()

    def patience(self) -> float | None:
        """Return the seconds until the trial's limits must be checked, or None."""
        if self.parcel is None or self.begun is None:
            return None
        return self.parcel.limits.patience(time.monotonic() - self.begun)

    def broken(self) -> TrialResult | None:
        """Return the result of a trial that exceeds its limits, else None."""
        if self.parcel is None or self.begun is None:
            return None
        held = self._held() if self.parcel.limits.memory is not None else 0
        seconds = time.monotonic() - self.begun
        return self.parcel.limits.broken(self.parcel.key, seconds, held, self.before)

    def _held(self) -> int:
        return process_memory(self.process.pid or 0)


class WorkerPool:
    """Up to `jobs` worker processes, started on demand with `environment` set in each."""

    def __init__(self, jobs: int, environment: Mapping[str, str] | None = None) -> None:
        self._jobs = jobs
        self._environment = dict(environment or {})
        self._hands: list[Worker] = []

    def has_room(self) -> bool:
        return len(self._busy()) < self._jobs

    def is_busy(self) -> bool:
        return bool(self._busy())

    def hand(self, parcel: TaskMessage) -> None:
        """Send a trial to a free worker.

        Raise FaultError (E511) if its limits cannot be enforced here.
        """
        parcel.limits.check()
        free = next((hand for hand in self._hands if hand.parcel is None), None)
        (free or self._hire()).give(parcel)

    def collect(self) -> list[WorkerAnswer]:
        """Wait until a worker has answered, died, or exceeded its trial's limits."""
        found: list[WorkerAnswer] = []
        while not found:
            busy = self._busy()
            limits = [each for hand in busy if (each := hand.patience()) is not None]
            ready = wait([hand.pipe for hand in busy], min(limits, default=None))
            for hand in busy:
                answer = self._ask(hand) if hand.pipe in ready else self._look(hand)
                found += [answer] if answer is not None else []
        return found

    def dismiss(self) -> None:
        """Let idle workers exit."""
        for hand in self._hands:
            hand.pipe.close()
        for hand in self._hands:
            hand.process.join(EXIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill all workers."""
        self.strike()
        for hand in self._hands:
            _reap(hand)
        self._hands = []

    def strike(self) -> None:
        """Like `kill`, but for use from another thread: `collect` then finds all workers dead."""
        for hand in list(self._hands):
            with suppress(ValueError):  # the process is being closed
                hand.process.kill()

    def _busy(self) -> list[Worker]:
        return [hand for hand in self._hands if hand.parcel is not None]

    def _hire(self) -> Worker:
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve_trials, args=(there, os.getpid(), self._environment))
        with block_interrupts(), _allow_child_processes():
            process.start()
        there.close()
        self._hands.append(Worker(process, here))
        return self._hands[-1]

    def _ask(self, hand: Worker) -> WorkerAnswer | None:
        """Receive a worker's message; return None if it only announces the start of a trial."""
        parcel = hand.parcel
        assert parcel is not None
        try:
            content = hand.pipe.recv_bytes()
        except (EOFError, OSError):
            return WorkerDeath.by(parcel.key, self._lose(hand))
        if hand.begun is None:
            hand.begins()
            return None
        hand.parcel, hand.fresh = None, False
        try:
            result: TrialResult = pickle.loads(content)  # noqa: S301  from our own worker
        except Exception as error:  # noqa: BLE001  unpickling may raise anything
            return failure_result(parcel.key, error)
        return result

    def _look(self, hand: Worker) -> TrialResult | None:
        """Return the result of a trial that exceeds its limits, else None.

        A process may hold memory from earlier trials; then the trial is retried in a new process.
        """
        broken = hand.broken()
        if broken is None:
            return None
        hand.process.kill()
        self._lose(hand)
        assert hand.parcel is not None
        if broken.status == "timeout" or hand.fresh:
            return broken
        self._hire().give(hand.parcel)
        return None

    def _lose(self, hand: Worker) -> int | None:
        self._hands.remove(hand)
        return _reap(hand)


def _reap(hand: Worker) -> int | None:
    hand.pipe.close()
    hand.process.join()
    exit_code = hand.process.exitcode
    hand.process.close()
    return exit_code


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

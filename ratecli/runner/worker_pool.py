"""Worker processes: each with a pipe of its own, so that one that dies takes nothing along."""

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
    """One worker and what it is at.

    `begun` is when the trial itself began, after all imports (seconds of a clock), `before` what the
    process held then (bytes), and `fresh` says that it has had no other trial.
    """

    process: SpawnProcess
    pipe: Connection
    parcel: TaskMessage | None = None
    begun: float | None = None
    before: int = 0
    fresh: bool = True

    def give(self, parcel: TaskMessage) -> None:
        """A dead worker shows when it is asked for the answer."""
        self.parcel, self.begun, self.before = parcel, None, 0
        try:
            self.pipe.send((parcel.key, parcel.content))
        except ConnectionError:
            self.process.kill()

    def begins(self) -> None:
        """The trial begins now."""
        assert self.parcel is not None
        self.begun = time.monotonic()
        if self.parcel.limits.memory is not None:
            self.before = self._held()

    def patience(self) -> float | None:
        """Seconds until its limits are to be looked at."""
        if self.parcel is None or self.begun is None:
            return None
        return self.parcel.limits.patience(time.monotonic() - self.begun)

    def broken(self) -> TrialResult | None:
        """How its trial ends if that takes more than it may."""
        if self.parcel is None or self.begun is None:
            return None
        held = self._held() if self.parcel.limits.memory is not None else 0
        seconds = time.monotonic() - self.begun
        return self.parcel.limits.broken(self.parcel.key, seconds, held, self.before)

    def _held(self) -> int:
        return process_memory(self.process.pid or 0)


class WorkerPool:
    """Up to `jobs` workers, started when there is work for them.

    `environment` is set in each of them.
    """

    def __init__(self, jobs: int, environment: Mapping[str, str] | None = None) -> None:
        self._jobs = jobs
        self._environment = dict(environment or {})
        self._hands: list[Worker] = []

    def has_room(self) -> bool:
        return len(self._busy()) < self._jobs

    def is_busy(self) -> bool:
        return bool(self._busy())

    def hand(self, parcel: TaskMessage) -> None:
        """Give a trial to a free worker. FaultError, E511, where its limits cannot be kept here."""
        parcel.limits.check()
        free = next((hand for hand in self._hands if hand.parcel is None), None)
        (free or self._hire()).give(parcel)

    def collect(self) -> list[WorkerAnswer]:
        """Wait until a worker has answered, died, or taken more than its trial may."""
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
        """Let idle workers leave."""
        for hand in self._hands:
            hand.pipe.close()
        for hand in self._hands:
            hand.process.join(EXIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End all workers at once."""
        self.strike()
        for hand in self._hands:
            _reap(hand)
        self._hands = []

    def strike(self) -> None:
        """As `kill`, for another thread: whoever waits in `collect` finds all dead."""
        for hand in list(self._hands):
            with suppress(ValueError):  # it is just being buried
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
        """What a worker says; nothing yet where it says that a trial begins."""
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
        except Exception as error:  # noqa: BLE001  unpickling raises what it likes
            return failure_result(parcel.key, error)
        return result

    def _look(self, hand: Worker) -> TrialResult | None:
        """How a worker's trial ends that takes more than it may.

        What earlier trials left in the process is not laid to its charge: it has another try in a new one.
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
    """Processes started here begin deaf to Ctrl-C, which would show their traceback."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # its start, which a first process brings about, would unblock all
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _allow_child_processes() -> Iterator[None]:
    """A Dask worker is a daemon, which may have no children lest they outlive it: ours leave with it."""
    settings = current_process()._config  # type: ignore[attr-defined]  # noqa: SLF001
    before = settings.pop("daemon", None)
    try:
        yield
    finally:
        if before is not None:
            settings["daemon"] = before

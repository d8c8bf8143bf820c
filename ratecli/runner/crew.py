"""Worker processes: each with a pipe of its own, so that one that dies takes nothing along."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import cast

from ratecli.runner.records import TrialResult
from ratecli.runner.schedule import Ready
from ratecli.runner.worker import Function, failure, serve

LEAVE_SECONDS = 5.0


def pack(ready: Ready) -> bytes:
    """A task as it goes to a worker."""
    return pickle.dumps((ready.task.payload, dict(ready.given)))


@dataclass(frozen=True)
class Death:
    """The worker at `ready` ended before it answered."""

    ready: Ready
    exit_code: int | None

    def result(self) -> TrialResult:
        """How a trial ends whose workers died."""
        how = f"exit code {self.exit_code}"
        if self.exit_code is not None and self.exit_code < 0:
            how = f"signal {-self.exit_code}"
        hint = "out of memory, or a crash in a compiled library?"
        reason = f"the worker process died each time it was tried ({how}); {hint}"
        return TrialResult(self.ready.task.key, "error", reason)


@dataclass
class Hand:
    """One worker and what it is at."""

    process: SpawnProcess
    pipe: Connection
    ready: Ready | None = None


class Crew:
    """Up to `jobs` workers, started when there is work for them."""

    def __init__(self, jobs: int, function: Function) -> None:
        self._jobs = jobs
        self._function = function
        self._hands: list[Hand] = []

    def has_room(self) -> bool:
        return len(self._busy()) < self._jobs

    def is_busy(self) -> bool:
        return bool(self._busy())

    def hand(self, ready: Ready, blob: bytes) -> None:
        """Give a packed task to a free worker. A dead one shows when it is asked for the answer."""
        free = next((hand for hand in self._hands if hand.ready is None), None)
        hand = free or self._hire()
        hand.ready = ready
        try:
            hand.pipe.send((ready.task.key, blob))
        except ConnectionError:
            hand.process.kill()

    def collect(self) -> list[tuple[Ready, TrialResult | Death]]:
        """Wait until a worker has answered or died."""
        answered = wait([hand.pipe for hand in self._busy()])
        return [self._ask(hand) for hand in self._busy() if hand.pipe in answered]

    def dismiss(self) -> None:
        """Let idle workers leave."""
        for hand in self._hands:
            hand.pipe.close()
        for hand in self._hands:
            hand.process.join(LEAVE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End all workers at once."""
        for hand in self._hands:
            hand.process.kill()
        for hand in self._hands:
            self._bury(hand)
        self._hands = []

    def _busy(self) -> list[Hand]:
        return [hand for hand in self._hands if hand.ready is not None]

    def _hire(self) -> Hand:
        context = get_context("spawn")
        here, there = context.Pipe()
        arguments = (there, self._function, os.getpid())
        process = context.Process(target=serve, args=arguments)
        with _interrupts_held():
            process.start()
        there.close()
        self._hands.append(Hand(process, here))
        return self._hands[-1]

    def _ask(self, hand: Hand) -> tuple[Ready, TrialResult | Death]:
        ready = cast("Ready", hand.ready)
        try:
            blob = hand.pipe.recv_bytes()
        except (EOFError, OSError):
            self._hands.remove(hand)
            return ready, Death(ready, self._bury(hand))
        hand.ready = None
        try:
            result: TrialResult = pickle.loads(blob)  # noqa: S301  from our own worker
        except Exception as error:  # noqa: BLE001  unpickling raises what it likes
            result = failure(ready.task.key, error)
        return ready, result

    @staticmethod
    def _bury(hand: Hand) -> int | None:
        hand.pipe.close()
        hand.process.join()
        exit_code = hand.process.exitcode
        hand.process.close()
        return exit_code


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started here begin deaf to Ctrl-C, which would show their traceback."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

"""Time and memory limits of a trial, measured from outside its process."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import TrialResult

HAS_PROC = Path("/proc/self/statm").is_file()

MEMORY_POLL_SECONDS = 0.02 if HAS_PROC else 0.25
"""Seconds between memory checks: a process can fill 2 GB/s; without /proc a check takes 5 ms."""

MIB = 2.0**20

Amount = TypeVar("Amount", float, int)


@dataclass(frozen=True)
class TrialLimits:
    """Limits on a trial's run time (seconds) and its process's resident memory (bytes)."""

    time: float | None = None
    memory: int | None = None

    def wider(self, other: TrialLimits) -> TrialLimits:
        """Return the wider of both limits, for a trial that two experiments share."""
        return TrialLimits(
            _larger_limit(self.time, other.time), _larger_limit(self.memory, other.memory)
        )

    def check(self) -> None:
        """Raise E511 if a limit cannot be enforced on this system."""
        if self.memory is not None and not process_memory(os.getpid()):
            message = (
                "limits.memory cannot be enforced: this system does not report a process's memory"
            )
            raise FaultError(Diagnostic("E511", message, "leave it out, or run elsewhere"))

    def seconds_to_next_check(self, seconds: float) -> float | None:
        """Return how long a trial may run on before it must be checked; None without a limit."""
        left = None if self.time is None else max(0.0, self.time - seconds)
        if self.memory is None:
            return left
        return MEMORY_POLL_SECONDS if left is None else min(left, MEMORY_POLL_SECONDS)

    def exceeded(self, key: str, seconds: float, held: int, before: int) -> TrialResult | None:
        """Return the result of a trial that exceeds a limit, else None.

        Parameters
        ----------
        seconds
            Run time so far.
        held, before
            Memory of the process in bytes, now and when the trial began; 0 if unknown.
        """
        if self.memory is not None and held > self.memory:
            return TrialResult(key, "error", _memory_message(self.memory, held, before), seconds)
        if self.time is not None and seconds >= self.time:
            reason = f"took longer than {self.time:g} s, the limit of time"
            return TrialResult(key, "timeout", reason, seconds)
        return None


UNLIMITED = TrialLimits()


def _larger_limit(one: Amount | None, other: Amount | None) -> Amount | None:
    return None if one is None or other is None else max(one, other)


def _memory_message(limit: int, held: int, before: int) -> str:
    text = f"its process held {format_memory(held)} of memory, the limit is {format_memory(limit)}"
    text += f"; {format_memory(before)} of it before the trial began" if before else ""
    return f"{text}: a process alone takes more than the limit" if before > limit else text


def format_memory(count: int) -> str:
    """Return `230 MiB`, `1.25 GiB`."""
    return f"{count / MIB:.0f} MiB" if count < 1024 * MIB else f"{count / MIB / 1024:.3g} GiB"


def process_memory(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended or this is unknown."""
    with suppress(OSError, ValueError, IndexError):
        if HAS_PROC:
            pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        output = subprocess.run(command, capture_output=True, check=False)  # noqa: S603  no shell
        return int(output.stdout) * 1024
    return 0

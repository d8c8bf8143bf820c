"""What checking a file must not do: write, start programs, open connections, take too long."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
READING = ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.getxattr", "os.listxattr")
CHANGING = (
    "os.",
    "shutil.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "tempfile.",
    "pickle.",
    "ctypes.dlopen",
)
"""Beginnings of the names of audit events that change something outside, apart from `READING`."""
CACHE = "__pycache__"
"""Where Python and Numba store what they have compiled."""

_seen: list[list[str]] = []


class TooLongError(BaseException):
    """Not an Exception, so that no `except Exception` catches it."""


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _seen or (arguments and CACHE in str(arguments[0])):
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & WRITING and path != os.devnull:
            _seen[-1].append(f"open{arguments!r}")
    elif event.startswith(CHANGING) and event not in READING:
        _seen[-1].append(f"{event}{arguments!r}")


@cache
def _install_hook() -> None:
    sys.addaudithook(_hook)  # an audit hook cannot be removed


@contextmanager
def watched(seconds: float) -> Iterator[list[str]]:
    """Yield a list that grows by each forbidden action inside.

    Raise TooLongError after some seconds of processor time.
    """
    _install_hook()
    _seen.append([])
    before = signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)  # again, should something swallow it
    try:
        yield _seen[-1]
    finally:
        _seen.pop()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError

"""Check one file in every way that runs nothing, and what must be true of the answer.

Checking a file must not write, start programs, open connections or take too long.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import numba  # noqa: F401  solvers load it: not while a file is watched

from ratecli import render
from ratecli.errors import Diagnostic, FaultError
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import check_available

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
READING = ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.getxattr", "os.listxattr")
CHANGING = ("os.", "shutil.", "socket.", "sqlite3.", "subprocess.", "tempfile.", "pickle.")
"""Beginnings of the names of audit events that change something outside, apart from `READING`."""
CACHE = "__pycache__"
"""Where Python and Numba store what they have compiled."""
CODE = re.compile(r"[EW]\d{3}")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SECONDS = 30.0
CHECKED = 100
"""Maximum number of diagnostics of one file to check."""

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
    elif event.startswith((*CHANGING, "ctypes.dlopen")) and event not in READING:
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


def look(path: Path, seconds: float = SECONDS) -> str:
    """Return the codes of the diagnostics, or `ok`.

    Raise AssertionError if something was written or a diagnostic is malformed, or TooLongError.
    """
    for _ in range(2):  # modules and caches are loaded at the first time
        with watched(seconds) as done:
            try:
                prepared = check_available(path, refuse=False)
                lines = explain(prepared)
                faults = prepared.warnings
            except FaultError as error:
                lines, faults = [], error.faults
                assert faults, "an error without a diagnostic"
            shown = [
                render.render_diagnostics(faults, color=False),
                render.terminal_safe("\n".join(lines)),
                render.diagnostics_to_json(faults),
                render.diagnostics_to_github(faults),
            ]
        if not done:
            break
    assert not done, f"checking a file did {done[:5]}"
    text = path.read_bytes().decode("utf-8-sig", "replace")
    for fault in faults[:CHECKED]:
        check(fault, path, text)
    for said in shown:
        wild = CONTROL.search(said)
        assert wild is None, f"{wild.group()!r} reaches the terminal: {said!r}"
    assert len(json.loads(shown[2])) == len(faults)
    assert shown[3].count("\n") == max(0, len(faults) - 1)
    return " ".join(sorted({fault.code for fault in faults})) or "ok"


def check(fault: Diagnostic, path: Path, text: str) -> None:
    """Check that a diagnostic has a code, a message, and a place that is in the file."""
    assert CODE.fullmatch(fault.code), fault
    assert fault.message.strip(), fault
    assert "\0" not in fault.message, fault
    assert "\0" not in (fault.help or ""), fault
    place = fault.place
    if place is None:
        assert fault.code in {"E005", "E401", "E402", "E403", "E405"} or not fault.is_error, fault
        return
    assert place.file == str(path), fault
    assert 1 <= place.line <= len(text.splitlines()) + 1, fault
    assert 0 <= place.column - 1 <= len(place.excerpt) + 1, fault
    assert 0 <= place.width <= len(place.excerpt) + 3 - place.column, fault
    assert place.excerpt.rstrip("\ufffd") in text, fault

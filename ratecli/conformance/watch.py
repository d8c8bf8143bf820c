"""What code of others does beside answering: prints, files, and random numbers that all share."""

from __future__ import annotations

import io
import os
import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cache

import numpy as np

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
CHANGE_EVENTS = frozenset(
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"}
)
IGNORED_PATHS = ("__pycache__", "/dev/", "/proc/")
"""Parts of paths that say nothing: what imports leave, and what is no file."""


@dataclass
class SideEffects:
    """`written` are paths, `random` says whether the state that NumPy and Python share has moved."""

    printed: str = ""
    written: list[str] = field(default_factory=list)
    random: bool = False


_watching: list[SideEffects] = []


@contextmanager
def watch_side_effects() -> Iterator[SideEffects]:
    """What is done inside; it may be nested."""
    _listen()
    seen, said = SideEffects(), io.StringIO()
    before = _shared()
    _watching.append(seen)
    try:
        with redirect_stdout(said):
            yield seen
    finally:
        _watching.remove(seen)
        seen.printed, seen.random = said.getvalue(), _shared() != before


def _shared() -> bytes:
    return pickle.dumps((np.random.get_state(), random.getstate()))  # noqa: NPY002  that is the point


@cache
def _listen() -> None:
    """An audit hook cannot be taken away: it is added once, and idle while nothing is watched."""
    sys.addaudithook(_on_audit_event)


def _on_audit_event(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching or (event != "open" and event not in CHANGE_EVENTS):
        return
    path = arguments[0]
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str | os.PathLike):  # an open file, by its number
        return
    shown = os.fspath(path)
    if event == "open" and not _writes(*arguments[1:3]):
        return
    if not any(part in shown for part in IGNORED_PATHS):
        _watching[-1].written.append(str(shown))


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(sign in mode for sign in "wax+")
    return isinstance(flags, int) and bool(flags & WRITE_FLAGS)

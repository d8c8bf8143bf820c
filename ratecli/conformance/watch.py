"""Record side effects of plugins: printed text, written files, and use of global random numbers."""

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
"""Parts of paths that are ignored: caches of imports, and devices."""


@dataclass
class SideEffects:
    """Side effects of some code.

    `written` has paths; `random` is whether the global random state of NumPy or Python changed.
    """

    printed: str = ""
    written: list[str] = field(default_factory=list)
    random: bool = False


_watching: list[SideEffects] = []


@contextmanager
def watch_side_effects() -> Iterator[SideEffects]:
    """Record the side effects of the block; may be nested."""
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
    return pickle.dumps((np.random.get_state(), random.getstate()))  # noqa: NPY002  global state


@cache
def _listen() -> None:
    """Install the audit hook once: it cannot be removed, and does nothing unless watching."""
    sys.addaudithook(_on_audit_event)


def _on_audit_event(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching or (event != "open" and event not in CHANGE_EVENTS):
        return
    path = arguments[0]
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str | os.PathLike):  # a file descriptor
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

"""Locks of a results folder: one run at a time, and one writer of its report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ratecli.errors import Diagnostic, FaultError
from ratecli.files import check_no_links, report_write_errors

if sys.platform != "win32":
    import fcntl

LOCK_FILE = ".lock"
REPORT_LOCK_FILE = ".report.lock"
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another report in the same folder."""
PAUSE = 0.05
"""Seconds between attempts to get a lock."""


@contextmanager
def lock_results(folder: Path) -> Iterator[None]:
    """Lock `folder` against other runs, creating it if missing; a killed process frees the lock.

    The lock file is never deleted: otherwise, a third run could lock a new file while a second one
    has the old file open.

    Raises
    ------
    FaultError
        E504 if another process holds the lock, E505 if the folder cannot be created or written, or
        contains links that lead elsewhere.
    """
    with _open_lock_file(folder, LOCK_FILE) as file:
        if not _try_lock(file):
            hint = "wait until it has ended, or choose another folder with --output"
            raise FaultError(Diagnostic("E504", f"another run is writing to {folder}", hint))
        yield


@contextmanager
def lock_report(folder: Path, *, patience: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Lock the report in `folder`, after waiting for other writers.

    A run takes this lock in addition to the folder's, because `ratecli report` may run meanwhile.
    The ledger is read while holding the lock, so that the last report written covers all trials.

    Raises
    ------
    FaultError
        E504 if another process holds the lock for longer than `patience` seconds, E505 as
        `lock_results`.
    """
    deadline = time.monotonic() + patience
    with _open_lock_file(folder, REPORT_LOCK_FILE) as file:
        while not _try_lock(file):
            if time.monotonic() > deadline:
                message = f"another command is writing the report in {folder}"
                hint = f"end it, or wait for it (waited {patience:g} s)"
                raise FaultError(Diagnostic("E504", message, hint))
            time.sleep(PAUSE)
        yield


def _open_lock_file(folder: Path, name: str) -> BinaryIO:
    """Open the lock file, creating it and its folder if missing."""
    check_no_links(folder, name)
    with report_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("ab")


def _try_lock(file: BinaryIO) -> bool:
    """Try to lock the file; succeed if locks are unsupported (Windows, some network disks)."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
    return True

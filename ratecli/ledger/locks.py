"""Locks of results folders, which end with the process that holds them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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


def lock_results(folder: Path) -> AbstractContextManager[None]:
    """Lock `folder` against other runs, creating it if missing; a killed process frees the lock.

    Raises
    ------
    FaultError
        E504 if another process holds the lock, E505 if the folder cannot be created or written, or
        contains links that lead elsewhere.
    """
    return _lock(folder, LOCK_FILE, 0.0)


def lock_report(folder: Path, *, timeout: float = LOCK_TIMEOUT) -> AbstractContextManager[None]:
    """Lock the report in `folder`, after waiting for other writers.

    A run takes this lock in addition to the folder's, because `ratecli report` may run meanwhile.
    The ledger is read while holding the lock, so that the last report written covers all trials.

    Raises
    ------
    FaultError
        E504 if another process holds the lock for longer than `timeout` seconds, E505 as
        `lock_results`.
    """
    return _lock(folder, REPORT_LOCK_FILE, timeout)


@contextmanager
def _lock(folder: Path, name: str, timeout: float) -> Iterator[None]:
    """Lock a file in `folder`.

    It is never deleted: otherwise, a third process could lock a new file while a second one has the
    old file open.
    """
    check_no_links(folder, name)
    with report_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("ab")
    deadline = time.monotonic() + timeout
    with file:
        while not _try_lock(file):
            if time.monotonic() >= deadline:
                hint = "wait until it has ended, or choose another folder with --output"
                message = f"another command is writing to {folder}"
                raise FaultError(Diagnostic("E504", message, hint))
            time.sleep(PAUSE)
        yield


def _try_lock(file: BinaryIO) -> bool:
    """Try to lock the file; succeed if locks are unsupported (Windows, some network disks)."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True

"""One run at a time in a folder of results, and one writer of its report."""

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
"""Seconds that a report waits for another of the same folder."""
PAUSE = 0.05
"""Seconds between looks at a lock that somebody holds."""


@contextmanager
def lock_results(folder: Path) -> Iterator[None]:
    """Hold `folder`, made if it is not there, against other runs; the system frees it on a kill.

    The file stays: if it went, a third run could lock a new one while a second has the old one open.

    Raises
    ------
    FaultError
        E504 if another process holds it, E505 if the folder cannot be made or written, or leads elsewhere.
    """
    with _open_lock_file(folder, LOCK_FILE) as file:
        if not _try_lock(file):
            hint = "wait until it has ended, or choose another folder with --output"
            raise FaultError(Diagnostic("E504", f"another run is writing to {folder}", hint))
        yield


@contextmanager
def lock_report(folder: Path, *, patience: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Hold the report in `folder` against others who write it, once they have ended.

    A run holds it besides its folder: `ratecli report` may show what is stored so far, and whoever reads
    the ledger after that knows no less, so that the files of the last are those of all trials.

    Raises
    ------
    FaultError
        E504 if another process holds it for longer than `patience` seconds, E505 as `lock_results` does.
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
    """Made if it is not there, as the folder is."""
    check_no_links(folder, name)
    with report_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("ab")


def _try_lock(file: BinaryIO) -> bool:
    """Where there are no locks (Windows, some network disks) a file is taken unasked."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
    return True

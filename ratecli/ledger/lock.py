"""One run at a time in a folder of results, and one writer of its report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ratecli.errors import Fault, FaultError
from ratecli.files import refuse_links, writing

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"
REPORT_LOCK = ".report.lock"
PATIENCE = 60.0
"""Seconds that a report waits for another of the same folder."""
PAUSE = 0.05
"""Seconds between looks at a lock that somebody holds."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder`, made if it is not there, against other runs; the system frees it on a kill.

    The file stays: if it went, a third run could lock a new one while a second has the old one open.

    Raises
    ------
    FaultError
        E504 if another process holds it, E505 if the folder cannot be made or written, or leads elsewhere.
    """
    with _lock_file(folder, LOCK) as file:
        if not _taken(file):
            hint = "wait until it has ended, or choose another folder with --output"
            raise FaultError(Fault("E504", f"another run is writing to {folder}", hint))
        yield


@contextmanager
def reporting(folder: Path, *, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the report in `folder` against others who write it, once they have ended.

    A run holds it besides its folder: `ratecli report` may show what is stored so far, and whoever reads
    the ledger after that knows no less, so that the files of the last are those of all trials.

    Raises
    ------
    FaultError
        E504 if another process holds it for longer than `patience` seconds, E505 as `locked` does.
    """
    deadline = time.monotonic() + patience
    with _lock_file(folder, REPORT_LOCK) as file:
        while not _taken(file):
            if time.monotonic() > deadline:
                message = f"another command is writing the report in {folder}"
                hint = f"end it, or wait for it (waited {patience:g} s)"
                raise FaultError(Fault("E504", message, hint))
            time.sleep(PAUSE)
        yield


def _lock_file(folder: Path, name: str) -> BinaryIO:
    """Made if it is not there, as the folder is."""
    refuse_links(folder, name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("ab")


def _taken(file: BinaryIO) -> bool:
    """Where there are no locks (Windows, some network disks) a file is taken unasked."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
    return True

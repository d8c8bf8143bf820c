"""One run at a time in a folder of results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ratecli.faults import Fault, FaultError
from ratecli.runner.files import refuse_links, writing

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder`, made if it is not there, against other runs; the system frees it on a kill.

    The file stays: if it went, a third run could lock a new one while a second has the old one open.

    Raises
    ------
    FaultError
        E504 if another process holds it, E505 if the folder cannot be made or written, or leads elsewhere.
    """
    refuse_links(folder, LOCK)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab")
    with file:
        if not _taken(file):
            hint = "wait until it has ended, or choose another folder with --output"
            raise FaultError(Fault("E504", f"another run is writing to {folder}", hint))
        yield


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

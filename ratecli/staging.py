"""Files and folders that are being written under a temporary name, beside the place where they are moved.

A process that is killed leaves them behind, so whoever writes in the same folder next removes them.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ABANDONED = 24 * 3600.0
"""Age in seconds from which a temporary file counts as left behind if nothing is known of its process."""


def temporary_path(folder: Path, kind: str) -> Path:
    """Return a new name in `folder` that starts with `kind` and names this machine and process.

    Temporary files of the same kind that killed processes left in the folder are removed.
    """
    remove_stale(folder, kind)
    return folder / f"{_of_machine(kind)}{os.getpid()}-{secrets.token_hex(4)}.tmp"


@contextmanager
def staged_folder(parent: Path, kind: str) -> Iterator[Path]:
    """Make a temporary folder in `parent` that is removed at the end."""
    folder = temporary_path(parent, kind)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale(folder: Path, kind: str) -> None:
    """Remove temporary files of a kind whose process has ended.

    The age decides where the process ran on another machine, or on Windows.
    """
    with suppress(OSError):  # whoever writes in the folder reports what is wrong with it
        for path in list(folder.glob(f"{kind}*.tmp")):
            with suppress(OSError):  # such as one that another process removes at the same time
                if _is_stale(path, kind):
                    _remove(path)


def _of_machine(kind: str) -> str:
    return f"{kind}{socket.gethostname()}-"


def _is_stale(path: Path, kind: str) -> bool:
    # A whole match: machine 'node' must not take '12' of a file of machine 'node-12' for a process.
    ours = re.fullmatch(rf"{re.escape(_of_machine(kind))}([0-9]+)-[0-9a-f]+\.tmp", path.name)
    if ours and sys.platform != "win32":
        return not _runs(int(ours[1]))
    return time.time() - path.lstat().st_mtime > ABANDONED


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()

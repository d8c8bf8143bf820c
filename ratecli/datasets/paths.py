"""Resolve paths in an experiment file, relative to its folder."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from ratecli.errors import Diagnostic, FaultError

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def resolve_user_path(given: str, base: Path) -> Path:
    """Return the absolute path of `given`, relative to the folder `base`.

    Raises E405 if a relative path leaves both `base` and the current folder, or if the path cannot
    be accessed. A file that does not exist is no error.
    """
    if "\0" in given:
        raise missing_file_error(repr(given), "is not a path", "give the path of a file")
    path = Path(os.path.normpath(base.absolute() / given))
    roots = [Path(os.path.normpath(root.absolute())) for root in (base, Path.cwd())]
    if not Path(given).is_absolute() and not any(path.is_relative_to(root) for root in roots):
        way = "put the file beside the experiment, or give an absolute path"
        raise missing_file_error(given, "leads out of the experiment's folder", way)
    try:
        path.stat()
    except OSError as error:
        if error.errno not in _NOTHING_THERE:  # for example a name that is too long
            raise unreadable_file_error(given, path, error) from error
    return path


def modification_time(given: str | None, base: Path) -> int:
    """Return the modification time of the user's table in nanoseconds, 0 if unknown.

    For a folder, the latest time of the folder and its files.
    """
    if given is None:
        return 0
    with suppress(OSError, ValueError):
        path = base / given
        return max(each.stat().st_mtime_ns for each in (path, *path.glob("*")))
    return 0


def find_user_file(given: str, base: Path) -> Path:
    """Return the absolute path of an existing file; raise E405 if there is none."""
    path = resolve_user_path(given, base)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise missing_file_error(given, what, f"looked for {path}")
    return path


def unreadable_file_error(given: str, path: Path, error: OSError) -> FaultError:
    """Return the E405 for a file that exists and cannot be read."""
    return missing_file_error(
        shorten_path(given),
        f"cannot be read: {error.strerror}",
        f"looked at {shorten_path(str(path))}",
    )


def missing_file_error(given: str, what: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E405", f"'{given}' {what}", way))


def shorten_path(text: str) -> str:
    """Return the path, or its end if it is too long for a message."""
    return text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"


_SHOWN = 200

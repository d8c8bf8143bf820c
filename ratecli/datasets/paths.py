"""Files that an experiment names by path, from its own folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ratecli.errors import Diagnostic, FaultError

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def resolve_user_path(given: str, base: Path) -> Path:
    """Where `given` leads from the folder `base`; E405 if it leaves it and is not absolute, or
    cannot be looked at.
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
        if error.errno not in _NOTHING_THERE:  # such as a name that is too long
            raise unreadable_file_error(given, path, error) from error
    return path


def modification_time(options: Mapping[str, Any], base: Path) -> int:
    """When a table of the user's own was, in nanoseconds; 0 where that is not known."""
    if not isinstance(given := options.get("path"), str):
        return 0
    with suppress(OSError, ValueError):
        path = base / given
        return max(each.stat().st_mtime_ns for each in (path, *path.glob("*")))
    return 0


def find_user_file(given: str, base: Path) -> Path:
    """The same for a file that must be there; E405."""
    path = resolve_user_path(given, base)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise missing_file_error(given, what, f"looked for {path}")
    return path


def unreadable_file_error(given: str, path: Path, error: OSError) -> FaultError:
    """The E405 for a file that is there and cannot be read."""
    return missing_file_error(
        shorten_path(given),
        f"cannot be read: {error.strerror}",
        f"looked at {shorten_path(str(path))}",
    )


def missing_file_error(given: str, what: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E405", f"'{given}' {what}", way))


def shorten_path(text: str) -> str:
    """A path in a sentence; its end says most."""
    return text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"


_SHOWN = 200

"""Files taken out of zip archives that nobody vouches for."""

from __future__ import annotations

import errno
import lzma
import re
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from ratecli.errors import Diagnostic, FaultError

ARCHIVE_LIMIT = 64 * 2**20
"""Bytes that an archive, outer or inner, may have."""

BROKEN_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a compression that zipfile does not know
    RuntimeError,  # one that this Python was built without
    ValueError,  # names and places that cannot be
)
"""What zipfile raises for bytes that are no archive, beside OSError (a place before the beginning)."""
_CHUNK = 2**16


def extract_member(archive: Path, members: tuple[str, ...], target: Path, size: int) -> None:
    """Write to `target` what `members` lead to: archives within archives, then a file of `size`."""
    for depth, member in enumerate(members):
        last = depth == len(members) - 1
        out = target if last else target.with_name(f"{target.name}.{depth}")
        try:
            _extract_one(archive, member, out, size if last else ARCHIVE_LIMIT)
        except BROKEN_ARCHIVE_ERRORS as error:
            raise _broken_archive(archive, error) from error
        except OSError as error:
            if error.errno not in {None, errno.EINVAL}:  # the disk's trouble, not the archive's
                raise
            raise _broken_archive(archive, error) from error
        archive = out


def _broken_archive(archive: Path, error: Exception) -> FaultError:
    message = f"'{archive.name}' is not a whole zip archive: {error}"
    return FaultError(Diagnostic("E402", message, "try again later, or use a mirror"))


def _extract_one(archive: Path, member: str, target: Path, limit: int) -> None:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            _refuse_unsafe(info)
        try:
            info = opened.getinfo(member)
        except KeyError:
            message = f"the archive holds no '{member}'"
            known = ", ".join(opened.namelist()[:8])
            raise FaultError(Diagnostic("E402", message, f"it holds: {known}")) from None
        if info.file_size > limit:
            raise _too_large(member, limit)
        with opened.open(info) as source, target.open("wb") as sink:
            _copy(source, sink, member, limit)


def _refuse_unsafe(info: zipfile.ZipInfo) -> None:
    name = info.filename.replace("\\", "/")
    escapes = (
        ".." in PurePosixPath(name).parts or name.startswith("/") or re.match("[A-Za-z]:", name)
    )
    if escapes or stat.S_ISLNK(info.external_attr >> 16):
        message = f"the archive is unsafe: its member '{info.filename}' leaves the folder"
        raise FaultError(Diagnostic("E409", message, "nothing was extracted; use another address"))
    if info.flag_bits & 1:
        message = f"the archive is unsafe: its member '{info.filename}' is encrypted"
        raise FaultError(Diagnostic("E409", message, "nothing was extracted; use another address"))


def _copy(source: IO[bytes], sink: IO[bytes], member: str, limit: int) -> None:
    """Copy while counting, since the size an archive states need not be true."""
    done = 0
    while chunk := source.read(_CHUNK):
        done += len(chunk)
        if done > limit:
            raise _too_large(member, limit)
        sink.write(chunk)


def _too_large(member: str, limit: int) -> FaultError:
    message = f"the archive is unsafe: its member '{member}' is larger than {limit:,} bytes"
    return FaultError(Diagnostic("E409", message, "nothing was extracted; use another address"))

"""Find the files of data sets: the user's own, and those of sources, downloaded and verified.

A path in an experiment file is relative to the file's folder.

A file of a source is looked for in the data folder ($RATECLI_DATA or ./data), in the mirror
($RATECLI_DATA_MIRROR, a folder or an address that has <source>/<file>), and at the public address,
in this order. It is written to a temporary folder inside the data folder and moved to its
destination atomically once its sha256 is correct, so that the data folder never has a file other
than the published one, whatever happens. A file whose published sha256 is unknown is moved there,
too, and refused until the user vouches for it. An address that is too slow (`WINDOW`) is treated
like one that does not answer.
"""

from __future__ import annotations

import errno
import hashlib
import io
import lzma
import os
import re
import stat
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ratecli.datasets.source import RemoteFile, Source
from ratecli.errors import Diagnostic, FaultError, errors_at
from ratecli.files import atomic_write, staged_folder

DownloadProgress = Callable[[str, int, int], None]
"""Receives the name of a file, its bytes so far and in all (those so far if that is unknown)."""

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_MAX_SHOWN = 200
"""Characters of a path that a message shows."""

CHECKSUM_FILE = "SHA256SUMS"
_CHECKSUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")

UNKNOWN_LIMIT = 2**28
"""Maximum size in bytes of a file whose size is unknown."""
ARCHIVE_LIMIT = 64 * 2**20
"""Maximum size in bytes of an archive, outer or inner."""

RETRIES, RETRY_SECONDS = 2, 1.0
"""How often a failed download is repeated, and the pause before."""
WINDOW, MIN_BYTES_PER_WINDOW = 60.0, 2**16
"""Seconds, and the fewest bytes that must arrive in them: a slower download is given up."""
TIMEOUT = 30
CHUNK = 2**14
PERMANENT_STATUSES = frozenset({400, 401, 403, 404, 405, 406, 410, 451})
"""HTTP status codes for which a retry does not help."""


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
    with suppress(OSError, ValueError):
        if given is not None:
            path = base / given
            return max(each.stat().st_mtime_ns for each in (path, *path.glob("*")))
    return 0


def find_user_file(given: str, base: Path) -> Path:
    """Return the absolute path of an existing file; raise E405 if there is none."""
    path = resolve_user_path(given, base)
    check_is_file(given, path, f"looked for {path}")
    return path


def check_is_file(given: str, path: Path, way: str) -> None:
    """Raise E405 if `path`, which the user wrote as `given`, is not a file."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise missing_file_error(given, what, way)


def unreadable_file_error(given: str, path: Path, error: OSError) -> FaultError:
    """Return the E405 for a file that exists and cannot be read."""
    shown = [
        text if len(text) <= _MAX_SHOWN else f"...{text[-_MAX_SHOWN:]}"
        for text in (given, str(path))
    ]
    return missing_file_error(
        shown[0], f"cannot be read: {error.strerror}", f"looked at {shown[1]}"
    )


@contextmanager
def read_errors(given: str, path: Path) -> Iterator[None]:
    """Convert errors of reading a user's file to E405."""
    try:
        yield
    except OSError as error:
        raise unreadable_file_error(given, path, error) from error


def missing_file_error(given: str, what: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E405", f"'{given}' {what}", way))


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file; it is cached until the size or modification time changes."""
    status = path.stat()
    return _sha256(str(path.resolve()), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256(path: str, size: int, changed: int) -> str:  # noqa: ARG001  (parts of the cache's key)
    with Path(path).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def stored_sha256(path: Path) -> str:
    """Return the sha256 of a large file, from a note in the data folder if it has not changed.

    The name of the note is a hash of the file's path, size, modification time and inode.
    """
    status = path.stat()
    key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ino}"
    note = data_folder() / "streamed" / "sums" / hashlib.sha256(key.encode()).hexdigest()
    with suppress(OSError):
        known = note.read_text("ascii").strip()
        if len(known) == 64:
            return known
    known = sha256_of(path)
    with suppress(OSError, FaultError):  # without the note, the file is hashed again
        note.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(note, known, lasting=False)
    return known


def data_folder() -> Path:
    return Path(os.environ.get("RATECLI_DATA") or "data")


def missing_source_files(source: Source) -> list[str]:
    """Return the files of a source that are missing in the data folder, as <folder>/<file>."""
    paths = map(source.file_path, source.files)
    return [path for path in paths if not (data_folder() / path).exists()]


def source_checksums(source: Source) -> tuple[tuple[str, str], ...]:
    """Return each file's name and sha256: published, vouched for by the user, or "" if unknown.

    The user vouches for files in SHA256SUMS, next to them.
    """
    if all(file.sha256 for file in source.files):
        return tuple((file.name, file.sha256) for file in source.files)
    text = ""
    with suppress(OSError):
        path = data_folder() / source.file_path(source.files[0])
        text = path.with_name(CHECKSUM_FILE).read_text("utf-8", errors="replace")
    lines = [_CHECKSUM_LINE.fullmatch(line.strip()) for line in text.splitlines()]
    vouched = {line[2]: line[1].lower() for line in lines if line}
    return tuple((file.name, file.sha256 or vouched.get(file.name, "")) for file in source.files)


@errors_at("source")
def fetch_files(
    source: Source, *, offline: bool = False, progress: DownloadProgress | None = None
) -> dict[str, Path]:
    """Return the paths of the source's files by name, each present and verified.

    The network is used only for files that are missing. A file without a known sha256 is downloaded
    all the same, so that the E403 can report its sha256.
    """
    checksums = dict(source_checksums(source))
    paths, unverified = {}, []
    for published in source.files:
        file = replace(published, sha256=checksums[published.name])
        path = paths[file.name] = data_folder() / source.file_path(file)
        if not path.exists():
            _Fetch(source, file, offline, progress).to(path)
        elif file.sha256 and sha256_of(path) != file.sha256:
            message = f"'{path}' is not the published file: its sha256 is {sha256_of(path)[:12]}..."
            raise FaultError(Diagnostic("E403", message, "move it away to download it again"))
        if not file.sha256:
            message = f"'{path}' cannot be verified: its published sha256 is not known to ratecli"
            way = (
                f"fetched from {file.url}; if you trust it, add this line to "
                f"{path.with_name(CHECKSUM_FILE)}: {sha256_of(path)}  {file.name}"
            )
            unverified.append(Diagnostic("E403", message, way))
    if unverified:
        raise FaultError(unverified)
    return paths


@dataclass(frozen=True)
class _Fetch:
    """The download of one file of a source."""

    source: Source
    file: RemoteFile
    offline: bool
    progress: DownloadProgress | None

    def to(self, path: Path) -> None:
        """Write the verified file to a path in the data folder."""
        root = data_folder()
        try:
            root.mkdir(parents=True, exist_ok=True)
            try:
                # inside the data folder, so that the file moves out of it atomically
                with staged_folder(root, ".fetch-") as work:
                    staged = self._stage(work)
                    staged.chmod(0o644)
                    path.parent.mkdir(exist_ok=True)
                    staged.replace(path)
            finally:
                with suppress(OSError):  # fails, as it should, unless the folder is empty
                    root.rmdir()
        except OSError as error:
            message = f"'{path}' cannot be written: {error.strerror or error}"
            hint = "set RATECLI_DATA to another folder"
            raise FaultError(Diagnostic("E402", message, hint)) from error

    def _stage(self, work: Path) -> Path:
        """Return the path of the verified file in `work`, from the first address that has it."""
        source, file = self.source, self.file
        addresses = [(file.url, file.members)]
        if mirror := os.environ.get("RATECLI_DATA_MIRROR"):  # has the bare file
            addresses.insert(0, (f"{mirror.rstrip('/')}/{source.file_path(file)}", ()))
        size = file.size or UNKNOWN_LIMIT
        reasons: list[str] = []
        for location, members in addresses:
            remote = "://" in location
            if remote and self.offline:
                continue
            target, limit = work / str(len(reasons)), ARCHIVE_LIMIT if members else size
            writer = _CheckedWriter(target, file, limit, self.progress)
            try:
                (_download if remote else _copy)(location, writer)
            except _FileUnavailableError as error:
                reasons.append(f"{location}: {error}")
                continue
            if members:
                target.write_bytes(extract_member(target, members, size))
            found, done = sha256_of(target), target.stat().st_size
            if file.sha256 and found != file.sha256:
                cut = f" ({done:,} of {file.size:,} bytes)" if done < file.size else ""
                reason = f"its sha256 is {found}, expected {file.sha256}"
                raise _wrong_file(
                    file, f" from {location} is not the published file{cut}: {reason}"
                )
            return target
        if self.offline:
            message = f"'{source.file_path(file)}' is not in {data_folder()}"
            way = f"run `ratecli fetch {source.name}` with a connection, or set RATECLI_DATA_MIRROR"
            raise FaultError(Diagnostic("E401", f"{message}, and this run is offline", way))
        message = f"'{source.file_path(file)}' could not be downloaded: " + "; ".join(reasons)
        raise FaultError(Diagnostic("E402", message, "try again later, or set RATECLI_DATA_MIRROR"))


def _wrong_file(file: RemoteFile, what: str) -> FaultError:
    return FaultError(
        Diagnostic(
            "E403",
            f"'{file.name}'{what}",
            "no file was stored; try again, or set RATECLI_DATA_MIRROR",
        )
    )


class _FileUnavailableError(Exception):
    """An address does not have the file or does not answer; another one may."""


@dataclass
class _CheckedWriter:
    """Writes a file while checking its size and content and reporting progress."""

    target: Path
    file: RemoteFile
    limit: int
    progress: DownloadProgress | None
    done: int = 0
    abandoned: bool = False

    def write(self, chunks: Iterator[bytes]) -> None:
        self.done = 0
        with self.target.open("wb") as opened:
            for chunk in chunks:
                if self.abandoned:
                    return
                if self.done == 0 and looks_like_html(chunk):
                    raise _wrong_file(self.file, " looks like an HTML page, not like the data")
                self.done += len(chunk)
                if self.done > self.limit:
                    what = f" is not the published file: it is over {self.limit:,} bytes"
                    raise _wrong_file(self.file, what)
                if self.progress is not None:
                    self.progress(self.file.name, self.done, max(self.done, self.file.size))
                opened.write(chunk)


def looks_like_html(head: bytes) -> bool:
    return re.match(rb"[\xef\xbb\xbf\s]*<(!doctype )?html", head, re.IGNORECASE) is not None


def _copy(location: str, writer: _CheckedWriter) -> None:
    origin = Path(location)
    if not origin.is_file():
        raise _FileUnavailableError("no such file")
    with origin.open("rb") as opened:
        writer.write(iter(lambda: opened.read(CHUNK), b""))


def _download(url: str, writer: _CheckedWriter) -> None:
    import requests  # noqa: PLC0415  (only a download needs it)
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    for retries_left in reversed(range(RETRIES + 1)):
        try:
            return _receive_in_thread(url, writer)
        except requests.RequestException as error:
            permanent = getattr(error.response, "status_code", None) in PERMANENT_STATUSES
            if permanent or not retries_left:
                raise _FileUnavailableError(_reason(error)) from error
        except (ValueError, HTTPError) as error:  # invalid headers or redirects
            raise _FileUnavailableError(f"invalid answer: {error}") from error
        time.sleep(RETRY_SECONDS)
    return None


def _receive_in_thread(url: str, writer: _CheckedWriter) -> None:
    """Download a file in a thread that is abandoned if it is too slow; re-raise its exception.

    The timeout of a socket restarts with every byte that arrives, and the headers can be slow, too,
    so only another thread can notice that the download is too slow.
    """
    import requests  # noqa: PLC0415

    errors: list[Exception] = []

    def receive() -> None:
        try:
            with requests.get(url, stream=True, timeout=TIMEOUT) as answer:
                answer.raise_for_status()
                writer.write(answer.iter_content(CHUNK))
        except Exception as error:  # noqa: BLE001  raised again below
            errors.append(error)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    while thread.is_alive():
        before = writer.done
        thread.join(WINDOW)
        if thread.is_alive() and writer.done - before < MIN_BYTES_PER_WINDOW:
            writer.abandoned = True
            raise _FileUnavailableError(
                f"too slow: under {MIN_BYTES_PER_WINDOW:,} bytes in {WINDOW:g} seconds"
            )
    if errors:
        raise errors.pop()  # no cycle with its traceback, which holds the connection


def _reason(error: Exception) -> str:
    import requests  # noqa: PLC0415

    if isinstance(error, requests.HTTPError):
        return f"the server answered {error.response.status_code} {error.response.reason}"
    reasons = {
        requests.Timeout: "no answer in time",
        requests.exceptions.ChunkedEncodingError: "the connection was interrupted",
        requests.ConnectionError: "no connection",
    }
    return next((text for kind, text in reasons.items() if isinstance(error, kind)), str(error))


_BROKEN_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a compression that zipfile does not know
    OSError,
    RuntimeError,  # encrypted, or a compression that this Python was built without
    ValueError,  # invalid names and offsets
)
"""Exceptions of zipfile for broken archives in memory."""


def extract_member(path: Path, members: tuple[str, ...], size: int) -> bytes:
    """Return a file of up to `size` bytes; `members` leads to it through nested archives."""
    content = path.read_bytes()
    for depth, member in enumerate(members, start=1):
        limit = size if depth == len(members) else ARCHIVE_LIMIT
        try:
            content = _read_member(content, member, limit)
        except _BROKEN_ARCHIVE_ERRORS as error:
            message = f"'{member}' cannot be extracted, not a whole zip archive: {error}"
            hint = "try again later, or use a mirror"
            raise FaultError(Diagnostic("E402", message, hint)) from error
    return content


def _read_member(content: bytes, member: str, limit: int) -> bytes:
    reason = ""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for info in archive.infolist():
            name = info.filename.replace("\\", "/")
            leaves = ".." in name.split("/") or re.match("/|[A-Za-z]:", name)
            if leaves or stat.S_ISLNK(info.external_attr >> 16):
                reason = f"its member '{info.filename}' leaves the folder"
        if not reason and member not in archive.namelist():
            known = ", ".join(archive.namelist()[:8])
            message = f"the archive holds no '{member}'"
            raise FaultError(Diagnostic("E402", message, f"it holds: {known}"))
        if not reason:
            with archive.open(member) as opened:
                found = opened.read(limit + 1)  # the size stated in an archive may be wrong
            if len(found) <= limit:
                return found
            reason = f"its member '{member}' is larger than {limit:,} bytes"
    hint = "nothing was extracted; use another address"
    raise FaultError(Diagnostic("E409", f"the archive is unsafe: {reason}", hint))

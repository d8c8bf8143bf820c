"""Find or download the files of a source, and verify them.

A file is looked for in the data folder ($RATECLI_DATA or ./data), in the mirror
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
import logging
import lzma
import os
import re
import shutil
import stat
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from ratecli.datasets.source import RemoteFile, Source
from ratecli.errors import Diagnostic, FaultError, errors_at
from ratecli.files import staged_folder

CHECKSUM_FILE = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def read_vouched_checksums(folder: Path) -> dict[str, str]:
    """Return the sha256 by file name from SHA256SUMS in `folder`; {} if there is none."""
    try:
        lines = (folder / CHECKSUM_FILE).read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = (_LINE.fullmatch(line.strip()) for line in lines)
    return {line.group(2): line.group(1).lower() for line in found if line}


def unvouched_file_error(file: RemoteFile, path: Path, sha256: str) -> Diagnostic:
    """Return the E403 for a downloaded file that nobody has vouched for."""
    message = f"'{path}' cannot be verified: its published sha256 is not known to ratecli"
    way = (
        f"fetched from {file.url}; if you trust it, add this line to "
        f"{path.parent / CHECKSUM_FILE}: {sha256}  {file.name}"
    )
    return Diagnostic("E403", message, way)


ARCHIVE_LIMIT = 64 * 2**20
"""Maximum size in bytes of an archive, outer or inner."""

BROKEN_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # a compression that zipfile does not know
    RuntimeError,  # a compression that this Python was built without
    ValueError,  # invalid names and offsets
)
"""Exceptions of zipfile for broken archives, besides OSError (an offset before the beginning)."""
_ARCHIVE_CHUNK = 2**16


def extract_member(archive: Path, members: tuple[str, ...], target: Path, size: int) -> None:
    """Extract a file of `size` bytes to `target`; `members` leads to it through nested archives."""
    for depth, member in enumerate(members):
        last = depth == len(members) - 1
        out = target if last else target.with_name(f"{target.name}.{depth}")
        try:
            _extract_one(archive, member, out, size if last else ARCHIVE_LIMIT)
        except BROKEN_ARCHIVE_ERRORS as error:
            raise _broken_archive(archive, error) from error
        except OSError as error:
            if error.errno not in {None, errno.EINVAL}:  # an error of the disk, not of the archive
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
            _copy_archive(source, sink, member, limit)


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


def _copy_archive(source: IO[bytes], sink: IO[bytes], member: str, limit: int) -> None:
    """Copy and count the bytes, since the size stated in an archive may be wrong."""
    done = 0
    while chunk := source.read(_ARCHIVE_CHUNK):
        done += len(chunk)
        if done > limit:
            raise _too_large(member, limit)
        sink.write(chunk)


def _too_large(member: str, limit: int) -> FaultError:
    message = f"the archive is unsafe: its member '{member}' is larger than {limit:,} bytes"
    return FaultError(Diagnostic("E409", message, "nothing was extracted; use another address"))


if TYPE_CHECKING:
    import requests

DownloadProgress = Callable[[str, int, int], None]
"""Callback that receives the name of the file, the bytes so far and the total bytes."""

RETRIES = 2

UNKNOWN_LIMIT = 2**28
"""Maximum size in bytes of a file whose size is unknown."""


@dataclass(frozen=True)
class _Address:
    """A path or URL of a file, or of an archive in which `members` leads to the file."""

    location: str
    members: tuple[str, ...] = ()

    @property
    def remote(self) -> bool:
        return "://" in self.location


def data_folder() -> Path:
    return Path(os.environ.get("RATECLI_DATA") or "data")


def missing_source_files(source: Source) -> list[str]:
    """Return the files of a source that are missing in the data folder, as <folder>/<file>."""
    paths = map(source.file_path, source.files)
    return [path for path in paths if not (data_folder() / path).exists()]


def source_checksums(source: Source) -> tuple[tuple[str, str], ...]:
    """Return each file's name and sha256: published, vouched for by the user, or "" if unknown."""
    return tuple((file.name, file.sha256) for file in _files_with_checksums(source))


def _files_with_checksums(source: Source) -> list[RemoteFile]:
    """Return the files with their published or vouched sha256."""
    return [
        file if file.sha256 else replace(file, sha256=_with_vouched_checksum(source, file))
        for file in source.files
    ]


def _with_vouched_checksum(source: Source, file: RemoteFile) -> str:
    return read_vouched_checksums((data_folder() / source.file_path(file)).parent).get(
        file.name, ""
    )


@errors_at("source")
def fetch_files(
    source: Source, *, offline: bool = False, progress: DownloadProgress | None = None
) -> dict[str, Path]:
    """Return the paths of the source's files by name, each present and verified.

    The network is used only for files that are missing. A file without a known sha256 is downloaded
    all the same, so that the E403 can report its sha256.
    """
    files = _files_with_checksums(source)
    paths = {file.name: data_folder() / source.file_path(file) for file in files}
    for file in files:
        path = paths[file.name]
        if not path.exists():
            _fetch_file(source, file, path, offline, progress or _ignore_progress)
        elif file.sha256:
            _verify_present(path, file)
    unknown = [file for file in files if not file.sha256]
    if unknown:
        sums = {file.name: sha256_of(paths[file.name]) for file in unknown}
        raise FaultError([unvouched_file_error(f, paths[f.name], sums[f.name]) for f in unknown])
    return paths


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file; it is cached until the size or modification time changes."""
    status = path.stat()
    return _sha256(str(path.resolve()), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256(path: str, size: int, changed: int) -> str:  # noqa: ARG001  (parts of the cache's key)
    with Path(path).open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _ignore_progress(name: str, done: int, total: int) -> None:
    pass


def _verify_present(path: Path, file: RemoteFile) -> None:
    if sha256_of(path) != file.sha256:
        message = f"'{path}' is not the published file: its sha256 is {sha256_of(path)[:12]}..."
        raise FaultError(Diagnostic("E403", message, "move it away to have it downloaded anew"))


def _fetch_file(
    source: Source, file: RemoteFile, path: Path, offline: bool, progress: DownloadProgress
) -> None:
    try:
        with _download_folder(data_folder()) as work:
            staged = _stage(source, file, work, offline, progress)
            staged.chmod(0o644)
            path.parent.mkdir(exist_ok=True)
            staged.replace(path)
    except OSError as error:
        message = f"'{path}' cannot be written: {error.strerror or error}"
        raise FaultError(
            Diagnostic("E402", message, "set RATECLI_DATA to another folder")
        ) from error


@contextmanager
def _download_folder(root: Path) -> Iterator[Path]:
    """Yield a temporary folder inside the data folder, so that files move out of it atomically."""
    root.mkdir(parents=True, exist_ok=True)
    try:
        with staged_folder(root, ".fetch-") as work:
            yield work
    finally:
        with suppress(OSError):  # fails, as it should, unless the folder is empty
            root.rmdir()


def _stage(
    source: Source, file: RemoteFile, work: Path, offline: bool, progress: DownloadProgress
) -> Path:
    """Return the path of the verified file in `work`, from the first address that has it."""
    reasons = []
    for number, address in enumerate(_addresses(source, file, offline)):
        target = work / f"{number}"
        try:
            _get_file(address, file, target, progress)
        except _FileUnavailableError as error:
            reasons.append(f"{address.location}: {error}")
            continue
        _verify_staged(target, file, address)
        return target
    if offline:
        message = f"'{source.file_path(file)}' is not in {data_folder()}, and this run is offline"
        way = f"run `ratecli fetch {source.name}` with a connection, or set RATECLI_DATA_MIRROR"
        raise FaultError(Diagnostic("E401", message, way))
    message = f"'{source.file_path(file)}' could not be downloaded: " + "; ".join(reasons)
    raise FaultError(Diagnostic("E402", message, "try again later, or set RATECLI_DATA_MIRROR"))


def _addresses(source: Source, file: RemoteFile, offline: bool) -> list[_Address]:
    mirror = os.environ.get("RATECLI_DATA_MIRROR")
    places = [_Address(f"{mirror.rstrip('/')}/{source.file_path(file)}")] if mirror else []
    places.append(_Address(file.url, file.members))
    return [place for place in places if not (offline and place.remote)]


def _verify_staged(staged: Path, file: RemoteFile, address: _Address) -> None:
    found, size = sha256_of(staged), staged.stat().st_size
    if file.sha256 and found != file.sha256:
        cut = f" ({size:,} of {file.size:,} bytes)" if size < file.size else ""
        message = f"'{file.name}' from {address.location} is not the published file{cut}"
        expected = f"its sha256 is {found}, expected {file.sha256}"
        raise FaultError(
            Diagnostic("E403", f"{message}: {expected}", "nothing was kept; try a mirror")
        )


class _FileUnavailableError(Exception):
    """An address does not have the file or does not answer; another one may."""


class _VerifyingWriter:
    """Write a file while checking its size and content and reporting progress.

    `stated` is the size that the server reports, 0 if unknown; without any known size, no progress
    is reported.
    """

    def __init__(
        self,
        opened: IO[bytes],
        file: RemoteFile,
        limit: int,
        progress: DownloadProgress,
        stated: int,
    ) -> None:
        self._opened, self._file, self._limit, self._progress = opened, file, limit, progress
        self._done, self._total = 0, file.size or stated

    def write(self, chunk: bytes) -> int:
        if self._done == 0 and looks_like_html(chunk):
            message = f"'{self._file.name}' looks like an HTML page, not like the data"
            way = "nothing was kept; a login or error page may stand between here and the server"
            raise FaultError(Diagnostic("E403", message, way))
        self._done += len(chunk)
        if self._done > self._limit:
            message = (
                f"'{self._file.name}' is not the published file: it is over {self._limit:,} bytes"
            )
            raise FaultError(Diagnostic("E403", message, "nothing was kept; try a mirror"))
        if self._total:
            self._progress(self._file.name, self._done, max(self._done, self._total))
        return self._opened.write(chunk)


def looks_like_html(head: bytes) -> bool:
    return (
        head.lstrip(b"\xef\xbb\xbf \t\r\n")[:14].lower().startswith((b"<!doctype html", b"<html"))
    )


def _get_file(
    address: _Address, file: RemoteFile, target: Path, progress: DownloadProgress
) -> None:
    size = file.size or UNKNOWN_LIMIT
    limit = ARCHIVE_LIMIT if address.members else size
    fetched = target.with_name(f"{target.name}.zip") if address.members else target
    if address.remote:
        _download(address.location, fetched, file, limit, progress)
    else:
        _copy(Path(address.location), fetched, file, limit, progress)
    if address.members:
        extract_member(fetched, address.members, target, size)


def _copy(
    origin: Path, target: Path, file: RemoteFile, limit: int, progress: DownloadProgress
) -> None:
    if not origin.is_file():
        raise _FileUnavailableError("no such file")
    with origin.open("rb") as opened, target.open("wb") as sink:
        shutil.copyfileobj(
            opened, _VerifyingWriter(sink, file, limit, progress, origin.stat().st_size)
        )


def _download(
    url: str, target: Path, file: RemoteFile, limit: int, progress: DownloadProgress
) -> None:
    import pooch  # noqa: PLC0415  (only a download needs it)
    import requests  # noqa: PLC0415

    def attempt(url: str, output: str, _keeper: pooch.Pooch) -> None:
        with Path(output).open("wb") as opened:
            _Transfer(url, partial(_VerifyingWriter, opened, file, limit, progress)).finish()

    pooch.get_logger().setLevel(logging.WARNING)  # progress is reported by the callback
    keeper = pooch.Pooch(
        path=target.parent,
        base_url="",
        registry={target.name: None},  # verified here, for a precise error message
        urls={target.name: url},
        retry_if_failed=RETRIES,
    )
    try:
        keeper.fetch(target.name, downloader=attempt)
    except requests.RequestException as error:
        raise _FileUnavailableError(_reason(error)) from error


class _Transfer(threading.Thread):
    """One request, in a separate thread that can be abandoned at any time.

    The timeout of a socket restarts with every byte that arrives, and the headers can be slow, too,
    so only another thread can notice that the download is too slow.
    """

    def __init__(self, url: str, sink: Callable[[int], _VerifyingWriter]) -> None:
        super().__init__(daemon=True)
        self._url, self._sink = url, sink
        self._received = 0
        self._answer: requests.Response | None = None
        self._error: Exception | None = None
        self._abandoned = threading.Event()

    def finish(self) -> None:
        """Wait until the file is received; re-raise the thread's exception.

        Raises
        ------
        _FileUnavailableError
            If the server is too slow, or a retry would not help.
        requests.RequestException
            If a retry might help.
        """
        self.start()
        try:
            while self.is_alive():
                before = self._received
                self.join(WINDOW)
                if self.is_alive() and self._received - before < MIN_BYTES_PER_WINDOW:
                    raise _FileUnavailableError(
                        f"too slow: under {MIN_BYTES_PER_WINDOW:,} bytes in {WINDOW:g} seconds"
                    )
        finally:
            self._abandon()
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Receive the file; runs in the thread."""
        import requests  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            self._receive()
        except requests.RequestException as error:
            self._error = error
        except (ValueError, HTTPError) as error:  # invalid headers or redirects
            self._error = _FileUnavailableError(f"the answer makes no sense: {error}")
        except Exception as error:  # noqa: BLE001  raised again by `finish`
            self._error = error

    def _receive(self) -> None:
        import requests  # noqa: PLC0415

        with requests.get(self._url, stream=True, timeout=_TIMEOUT) as answer:
            self._answer = answer
            if self._abandoned.is_set():
                return
            if answer.status_code in _PERMANENT_STATUSES:
                raise _FileUnavailableError(
                    f"the server answered {answer.status_code} {answer.reason}"
                )
            answer.raise_for_status()
            sink = self._sink(_stated_length(answer.headers.get("Content-Length", "")))
            for chunk in answer.iter_content(_CHUNK):
                if self._abandoned.is_set():
                    return
                sink.write(chunk)
                self._received += len(chunk)

    def _abandon(self) -> None:
        """Stop the thread, at once if urllib3 is new enough to break the connection."""
        self._abandoned.set()
        if self._answer is not None and self.is_alive():
            with suppress(AttributeError, OSError, RuntimeError, ValueError):
                self._answer.raw.shutdown()


def _stated_length(header: str) -> int:
    """Return the bytes that a Content-Length header states, 0 if it is invalid."""
    plain = header.isascii() and header.isdecimal() and len(header) < _DIGITS
    return int(header) if plain else 0


WINDOW, MIN_BYTES_PER_WINDOW = 60.0, 2**16
"""Seconds, and the fewest bytes that must arrive in them: a slower download is given up."""

_TIMEOUT = 30
_CHUNK = 2**14
_DIGITS = 19

_PERMANENT_STATUSES = frozenset({400, 401, 403, 404, 405, 406, 410, 451})
"""HTTP status codes for which a retry does not help."""


def _reason(error: Exception) -> str:
    import requests  # noqa: PLC0415

    if isinstance(error, requests.HTTPError):
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error)

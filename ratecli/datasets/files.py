"""Find the files of data sets: the user's own, and those of sources, downloaded and verified.

A path in an experiment file is relative to the file's folder.

A file of a source is looked for in the data folder ($RATECLI_DATA or ./data), in the mirror
($RATECLI_DATA_MIRROR, a folder or an address that has <source>/<file>), and at the public address,
in this order. It is written to the data folder once its sha256 is correct, so that the folder never
has a file other than the published one, whatever happens. A file whose published sha256 is unknown
is written there, too, and refused until the user vouches for it.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ratecli.datasets.source import RemoteFile, Source
from ratecli.errors import Diagnostic, FaultError, errors_at
from ratecli.files import atomic_write

DownloadProgress = Callable[[str, int, int | None], None]
"""Receives the name of a file, its bytes so far, and its size or None."""

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

CHECKSUM_FILE = "SHA256SUMS"
_CHECKSUM_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")

MAX_BYTES = 2**28
"""Maximum size in bytes of a download, and of a file in an archive, if none is stated."""
RETRIES, RETRY_SECONDS, TIMEOUT = 2, 1.0, 30
"""How often a failed request is repeated, the first pause, and the seconds without an answer."""
CHUNK = 2**14


def resolve_user_path(given: str, base: Path) -> Path:
    """Return the absolute path of `given`, relative to the folder `base`.

    Raises E405 if a relative path leaves both `base` and the current folder, or if the path cannot
    be accessed. A file that does not exist is no error.
    """
    path = Path(os.path.normpath(base.absolute() / given))
    roots = [Path(os.path.normpath(root.absolute())) for root in (base, Path.cwd())]
    if not Path(given).is_absolute() and not any(path.is_relative_to(root) for root in roots):
        way = "put the file beside the experiment, or give an absolute path"
        raise missing_file_error(given, "leads out of the experiment's folder", way)
    try:
        path.stat()
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) not in _NOTHING_THERE:  # for example too long a name
            raise unreadable_file_error(given, error) from error
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
        what = "is not a file" if path.exists() else "does not exist"
        raise missing_file_error(given, what, way)


def unreadable_file_error(given: str, error: Exception) -> FaultError:
    """Return the E405 for a file that exists and cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return missing_file_error(given, f"cannot be read: {reason}", "check its name and permissions")


@contextmanager
def read_errors(given: str) -> Iterator[None]:
    """Convert errors of reading a user's file to E405."""
    try:
        yield
    except OSError as error:
        raise unreadable_file_error(given, error) from error


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
            _fetch(source, file, path, offline=offline, progress=progress)
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


def _fetch(
    source: Source,
    file: RemoteFile,
    path: Path,
    *,
    offline: bool,
    progress: DownloadProgress | None,
) -> None:
    """Write a file to a path in the data folder, verified, from the first address that has it."""
    addresses = [(file.url, file.members)]
    if mirror := os.environ.get("RATECLI_DATA_MIRROR"):  # has the bare file
        addresses.insert(0, (f"{mirror.rstrip('/')}/{source.file_path(file)}", ()))
    limit, reasons = max(file.size, MAX_BYTES), list[str]()
    for location, members in addresses:
        if offline and "://" in location:
            continue
        try:
            content = _read(file, location, limit, progress)
        except (OSError, ValueError) as error:
            reasons.append(f"{location}: {error}")
        else:
            return _store(file, location, extract_member(content, members, limit), path)
    if offline:
        message = f"'{source.file_path(file)}' is not in {data_folder()}, and this run is offline"
        way = f"run `ratecli fetch {source.name}` with a connection, or set RATECLI_DATA_MIRROR"
        raise FaultError(Diagnostic("E401", message, way))
    message = f"'{source.file_path(file)}' could not be downloaded: " + "; ".join(reasons)
    raise FaultError(Diagnostic("E402", message, "try again later, or set RATECLI_DATA_MIRROR"))


def _read(file: RemoteFile, location: str, limit: int, progress: DownloadProgress | None) -> bytes:
    """Return what a path or an address holds; raise OSError or ValueError if that fails."""
    content = bytearray()
    for chunk in _download(location) if "://" in location else _copy(Path(location)):
        content += chunk
        if len(content) > limit:
            raise ValueError(f"it is over {limit:,} bytes")
        if progress is not None:
            progress(file.name, len(content), file.size or None)
    return bytes(content)


def _store(file: RemoteFile, location: str, content: bytes, path: Path) -> None:
    """Write the content that an address gave for a file; raise E403 if its sha256 is wrong."""
    found = hashlib.sha256(content).hexdigest()
    if file.sha256 not in {"", found}:
        message = (
            f"'{file.name}' from {location} is not the published file of {file.size:,} bytes: it "
            f"has {len(content):,}, and its sha256 is {found}, expected {file.sha256}"
        )
        hint = "no file was stored; try again, or set RATECLI_DATA_MIRROR"
        raise FaultError(Diagnostic("E403", message, hint))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, content)
    except (OSError, FaultError) as error:
        message = f"'{path}' cannot be written: {error.__cause__ or error}"
        hint = "set RATECLI_DATA to another folder"
        raise FaultError(Diagnostic("E402", message, hint)) from error


def _copy(path: Path) -> Iterator[bytes]:
    with path.open("rb") as opened:
        yield from iter(lambda: opened.read(CHUNK), b"")


def _download(url: str) -> Iterator[bytes]:
    import requests  # noqa: PLC0415  (only a download needs it)
    from urllib3 import Retry  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    retries = Retry(RETRIES, backoff_factor=RETRY_SECONDS, status_forcelist=(500, 502, 503, 504))
    with requests.Session() as session:
        for prefix in ("http://", "https://"):
            session.mount(prefix, requests.adapters.HTTPAdapter(max_retries=retries))
        with session.get(url, stream=True, timeout=TIMEOUT) as answer:
            answer.raise_for_status()
            try:
                yield from iter(lambda: answer.raw.read1(CHUNK, decode_content=True), b"")
            except HTTPError as error:
                raise OSError(str(error)) from error


def extract_member(content: bytes, members: tuple[str, ...], limit: int) -> bytes:
    """Return a file of up to `limit` bytes; `members` leads to it through nested archives."""
    for member in members:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(member) as opened:
                content = opened.read(limit + 1)  # the size stated in an archive may be wrong
        except Exception as error:  # zipfile raises any kind for a broken archive
            message = f"'{member}' cannot be extracted from the archive: {error}"
            hint = "try again later, or use a mirror"
            raise FaultError(Diagnostic("E402", message, hint)) from error
        if len(content) > limit:
            message = f"the archive is unsafe: '{member}' is larger than {limit:,} bytes"
            raise FaultError(Diagnostic("E409", message, "use another address"))
    return content

"""Files that are written completely or not at all, and the names of files in results folders."""

from __future__ import annotations

import errno
import itertools
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ratecli.errors import Diagnostic, FaultError

ABANDONED_SECONDS = 24 * 3600.0
"""A temporary file that is older than this, in seconds, was left by a killed process."""


RESULTS_FOLDER = Path("results")
"""Default folder of results folders."""


def shell_command(*arguments: object, output: Path = RESULTS_FOLDER) -> str:
    """Return a command to copy: quoted for a shell, with `-o` unless it is the default."""
    chosen = [] if output == RESULTS_FOLDER else ["-o", output]
    return shlex.join(map(str, ("ratecli", *arguments, *chosen)))


def temporary_path(folder: Path, kind: str) -> Path:
    """Return a new name in `folder` that starts with `kind`, after removing abandoned ones."""
    remove_stale(folder, kind)
    return folder / f"{kind}{secrets.token_hex(8)}.tmp"


@contextmanager
def staged_folder(parent: Path, kind: str) -> Iterator[Path]:
    """Create a temporary folder in `parent` that is removed at the end."""
    folder = temporary_path(parent, kind)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace_folder(new: Path, place: Path) -> None:
    """Move a folder to a place in the same file system, whose old folder is removed.

    Raises
    ------
    FaultError
        E505 if that is impossible; the old folder then stays.
    """
    with report_write_errors(place), staged_folder(new.parent, "replaced-") as aside:
        old = aside / place.name
        if place.exists():
            place.rename(old)
        try:
            new.rename(place)
        except BaseException:
            with suppress(FileNotFoundError):
                old.rename(place)
            raise


def remove_stale(folder: Path, kind: str) -> None:
    """Remove temporary files of a kind that are so old that their process must have ended."""
    with suppress(OSError):  # errors of the folder are reported when something is written to it
        for path in list(folder.glob(f"{kind}*.tmp")):
            with suppress(OSError):  # for example if another process removes it at the same time
                if time.time() - path.lstat().st_mtime > ABANDONED_SECONDS:
                    _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink()


YAML_SUFFIXES = (".yaml", ".yml")
"""Suffixes of experiment files."""

MODEL_FOLDER = "model"
"""In a results folder: the model that was trained on all rows."""
LEDGER_FILE = "trials.sqlite"
"""In a results folder: the plan of the run and all finished trials (`ledger.store`)."""

RESOLVED_FILE = "resolved.yaml"
"""In a results folder: the experiment with all defaults filled in."""

COMPARISON_FOLDER = "comparison"
REPORT_FILE = "report.html"
"""In a results folder: the report; beside results folders: the page over several experiments."""

FITS_FOLDER = ".fits"
"""Beside results folders: fits that runs share (`solvers.fit_cache`)."""

MODELS_FOLDER = "models"
"""In a results folder: the classifiers of the run."""

ENCODER_FILE = "encoder.json"
"""Next to the classifiers of a trial: a list of them, and how to make features from columns."""

CERTIFICATES_FILE = "certificates.json"
"""Next to the classifiers of a trial: the results of its safety test."""

FILTER_FILE = "filter.json"
"""Next to a filter written by `ratecli filter`: a summary of its effect."""

UNFINISHED_PREFIX = ".unfinished-"
"""Prefix of files that are still being written."""


def unique_file_name(wish: str, taken: Container[str] = ()) -> str:
    """Return a safe file name without suffix that is not in `taken`."""
    clean = re.sub(r"[^A-Za-z0-9._=+-]+", "-", wish).lstrip(".") or "unnamed"
    names = (clean if count == 1 else f"{clean}-{count}" for count in itertools.count(1))
    return next(name for name in names if name not in taken)


def write_failed_error(path: Path, reason: str) -> Diagnostic:
    hint = "check the path, its permissions and the disk space, or choose another folder"
    return Diagnostic("E505", f"cannot write to '{path}': {reason}", hint)


def check_no_links(folder: Path, *names: str) -> None:
    """Check that nothing would be written through a link that leaves the parent of `folder`.

    Raises
    ------
    FaultError
        E505 if `folder`, or an entry of it in `names`, is such a link.
    """
    base = folder.parent.resolve()
    for path in (folder, *(folder / name for name in names)):
        if path.is_symlink() and not path.resolve().is_relative_to(base):
            reason = f"it is a link to '{path.resolve()}', outside of '{folder.parent}'"
            hint = "remove the link, or pass the folder that it points to as --output"
            raise FaultError(Diagnostic("E505", f"cannot write to '{path}': {reason}", hint))


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError about `path` to an E505."""
    try:
        yield
    except OSError as error:
        raise FaultError(write_failed_error(path, error.strerror or str(error))) from error


def atomic_write(
    path: Path, content: str | bytes, *, lasting: bool = True, parents: bool = False
) -> None:
    """Write `path` (text as UTF-8, line ends unchanged) so that readers never see a partial file.

    If `lasting` is false, the file may be lost in a power failure; use this for files that can be
    regenerated. `parents` creates missing folders.

    Raises
    ------
    FaultError
        E505 if the system refuses; the previous file remains.
    """
    if parents:
        with report_write_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_all({path: content}, lasting=lasting)


def atomic_write_all(files: Mapping[Path, str | bytes], *, lasting: bool = True) -> None:
    """Write several files, renaming each to its final name only after all have been written.

    Raises
    ------
    FaultError
        E505 if the system refuses; if writing fails, the previous files remain.
    """
    # Use the same folder, since a rename is atomic only within one file system.
    staged = {
        temporary_path(path.parent, UNFINISHED_PREFIX): (path, content)
        for path, content in files.items()
    }
    try:
        for temporary, (path, content) in staged.items():
            with report_write_errors(path):
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                data = content.encode() if isinstance(content, str) else content
                _write(temporary, data, lasting=lasting)
        for temporary, (path, _) in staged.items():
            with report_write_errors(path):
                temporary.replace(path)
    finally:
        for temporary in staged:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _write(path: Path, data: bytes, *, lasting: bool) -> None:
    with path.open("xb") as file:
        file.write(data)
        if lasting:
            file.flush()
            os.fsync(file.fileno())

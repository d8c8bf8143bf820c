"""Which files an entry with `stream: true` means, and what identifies the table in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ratecli.datasets import load, registry
from ratecli.datasets import tables as own
from ratecli.datasets.paths import (
    find_user_file,
    missing_file_error,
    resolve_user_path,
    unreadable_file_error,
)
from ratecli.datasets.roles import EntryOptions, table_options_of
from ratecli.errors import Diagnostic, FaultError
from ratecli.streaming.reading import TableFiles
from ratecli.streaming.store import sha256_of_all


def table_files_of(options: EntryOptions, base: Path) -> TableFiles:
    """The file that an entry names, or all tables of the folder, in the order of their names.

    Raises
    ------
    FaultError
        E405 where there is none, E404 where the name promises no format, or several.
    """
    given = str(options["path"])
    path = resolve_user_path(given, base)
    if not path.is_dir():
        paths = [find_user_file(given, base)]
    else:
        paths = sorted(
            each for each in path.iterdir() if each.suffix.lower() in own.FORMAT_BY_SUFFIX
        )
        if not paths:
            way = "put files that end in .parquet or .csv there"
            raise missing_file_error(given, "is a folder without a table", way)
    kinds = {options.get("format") or own.table_format(each) for each in paths}
    if len(kinds) > 1:
        message = f"'{given}' holds tables of both formats"
        raise FaultError(Diagnostic("E404", message, "keep those of one format in the folder"))
    separator = options.get("separator") or own.separator_of(paths[0])
    return TableFiles(tuple(paths), kinds.pop(), separator)


def entry_digest(options: EntryOptions, base: Path) -> str:
    """Return the digest that the table of an entry will have, streamed or in memory."""
    if options.get("stream"):
        return streamed_digest(options, table_files_of(options, base))
    return load.table_digest(options, base)


def file_checksums(options: EntryOptions, files: TableFiles) -> list[str]:
    """The sha256 of each file; E403 where it is not the stated one, which is looked at anew."""
    stated = options.get("sha256")
    try:
        sums = sha256_of_all(files.paths, anew=stated is not None)
    except OSError as error:
        raise unreadable_file_error(str(options["path"]), files.paths[0], error) from error
    if stated is None or sums == [str(stated).lower()]:
        return sums
    given = options["path"]
    if len(sums) > 1:
        message = f"'{given}' is a folder, and 'sha256' is of one file"
        raise FaultError(Diagnostic("E403", message, "leave out 'sha256', or name one file"))
    message = f"'{given}' is not the file that was meant: its sha256 is {sums[0]}"
    raise FaultError(Diagnostic("E403", message, f"'sha256' says {str(stated).lower()}"))


def streamed_digest(options: EntryOptions, files: TableFiles) -> str:
    """The digest of the table: of what the files hold, and of what the entry makes of it."""
    return streamed_digest_of_sums(options, files, file_checksums(options, files))


def streamed_digest_of_sums(options: EntryOptions, files: TableFiles, sums: Sequence[str]) -> str:
    content = {"streamed": list(sums), "kind": files.kind, "options": table_options_of(options)}
    return registry.json_sha256(content)

"""Which files an entry with `stream: true` means, and what identifies the table in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ratecli.datasets import load, registry
from ratecli.datasets import tables as own
from ratecli.datasets.paths import no_file, own_file, own_path, unreadable
from ratecli.datasets.roles import Options, deciding
from ratecli.errors import Fault, FaultError
from ratecli.streaming.reading import Files
from ratecli.streaming.store import sha256_of_all


def files_of(options: Options, base: Path) -> Files:
    """The file that an entry names, or all tables of the folder, in the order of their names.

    Raises
    ------
    FaultError
        E405 where there is none, E404 where the name promises no format, or several.
    """
    given = str(options["path"])
    path = own_path(given, base)
    if not path.is_dir():
        paths = [own_file(given, base)]
    else:
        paths = sorted(each for each in path.iterdir() if each.suffix.lower() in own.FORMATS)
        if not paths:
            way = "put files that end in .parquet or .csv there"
            raise no_file(given, "is a folder without a table", way)
    kinds = {options.get("format") or own.format_of(each) for each in paths}
    if len(kinds) > 1:
        message = f"'{given}' holds tables of both formats"
        raise FaultError(Fault("E404", message, "keep those of one format in the folder"))
    separator = options.get("separator") or own.separator_of(paths[0])
    return Files(tuple(paths), kinds.pop(), separator)


def identity(options: Options, base: Path) -> str:
    """Return the digest that the table of an entry will have, streamed or in memory."""
    if options.get("stream"):
        return streamed_digest(options, files_of(options, base))
    return load.identity(options, base)


def sums_of(options: Options, files: Files) -> list[str]:
    """The sha256 of each file; E403 where it is not the stated one, which is looked at anew."""
    stated = options.get("sha256")
    try:
        sums = sha256_of_all(files.paths, anew=stated is not None)
    except OSError as error:
        raise unreadable(str(options["path"]), files.paths[0], error) from error
    if stated is None or sums == [str(stated).lower()]:
        return sums
    given = options["path"]
    if len(sums) > 1:
        message = f"'{given}' is a folder, and 'sha256' is of one file"
        raise FaultError(Fault("E403", message, "leave out 'sha256', or name one file"))
    message = f"'{given}' is not the file that was meant: its sha256 is {sums[0]}"
    raise FaultError(Fault("E403", message, f"'sha256' says {str(stated).lower()}"))


def streamed_digest(options: Options, files: Files) -> str:
    """The digest of the table: of what the files hold, and of what the entry makes of it."""
    return digest_of(options, files, sums_of(options, files))


def digest_of(options: Options, files: Files, sums: Sequence[str]) -> str:
    content = {"streamed": list(sums), "kind": files.kind, "options": deciding(options)}
    return registry.fingerprint(content)

"""Arguments shared by several commands, the files they name, and shell completion.

Completion is fast, and silent on errors.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from typer import Argument, Option

from ratecli.errors import Diagnostic, FaultError
from ratecli.files import LEDGER_FILE, RESOLVED_FILE

Item = TypeVar("Item")
ResultT = TypeVar("ResultT")

EXIT_NO_DATA = 4
"""Exit code if data is not available."""
STDOUT = Path("-")


def collect_errors(
    items: Iterable[Item], act: Callable[[Item], ResultT], missing: list[Diagnostic] | None = None
) -> list[ResultT]:
    """Return the results of `act` for all items; raise FaultError with all their errors.

    If there is a list `missing`, it gets the errors of items whose data is not available (E4xx),
    and they are only raised if no item has a result.
    """
    results: list[ResultT] = []
    faults: list[Diagnostic] = []
    for item in items:
        try:
            results.append(act(item))
        except FaultError as error:
            spared = missing if error.exit_code == EXIT_NO_DATA else None
            (faults if spared is None else spared).extend(error.faults)
    if faults or (missing and not results):
        raise FaultError([*faults, *(missing or ())])
    return results


def check_distinct_outputs(outputs: Iterable[tuple[Path, Path]]) -> None:
    """Raise BadParameter if two (file, output) pairs have the same output."""
    first: dict[Path, Path] = {}
    for file, output in outputs:
        if (other := first.setdefault(output, file)) is not file:
            message = f"'{other}' and '{file}' have the same name and would share {output}"
            raise typer.BadParameter(message, param_hint="FILE")


def experiment_files(given: Sequence[Path]) -> list[Path]:
    """Expand folders (recursively) and patterns to files, sorted within each and without
    duplicates.

    Raises BadParameter if a folder or pattern contains no file.
    """
    found: dict[Path, Path] = {}
    for path in given:
        for file in _files_in(path):
            found.setdefault(file.resolve(), file)
    return list(found.values())


def _files_in(path: Path) -> list[Path]:
    pattern = str(path)
    with suppress(OSError):  # such as a name that is too long: reported when it is read
        if path.is_dir():
            pattern = f"{glob.escape(pattern)}/**/*.y*ml"
        elif path.exists():
            return [path]
    if not glob.has_magic(pattern):
        return [path]
    names = glob.glob(pattern, recursive=True)  # noqa: PTH207  leaves out hidden files
    files = sorted(each for each in map(Path, names) if each.is_file() and not _is_resolved(each))
    if not files:
        where = "in" if path.is_dir() else "that matches"
        raise typer.BadParameter(f"there is no experiment {where} '{path}'", param_hint="FILE")
    return files


def _is_resolved(file: Path) -> bool:
    """Return whether a file is that of a run with all defaults, beside the file as written."""
    return file.name == RESOLVED_FILE and (file.parent / LEDGER_FILE).is_file()


Completions = list[tuple[str, str]]
"""Pairs of a completion and a line of help that some shells show.

If there are none, the shell completes the names of files.
"""


def _complete(incomplete: str, names: Callable[[], Mapping[str, str]]) -> Completions:
    """Return the completions among `names`, a function that returns them with their help.

    Return nothing if it fails: messages would disrupt typing.
    """
    try:
        found = names()
    except Exception:  # noqa: BLE001  files and plugins may raise anything
        return []
    return [
        (name, means if means.isprintable() else "")
        for name, means in found.items()
        if name.startswith(incomplete) and name.isprintable()
    ]


def complete_names(incomplete: str) -> Completions:
    """Offer all names that `show` accepts."""

    def names() -> Mapping[str, str]:
        from ratecli.experiment.registry import KINDS  # noqa: PLC0415
        from ratecli.rates.table import SYNONYMS  # noqa: PLC0415

        rows = [row for kind in KINDS.values() if kind.what for row in kind.rows()]
        found = {row["name"]: row.get("means") or row.get("summary") or "" for row in rows}
        return found | {name: f"the same as {meant}" for name, meant in SYNONYMS.items()}

    return _complete(incomplete, names)


def complete_datasets(incomplete: str) -> Completions:
    from ratecli.datasets.registry import list_sources  # noqa: PLC0415

    return _complete(incomplete, lambda: {row["name"]: row["summary"] for row in list_sources()})


def complete_templates(incomplete: str) -> Completions:
    from ratecli.experiment.starters.options import template_summaries  # noqa: PLC0415

    return _complete(incomplete, lambda: template_summaries() | {"own-data": "Your own table"})


Text: TypeAlias = str | None


def column_option(text: str) -> Any:
    """Return an option for a column of the table on the command line."""
    return Option(metavar="COLUMN", help=text)


FileArgument: TypeAlias = Annotated[Path, Argument(metavar="FILE", help="An experiment.")]
FilesArgument: TypeAlias = Annotated[
    list[Path],
    Argument(
        metavar="FILE...",
        help="Experiments (YAML), folders of them, or patterns like 'exp/*.yaml'.",
        callback=experiment_files,
    ),
]
SettingsOption: TypeAlias = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a value of the file, as in --set seeds=1; may be repeated.",
    ),
]
OutputOption: TypeAlias = Annotated[
    Path,
    Option(
        "--output",
        "-o",
        metavar="FOLDER",
        file_okay=False,
        help="Folder for results; each experiment has a subfolder.",
    ),
]
SeparatorOption: TypeAlias = Annotated[
    str | None,
    Option(metavar="CHARACTER", help="CSV separator. Default: a comma, or a tab for .tsv."),
]
DecimalOption: TypeAlias = Annotated[
    str | None, Option(metavar="CHARACTER", help="Decimal sign of numbers in text: . or ,")
]
ThousandsOption: TypeAlias = Annotated[
    str | None,
    Option(metavar="CHARACTER", help="Sign between thousands: , . ' or a space; '' for none."),
]
EncodingOption: TypeAlias = Annotated[
    str | None, Option(metavar="NAME", help="Encoding of CSV, such as utf-16 or cp1252.")
]
OfflineOption: TypeAlias = Annotated[bool, Option("--offline", help="Do not use the network.")]
JsonOption: TypeAlias = Annotated[bool, Option("--json", help="Print JSON.")]

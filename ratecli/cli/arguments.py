"""Arguments shared by several commands, the files they name, and shell completion.

Completion is fast, and silent on errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeAlias, TypeVar

import typer
from typer import Argument, Option

from ratecli.errors import Diagnostic, FaultError

if TYPE_CHECKING:
    from ratecli.experiment.prepare import PreparedExperiment

Item = TypeVar("Item")
ResultT = TypeVar("ResultT")
P = ParamSpec("P")

EXIT_NO_DATA = 4
"""Exit code if data is not available."""
RESULTS_FOLDER = Path("results")
STDOUT = Path("-")
YAML_SUFFIXES = (".yaml", ".yml")
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".parquet", ".pq")
MAX_COMPLETIONS = 500
MAX_VALUE_LENGTH = 40


def collect_errors(items: Iterable[Item], act: Callable[[Item], ResultT]) -> list[ResultT]:
    """Return the results of `act` for all items; raise FaultError with all their errors."""
    results: list[ResultT] = []
    faults: list[Diagnostic] = []
    for item in items:
        try:
            results.append(act(item))
        except FaultError as error:
            faults += error.faults
    if faults:
        raise FaultError(faults)
    return results


def prepare_files(
    files: Sequence[Path], make: Callable[[Path], PreparedExperiment]
) -> tuple[list[PreparedExperiment], list[Diagnostic]]:
    """Return the results of `make`, and the errors of files whose data is not available (E4xx).

    Raises
    ------
    FaultError
        If any file has another error, or no file has its data.
    """
    ready: list[PreparedExperiment] = []
    missing: list[Diagnostic] = []
    errors: list[Diagnostic] = []
    for file in files:
        try:
            ready.append(make(file))
        except FaultError as error:
            faults = with_file_name(file, error.faults) if len(files) > 1 else error.faults
            (missing if error.exit_code == EXIT_NO_DATA else errors).extend(faults)
    if errors or not ready:
        raise FaultError([*errors, *missing])
    return ready, missing


def with_file_name(file: Path, faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Add the file's name to the messages of diagnostics without a location."""
    return [
        replace(fault, message=f"{file}: {fault.message}") if fault.place is None else fault
        for fault in faults
    ]


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
    try:
        is_pattern = not path.exists() and any(sign in str(path) for sign in "*?[")
    except (OSError, ValueError):  # such as a name that is too long: reported when it is read
        return [path]
    if path.is_dir():
        found = [each for each in path.rglob("*") if each.suffix in YAML_SUFFIXES]
        message = f"there is no .yaml file in '{path}'"
    elif is_pattern:
        anchor = Path(path.anchor)
        found = list(anchor.glob(str(path.relative_to(anchor))))
        message = f"no file matches '{path}'"
    else:
        return [path]
    files = sorted(each for each in found if each.is_file() and not _is_hidden(each, path))
    if not files:
        raise typer.BadParameter(message, param_hint="FILE")
    return files


def _is_hidden(found: Path, given: Path) -> bool:
    """Return whether a part of the path that the user did not write begins with a dot."""
    return any(part.startswith(".") and part not in given.parts for part in found.parts)


Completions = list[tuple[str, str]]
"""Pairs of a completion and a line of help that some shells show."""


def _ignore_errors(offer: Callable[P, Iterable[tuple[str, str]]]) -> Callable[P, Completions]:
    """Decorate a completion function to return nothing on errors: messages would disrupt typing."""

    @wraps(offer)
    def quiet(*args: P.args, **kwargs: P.kwargs) -> Completions:
        try:
            return list(offer(*args, **kwargs))[:MAX_COMPLETIONS]
        except Exception:  # noqa: BLE001  files and plugins may raise anything
            return []

    return quiet


@_ignore_errors
def complete_names(incomplete: str) -> Iterator[tuple[str, str]]:
    """Offer all names that `show` accepts."""
    from ratecli.experiment.catalogue import LISTINGS  # noqa: PLC0415
    from ratecli.rates.table import SYNONYMS  # noqa: PLC0415

    rows = [row for kind in LISTINGS if kind != "experiments" for row in LISTINGS[kind]()]
    found = {row["name"]: row.get("means") or row.get("summary") or "" for row in rows}
    found |= {name: f"the same as {meant}" for name, meant in SYNONYMS.items()}
    yield from _with_prefix(found, incomplete)


@_ignore_errors
def complete_datasets(incomplete: str) -> Iterator[tuple[str, str]]:
    """Offer data sets, and experiments whose data to fetch."""
    from ratecli.datasets.registry import list_sources  # noqa: PLC0415

    yield from _with_prefix({row["name"]: row["summary"] for row in list_sources()}, incomplete)
    yield from _paths(incomplete, YAML_SUFFIXES)


@_ignore_errors
def complete_templates(incomplete: str) -> Iterator[tuple[str, str]]:
    from ratecli.experiment.catalogue import template_summaries  # noqa: PLC0415

    yield from _with_prefix({**template_summaries(), "own-data": "Your own table"}, incomplete)


@_ignore_errors
def complete_experiments(incomplete: str) -> Iterator[tuple[str, str]]:
    return _paths(incomplete, YAML_SUFFIXES)


@_ignore_errors
def complete_tables(incomplete: str) -> Iterator[tuple[str, str]]:
    return _paths(incomplete, TABLE_SUFFIXES)


@_ignore_errors
def complete_models(incomplete: str) -> Iterator[tuple[str, str]]:
    """Offer trials with stored models, as `results/NAME/models/TRIAL`, and files."""
    found = sorted(Path("results").glob("*/models/*/"))
    yield from _with_prefix({path.as_posix(): "" for path in found if path.is_dir()}, incomplete)
    yield from _paths(incomplete, (".npz",))


@_ignore_errors
def complete_columns(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Offer the columns of the table given as `--data` or as the argument CSV."""
    import csv  # noqa: PLC0415

    table = _given_file(ctx, ("data", "table"), TABLE_SUFFIXES)
    separator = ctx.params.get("separator") or ("\t" if table.suffix == ".tsv" else ",")
    with table.open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader([file.readline(2**16)], delimiter=separator))
    yield from _with_prefix({name.strip(): "" for name in names}, incomplete)


@_ignore_errors
def complete_settings(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    """Offer the keys of the first given file, as written in `--set`."""
    from ratecli.config.document import Document  # noqa: PLC0415

    data = Document.read(_given_file(ctx, ("file", "files"), YAML_SUFFIXES)).data
    keys = {
        f"{key}=": f"now {' '.join(str(value).split())[:MAX_VALUE_LENGTH]}"
        for key, value in _parts(data, ())
    }
    yield from _with_prefix(keys, incomplete)


def _given_file(ctx: typer.Context, names: tuple[str, ...], endings: tuple[str, ...]) -> Path:
    """Return the first file given as one of these parameters.

    Arguments of an incomplete command line may not have been parsed yet.
    """
    values = [ctx.params[name] for name in names if ctx.params.get(name)]
    parsed = [each for value in values for each in (value if isinstance(value, list) else [value])]
    unparsed = [text for text in ctx.args if text.lower().endswith(endings)]
    return Path([*parsed, *unparsed][0])


def _parts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield each value with its dotted path, mappings before their entries.

    Keys that a dotted path cannot contain are left out.
    """
    if path:
        yield ".".join(path), value
    steps: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        steps = value.items()
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        steps = enumerate(value)
    for step, part in steps:
        if not set(".= ") & set(str(step)):
            yield from _parts(part, (*path, str(step)))


def _with_prefix(known: Mapping[str, str], incomplete: str) -> Iterator[tuple[str, str]]:
    for name, means in known.items():
        if name.startswith(incomplete) and name.isprintable():
            yield name, means if means.isprintable() else ""


def _paths(incomplete: str, endings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Offer folders and files with these endings; hidden ones only if the user typed a dot."""
    head, slash, tail = incomplete.rpartition("/")
    names: dict[str, str] = {}
    for path in sorted(Path(f"{head}/" if slash else ".").iterdir()):
        is_hidden = path.name.startswith(".") and not tail
        if not is_hidden and (path.is_dir() or path.suffix.lower() in endings):
            names[f"{head}{slash}{path.name}{'/' * path.is_dir()}"] = ""
    yield from _with_prefix(names, incomplete)


FileArgument: TypeAlias = Annotated[
    Path, Argument(metavar="FILE", help="An experiment.", autocompletion=complete_experiments)
]
FilesArgument: TypeAlias = Annotated[
    list[Path],
    Argument(
        metavar="FILE...",
        help="Experiments (YAML), folders of them, or patterns like 'exp/*.yaml'.",
        callback=experiment_files,
        autocompletion=complete_experiments,
    ),
]
SettingsOption: TypeAlias = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a value of the file, as in --set seeds=1; may be repeated.",
        autocompletion=complete_settings,
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
OfflineOption: TypeAlias = Annotated[bool, Option("--offline", help="Do not use the network.")]
JsonOption: TypeAlias = Annotated[bool, Option("--json", help="Print JSON.")]

"""Arguments shared by several commands, and the handling of several files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer

from ratecli.cli.completion import YAML_SUFFIXES, complete_experiments, complete_settings
from ratecli.errors import Diagnostic, FaultError

Item = TypeVar("Item")
ResultT = TypeVar("ResultT")


def collect_errors(items: Iterable[Item], act: Callable[[Item], ResultT]) -> list[ResultT]:
    """Return the results of `act` for all items; raise FaultError with all their errors."""
    found: list[ResultT] = []
    faults: list[Diagnostic] = []
    for item in items:
        try:
            found.append(act(item))
        except FaultError as error:
            faults += error.faults
    if faults:
        raise FaultError(faults)
    return found


if TYPE_CHECKING:
    from ratecli.experiment.prepare import PreparedExperiment
    from ratecli.runner.run import RunRequest

EXIT_NO_DATA = 4
"""Exit code if data is not available."""


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
    lacking: list[Diagnostic] = []
    wrong: list[Diagnostic] = []
    for file in files:
        try:
            ready.append(make(file))
        except FaultError as error:
            found = with_file_name(file, error.faults) if len(files) > 1 else error.faults
            (lacking if error.exit_code == EXIT_NO_DATA else wrong).extend(found)
    if wrong or not ready:
        raise FaultError([*wrong, *lacking])
    return ready, lacking


def with_file_name(file: Path, faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Add the file's name to the messages of diagnostics without a location."""
    return [
        replace(fault, message=f"{file}: {fault.message}") if fault.place is None else fault
        for fault in faults
    ]


def check_models_not_overwritten(asked: Sequence[RunRequest]) -> None:
    """Raise E310 if a file compares with a model that this command would overwrite."""
    from ratecli.sampling.deployed import check_model_preserved  # noqa: PLC0415

    results = {one.folder: one.prepared.path for one in asked}
    made = [one.prepared for one in asked]
    collect_errors(
        made,
        lambda one: check_model_preserved(one.experiment, one.document, one.data.folder, results),
    )


def experiment_files(given: Sequence[Path]) -> list[Path]:
    """Expand folders (recursively) and patterns to files, sorted within each and without
    duplicates.

    Raises BadParameter if a folder or pattern contains no file.
    """
    found = {path.resolve(): path for each in reversed(given) for path in reversed(_files_in(each))}
    return list(reversed(found.values()))


def check_distinct_outputs(places: Iterable[tuple[Path, Path]]) -> None:
    """Raise BadParameter if two (file, output) pairs have the same output."""
    seen: dict[Path, Path] = {}
    for file, place in places:
        other = seen.setdefault(place, file)
        if other is not file:
            message = f"'{other}' and '{file}' have the same name and would share {place}"
            raise typer.BadParameter(message, param_hint="FILE")


def _files_in(path: Path) -> list[Path]:
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError):  # such as a name that is too long: reported when it is read
        return [path]
    if path.is_dir():
        files = [each for each in sorted(path.rglob("*")) if each.suffix in YAML_SUFFIXES]
        said = f"there is no .yaml file in '{path}'"
    elif not path.exists() and any(sign in str(path) for sign in "*?["):
        files = sorted(_glob_files(path))
        said = f"no file fits '{path}'"
    else:
        return [path]
    files = [each for each in files if each.is_file() and not _hidden(each, path)]
    if not files:
        raise typer.BadParameter(said, param_hint="FILE")
    return files


def _glob_files(pattern: Path) -> Iterator[Path]:
    anchor = Path(pattern.anchor)
    return anchor.glob(str(pattern.relative_to(anchor)))


def _hidden(found: Path, given: Path) -> bool:
    """Return whether a part of the path that the user did not write begins with a dot."""
    return any(part.startswith(".") and part not in given.parts for part in found.parts)


FileArgument: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="An experiment (YAML).", autocompletion=complete_experiments
    ),
]
FilesArgument: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Experiments (YAML), folders of them, or patterns like 'exp/*.yaml'.",
        callback=experiment_files,
        autocompletion=complete_experiments,
    ),
]
SettingsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a value of the file, as in --set seeds=1; may be repeated.",
        autocompletion=complete_settings,
    ),
]
OutputOption: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        file_okay=False,
        help="Results go to a folder of the experiment's name in this one.",
    ),
]
SeparatorOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="Separates the columns of a CSV. Default: a comma; a tab in a .tsv.",
    ),
]
OfflineOption: TypeAlias = Annotated[
    bool, typer.Option("--offline", help="Use no network; data must be there or on a local mirror.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RESULTS_FOLDER = Path("results")

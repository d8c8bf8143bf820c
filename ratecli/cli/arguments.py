"""Arguments that several commands take."""

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
    """What `act` gives for every one; FaultError with the faults of all of them."""
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
"""The exit code where data cannot be had."""


def prepare_files(
    files: Sequence[Path], make: Callable[[Path], PreparedExperiment]
) -> tuple[list[PreparedExperiment], list[Diagnostic]]:
    """What `make` gives of the files, and the faults of those whose data cannot be had (E4xx).

    A mistake in any file stops all; data only the experiment that needs it, if there are others. Raises
    FaultError otherwise.
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
    """Faults of one file among several: those without a place say which."""
    return [
        replace(fault, message=f"{file}: {fault.message}") if fault.place is None else fault
        for fault in faults
    ]


def check_models_not_overwritten(asked: Sequence[RunRequest]) -> None:
    """E310 for files that compare with a model which this very command writes."""
    from ratecli.sampling.deployed import check_model_preserved  # noqa: PLC0415

    results = {one.folder: one.prepared.path for one in asked}
    made = [one.prepared for one in asked]
    collect_errors(
        made,
        lambda one: check_model_preserved(one.experiment, one.document, one.data.folder, results),
    )


def experiment_files(given: Sequence[Path]) -> list[Path]:
    """The files that are meant: a folder's are all in it and below, a pattern's those that fit.

    Sorted within each; a file that is meant twice counts once. Raises BadParameter where a folder or a
    pattern means none.
    """
    found = {path.resolve(): path for each in reversed(given) for path in reversed(_files_in(each))}
    return list(reversed(found.values()))


def check_distinct_outputs(places: Iterable[tuple[Path, Path]]) -> None:
    """BadParameter where two of some files would write to one place; each comes with its own."""
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
    except (OSError, ValueError):  # such as a name that is too long: told where it is read
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
    """Whether a part of the path that was not written begins with a dot."""
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

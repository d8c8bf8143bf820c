"""Arguments shared by several commands, and the handling of several files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer
from typer import Argument, Option

from ratecli.cli.completion import YAML_SUFFIXES, complete_experiments, complete_settings
from ratecli.errors import Diagnostic, FaultError

if TYPE_CHECKING:
    from ratecli.experiment.prepare import PreparedExperiment
    from ratecli.runner.run import RunRequest

Item = TypeVar("Item")
ResultT = TypeVar("ResultT")

EXIT_NO_DATA = 4
"""Exit code if data is not available."""
RESULTS_FOLDER = Path("results")
STDOUT = Path("-")


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
    missing: list[Diagnostic] = []

    def prepared(file: Path) -> list[PreparedExperiment]:
        try:
            return [make(file)]
        except FaultError as error:
            faults = with_file_name(file, error.faults) if len(files) > 1 else error.faults
            if error.exit_code != EXIT_NO_DATA:
                raise FaultError(faults) from None
            missing.extend(faults)
            return []

    try:
        ready = [each for found in collect_errors(files, prepared) for each in found]
    except FaultError as error:
        raise FaultError([*error.faults, *missing]) from None
    if not ready:
        raise FaultError(missing)
    return ready, missing


def with_file_name(file: Path, faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Add the file's name to the messages of diagnostics without a location."""
    return [
        replace(fault, message=f"{file}: {fault.message}") if fault.place is None else fault
        for fault in faults
    ]


def run_requests(prepared: Iterable[PreparedExperiment], output: Path) -> list[RunRequest]:
    """Return the requests to run experiments, with a results folder for each.

    Raises BadParameter if two share a folder, and E310 if one compares with a model that another
    would overwrite.
    """
    from ratecli.runner.run import RunRequest  # noqa: PLC0415
    from ratecli.sampling.deployed import check_model_preserved  # noqa: PLC0415

    requests = [RunRequest(each, output / each.experiment.name) for each in prepared]
    check_distinct_outputs((each.prepared.path, each.folder) for each in requests)
    results = {each.folder: each.prepared.path for each in requests}
    collect_errors(
        (each.prepared for each in requests),
        lambda one: check_model_preserved(one.experiment, one.document, one.data.folder, results),
    )
    return requests


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

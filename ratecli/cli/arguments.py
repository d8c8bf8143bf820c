"""Arguments that several commands take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ratecli.cli.completion import YAML_SUFFIXES, complete_experiments, complete_settings


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

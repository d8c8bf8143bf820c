"""The command `report`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import typer

from ratecli.cli.arguments import RESULTS_FOLDER, FilesArgument, OutputOption, collect_errors

JOINED_REPORT = "report.html"


def add_to(app: typer.Typer) -> None:
    app.command()(report)


def report(files: FilesArgument, output: OutputOption = RESULTS_FOLDER) -> None:
    """Write tables, plots and report again from what is stored; `run` also takes up changes.

    Several experiments get a page over all of them too, report.html in the results folder. While a
    run goes on, they are of what is stored so far.
    """
    folders = collect_errors(files, lambda file: _folder(file, output))
    stored = _stored_folders(files, folders)
    from ratecli.report.joined import write_joined  # noqa: PLC0415
    from ratecli.report.write import write_report  # noqa: PLC0415

    def joined() -> list[Path]:
        return (
            [write_joined(folders, output / JOINED_REPORT)]
            if len(dict.fromkeys(folders)) > 1
            else []
        )

    def tell(write: Callable[[], list[Path]]) -> None:
        typer.echo("".join(f"{path}\n" for path in write()), nl=False)

    # an unreadable ledger must not prevent the other reports or the page over all experiments
    acts: list[Callable[[], list[Path]]] = [partial(write_report, folder) for folder in stored]
    collect_errors([*acts, joined], tell)


def _folder(file: Path, output: Path) -> Path:
    """Return the results folder of an experiment."""
    from ratecli.config.experiment import load_experiment  # noqa: PLC0415

    return output / load_experiment(file)[0].name


def _stored_folders(files: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    """Return the distinct folders that contain results, and print which do not.

    Raises BadParameter if none does.
    """
    from ratecli.runner.run import LEDGER_FILE  # noqa: PLC0415

    found = dict.fromkeys(folder for folder in folders if (folder / LEDGER_FILE).is_file())
    missing = [
        f"nothing is stored in '{folder}' yet: `ratecli run {file}` first"
        for file, folder in zip(files, folders, strict=True)
        if folder not in found
    ]
    if not found:
        raise typer.BadParameter("; ".join(missing))
    for text in missing:
        typer.echo(f"not run: {text}", err=True)
    return list(found)

"""`report`."""

from __future__ import annotations

from pathlib import Path

import typer

from ratecli.cli.arguments import RESULTS, Files, Output
from ratecli.cli.each import each


def add_to(app: typer.Typer) -> None:
    app.command()(report)


def report(files: Files, output: Output = RESULTS) -> None:
    """Write tables, plots and report again from what is stored; `run` also takes up changes."""
    for folder in each(files, lambda file: _folder(file, output)):
        from ratecli.report.write import write_report  # noqa: PLC0415

        typer.echo("\n".join(str(path) for path in write_report(folder)))


def _folder(file: Path, output: Path) -> Path:
    """Where the experiment's results are."""
    from ratecli.runner.run import LEDGER  # noqa: PLC0415
    from ratecli.spec.experiment import load_experiment  # noqa: PLC0415

    folder = output / load_experiment(file)[0].name
    if not (folder / LEDGER).is_file():
        raise typer.BadParameter(f"nothing is stored in '{folder}' yet: `ratecli run {file}` first")
    return folder

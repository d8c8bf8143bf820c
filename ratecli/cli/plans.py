"""`plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ratecli.cli.arguments import RESULTS, Files, Output, Settings, refuse_shared
from ratecli.cli.console import counted, show, table
from ratecli.cli.requests import DATA, prepared, refuse_overwritten

if TYPE_CHECKING:
    from ratecli.experiment.forecast import Outlook
    from ratecli.experiment.prepare import Prepared
    from ratecli.runner.run import Asked

UNKNOWN = "unknown"
HEADS = ("trials", "stored", "to run", "time")
TIME = "time: of one process, from the mean of stored trials"


def add_to(app: typer.Typer) -> None:
    app.command()(plan)


def plan(files: Files, settings: Settings = None, output: Output = RESULTS) -> None:
    """Show what `run` would do. Runs nothing, writes no results, fetches nothing.

    A trial that several experiments have in common counts once in all.
    """
    from ratecli.cli.fetching import writing  # noqa: PLC0415
    from ratecli.experiment.prepare import absent_files, examine  # noqa: PLC0415
    from ratecli.runner.run import Asked  # noqa: PLC0415

    with writing() as written:
        ready, lacking = prepared(
            files, lambda file: examine(file, settings or (), written=written)
        )
    show(lacking)
    asked = [Asked(each, output / each.experiment.name) for each in ready]
    refuse_shared((one.prepared.path, one.folder) for one in asked)
    refuse_overwritten(asked)
    show(warning for each in ready for warning in each.warnings)
    absent = {one.folder: missing for one in asked if (missing := absent_files(one.prepared))}
    here = [one for one in asked if one.folder not in absent]
    there = [one for one in asked if one.folder in absent]
    if len(files) > 1:
        _tell_several(here, there)
    elif here:
        _tell_one(here[0])
    for one in there:
        if len(files) == 1:
            typer.echo(f"{one.folder.name}: {counted(_trials(one.prepared), 'trial')}")
        what = ", ".join(absent[one.folder])
        typer.echo(f"to fetch first: {what} (`ratecli fetch {one.prepared.path}`)")
    if there:
        typer.echo("which trials are stored shows once the data is there")
    raise typer.Exit(DATA if lacking else 0)


def _tell_one(asked: Asked) -> None:
    from ratecli.experiment.forecast import forecast  # noqa: PLC0415
    from ratecli.files import LEDGER  # noqa: PLC0415

    outlooks = forecast(asked.prepared, asked.folder / LEDGER)
    totals = [
        sum(count)
        for count in zip(*((o.trials, o.stored, o.to_run) for o in outlooks), strict=True)
    ]
    times = [outlook.seconds for outlook in outlooks]
    total = None if None in times else sum(time for time in times if time)
    rows = [*map(_row, outlooks), ["all", *map(str, totals), _time(total)]]
    typer.echo(f"{asked.folder.name}: results in {asked.folder}\n")
    typer.echo(table(["algorithm", *HEADS], rows, HEADS))
    typer.echo(f"\n{TIME}")


def _tell_several(here: Sequence[Asked], there: Sequence[Asked]) -> None:
    """A row an experiment, and one for all; those `there` wait for their data."""
    from ratecli.experiment.forecast import forecast_several  # noqa: PLC0415
    from ratecli.files import LEDGER  # noqa: PLC0415

    *several, every = forecast_several([(one.prepared, one.folder / LEDGER) for one in here])
    waiting = [(one.folder.name, _trials(one.prepared)) for one in there]
    rows = [*map(_row, several), *([name, str(count), *[UNKNOWN] * 3] for name, count in waiting)]
    twice = sum(each.trials for each in several) - every.trials
    count = every.trials + sum(count for _, count in waiting)
    rest = [UNKNOWN] * 3 if waiting else _row(every)[2:]
    typer.echo(table(["experiment", *HEADS], [*rows, ["all", str(count), *rest]], HEADS))
    typer.echo()
    if twice:
        typer.echo(
            f"counted once in all: {counted(twice, 'trial')} that stand in an earlier row, too"
        )
    typer.echo(TIME)


def _trials(prepared: Prepared) -> int:
    """How many there are, as far as the file alone tells."""
    return len(prepared.cases) * len(prepared.experiment.seeds)


def _row(outlook: Outlook) -> list[str]:
    counts = (outlook.trials, outlook.stored, outlook.to_run)
    return [outlook.label, *map(str, counts), _time(outlook.seconds)]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

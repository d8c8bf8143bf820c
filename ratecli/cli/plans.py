"""The command `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ratecli.cli.arguments import (
    EXIT_NO_DATA,
    RESULTS_FOLDER,
    FilesArgument,
    OutputOption,
    SettingsOption,
    check_distinct_outputs,
    check_models_not_overwritten,
    prepare_files,
)
from ratecli.cli.console import format_table, pluralize, print_diagnostics

if TYPE_CHECKING:
    from ratecli.experiment.plan import RunForecast
    from ratecli.experiment.prepare import PreparedExperiment
    from ratecli.runner.run import RunRequest

UNKNOWN = "unknown"
HEADS = ("trials", "stored", "to run", "time")
TIME_NOTE = "time: of one process, from the mean of stored trials"


def add_to(app: typer.Typer) -> None:
    app.command()(plan)


def plan(
    files: FilesArgument, settings: SettingsOption = None, output: OutputOption = RESULTS_FOLDER
) -> None:
    """Show what `run` would do. Runs nothing, writes no results, fetches nothing.

    A trial that several experiments have in common counts once in all.
    """
    from ratecli.cli.console import record_progress  # noqa: PLC0415
    from ratecli.experiment.prepare import check_available, list_missing_files  # noqa: PLC0415
    from ratecli.runner.run import RunRequest  # noqa: PLC0415

    with record_progress() as written:
        ready, lacking = prepare_files(
            files, lambda file: check_available(file, settings or (), written=written)
        )
    print_diagnostics(lacking)
    asked = [RunRequest(each, output / each.experiment.name) for each in ready]
    check_distinct_outputs((one.prepared.path, one.folder) for one in asked)
    check_models_not_overwritten(asked)
    print_diagnostics(warning for each in ready for warning in each.warnings)
    absent = {one.folder: missing for one in asked if (missing := list_missing_files(one.prepared))}
    here = [one for one in asked if one.folder not in absent]
    there = [one for one in asked if one.folder in absent]
    if len(files) > 1:
        _print_plans(here, there)
    elif here:
        _print_plan(here[0])
    for one in there:
        if len(files) == 1:
            typer.echo(f"{one.folder.name}: {pluralize(_trials(one.prepared), 'trial')}")
        what = ", ".join(absent[one.folder])
        typer.echo(f"to fetch first: {what} (`ratecli fetch {one.prepared.path}`)")
    if there:
        typer.echo("which trials are stored shows once the data is there")
    raise typer.Exit(EXIT_NO_DATA if lacking else 0)


def _print_plan(asked: RunRequest) -> None:
    from ratecli.experiment.plan import forecast_run  # noqa: PLC0415
    from ratecli.files import LEDGER_FILE  # noqa: PLC0415

    outlooks = forecast_run(asked.prepared.plan, asked.folder / LEDGER_FILE)
    totals = [
        sum(count)
        for count in zip(*((o.trials, o.stored, o.to_run) for o in outlooks), strict=True)
    ]
    times = [outlook.seconds for outlook in outlooks]
    total = None if None in times else sum(time for time in times if time)
    rows = [*map(_row, outlooks), ["all", *map(str, totals), _time(total)]]
    typer.echo(f"{asked.folder.name}: results in {asked.folder}\n")
    typer.echo(format_table(["algorithm", *HEADS], rows, HEADS))
    typer.echo(f"\n{TIME_NOTE}")


def _print_plans(here: Sequence[RunRequest], there: Sequence[RunRequest]) -> None:
    """Print a row per experiment and a total; the data of those in `there` is still missing."""
    from ratecli.experiment.plan import forecast_runs  # noqa: PLC0415
    from ratecli.files import LEDGER_FILE  # noqa: PLC0415

    *several, every = forecast_runs(
        [
            (one.prepared.experiment.name, one.prepared.plan, one.folder / LEDGER_FILE)
            for one in here
        ]
    )
    waiting = [(one.folder.name, _trials(one.prepared)) for one in there]
    rows = [*map(_row, several), *([name, str(count), *[UNKNOWN] * 3] for name, count in waiting)]
    twice = sum(each.trials for each in several) - every.trials
    count = every.trials + sum(count for _, count in waiting)
    rest = [UNKNOWN] * 3 if waiting else _row(every)[2:]
    typer.echo(format_table(["experiment", *HEADS], [*rows, ["all", str(count), *rest]], HEADS))
    typer.echo()
    if twice:
        typer.echo(
            f"counted once in all: {pluralize(twice, 'trial')} that stand in an earlier row, too"
        )
    typer.echo(TIME_NOTE)


def _trials(prepared: PreparedExperiment) -> int:
    """Return the number of trials, as far as it is known from the file alone."""
    return len(prepared.cases) * len(prepared.experiment.seeds)


def _row(outlook: RunForecast) -> list[str]:
    counts = (outlook.trials, outlook.stored, outlook.to_run)
    return [outlook.label, *map(str, counts), _time(outlook.seconds)]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

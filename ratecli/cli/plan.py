"""The command `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ratecli.cli.arguments import (
    EXIT_NO_DATA,
    RESULTS_FOLDER,
    FilesArgument,
    OutputOption,
    SettingsOption,
    prepare_files,
    run_requests,
)
from ratecli.cli.console import format_table, pluralize, print_diagnostics, record_progress

if TYPE_CHECKING:
    from ratecli.experiment.plan import RunForecast
    from ratecli.runner.run import RunRequest

UNKNOWN = "unknown"
HEADS = ("trials", "stored", "to run", "time")
TIME_NOTE = "time: of one process, from the mean of stored trials"


def plan(
    files: FilesArgument, settings: SettingsOption = None, output: OutputOption = RESULTS_FOLDER
) -> None:
    """Show what `run` would do. Runs nothing, writes no results, downloads nothing.

    The total counts a trial that several experiments have in common once.
    """
    from ratecli.experiment.prepare import check_available, list_missing_files  # noqa: PLC0415

    with record_progress() as written:
        ready, lacking = prepare_files(
            files, lambda file: check_available(file, settings or (), written=written)
        )
    print_diagnostics(lacking)
    requests = run_requests(ready, output)
    print_diagnostics(warning for each in ready for warning in each.warnings)
    missing = {each.folder: list_missing_files(each.prepared) for each in requests}
    if len(files) > 1:
        _print_plans(requests, missing)
    else:
        for each in requests:
            _print_plan(each, missing[each.folder])
    to_fetch = [each for each in requests if missing[each.folder]]
    for each in to_fetch:
        listed = ", ".join(missing[each.folder])
        typer.echo(f"to fetch first: {listed} (`ratecli fetch {each.prepared.path}`)")
    if to_fetch:
        typer.echo("stored trials are unknown until the data is present")
    raise typer.Exit(EXIT_NO_DATA if lacking else 0)


def _print_plan(request: RunRequest, missing: Sequence[str]) -> None:
    from ratecli.experiment.plan import forecast_run  # noqa: PLC0415
    from ratecli.files import LEDGER_FILE  # noqa: PLC0415

    if missing:
        typer.echo(f"{request.folder.name}: {pluralize(_trials(request), 'trial')}")
        return
    forecasts = forecast_run(request.prepared.plan, request.folder / LEDGER_FILE)
    times = [each.seconds for each in forecasts]
    total = None if None in times else sum(time for time in times if time)
    counts = [
        sum(column)
        for column in zip(*((f.trials, f.stored, f.to_run) for f in forecasts), strict=True)
    ]
    rows = [*map(_row, forecasts), ["all", *map(str, counts), _time(total)]]
    typer.echo(f"{request.folder.name}: results in {request.folder}\n")
    typer.echo(format_table(["algorithm", *HEADS], rows, HEADS))
    typer.echo(f"\n{TIME_NOTE}")


def _print_plans(requests: Sequence[RunRequest], missing: Mapping[Path, Sequence[str]]) -> None:
    """Print a row per experiment and a total."""
    from ratecli.experiment.plan import forecast_runs  # noqa: PLC0415
    from ratecli.files import LEDGER_FILE  # noqa: PLC0415

    ready = [each for each in requests if not missing[each.folder]]
    *forecasts, total = forecast_runs(
        [(each.folder.name, each.prepared.plan, each.folder / LEDGER_FILE) for each in ready]
    )
    waiting = {each.folder.name: _trials(each) for each in requests if missing[each.folder]}
    unknown = [UNKNOWN] * 3
    rows = [*map(_row, forecasts), *([name, str(n), *unknown] for name, n in waiting.items())]
    count = total.trials + sum(waiting.values())
    last = ["all", str(count), *(unknown if waiting else _row(total)[2:])]
    typer.echo(format_table(["experiment", *HEADS], [*rows, last], HEADS))
    typer.echo()
    if shared := sum(each.trials for each in forecasts) - total.trials:
        typer.echo(f"the total counts {pluralize(shared, 'shared trial')} once")
    typer.echo(TIME_NOTE)


def _trials(request: RunRequest) -> int:
    """Return the number of trials, as far as it is known from the file alone."""
    prepared = request.prepared
    return len(prepared.cases) * len(prepared.experiment.seeds)


def _row(forecast: RunForecast) -> list[str]:
    counts = (forecast.trials, forecast.stored, forecast.to_run)
    return [forecast.label, *map(str, counts), _time(forecast.seconds)]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

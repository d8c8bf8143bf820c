"""The commands `run`, `plan` and `fit`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from ratecli.cli import arguments as args
from ratecli.cli.console import echo, print_diagnostics, progress_meter
from ratecli.errors import Diagnostic
from ratecli.files import RESULTS_FOLDER, shell_command
from ratecli.render import text_table

if TYPE_CHECKING:
    from ratecli.experiment.forecast import RunForecast
    from ratecli.experiment.prepare import PreparedExperiment
    from ratecli.runner.run import RunRequest


class Tracker(StrEnum):
    MLFLOW = "mlflow"


UNKNOWN = "unknown"
HEADS = ("trials", "stored", "to run", "time")


def run(  # one parameter per option
    files: args.FilesArgument,
    settings: args.SettingsOption = None,
    jobs: Annotated[
        int | None,
        Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            help="Parallel processes. Default: 2 (1 on one core), or all threads of a cluster.",
        ),
    ] = None,
    executor: Annotated[
        str | None,
        Option(
            metavar="WHERE",
            help="serial, processes, dask (a new local cluster) or dask://HOST:PORT (a running "
            "one). Default: processes, or serial for one job.",
        ),
    ] = None,
    *,
    timeout: Annotated[
        str | None, Option(metavar="TIME", help="Time limit of a trial, such as 90s or '10 min'.")
    ] = None,
    memory: Annotated[
        str | None, Option(metavar="SIZE", help="Memory limit of a trial's process, such as 4GiB.")
    ] = None,
    output: args.OutputOption = RESULTS_FOLDER,
    offline: args.OfflineOption = False,
    smoke: Annotated[
        bool, Option("--smoke", help="Quick test: one trial of each algorithm and data set.")
    ] = False,
    fresh: Annotated[bool, Option("--fresh", help="Delete stored trials first.")] = False,
    tracker: Annotated[
        Tracker | None,
        Option("--track", help="Then log the trials to the store of MLFLOW_TRACKING_URI."),
    ] = None,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Show only failures and warnings.")
    ] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="Show the traceback of failed trials.")
    ] = False,
) -> None:
    """Run all trials that are not stored yet, then write tables, plots and the report."""
    from ratecli.runner.executors import parse_executor  # noqa: PLC0415

    where = parse_executor(executor, jobs)
    from ratecli.api.tracking import check_tracker, track  # noqa: PLC0415
    from ratecli.cli.batch import run_batch  # noqa: PLC0415
    from ratecli.experiment.prepare import prepare  # noqa: PLC0415

    if tracker:
        check_tracker()
    limits = {"limits.time": timeout, "limits.memory": memory}
    changes = [*(settings or ()), *(f"{key}={value}" for key, value in limits.items() if value)]
    missing: list[Diagnostic] = []
    with progress_meter(quiet=quiet) as meter:
        make = partial(prepare, overrides=changes, offline=offline, progress=meter.download)
        ready = args.collect_errors(files, partial(make, write_progress=meter.record), missing)
    print_diagnostics(missing)
    if smoke:
        ready = [
            replace(each, plan=each.plan.first_of_each(each.experiment.goal)) for each in ready
        ]
    requests = _requests(ready, output)
    log = track if tracker else None
    code = run_batch(requests, where, log, fresh=fresh, quiet=quiet, verbose=verbose)
    raise typer.Exit(max(args.EXIT_NO_DATA if missing else 0, code))


def _requests(prepared: Iterable[PreparedExperiment], output: Path) -> list[RunRequest]:
    """Return the requests to run experiments, with a results folder for each.

    Raises BadParameter if two share a folder, and E310 if one compares with a model that another
    would overwrite.
    """
    from ratecli.runner.run import RunRequest  # noqa: PLC0415
    from ratecli.sampling.deployed import check_model_preserved  # noqa: PLC0415

    requests = [RunRequest(each, output / each.experiment.name) for each in prepared]
    args.check_distinct_outputs((each.prepared.path, each.folder) for each in requests)
    results = {each.folder: each.prepared.path for each in requests}
    args.collect_errors(
        (each.prepared for each in requests),
        lambda one: check_model_preserved(one.experiment, one.document, one.data.folder, results),
    )
    return requests


def plan(
    files: args.FilesArgument,
    settings: args.SettingsOption = None,
    output: args.OutputOption = RESULTS_FOLDER,
) -> None:
    """Show what `run` would do. Runs nothing, writes no results, downloads nothing.

    The total counts a trial that several experiments have in common once. Rows of several
    experiments are read only if that is needed to find stored trials; `validate` checks all.
    """
    from ratecli.experiment.prepare import (  # noqa: PLC0415
        check_available,
        depends_on_rows,
        list_missing_files,
    )
    from ratecli.files import LEDGER_FILE  # noqa: PLC0415

    def skip_rows(checked: PreparedExperiment) -> bool:
        stored = (output / checked.experiment.name / LEDGER_FILE).is_file()
        return len(files) > 1 and not (stored and depends_on_rows(checked))

    lacking: list[Diagnostic] = []
    with progress_meter() as meter:
        check = partial(
            check_available,
            overrides=settings or (),
            skip_rows=skip_rows,
            write_progress=meter.record,
        )
        ready = args.collect_errors(files, check, lacking)
    print_diagnostics(lacking)
    requests = _requests(ready, output)
    print_diagnostics(warning for each in ready for warning in each.warnings)
    to_fetch = {
        each.folder: listed for each in requests if (listed := list_missing_files(each.prepared))
    }
    _print_forecasts(requests, by_algorithm=len(files) == 1)
    costs = {
        f"{case.label} is {cost}"
        for each in ready
        for case in each.cases
        if (cost := case.tuning_cost())
    }
    for line in sorted(costs):
        echo(line)
    for each in requests:
        if each.folder in to_fetch:
            names = ", ".join(to_fetch[each.folder])
            fetch = shell_command("fetch", each.prepared.path)
            echo(f"missing data: {names}; download with `{fetch}`")
    raise typer.Exit(args.EXIT_NO_DATA if lacking else 0)


def fit(
    file: args.FileArgument,
    at: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="The sweep point. Default: the goal of the file."),
    ] = None,
    algorithm: Annotated[
        str | None, Option(metavar="LABEL", help="The algorithm. Default: the best of the run.")
    ] = None,
    settings: args.SettingsOption = None,
    output: args.OutputOption = RESULTS_FOLDER,
    *,
    offline: args.OfflineOption = False,
) -> None:
    """Train the setting that a run chose on all rows. Write the model to results/NAME/model.

    Validation rows and rows of a safety test keep their roles. The run says what to expect of it.
    """
    from ratecli.api.final_model import fit_model, read_point  # noqa: PLC0415
    from ratecli.config.document import Document  # noqa: PLC0415

    document = Document.read(file).with_overrides(settings or ())
    with progress_meter() as meter:
        made = fit_model(
            document,
            output,
            read_point(at or ()),
            algorithm,
            offline=offline,
            progress=meter.download,
            quiet=False,
            command=sys.argv,
        )
    echo("\n".join(made.lines))
    echo(f"\nmodel    {made.folder}")
    echo("\n".join(f"export   {text}" for text in made.exports))
    if made.applies:
        echo(f"predict  {shell_command('predict', made.folder, 'TABLE')}")


def _print_forecasts(requests: list[RunRequest], *, by_algorithm: bool) -> None:
    """Print a row per algorithm of the only experiment, or one per experiment, and a total."""
    from ratecli.experiment.forecast import forecast_runs  # noqa: PLC0415
    from ratecli.files import LEDGER_FILE  # noqa: PLC0415

    forecasts = forecast_runs(
        [(each.folder.name, each.prepared.plan, each.folder / LEDGER_FILE) for each in requests],
        by_algorithm=by_algorithm,
    )
    if by_algorithm:
        echo(f"{requests[0].folder.name}: results in {requests[0].folder}\n")
    first = "algorithm" if by_algorithm else "experiment"
    echo(text_table([first, *HEADS], [_row(each) for each in forecasts], HEADS))
    echo("\ntime: estimate for one process, from stored trials and `trial_seconds`")
    *each_one, total = forecasts
    if total.unknown:
        echo("unknown: `ratecli run FILE --smoke` runs one trial of each algorithm")
    if sum(each.trials for each in each_one) > total.trials:
        echo("total: trials that experiments share are counted once")


def _row(forecast: RunForecast) -> list[str]:
    counts = (forecast.trials, forecast.stored, forecast.trials - forecast.stored)
    return [forecast.label, *map(str, counts), _time(forecast)]


def _time(forecast: RunForecast) -> str:
    from ratecli.experiment.forecast import format_seconds  # noqa: PLC0415

    if not forecast.unknown:
        return format_seconds(forecast.seconds)
    return f"> {format_seconds(forecast.seconds)}" if forecast.seconds else UNKNOWN

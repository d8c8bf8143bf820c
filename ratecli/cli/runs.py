"""`run` and `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import (
    RESULTS,
    File,
    Files,
    Offline,
    Output,
    Settings,
    refuse_shared,
)
from ratecli.cli.console import counted, show, table
from ratecli.cli.each import each
from ratecli.faults import Fault, FaultError

if TYPE_CHECKING:
    from ratecli.runner.executors import Executor
    from ratecli.runner.prepare import Prepared
    from ratecli.runner.run import Asked

DATA = 4
"""The exit code where data cannot be had."""


Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Trials at once, each in a process. Default: 2, or 1 core; all threads of a "
        "running cluster.",
    ),
]
Where: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Where trials run: serial, processes, dask (a cluster started here) or "
        "dask://HOST:PORT (one that is running). Default: processes, or serial for one job.",
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(plan)


def run(  # one parameter an option
    files: Files,
    settings: Settings = None,
    jobs: Jobs = None,
    executor: Where = None,
    *,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End a trial that takes longer, as in 90s or '10 min'."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="End a trial whose process holds more, as in 4GiB."),
    ] = None,
    output: Output = RESULTS,
    offline: Offline = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget stored trials first.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show failures and warnings only.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the stack of failed trials.")
    ] = False,
) -> None:
    """Run experiments: whatever is not stored yet. Then write tables, plots and report."""
    where = _executor(executor, jobs)
    from ratecli.cli.together import Manner, run_together  # noqa: PLC0415
    from ratecli.runner.run import Asked  # noqa: PLC0415

    limits = [f"limits.time={timeout}"] if timeout else []
    limits += [f"limits.memory={memory}"] if memory else []
    ready, code = _prepared(files, [*(settings or ()), *limits], offline=offline, quiet=quiet)
    asked = [Asked(each, output / each.experiment.name) for each in ready]
    refuse_shared((one.prepared.path, one.folder) for one in asked)
    _refuse_overwritten(asked)
    manner = Manner(where, fresh=fresh, quiet=quiet, verbose=verbose)
    raise typer.Exit(max(code, run_together(asked, manner)))


def _executor(kind: str | None, jobs: int | None) -> Executor:
    from ratecli.runner.executors import executor_of  # noqa: PLC0415

    try:
        return executor_of(kind, jobs)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--executor") from None


def _prepared(
    files: Sequence[Path], settings: Sequence[str], *, offline: bool, quiet: bool
) -> tuple[list[Prepared], int]:
    """The experiments that can be run, and the exit code of the others.

    A mistake in any file stops all; data that cannot be had (E4xx) only the experiment that needs it, if
    there are others. Raises FaultError otherwise.
    """
    from ratecli.cli.fetching import progress, writing  # noqa: PLC0415
    from ratecli.cli.together import named  # noqa: PLC0415
    from ratecli.runner.prepare import prepare  # noqa: PLC0415

    ready: list[Prepared] = []
    lacking: list[FaultError] = []
    wrong: list[Fault] = []
    with progress(quiet=quiet) as told, writing(quiet=quiet) as written:
        for file in files:
            try:
                ready.append(
                    prepare(file, settings, offline=offline, progress=told, written=written)
                )
            except FaultError as error:
                found = FaultError(named(file, error.faults) if len(files) > 1 else error.faults)
                if found.exit_code == DATA:
                    lacking.append(found)
                else:
                    wrong += found.faults
    without = [fault for each in lacking for fault in each.faults]
    if wrong or not ready:
        raise FaultError([*wrong, *without])
    show(without)
    return ready, DATA if lacking else 0


def _refuse_overwritten(asked: Sequence[Asked]) -> None:
    """E310 for files that compare with a model which this very command writes."""
    from ratecli.runner.deployed import check_kept  # noqa: PLC0415

    results = {one.folder: one.prepared.path for one in asked}
    made = [one.prepared for one in asked]
    each(made, lambda one: check_kept(one.experiment, one.document, one.data.folder, results))


def plan(file: File, settings: Settings = None, output: Output = RESULTS) -> None:
    """Show what `run` would do. Runs nothing, writes no results, fetches nothing."""
    from ratecli.cli.fetching import writing  # noqa: PLC0415
    from ratecli.runner.forecast import forecast  # noqa: PLC0415
    from ratecli.runner.prepare import absent_files, examine  # noqa: PLC0415
    from ratecli.runner.run import LEDGER, Asked  # noqa: PLC0415

    with writing() as written:
        prepared = examine(file, settings or (), written=written)
    show(prepared.warnings)
    folder = output / prepared.experiment.name
    _refuse_overwritten([Asked(prepared, folder)])
    if absent := absent_files(prepared):
        trials = len(prepared.cases) * len(prepared.experiment.seeds)
        typer.echo(f"{prepared.experiment.name}: {counted(trials, 'trial')}")
        typer.echo(f"to fetch first: {', '.join(absent)} (`ratecli fetch {file}`)")
        typer.echo("which trials are stored shows once the data is there")
        return
    outlooks = forecast(prepared, folder / LEDGER)
    rows = [
        [o.label, str(o.trials), str(o.stored), str(o.to_run), _time(o.seconds)] for o in outlooks
    ]
    totals = [sum(count) for count in zip(*((o.trials, o.stored, o.to_run) for o in outlooks), strict=True)]  # fmt: skip
    times = [outlook.seconds for outlook in outlooks]
    total = None if None in times else sum(time for time in times if time)
    rows.append(["all", *map(str, totals), _time(total)])
    heads = ["algorithm", "trials", "stored", "to run", "time"]
    typer.echo(f"{prepared.experiment.name}: results in {folder}\n")
    typer.echo(table(heads, rows, heads[1:]))
    typer.echo("\ntime: of one process, from the mean of stored trials")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

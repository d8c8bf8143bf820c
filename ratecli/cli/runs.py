"""The command `run`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import (
    EXIT_NO_DATA,
    RESULTS_FOLDER,
    FilesArgument,
    OfflineOption,
    OutputOption,
    SettingsOption,
    check_distinct_outputs,
    check_models_not_overwritten,
    prepare_files,
)
from ratecli.cli.console import print_diagnostics

if TYPE_CHECKING:
    from ratecli.runner.executors import Executor


JobsOption: TypeAlias = Annotated[
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
SmokeOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--smoke",
        help="Run one trial of each algorithm on each data set, to see that all works; a run "
        "without it does the rest.",
    ),
]
ExecutorOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="Where trials run: serial, processes, dask (a cluster started here) or "
        "dask://HOST:PORT (one that is running). Default: processes, or serial for one job.",
    ),
]


def add_to(app: typer.Typer) -> None:
    app.command()(run)


def run(  # one parameter per option
    files: FilesArgument,
    settings: SettingsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = None,
    *,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End a trial that takes longer, as in 90s or '10 min'."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="End a trial whose process holds more, as in 4GiB."),
    ] = None,
    output: OutputOption = RESULTS_FOLDER,
    offline: OfflineOption = False,
    smoke: SmokeOption = False,
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
    from ratecli.cli.batch import BatchOptions, run_batch  # noqa: PLC0415
    from ratecli.cli.console import download_progress, record_progress  # noqa: PLC0415
    from ratecli.experiment.prepare import prepare  # noqa: PLC0415
    from ratecli.runner.run import RunRequest  # noqa: PLC0415

    limits = [f"limits.time={timeout}"] if timeout else []
    limits += [f"limits.memory={memory}"] if memory else []
    changes = [*(settings or ()), *limits]
    with download_progress(quiet=quiet) as told, record_progress(quiet=quiet) as written:
        make = partial(prepare, offline=offline, progress=told, written=written)
        ready, lacking = prepare_files(files, lambda file: make(file, changes))
    print_diagnostics(lacking)
    if smoke:
        ready = [replace(each, plan=each.plan.first_of_each()) for each in ready]
    asked = [RunRequest(each, output / each.experiment.name) for each in ready]
    check_distinct_outputs((one.prepared.path, one.folder) for one in asked)
    check_models_not_overwritten(asked)
    manner = BatchOptions(where, fresh=fresh, quiet=quiet, verbose=verbose)
    raise typer.Exit(max(EXIT_NO_DATA if lacking else 0, run_batch(asked, manner)))


def _executor(kind: str | None, jobs: int | None) -> Executor:
    from ratecli.runner.executors import parse_executor  # noqa: PLC0415

    try:
        return parse_executor(kind, jobs)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--executor") from None

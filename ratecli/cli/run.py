"""The command `run`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer import Option

from ratecli.cli.arguments import (
    EXIT_NO_DATA,
    RESULTS_FOLDER,
    FilesArgument,
    OfflineOption,
    OutputOption,
    SettingsOption,
    prepare_files,
    run_requests,
)
from ratecli.cli.console import download_progress, print_diagnostics, record_progress

if TYPE_CHECKING:
    from ratecli.runner.executors import Executor


JobsOption: TypeAlias = Annotated[
    int | None,
    Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Number of parallel worker processes. Default: 2, or 1 on a single core; on a "
        "cluster, all its threads.",
    ),
]
ExecutorOption: TypeAlias = Annotated[
    str | None,
    Option(
        metavar="WHERE",
        help="Where trials run: serial, processes, dask (a new local cluster) or "
        "dask://HOST:PORT (a running one). Default: processes, or serial for one job.",
    ),
]
TimeoutOption: TypeAlias = Annotated[
    str | None, Option(metavar="TIME", help="Time limit of a trial, such as 90s or '10 min'.")
]
MemoryOption: TypeAlias = Annotated[
    str | None, Option(metavar="SIZE", help="Memory limit of a trial's process, such as 4GiB.")
]
SmokeOption: TypeAlias = Annotated[
    bool,
    Option("--smoke", help="Run one trial of each algorithm on each data set, as a quick test."),
]
FreshOption: TypeAlias = Annotated[bool, Option("--fresh", help="Delete stored trials first.")]
QuietOption: TypeAlias = Annotated[
    bool, Option("--quiet", "-q", help="Show only failures and warnings.")
]
VerboseOption: TypeAlias = Annotated[
    bool, Option("--verbose", "-v", help="Show the traceback of failed trials.")
]


def run(  # one parameter per option
    files: FilesArgument,
    settings: SettingsOption = None,
    jobs: JobsOption = None,
    executor: ExecutorOption = None,
    *,
    timeout: TimeoutOption = None,
    memory: MemoryOption = None,
    output: OutputOption = RESULTS_FOLDER,
    offline: OfflineOption = False,
    smoke: SmokeOption = False,
    fresh: FreshOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run all trials that are not stored yet, then write tables, plots and the report."""
    where = _executor(executor, jobs)
    from ratecli.cli.batch import BatchOptions, run_batch  # noqa: PLC0415
    from ratecli.experiment.prepare import prepare  # noqa: PLC0415

    limits = {"limits.time": timeout, "limits.memory": memory}
    changes = [*(settings or ()), *(f"{key}={value}" for key, value in limits.items() if value)]
    with download_progress(quiet=quiet) as progress, record_progress(quiet=quiet) as written:
        ready, missing = prepare_files(
            files,
            lambda file: prepare(
                file, changes, offline=offline, progress=progress, written=written
            ),
        )
    print_diagnostics(missing)
    if smoke:
        ready = [replace(each, plan=each.plan.first_of_each()) for each in ready]
    requests = run_requests(ready, output)
    options = BatchOptions(where, fresh=fresh, quiet=quiet, verbose=verbose)
    raise typer.Exit(max(EXIT_NO_DATA if missing else 0, run_batch(requests, options)))


def _executor(kind: str | None, jobs: int | None) -> Executor:
    from ratecli.runner.executors import parse_executor  # noqa: PLC0415

    try:
        return parse_executor(kind, jobs)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--executor") from None

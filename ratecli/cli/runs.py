"""`run`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ratecli.cli.arguments import RESULTS, Files, Offline, Output, Settings, refuse_shared
from ratecli.cli.console import show
from ratecli.cli.requests import DATA, prepared, refuse_overwritten

if TYPE_CHECKING:
    from ratecli.runner.executors import Executor


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
Smoke: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--smoke",
        help="Run one trial of each algorithm on each data set, to see that all works; a run without it "
        "does the rest.",
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
    smoke: Smoke = False,
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
    from ratecli.cli.batch import Manner, run_together  # noqa: PLC0415
    from ratecli.cli.fetching import progress, writing  # noqa: PLC0415
    from ratecli.experiment.prepare import prepare  # noqa: PLC0415
    from ratecli.runner.run import Asked  # noqa: PLC0415

    limits = [f"limits.time={timeout}"] if timeout else []
    limits += [f"limits.memory={memory}"] if memory else []
    changes = [*(settings or ()), *limits]
    with progress(quiet=quiet) as told, writing(quiet=quiet) as written:
        make = partial(prepare, offline=offline, progress=told, written=written)
        ready, lacking = prepared(files, lambda file: make(file, changes))
    show(lacking)
    if smoke:
        ready = [replace(each, plan=each.plan.first_of_each()) for each in ready]
    asked = [Asked(each, output / each.experiment.name) for each in ready]
    refuse_shared((one.prepared.path, one.folder) for one in asked)
    refuse_overwritten(asked)
    manner = Manner(where, fresh=fresh, quiet=quiet, verbose=verbose)
    raise typer.Exit(max(DATA if lacking else 0, run_together(asked, manner)))


def _executor(kind: str | None, jobs: int | None) -> Executor:
    from ratecli.runner.executors import executor_of  # noqa: PLC0415

    try:
        return executor_of(kind, jobs)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--executor") from None

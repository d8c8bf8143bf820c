"""`run` and `plan`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratecli.cli.arguments import RESULTS, File, Files, Offline, Output, Settings
from ratecli.cli.commands import INTERRUPTED
from ratecli.cli.console import counted, show, table
from ratecli.cli.each import each
from ratecli.cli.plain_text import plain
from ratecli.faults import Fault, FaultError

if TYPE_CHECKING:
    from ratecli.report.ledger import Ledger
    from ratecli.runner.executors import Executor
    from ratecli.runner.prepare import Prepared
    from ratecli.runner.records import TrialResult
    from ratecli.runner.run import Outcome

SHOWN_ROWS = 20
SHOWN_REASONS = 10
USUAL_JOBS = 2
"""Each process holds the data once more: all cores would be much to take unasked."""


class ExecutorKind(StrEnum):
    SERIAL = "serial"
    PROCESSES = "processes"


def add_to(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(plan)


def run(  # one parameter an option
    files: Files,
    settings: Settings = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, help="Trials at once, each in a process. Default: 2, or 1 core."
        ),
    ] = None,
    executor: Annotated[
        ExecutorKind | None,
        typer.Option(help="Where trials run. Default: processes, or serial for one job."),
    ] = None,
    *,
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
    from ratecli.cli.fetching import progress  # noqa: PLC0415
    from ratecli.runner.prepare import prepare  # noqa: PLC0415

    with progress(quiet=quiet) as told:
        ready = each(
            files, lambda file: prepare(file, settings or (), offline=offline, progress=told)
        )
    folders = [output / prepared.experiment.name for prepared in ready]
    _refuse_shared(files, folders)
    _refuse_overwritten(ready, folders)
    code = 0
    for prepared, folder in zip(ready, folders, strict=True):
        try:
            outcome = _experiment(
                prepared, folder, where, fresh=fresh, quiet=quiet, verbose=verbose
            )
            code = max(code, outcome.exit_code)
        except FaultError as error:
            show(_named(prepared.path, error.faults) if len(ready) > 1 else error.faults)
            code = max(code, error.exit_code)
    raise typer.Exit(code)


def _executor(kind: ExecutorKind | None, jobs: int | None) -> Executor:
    if kind is ExecutorKind.SERIAL and jobs is not None and jobs > 1:
        raise typer.BadParameter("one process runs one trial at a time", param_hint="--jobs")
    from ratecli.runner.executors import Processes, Serial  # noqa: PLC0415

    jobs = jobs or min(USUAL_JOBS, os.cpu_count() or 1)
    serial = kind is ExecutorKind.SERIAL or (kind is None and jobs == 1)
    return Serial() if serial else Processes(jobs)


def _refuse_shared(files: Sequence[Path], folders: Sequence[Path]) -> None:
    seen: dict[Path, Path] = {}
    for file, folder in zip(files, folders, strict=True):
        other = seen.setdefault(folder, file)
        if other is not file:
            message = f"'{other}' and '{file}' have the same name and would share {folder}"
            raise typer.BadParameter(message, param_hint="FILE")


def _refuse_overwritten(ready: Sequence[Prepared], folders: Sequence[Path]) -> None:
    """E310 for files that compare with a model which this very command writes."""
    from ratecli.runner.deployed import check_kept  # noqa: PLC0415

    results = {folder: made.path for folder, made in zip(folders, ready, strict=True)}
    each(ready, lambda made: check_kept(made.experiment, made.document, made.data.folder, results))


def _experiment(
    prepared: Prepared,
    folder: Path,
    executor: Executor,
    *,
    fresh: bool,
    quiet: bool,
    verbose: bool,
) -> Outcome:
    """Trials and report of one experiment, whose folder no other run may touch meanwhile."""
    from ratecli.report.write import check_place  # noqa: PLC0415
    from ratecli.runner.lock import locked  # noqa: PLC0415

    with locked(folder):
        check_place(folder)
        show(prepared.warnings)
        outcome = _run(prepared, folder, executor, fresh=fresh, quiet=quiet)
        _report(outcome, quiet=quiet, verbose=verbose)
    return outcome


def _named(file: Path, faults: Iterable[Fault]) -> list[Fault]:
    return [replace(fault, message=f"{file}: {fault.message}") for fault in faults]


def _run(
    prepared: Prepared, folder: Path, executor: Executor, *, fresh: bool, quiet: bool
) -> Outcome:
    from ratecli.runner.run import kept  # noqa: PLC0415
    from ratecli.runner.run import run as run_trials  # noqa: PLC0415

    try:
        return run_trials(prepared, folder, executor, fresh=fresh, quiet=quiet)
    except KeyboardInterrupt:
        stored, planned = kept(prepared, folder), len(prepared.plan.tasks)
        message = (
            f"interrupted: {stored} of {planned} trials are stored in {folder}; run again to go on"
        )
        typer.echo(message, err=True)
        raise typer.Exit(INTERRUPTED) from None


def _report(outcome: Outcome, *, quiet: bool, verbose: bool) -> None:
    from ratecli.report.differing import differing  # noqa: PLC0415
    from ratecli.report.ledger import Ledger  # noqa: PLC0415
    from ratecli.report.write import LEDGER, write_report  # noqa: PLC0415

    written = write_report(outcome.folder)
    ledger = Ledger.read(outcome.folder / LEDGER)
    show([*outcome.warnings, *differing(ledger)])
    for name, result in outcome.failed if verbose else ():
        typer.echo(f"{name}\n{result.info.get('traceback', result.reason)}", err=True)
    if not quiet:
        typer.echo(plain("\n".join(_summary(outcome, ledger, written))))


def _summary(outcome: Outcome, ledger: Ledger, written: Sequence[Path]) -> list[str]:
    trials = sum(outcome.counts.values())
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items())
    new = "nothing to run, all were stored" if not outcome.ran else f"{outcome.ran} run now"
    return [
        f"{outcome.folder.name}: {counted(trials, 'trial')}: {counts} ({new})",
        "",
        *_short_table(ledger),
        *_reasons("failed", outcome.failed),
        *_reasons("no solution", outcome.unsolved),
        *_places(outcome.folder, written),
    ]


def _short_table(ledger: Ledger) -> list[str]:
    from ratecli.report.sheets import asked_sheets  # noqa: PLC0415

    sheet = asked_sheets(ledger)[0]
    rows = [[cell.text for cell in row] for row in sheet.rows]
    heads = [column.title for column in sheet.columns]
    numbers = [column.title for column in sheet.columns if column.numeric]
    more = len(rows) - SHOWN_ROWS
    return [
        f"{sheet.title}: mean ± half the 95% interval over seeds",
        *table(heads, rows[:SHOWN_ROWS], numbers).splitlines(),
        *([f"... {more} more rows in summary.md"] if more > 0 else []),
        "",
    ]


def _reasons(what: str, trials: Sequence[tuple[str, TrialResult]]) -> list[str]:
    told = [f"{what}: {name}: {result.reason}" for name, result in trials]
    more = len(told) - SHOWN_REASONS
    rest = [f"... {more} more {what}: see trials.csv"] if more > 0 else []
    return [*told[:SHOWN_REASONS], *rest, *([""] if told else [])]


def _places(folder: Path, written: Sequence[Path]) -> list[str]:
    """The folder and what in it a person opens first."""
    names = [path.relative_to(folder).as_posix() for path in written]
    trees = [name for name in names if name.startswith("figures/certificate-")]
    figures = [name for name in names if name.startswith("figures/") and name not in trees]
    tables = [name for name in names if name.startswith("tables/")]
    return [
        f"results  {folder}",
        f"tables   {', '.join(['summary.md', 'metrics.csv', *tables])}",
        *([f"plots    {', '.join(figures)}"] if figures else []),
        *(["trees    figures/certificate-*.svg"] if trees else []),
        *([f"models   {', '.join(_kept(folder))}"] if "models" in names else []),
        f"report   {folder / 'report.html'}",
    ]


def _kept(folder: Path) -> list[str]:
    """What the folders of trials hold."""
    kinds = {"VARIANT.npz": "*.npz", "certificates.json": "certificates.json"}
    return [
        f"models/TRIAL/{name}"
        for name, pattern in kinds.items()
        if any((folder / "models").glob(f"*/{pattern}"))
    ]


def plan(file: File, settings: Settings = None, output: Output = RESULTS) -> None:
    """Show what `run` would do. Runs nothing, writes nothing, fetches nothing."""
    from ratecli.runner.forecast import forecast  # noqa: PLC0415
    from ratecli.runner.prepare import absent_files, examine  # noqa: PLC0415
    from ratecli.runner.run import LEDGER  # noqa: PLC0415

    prepared = examine(file, settings or ())
    show(prepared.warnings)
    folder = output / prepared.experiment.name
    _refuse_overwritten([prepared], [folder])
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

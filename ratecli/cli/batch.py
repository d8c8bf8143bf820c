"""Run several experiments: lock their folders, write each report, and summarize the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ratecli.cli.arguments import with_file_name
from ratecli.cli.console import EXIT_INTERRUPTED, format_table, pluralize, print_diagnostics
from ratecli.cli.reports import JOINED_REPORT
from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.lock import lock_results
from ratecli.ledger.view import Ledger
from ratecli.render import terminal_safe
from ratecli.report.expectations import warn_unmet_expectations
from ratecli.report.joined import write_joined
from ratecli.report.write import check_report_folder, write_and_load_report
from ratecli.runner.executors import DaskExecutor, Executor, SerialExecutor
from ratecli.runner.run import RunOutcome, RunRequest, count_stored_trials, run_experiments

if TYPE_CHECKING:
    from ratecli.errors import FaultError
    from ratecli.ledger.records import TrialResult
    from ratecli.ledger.view import Ledger
    from ratecli.runner.run import RunOutcome, RunRequest

MAX_SHOWN_ROWS = 20
MAX_SHOWN_REASONS = 10


@dataclass(frozen=True)
class ExperimentEnd:
    """How an experiment ended.

    `outcome` is None if it did not run to the end, `fault` its error if it had one, `ledger` and
    `written` are the content and the files of its report.
    """

    asked: RunRequest
    outcome: RunOutcome | None
    fault: FaultError | None
    ledger: Ledger | None = None
    written: Sequence[Path] = ()

    @property
    def name(self) -> str:
        return self.asked.folder.name


def summarize_experiment(end: ExperimentEnd) -> list[str]:
    """Return the summary of one experiment that has a report."""
    outcome, ledger = end.outcome, end.ledger
    assert outcome is not None
    assert ledger is not None
    new = "nothing to run, all were stored" if not outcome.ran else f"{outcome.ran} run now"
    left_out = end.asked.prepared.plan.left_out
    more = [f"{pluralize(left_out, 'more trial')} planned: run without --smoke"] if left_out else []
    return [
        (
            f"{end.name}: {pluralize(sum(outcome.counts.values()), 'trial')}: {_counts(outcome)} "
            f"({new})"
        ),
        *more,
        "",
        *_short_table(ledger),
        *_reasons("failed", outcome.failed),
        *_reasons("no solution", outcome.unsolved),
        *_places(outcome.folder, end.written),
    ]


def summarize_experiments(ends: Sequence[ExperimentEnd]) -> list[str]:
    """Return a line for each experiment, failures of all of them, and totals."""
    heads = ["experiment", "trials", "run now", "ended", "expect", "report"]
    known = [(end.name, end.outcome) for end in ends if end.outcome is not None]
    trials = sum(sum(outcome.counts.values()) for _, outcome in known)
    ran = sum(outcome.ran for _, outcome in known)
    failed = [(f"{name}: {what}", why) for name, each in known for what, why in each.failed]
    unsolved = [(f"{name}: {what}", why) for name, each in known for what, why in each.unsolved]
    return [
        *format_table(heads, list(map(_line, ends)), ["trials", "run now"]).splitlines(),
        "",
        *_reasons("failed", failed),
        *_reasons("no solution", unsolved),
        f"{pluralize(len(ends), 'experiment')}: {pluralize(trials, 'trial')}, {ran} run now",
    ]


def _line(end: ExperimentEnd) -> list[str]:
    if end.outcome is None:
        why = f"stopped: {end.fault.faults[0].code}" if end.fault else "stopped"
        return [end.name, str(len(end.asked.prepared.plan.tasks)), "", why, "", ""]
    trials, ran = sum(end.outcome.counts.values()), end.outcome.ran
    report = str(end.asked.folder / "report.html")
    if end.ledger is None:
        report = f"none: {end.fault.faults[0].code}" if end.fault else ""
    return [end.name, str(trials), str(ran), _counts(end.outcome), _expected(end.ledger), report]


def _counts(outcome: RunOutcome) -> str:
    return ", ".join(f"{count} {status}" for status, count in outcome.counts.items())


def _expected(ledger: Ledger | None) -> str:
    """Return how many of the file's judged expectations are met."""
    from ratecli.report.expectations import (  # noqa: PLC0415
        ExpectationVerdict,
        compare_expectations,
    )

    good: dict[int, bool] = {}
    for each in compare_expectations(ledger) if ledger is not None else ():
        if each.verdict is not ExpectationVerdict.SHOWN:
            good[id(each.entry)] = good.get(id(each.entry), True) and each.verdict.good
    return f"{sum(good.values())} of {len(good)} hold" if good else ""


def _short_table(ledger: Ledger) -> list[str]:
    from ratecli.report.sheets import requested_sheets  # noqa: PLC0415

    sheet = requested_sheets(ledger)[0]
    rows = [[cell.text for cell in row] for row in sheet.rows]
    heads = [column.title for column in sheet.columns]
    numbers = [column.title for column in sheet.columns if column.numeric]
    more = len(rows) - MAX_SHOWN_ROWS
    return [
        f"{sheet.title}: mean ± half the 95% interval over seeds",
        *format_table(heads, rows[:MAX_SHOWN_ROWS], numbers).splitlines(),
        *([f"... {more} more rows in summary.md"] if more > 0 else []),
        "",
    ]


def _reasons(what: str, trials: Sequence[tuple[str, TrialResult]]) -> list[str]:
    told = [f"{what}: {name}: {result.reason}" for name, result in trials]
    more = len(told) - MAX_SHOWN_REASONS
    rest = [f"... {more} more {what}: see trials.csv"] if more > 0 else []
    return [*told[:MAX_SHOWN_REASONS], *rest, *([""] if told else [])]


def _places(folder: Path, written: Sequence[Path]) -> list[str]:
    """Return the results folder and its main files."""
    names = [path.relative_to(folder).as_posix() for path in written]
    trees = [name for name in names if name.startswith("figures/certificate-")]
    figures = [name for name in names if name.startswith("figures/") and name not in trees]
    tables = [name for name in names if name.startswith("tables/")]
    return [
        f"results  {folder}",
        f"tables   {', '.join(['summary.md', 'metrics.csv', *tables])}",
        *([f"plots    {', '.join(figures)}"] if figures else []),
        *(["trees    figures/certificate-*.svg"] if trees else []),
        *([f"models   {', '.join(_stored_models_lines(folder))}"] if "models" in names else []),
        f"report   {folder / 'report.html'}",
    ]


def _stored_models_lines(folder: Path) -> list[str]:
    """Return the kinds of files in the folders of trials."""
    kinds = {"VARIANT.npz": "*.npz", "certificates.json": "certificates.json"}
    return [
        f"models/TRIAL/{name}"
        for name, pattern in kinds.items()
        if any((folder / "models").glob(f"*/{pattern}"))
    ]


@dataclass(frozen=True)
class BatchOptions:
    """How to run trials and how much to print."""

    executor: Executor
    fresh: bool
    quiet: bool
    verbose: bool


def run_batch(asked: Sequence[RunRequest], manner: BatchOptions) -> int:
    """Run experiments with their results folders locked, and return the exit code.

    Raises FaultError (E512) before anything is written if a cluster is not available.
    """
    if isinstance(manner.executor, DaskExecutor):
        manner.executor.check()
    together = _BatchRun(asked, manner)
    with ExitStack() as stack:
        together.run([each for each in asked if together.hold(each, stack)])
        together.tell()
    return together.code


class _BatchRun:
    def __init__(self, asked: Sequence[RunRequest], manner: BatchOptions) -> None:
        self.code = 0
        self._asked = asked
        self._manner = manner
        self._reports = _ReportWriter(
            aside=len(asked) > 1 and not isinstance(manner.executor, SerialExecutor)
        )
        self._faults: dict[Path, FaultError] = {}

    def hold(self, asked: RunRequest, stack: ExitStack) -> bool:
        """Lock the folder and return whether that succeeded and it is suitable for a report."""
        try:
            stack.enter_context(lock_results(asked.folder))
            check_report_folder(asked.folder)
        except FaultError as error:
            self._fault(asked, error)
            return False
        return True

    def run(self, asked: Sequence[RunRequest]) -> None:
        for each in asked:
            print_diagnostics(each.prepared.warnings)
        manner = self._manner
        fresh, quiet = manner.fresh, manner.quiet
        try:
            run_experiments(
                asked, manner.executor, self._reports.add, self._fault, fresh=fresh, quiet=quiet
            )
        except KeyboardInterrupt:
            self._stopped(asked, "interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except FaultError as error:  # an error of the executor, not of one experiment
            print_diagnostics(error.faults)
            self._stopped(asked, "stopped")
            self.code = max(self.code, error.exit_code)
        finally:
            self._reports.close()

    def tell(self) -> None:
        """Print the results in the order of the files."""
        ends = []
        for each in self._asked:
            outcome = self._reports.outcomes.get(each.folder)
            end = ExperimentEnd(each, outcome, self._faults.get(each.folder))
            if outcome is not None:
                end = self._reported(end, outcome)
            ends.append(end)
        joined = self._joined() if len(ends) > 1 else []
        if self._manner.quiet:
            return
        if len(ends) > 1:
            typer.echo(terminal_safe("\n".join([*summarize_experiments(ends), *joined])))
        elif ends[0].ledger is not None:
            typer.echo(terminal_safe("\n".join(summarize_experiment(ends[0]))))

    def _joined(self) -> list[str]:
        """Write the page over all experiments and return the line that names it.

        The page also lists experiments without results.
        """
        folders = [each.folder for each in self._asked]
        try:
            return [f"report   {write_joined(folders, folders[0].parent / JOINED_REPORT)}"]
        except FaultError as error:
            print_diagnostics(error.faults)
            self.code = max(self.code, error.exit_code)
            return []

    def _reported(self, end: ExperimentEnd, outcome: RunOutcome) -> ExperimentEnd:
        self.code = max(self.code, outcome.exit_code)
        try:
            ledger, written = self._reports.of(outcome)
        except FaultError as error:
            self._fault(end.asked, error)
            return replace(end, fault=error)
        warnings = [*outcome.warnings, *warn_unmet_expectations(ledger)]
        print_diagnostics(self._named(end.asked, warnings))
        for name, result in outcome.failed if self._manner.verbose else ():
            typer.echo(
                terminal_safe(f"{name}\n{result.info.get('traceback', result.reason)}"), err=True
            )
        return replace(end, ledger=ledger, written=written)

    def _fault(self, asked: RunRequest, error: FaultError) -> None:
        """Record the error of one experiment, which does not stop the others."""
        self._faults[asked.folder] = error
        self.code = max(self.code, error.exit_code)
        print_diagnostics(self._named(asked, error.faults))

    def _named(self, asked: RunRequest, faults: Iterable[Diagnostic]) -> Iterable[Diagnostic]:
        return with_file_name(asked.prepared.path, faults) if len(self._asked) > 1 else faults

    def _stopped(self, asked: Sequence[RunRequest], how: str) -> None:
        """Print what is stored of each experiment whose own error was not already printed."""
        for each in (one for one in asked if one.folder not in self._faults):
            stored, planned = (
                count_stored_trials(each.prepared, each.folder),
                len(each.prepared.plan.tasks),
            )
            rest = "" if stored == planned else "; run again to go on"
            message = f"{how}: {stored} of {planned} trials are stored in {each.folder}{rest}"
            typer.echo(message, err=True)


class _ReportWriter:
    """Writes reports one at a time; `aside` does so in the background while trials run."""

    def __init__(self, *, aside: bool) -> None:
        self.outcomes: dict[Path, RunOutcome] = {}
        self._written: dict[Path, Future[tuple[Ledger, list[Path]]]] = {}
        self._writer = ThreadPoolExecutor(1)
        self._aside = aside

    def add(self, outcome: RunOutcome) -> None:
        self.outcomes[outcome.folder] = outcome
        written = self._writer.submit(write_and_load_report, outcome.folder)
        self._written[outcome.folder] = written
        if not self._aside:
            wait([written])

    def close(self) -> None:
        """Wait until all requested reports are written."""
        self._writer.shutdown()

    def of(self, outcome: RunOutcome) -> tuple[Ledger, Sequence[Path]]:
        """Return an experiment's ledger and report files; raise FaultError if writing failed."""
        return self._written[outcome.folder].result()

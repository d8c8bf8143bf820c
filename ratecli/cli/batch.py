"""Run several experiments: lock their folders, write each report, and summarize the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import typer

from ratecli.cli.arguments import with_file_name
from ratecli.cli.console import (
    EXIT_INTERRUPTED,
    format_sheet,
    format_table,
    pluralize,
    print_diagnostics,
)
from ratecli.cli.results import JOINED_REPORT
from ratecli.errors import Diagnostic, FaultError
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import lock_results
from ratecli.ledger.view import Ledger
from ratecli.render import terminal_safe
from ratecli.report.expectations import (
    Verdict,
    compare_expectations,
    warn_unmet_expectations,
)
from ratecli.report.html import write_joined
from ratecli.report.sheets import requested_sheets
from ratecli.report.write import check_report_folder, write_and_load_report
from ratecli.runner.executors import DaskExecutor, Executor
from ratecli.runner.run import RunOutcome, RunRequest, count_stored_trials, run_experiments

MAX_SHOWN_ROWS = 20
MAX_SHOWN_REASONS = 10


@dataclass
class ExperimentEnd:
    """How an experiment ended, as far as it is known.

    `outcome` is None unless it ran to the end, `error` its error if it had one, `ledger` and
    `written` are the content and the files of its report.
    """

    request: RunRequest
    outcome: RunOutcome | None = None
    error: FaultError | None = None
    ledger: Ledger | None = None
    written: Sequence[Path] = ()

    @property
    def name(self) -> str:
        return self.request.folder.name


@dataclass
class Batch:
    """Runs experiments, writes a report on each, and prints a summary."""

    requests: Sequence[RunRequest]
    executor: Executor
    _: KW_ONLY
    fresh: bool = False
    quiet: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        self._code = 0
        self._ends = {each.folder: ExperimentEnd(each) for each in self.requests}

    def run(self) -> int:
        """Run the experiments with their results folders locked, and return the exit code.

        Raises FaultError (E512) before anything is written if a cluster is not available.
        """
        if isinstance(self.executor, DaskExecutor):
            self.executor.check()
        with ExitStack() as stack:
            self._run_trials([each for each in self.requests if self._lock(each, stack)])
            self._print_results()
        return self._code

    def _lock(self, request: RunRequest, stack: ExitStack) -> bool:
        """Lock the folder and return whether that succeeded and it is suitable for a report."""
        try:
            stack.enter_context(lock_results(request.folder))
            check_report_folder(request.folder)
        except FaultError as error:
            self._fail(request, error)
            return False
        return True

    def _run_trials(self, requests: Sequence[RunRequest]) -> None:
        for each in requests:
            print_diagnostics(each.prepared.warnings)
        try:
            run_experiments(
                requests,
                self.executor,
                self._write_report,
                self._fail,
                fresh=self.fresh,
                quiet=self.quiet,
            )
        except KeyboardInterrupt:
            self._print_stopped(requests, "interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except FaultError as error:  # an error of the executor, not of one experiment
            print_diagnostics(error.faults)
            self._print_stopped(requests, "stopped")
            self._code = max(self._code, error.exit_code)

    def _write_report(self, outcome: RunOutcome) -> None:
        """Write the report of an experiment whose trials have ended; `_fail` gets its errors."""
        end = self._ends[outcome.folder]
        end.outcome = outcome
        end.ledger, end.written = write_and_load_report(outcome.folder)

    def _fail(self, request: RunRequest, error: FaultError) -> None:
        """Record the error of one experiment, which does not stop the others."""
        self._ends[request.folder].error = error
        self._code = max(self._code, error.exit_code)
        self._print_named(request, error.faults)

    def _print_named(self, request: RunRequest, faults: Iterable[Diagnostic]) -> None:
        named = with_file_name(request.prepared.path, faults) if len(self._ends) > 1 else faults
        print_diagnostics(named)

    def _print_stopped(self, requests: Sequence[RunRequest], how: str) -> None:
        """Print what is stored of each experiment whose own error was not already printed."""
        for each in requests:
            if self._ends[each.folder].error is None:
                stored = count_stored_trials(each.prepared, each.folder)
                planned = len(each.prepared.plan.tasks)
                rest = "" if stored == planned else "; run again to go on"
                message = f"{how}: {stored} of {planned} trials are stored in {each.folder}{rest}"
                typer.echo(message, err=True)

    def _print_results(self) -> None:
        """Print warnings and results in the order of the files."""
        ends = list(self._ends.values())
        for end in ends:
            self._print_warnings(end)
        joined = self._write_joined() if len(ends) > 1 else []
        if self.quiet:
            return
        if len(ends) > 1:
            typer.echo(terminal_safe("\n".join([*summarize_experiments(ends), *joined])))
        elif ends[0].ledger is not None:
            typer.echo(terminal_safe("\n".join(summarize_experiment(ends[0]))))

    def _print_warnings(self, end: ExperimentEnd) -> None:
        """Print the warnings about an experiment's results and, if `verbose`, its failures."""
        if end.outcome is None:
            return
        self._code = max(self._code, end.outcome.exit_code)
        if end.ledger is None:
            return
        warnings = [*end.outcome.warnings, *warn_unmet_expectations(end.ledger)]
        self._print_named(end.request, warnings)
        for name, result in end.outcome.failed if self.verbose else ():
            details = result.info.get("traceback", result.reason)
            typer.echo(terminal_safe(f"{name}\n{details}"), err=True)

    def _write_joined(self) -> list[str]:
        """Write the page over all experiments and return the line that names it.

        The page also lists experiments without results.
        """
        folders = list(self._ends)
        try:
            return [f"report   {write_joined(folders, folders[0].parent / JOINED_REPORT)}"]
        except FaultError as error:
            print_diagnostics(error.faults)
            self._code = max(self._code, error.exit_code)
            return []


def summarize_experiment(end: ExperimentEnd) -> list[str]:
    """Return the summary of one experiment that has a report."""
    outcome, ledger = end.outcome, end.ledger
    assert outcome is not None
    assert ledger is not None
    new = "nothing to run, all were stored" if not outcome.ran else f"{outcome.ran} run now"
    left_out = end.request.prepared.plan.left_out
    more = [f"{pluralize(left_out, 'more trial')} planned: run without --smoke"] if left_out else []
    trials = pluralize(sum(outcome.counts.values()), "trial")
    return [
        f"{end.name}: {trials}: {_counts(outcome)} ({new})",
        *more,
        "",
        *_short_table(ledger),
        *_reasons("failed", outcome.failed),
        *_reasons("no solution", outcome.unsolved),
        *_output_lines(outcome.folder, end.written),
    ]


def summarize_experiments(ends: Sequence[ExperimentEnd]) -> list[str]:
    """Return a line for each experiment, failures of all of them, and totals."""
    heads = ["experiment", "trials", "run now", "ended", "expect", "report"]
    known = [(end.name, end.outcome) for end in ends if end.outcome is not None]
    trials = sum(sum(outcome.counts.values()) for _, outcome in known)
    ran = sum(outcome.ran for _, outcome in known)
    failed = [(f"{name}: {trial}", why) for name, each in known for trial, why in each.failed]
    unsolved = [(f"{name}: {trial}", why) for name, each in known for trial, why in each.unsolved]
    return [
        *format_table(heads, list(map(_row, ends)), ["trials", "run now"]).splitlines(),
        "",
        *_reasons("failed", failed),
        *_reasons("no solution", unsolved),
        f"{pluralize(len(ends), 'experiment')}: {pluralize(trials, 'trial')}, {ran} run now",
    ]


def _row(end: ExperimentEnd) -> list[str]:
    code = f": {end.error.faults[0].code}" if end.error else ""
    outcome = end.outcome
    if outcome is None:
        planned = len(end.request.prepared.plan.tasks)
        return [end.name, str(planned), "", f"stopped{code}", "", ""]
    counts = [str(sum(outcome.counts.values())), str(outcome.ran), _counts(outcome)]
    if end.ledger is None:
        return [end.name, *counts, "", f"none{code}"]
    return [end.name, *counts, _expected(end.ledger), str(end.request.folder / "report.html")]


def _counts(outcome: RunOutcome) -> str:
    return ", ".join(f"{count} {status}" for status, count in outcome.counts.items())


def _expected(ledger: Ledger) -> str:
    """Return how many of the file's judged expectations are met."""
    good: dict[int, bool] = {}
    for each in compare_expectations(ledger):
        if each.verdict is not Verdict.SHOWN:
            good[id(each.entry)] = good.get(id(each.entry), True) and each.verdict.good
    return f"{sum(good.values())} of {len(good)} hold" if good else ""


def _short_table(ledger: Ledger) -> list[str]:
    sheet = requested_sheets(ledger)[0]
    more = len(sheet.rows) - MAX_SHOWN_ROWS
    return [
        f"{sheet.title}: mean ± half the 95% interval over seeds",
        *format_sheet(sheet, MAX_SHOWN_ROWS).splitlines(),
        *([f"... {more} more rows in summary.md"] if more > 0 else []),
        "",
    ]


def _reasons(what: str, trials: Sequence[tuple[str, TrialResult]]) -> list[str]:
    lines = [f"{what}: {name}: {result.reason}" for name, result in trials[:MAX_SHOWN_REASONS]]
    if (more := len(trials) - MAX_SHOWN_REASONS) > 0:
        lines.append(f"... {more} more {what}: see trials.csv")
    return [*lines, ""] if lines else []


def _output_lines(folder: Path, written: Sequence[Path]) -> list[str]:
    """Return the results folder and its main files."""
    names = [path.relative_to(folder).as_posix() for path in written]
    trees = [name for name in names if name.startswith("figures/certificate-")]
    kinds = {"VARIANT.npz": "*.npz", "certificates.json": "certificates.json"}
    models = [
        f"models/TRIAL/{name}"
        for name, pattern in kinds.items()
        if "models" in names and any((folder / "models").glob(f"*/{pattern}"))
    ]
    outputs = {
        "results": [str(folder)],
        "tables": ["summary.md", "metrics.csv", *(n for n in names if n.startswith("tables/"))],
        "plots": [name for name in names if name.startswith("figures/") and name not in trees],
        "trees": ["figures/certificate-*.svg"] if trees else [],
        "models": models,
        "report": [str(folder / "report.html")],
    }
    return [f"{kind:8} {', '.join(listed)}" for kind, listed in outputs.items() if listed]

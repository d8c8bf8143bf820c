"""Run several experiments: lock their folders, write each report, and summarize the results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace

import typer

from ratecli.cli.console import (
    EXIT_INTERRUPTED,
    echo,
    format_sheet,
    format_table,
    pluralize,
    print_diagnostics,
)
from ratecli.cli.results import JOINED_REPORT
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import shell_command
from ratecli.ledger.locks import lock_results
from ratecli.ledger.records import TrialResult
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.answer import answers
from ratecli.report.answer_text import answer_sentences
from ratecli.report.check.expectations import compare_expectations, warn_unmet_expectations
from ratecli.report.check.findings import Verdict
from ratecli.report.html import write_joined
from ratecli.report.sheet import format_point
from ratecli.report.sheets import requested_sheets
from ratecli.report.write import (
    check_report_folder,
    trials_with_files,
    write_report,
)
from ratecli.runner.executors import Executor
from ratecli.runner.run import RunOutcome, RunRequest, count_stored_trials, run_experiments

MAX_SHOWN_ROWS = 20
MAX_SHOWN_REASONS = 10
MAX_SHOWN_SENTENCES = 6


@dataclass
class ExperimentEnd:
    """How an experiment ended, as far as it is known.

    `result` has its outcome and its ledger once its report was written, and `error` is its error if
    it had one.
    """

    request: RunRequest
    result: tuple[RunOutcome, Ledger] | None = None
    error: FaultError | None = None

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
                command=sys.argv,
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
        ledger, _ = write_report(outcome.folder)
        self._ends[outcome.folder].result = outcome, ledger

    def _fail(self, request: RunRequest, error: FaultError) -> None:
        """Record the error of one experiment, which does not stop the others."""
        self._ends[request.folder].error = error
        self._code = max(self._code, error.exit_code)
        self._print_named(request, error.faults)

    def _print_named(self, request: RunRequest, faults: Iterable[Diagnostic]) -> None:
        """Print diagnostics; those without a location name the file, if there are several."""
        file = f"{request.prepared.path}: " if len(self._ends) > 1 else ""
        print_diagnostics(
            fault if fault.place else replace(fault, message=file + fault.message)
            for fault in faults
        )

    def _print_stopped(self, requests: Sequence[RunRequest], how: str) -> None:
        """Print what is stored of each experiment whose own error was not already printed."""
        for each in requests:
            if self._ends[each.folder].error is None:
                stored = count_stored_trials(each.prepared, each.folder)
                planned = len(each.prepared.plan.tasks)
                message = f"{how}: {stored} of {planned} trials are stored in {each.folder}"
                echo(f"{message}; run again to continue", err=True)

    def _print_results(self) -> None:
        """Print warnings and results in the order of the files, and write the page over all."""
        ends = list(self._ends.values())
        for end in ends:
            self._print_warnings(end)
        lines: list[str] = []
        if len(ends) > 1:
            lines = summarize_experiments(ends)
        elif ends[0].result is not None:
            lines = summarize_experiment(ends[0], *ends[0].result)
        if lines and not self.quiet:
            echo("\n".join(lines))
        if len(ends) > 1:
            folders = list(self._ends)
            page = write_joined(folders, folders[0].parent / JOINED_REPORT)
            if not self.quiet:
                echo(f"report   {page}")

    def _print_warnings(self, end: ExperimentEnd) -> None:
        """Print the warnings about an experiment's results and, if `verbose`, its failures."""
        if end.result is None:
            return
        outcome, ledger = end.result
        self._code = max(self._code, outcome.exit_code)
        self._print_named(end.request, [*outcome.warnings, *warn_unmet_expectations(ledger)])
        for line in _without_solution(outcome) if self.quiet else ():
            echo(line, err=True)
        for name, result in outcome.failed if self.verbose else ():
            details = result.info.get("traceback", result.reason)
            echo(f"{name}\n{details}", err=True)


def summarize_experiment(end: ExperimentEnd, outcome: RunOutcome, ledger: Ledger) -> list[str]:
    """Return the summary of one experiment that has a report."""
    new = "nothing to run, all were stored" if not outcome.ran else f"{outcome.ran} run now"
    left_out = end.request.prepared.plan.left_out
    more = [f"{pluralize(left_out, 'more trial')} planned: run without --smoke"] if left_out else []
    trials = pluralize(sum(outcome.counts.values()), "trial")
    sheet = requested_sheets(ledger)[0]
    hidden = len(sheet.rows) - MAX_SHOWN_ROWS
    return [
        f"{end.name}: {trials}: {_counts(outcome)} ({new})",
        *more,
        "",
        f"{sheet.title}: mean ± half the 95% interval over seeds",
        *format_sheet(sheet, MAX_SHOWN_ROWS).splitlines(),
        *([f"... {hidden} more rows in summary.md"] if hidden > 0 else []),
        *ledger.row_notes,
        "",
        *_reasons("failed", outcome.failed),
        *_without_solution(outcome),
        *answer_sentences(ledger, most=MAX_SHOWN_SENTENCES, reasons=False),
        "",
        f"results  {outcome.folder}",
        f"report   {outcome.folder / 'report.html'}",
        *_use_of_model(outcome, ledger),
    ]


def _use_of_model(outcome: RunOutcome, ledger: Ledger) -> list[str]:
    """Return how to use a model of the last answer whose constraints hold often enough.

    Models that are no better than a constant decision are left out.
    """
    kept = [
        answer for answer in answers(ledger) if answer.best.is_kept and not answer.best.is_constant
    ]
    if not kept:
        return []
    answer, group = kept[-1], kept[-1].best.group
    for folder, trial in trials_with_files(ledger).items():
        has_model = ledger.status(trial) in MEASURED_STATUSES
        same = (trial.label, repr(trial.point)) == (group.label, repr(group.point))
        if has_model and same:
            models = outcome.folder / "models"
            line = f"predict  {shell_command('predict', models / folder, 'TABLE')}"
            at = f"this model is for {format_point(answer.task)}; others are in {models}"
            return [line, *([f"         {at}"] if len(kept) > 1 else [])]
    return []


def summarize_experiments(ends: Sequence[ExperimentEnd]) -> list[str]:
    """Return a line for each experiment, failures of all of them, and totals."""
    heads = ["experiment", "trials", "run now", "ended", "expect", "report"]
    known = [(end.name, end.result[0]) for end in ends if end.result is not None]
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
    if end.result is None:
        planned = len(end.request.prepared.plan.tasks)
        code = f": {end.error.faults[0].code}" if end.error else ""
        return [end.name, str(planned), "", f"stopped{code}", "", ""]
    outcome, ledger = end.result
    counts = [str(sum(outcome.counts.values())), str(outcome.ran), _counts(outcome)]
    return [end.name, *counts, _expected(ledger), str(end.request.folder / "report.html")]


def _counts(outcome: RunOutcome) -> str:
    return ", ".join(f"{count} {status}" for status, count in outcome.counts.items())


def _expected(ledger: Ledger) -> str:
    """Return how many numbers with an expectation meet it."""
    verdicts = [each.verdict for each in compare_expectations(ledger)]
    judged = [verdict.good for verdict in verdicts if verdict is not Verdict.SHOWN]
    return f"{sum(judged)} of {len(judged)} hold" if judged else ""


def _without_solution(outcome: RunOutcome) -> list[str]:
    return [*_reasons("no solution", outcome.unsolved), *_reasons("not met", outcome.unmet)]


def _reasons(what: str, trials: Sequence[tuple[str, TrialResult]]) -> list[str]:
    """Return a line for trials that differ only in the seed, with the reason of the first."""
    alike = dict[str, list[tuple[str, TrialResult]]]()
    for trial in trials:
        alike.setdefault(trial[0].rpartition(" seed=")[0], []).append(trial)
    lines = []
    for (name, result), *rest in list(alike.values())[:MAX_SHOWN_REASONS]:
        similar = any(other.reason != result.reason for _, other in rest)
        others = f" (and {pluralize(len(rest), 'other seed')}{', for similar reasons' * similar})"
        others = others if rest else ""
        lines.append(f"{what}: {name}{others}: {result.reason}")
    if (more := len(alike) - MAX_SHOWN_REASONS) > 0:
        lines.append(f"... {more} more {what}: see trials.csv")
    return [*lines, ""] if lines else []

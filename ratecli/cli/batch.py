"""Run several experiments: lock their folders, write each report, and summarize the results."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ratecli.cli.console import EXIT_INTERRUPTED, echo, pluralize, print_diagnostics
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import REPORT_FILE
from ratecli.ledger.locks import lock_results
from ratecli.ledger.records import TrialResult
from ratecli.ledger.view import Ledger
from ratecli.render import render_text, text_table
from ratecli.report.answer import answers, goal_answers, goal_of
from ratecli.report.answer_text import answer_lines, best_sheet, point_options
from ratecli.report.check.expectations import compare_expectations, warn_unmet_expectations
from ratecli.report.check.findings import Verdict
from ratecli.report.groups import group_by
from ratecli.report.html import write_joined
from ratecli.report.sheet import narrowed, to_text
from ratecli.report.sheets import NUMBER, requested_sheets
from ratecli.report.write import SUMMARY_FILE, check_report_folder, write_report
from ratecli.runner.executors import Executor
from ratecli.runner.run import RunOutcome, RunRequest, count_stored_trials, run_experiments

MAX_SHOWN_ROWS = 20
MAX_SHOWN_REASONS = 10
DEFAULT_WIDTH = 100
"""Width of tables where the output is no terminal."""


@dataclass
class ExperimentEnd:
    """How an experiment ended, as far as it is known.

    `result` has its outcome and its ledger once its report was written, `tracked` says what was
    logged elsewhere, and `error` is its error if it had one.
    """

    request: RunRequest
    result: tuple[RunOutcome, Ledger] | None = None
    error: FaultError | None = None
    tracked: str = ""

    @property
    def name(self) -> str:
        return self.request.folder.name

    @property
    def code(self) -> int:
        code = self.error.exit_code if self.error else 0
        return max(code, self.result[0].exit_code) if self.result else code


def run_batch(
    requests: Sequence[RunRequest],
    executor: Executor,
    track: Callable[[Path], str] | None = None,
    *,
    fresh: bool = False,
    quiet: bool = False,
    verbose: bool = False,
) -> int:
    """Run experiments with their results folders locked, write a report on each, and summarize.

    Return the exit code. The error of one experiment does not stop the others. `track` logs a
    results folder elsewhere, and returns a line about it. Raises FaultError (E512) before anything
    is written if a cluster is not available.
    """
    executor.check()
    ends = {each.folder: ExperimentEnd(each) for each in requests}
    code, several = 0, len(ends) > 1

    def write(outcome: RunOutcome) -> None:
        end = ends[outcome.folder]
        end.result = outcome, write_report(outcome.folder)[0]
        end.tracked = track(outcome.folder) if track else ""

    def fail(request: RunRequest, error: FaultError) -> None:
        ends[request.folder].error = error
        _print_named(request, error.faults, several=several)

    with ExitStack() as stack:
        locked = []
        for each in requests:
            try:
                stack.enter_context(lock_results(each.folder))
                check_report_folder(each.folder)
                locked.append(each)
            except FaultError as error:
                fail(each, error)
        for each in locked:
            print_diagnostics(each.prepared.warnings)
        running = (ends[each.folder] for each in locked)
        try:
            run_experiments(
                locked, executor, write, fail, fresh=fresh, quiet=quiet, command=sys.argv
            )
        except KeyboardInterrupt:
            _print_stopped(running, "interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except FaultError as error:  # an error of the executor, not of one experiment
            print_diagnostics(error.faults)
            _print_stopped(running, "stopped")
            code = error.exit_code
        _print_results(list(ends.values()), quiet=quiet, verbose=verbose)
    return max([code, *(end.code for end in ends.values())])


def _print_named(request: RunRequest, faults: Iterable[Diagnostic], *, several: bool) -> None:
    """Print diagnostics; those without a location name the file, if there are `several`."""
    file = f"{request.prepared.path}: " if several else ""
    print_diagnostics(
        fault if fault.place else replace(fault, message=file + fault.message) for fault in faults
    )


def _print_stopped(ends: Iterable[ExperimentEnd], how: str) -> None:
    """Print what is stored of each experiment whose own error was not already printed."""
    for end in ends:
        if end.error is None:
            prepared, folder = end.request.prepared, end.request.folder
            stored, planned = count_stored_trials(prepared, folder), len(prepared.plan.tasks)
            message = f"{how}: {stored} of {planned} trials are stored in {folder}"
            echo(f"{message}; run again to continue", err=True)


def _print_results(ends: Sequence[ExperimentEnd], *, quiet: bool, verbose: bool) -> None:
    """Print warnings and results in the order of the files, and write the page over all."""
    several = len(ends) > 1
    for end in ends:
        if end.result is not None:
            outcome, ledger = end.result
            found = [*outcome.warnings, *warn_unmet_expectations(ledger)]
            _print_named(end.request, found, several=several)
            _print_failures(outcome, quiet=quiet, verbose=verbose)
    if not quiet and several:
        echo(summarize_experiments(ends), nl=False)
    elif not quiet and ends[0].result is not None:
        echo(summarize_experiment(ends[0], *ends[0].result), nl=False)
    if several:
        folders = [end.request.folder for end in ends]
        page = write_joined(folders, folders[0].parent / REPORT_FILE)
        if not quiet:
            echo(f"report   {page}")


def _print_failures(outcome: RunOutcome, *, quiet: bool, verbose: bool) -> None:
    """Print trials without a solution if `quiet`, and tracebacks if `verbose`."""
    unsolved = [("no solution", outcome.unsolved), ("not met", outcome.unmet)]
    for what, trials in unsolved if quiet else ():
        for line in reason_lines(what, trials):
            echo(line, err=True)
    for name, result in outcome.failed if verbose else ():
        echo(f"{name}\n{result.info.get('traceback', result.reason)}", err=True)


def summarize_experiment(end: ExperimentEnd, outcome: RunOutcome, ledger: Ledger) -> str:
    """Return the summary of one experiment that has a report."""
    kinds = (
        ("failed", outcome.failed),
        ("no solution", outcome.unsolved),
        ("not met", outcome.unmet),
    )
    several = len(answers(ledger)) > 1 and bool(ledger.constraints)
    sheet = best_sheet(ledger) if several else requested_sheets(ledger)[0]
    return _render(
        several=False,
        name=end.name,
        trials=sum(outcome.counts.values()),
        counts=_counts(outcome),
        ran=outcome.ran,
        left_out=end.request.prepared.plan.left_out,
        sheet=sheet,
        width=shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns,
        notes=ledger.row_notes,
        reasons=[reason_lines(what, trials) for what, trials in kinds],
        answer=answer_lines(ledger),
        tables=outcome.folder / SUMMARY_FILE,
        report=outcome.folder / REPORT_FILE,
        tracked=[end.tracked] if end.tracked else [],
        fit=_fit_command(end, ledger),
    )


def _fit_command(end: ExperimentEnd, ledger: Ledger) -> str:
    """Return the command that trains the model of the goal on all rows; "" if there is none."""
    found = [each for each in goal_answers(ledger) if each.is_recommended]
    if not found:
        return ""
    at = point_options(found[-1].task) if goal_of(ledger) is None else []
    return end.request.prepared.command("fit", end.request.folder, *at)


def summarize_experiments(ends: Sequence[ExperimentEnd]) -> str:
    """Return a line for each experiment, failures of all of them, and totals."""
    heads = ["experiment", "trials", "run now", "ended", "expect", "report"]
    known = [(end.name, end.result[0]) for end in ends if end.result is not None]
    failed = [(f"{name}: {trial}", why) for name, each in known for trial, why in each.failed]
    unsolved = [(f"{name}: {trial}", why) for name, each in known for trial, why in each.unsolved]
    return _render(
        several=True,
        table=text_table(heads, list(map(_row, ends)), ["trials", "run now"]),
        reasons=[reason_lines("failed", failed), reason_lines("no solution", unsolved)],
        experiments=len(ends),
        trials=sum(sum(outcome.counts.values()) for _, outcome in known),
        ran=sum(outcome.ran for _, outcome in known),
        tracked=[end.tracked for end in ends if end.tracked],
    )


def _render(**facts: Any) -> str:
    template = Path(__file__).with_name("summary.jinja")
    filters: dict[str, Any] = {"counted": pluralize, "text": to_text, "narrowed": narrowed}
    facts["most_rows"] = MAX_SHOWN_ROWS
    return render_text(template, facts, filters)


def _row(end: ExperimentEnd) -> list[str]:
    if end.result is None:
        planned = len(end.request.prepared.plan.tasks)
        code = f": {end.error.faults[0].code}" if end.error else ""
        return [end.name, str(planned), "", f"stopped{code}", "", ""]
    outcome, ledger = end.result
    counts = [str(sum(outcome.counts.values())), str(outcome.ran), _counts(outcome)]
    return [end.name, *counts, _expected(ledger), str(end.request.folder / REPORT_FILE)]


def _counts(outcome: RunOutcome) -> str:
    return ", ".join(f"{count} {status}" for status, count in outcome.counts.items())


def _expected(ledger: Ledger) -> str:
    """Return how many numbers with an expectation meet it."""
    verdicts = [each.verdict for each in compare_expectations(ledger)]
    judged = [verdict.good for verdict in verdicts if verdict is not Verdict.SHOWN]
    return f"{sum(judged)} of {len(judged)} hold" if judged else ""


def reason_lines(what: str, trials: Iterable[tuple[str, TrialResult]]) -> list[str]:
    """Return a line for trials of an algorithm with reasons that differ only in their numbers.

    After `MAX_SHOWN_REASONS` lines, one more says how many are left out.
    """
    found = []
    alike = group_by(trials, lambda each: (each[0].split()[0], NUMBER.sub("#", each[1].reason)))
    for (name, first), *rest in alike.values():
        others = f" (and {pluralize(len(rest), 'other trial')})" if rest else ""
        found.append(f"{what}: {name}{others}: {first.reason}")
    left_out = len(found) - MAX_SHOWN_REASONS
    more = [f"... {left_out} more {what}: see trials.csv"] if left_out > 0 else []
    return found[:MAX_SHOWN_REASONS] + more

"""Run several experiments: lock their folders, write each report, and summarize the results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ratecli.cli.console import (
    EXIT_INTERRUPTED,
    echo,
    format_sheet,
    format_table,
    pluralize,
    print_diagnostics,
)
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import MODELS_FOLDER, shell_command
from ratecli.ledger.locks import lock_results
from ratecli.ledger.records import TrialResult
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.render import render_text
from ratecli.report.answer import answers
from ratecli.report.answer_text import answer_sentences
from ratecli.report.check.expectations import compare_expectations, warn_unmet_expectations
from ratecli.report.check.findings import Verdict
from ratecli.report.groups import SeedGroup, group_by
from ratecli.report.html import REPORT, write_joined
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
        several = len(ends) > 1
        if not self.quiet and several:
            echo(summarize_experiments(ends), nl=False)
        elif not self.quiet and ends[0].result is not None:
            echo(summarize_experiment(ends[0], *ends[0].result), nl=False)
        if several:
            folders = list(self._ends)
            page = write_joined(folders, folders[0].parent / REPORT)
            if not self.quiet:
                echo(f"report   {page}")

    def _print_warnings(self, end: ExperimentEnd) -> None:
        """Print the warnings about an experiment's results and, if `verbose`, its failures."""
        if end.result is None:
            return
        outcome, ledger = end.result
        self._code = max(self._code, outcome.exit_code)
        self._print_named(end.request, [*outcome.warnings, *warn_unmet_expectations(ledger)])
        unsolved = [("no solution", outcome.unsolved), ("not met", outcome.unmet)]
        for what, trials in unsolved if self.quiet else ():
            for name, reason, *_ in alike_trials(trials):
                echo(f"{what}: {name}: {reason}", err=True)
        for name, result in outcome.failed if self.verbose else ():
            details = result.info.get("traceback", result.reason)
            echo(f"{name}\n{details}", err=True)


def summarize_experiment(end: ExperimentEnd, outcome: RunOutcome, ledger: Ledger) -> str:
    """Return the summary of one experiment that has a report."""
    kept = [each for each in answers(ledger) if each.best.is_kept and not each.best.is_constant]
    kinds = (
        ("failed", outcome.failed),
        ("no solution", outcome.unsolved),
        ("not met", outcome.unmet),
    )
    return _render(
        several=False,
        name=end.name,
        trials=sum(outcome.counts.values()),
        counts=_counts(outcome),
        ran=outcome.ran,
        left_out=end.request.prepared.plan.left_out,
        sheet=requested_sheets(ledger)[0],
        notes=ledger.row_notes,
        kinds=[(what, alike_trials(trials)) for what, trials in kinds],
        answers=answer_sentences(ledger, most=MAX_SHOWN_SENTENCES, reasons=False),
        folder=outcome.folder,
        model=_use_of_model(outcome, ledger, kept[-1].best.group) if kept else "",
        task=format_point(kept[-1].task) if len(kept) > 1 else "",
    )


def summarize_experiments(ends: Sequence[ExperimentEnd]) -> str:
    """Return a line for each experiment, failures of all of them, and totals."""
    heads = ["experiment", "trials", "run now", "ended", "expect", "report"]
    known = [(end.name, end.result[0]) for end in ends if end.result is not None]
    failed = [(f"{name}: {trial}", why) for name, each in known for trial, why in each.failed]
    unsolved = [(f"{name}: {trial}", why) for name, each in known for trial, why in each.unsolved]
    return _render(
        several=True,
        table=format_table(heads, list(map(_row, ends)), ["trials", "run now"]),
        kinds=[("failed", alike_trials(failed)), ("no solution", alike_trials(unsolved))],
        experiments=len(ends),
        trials=sum(sum(outcome.counts.values()) for _, outcome in known),
        ran=sum(outcome.ran for _, outcome in known),
    )


def _render(**facts: Any) -> str:
    limits = {"most_rows": MAX_SHOWN_ROWS, "most_reasons": MAX_SHOWN_REASONS}
    template = Path(__file__).with_name("summary.jinja")
    return render_text(template, facts | limits, {"counted": pluralize, "text": format_sheet})


def _use_of_model(outcome: RunOutcome, ledger: Ledger, group: SeedGroup) -> str:
    """Return the command that applies the model of a group's first trial; "" if it has none."""
    for folder, trial in trials_with_files(ledger).items():
        same = (trial.label, repr(trial.point)) == (group.label, repr(group.point))
        if same and ledger.status(trial) in MEASURED_STATUSES:
            return shell_command("predict", outcome.folder / MODELS_FOLDER / folder, "TABLE")
    return ""


def _row(end: ExperimentEnd) -> list[str]:
    if end.result is None:
        planned = len(end.request.prepared.plan.tasks)
        code = f": {end.error.faults[0].code}" if end.error else ""
        return [end.name, str(planned), "", f"stopped{code}", "", ""]
    outcome, ledger = end.result
    counts = [str(sum(outcome.counts.values())), str(outcome.ran), _counts(outcome)]
    return [end.name, *counts, _expected(ledger), str(end.request.folder / REPORT)]


def _counts(outcome: RunOutcome) -> str:
    return ", ".join(f"{count} {status}" for status, count in outcome.counts.items())


def _expected(ledger: Ledger) -> str:
    """Return how many numbers with an expectation meet it."""
    verdicts = [each.verdict for each in compare_expectations(ledger)]
    judged = [verdict.good for verdict in verdicts if verdict is not Verdict.SHOWN]
    return f"{sum(judged)} of {len(judged)} hold" if judged else ""


def alike_trials(
    trials: Iterable[tuple[str, TrialResult]],
) -> list[tuple[str, str, int, bool]]:
    """Group trials that differ only in the seed.

    Return the name and the reason of the first, the number of others, and whether any of them has
    another reason.
    """
    found = []
    for alike in group_by(trials, lambda each: each[0].rpartition(" seed=")[0]).values():
        (name, first), *rest = alike
        found.append(
            (name, first.reason, len(rest), any(o.reason != first.reason for _, o in rest))
        )
    return found

"""What a run says at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ratecli.cli.console import format_table, pluralize

if TYPE_CHECKING:
    from ratecli.errors import FaultError
    from ratecli.ledger.records import TrialResult
    from ratecli.ledger.view import Ledger
    from ratecli.runner.run import RunOutcome, RunRequest

MAX_SHOWN_ROWS = 20
MAX_SHOWN_REASONS = 10


@dataclass(frozen=True)
class ExperimentEnd:
    """How an experiment ended: with an outcome, a report (what it is of, its files), or a fault."""

    asked: RunRequest
    outcome: RunOutcome | None
    fault: FaultError | None
    ledger: Ledger | None = None
    written: Sequence[Path] = ()

    @property
    def name(self) -> str:
        return self.asked.folder.name


def summarize_experiment(end: ExperimentEnd) -> list[str]:
    """The numbers of one experiment that has its report."""
    outcome, ledger = end.outcome, end.ledger
    assert outcome is not None
    assert ledger is not None
    new = "nothing to run, all were stored" if not outcome.ran else f"{outcome.ran} run now"
    left_out = end.asked.prepared.plan.left_out
    more = [f"{pluralize(left_out, 'more trial')} planned: run without --smoke"] if left_out else []
    return [
        f"{end.name}: {pluralize(sum(outcome.counts.values()), 'trial')}: {_counts(outcome)} ({new})",
        *more,
        "",
        *_short_table(ledger),
        *_reasons("failed", outcome.failed),
        *_reasons("no solution", outcome.unsolved),
        *_places(outcome.folder, end.written),
    ]


def summarize_experiments(ends: Sequence[ExperimentEnd]) -> list[str]:
    """A line an experiment, what failed in any, and the sum."""
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
    """How many of the file's expectations hold, of those by which anything is judged."""
    from ratecli.report.expectations import ExpectationVerdict, compare_expectations  # noqa: PLC0415

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
        *([f"models   {', '.join(_stored_models_lines(folder))}"] if "models" in names else []),
        f"report   {folder / 'report.html'}",
    ]


def _stored_models_lines(folder: Path) -> list[str]:
    """What the folders of trials hold."""
    kinds = {"VARIANT.npz": "*.npz", "certificates.json": "certificates.json"}
    return [
        f"models/TRIAL/{name}"
        for name, pattern in kinds.items()
        if any((folder / "models").glob(f"*/{pattern}"))
    ]

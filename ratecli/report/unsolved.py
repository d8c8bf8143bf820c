"""Why trials ended without a solution, told once for reasons that differ in their numbers only."""

from __future__ import annotations

import re
from collections import Counter

from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.sheet import Sheet, SheetCell, SheetColumn, format_scalar

NO_SOLUTION = "no_solution_found"
MAX_REASONS = 3
"""Reasons that are told of an algorithm: those of most trials."""
NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf\b|nan\b)")
NO_SOLUTION_NOTE = (
    "Reasons by how many trials of the algorithm they are of, told as the first of these told them: its "
    "numbers are its own."
)


def no_solution_sheet(ledger: Ledger) -> Sheet:
    """One row for each of the most frequent reasons of each algorithm."""
    planned = Counter(trial.label for trial in ledger.plan)
    found: dict[str, dict[str, list[PlannedTrial]]] = {label: {} for label in planned}
    for trial in ledger.plan:
        if ledger.status(trial) == NO_SOLUTION:
            alike = NUMBER.sub("#", ledger.reason(trial))
            found[trial.label].setdefault(alike, []).append(trial)
    rows = []
    for label, reasons in found.items():
        ranked = sorted(reasons.values(), key=len, reverse=True)
        for trials in ranked[:MAX_REASONS]:
            counted = SheetCell(f"{len(trials)} of {planned[label]}", len(trials))
            why = SheetCell(ledger.reason(trials[0]))
            rows.append((SheetCell(label), counted, SheetCell(_where(trials[0])), why))
        others = sum(map(len, ranked[MAX_REASONS:]))
        if others:
            counted = SheetCell(f"{others} of {planned[label]}", others)
            more = len(ranked) - MAX_REASONS
            why = SheetCell(f"{more} other reason{'s' * (more > 1)}, in trials.csv")
            rows.append((SheetCell(label), counted, SheetCell(""), why))
    columns = (
        SheetColumn("algorithm"),
        SheetColumn("trials", numeric=True),
        SheetColumn("first"),
        SheetColumn("reason"),
    )
    return Sheet("Why no solution was found", columns, tuple(rows), NO_SOLUTION_NOTE)


def _where(trial: PlannedTrial) -> str:
    point = [f"{name} = {format_scalar(value)}" for name, value in trial.point.items()]
    return ", ".join([*point, f"seed {trial.seed}"])

"""Why trials ended without a solution, told once for reasons that differ in their numbers only."""

from __future__ import annotations

import re
from collections import Counter

from ratecli.ledger.records import Planned
from ratecli.ledger.view import Ledger
from ratecli.report.sheet import Cell, Column, Sheet, scalar

NO_SOLUTION = "no_solution_found"
FEW = 3
"""Reasons that are told of an algorithm: those of most trials."""
NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf\b|nan\b)")
NOTE = (
    "Reasons by how many trials of the algorithm they are of, told as the first of these told them: its "
    "numbers are its own."
)


def unsolved(ledger: Ledger) -> Sheet:
    """One row for each of the most frequent reasons of each algorithm."""
    planned = Counter(trial.label for trial in ledger.plan)
    found: dict[str, dict[str, list[Planned]]] = {label: {} for label in planned}
    for trial in ledger.plan:
        if ledger.status(trial) == NO_SOLUTION:
            alike = NUMBER.sub("#", ledger.reason(trial))
            found[trial.label].setdefault(alike, []).append(trial)
    rows = []
    for label, reasons in found.items():
        ranked = sorted(reasons.values(), key=len, reverse=True)
        for trials in ranked[:FEW]:
            counted = Cell(f"{len(trials)} of {planned[label]}", len(trials))
            why = Cell(ledger.reason(trials[0]))
            rows.append((Cell(label), counted, Cell(_where(trials[0])), why))
        others = sum(map(len, ranked[FEW:]))
        if others:
            counted = Cell(f"{others} of {planned[label]}", others)
            more = len(ranked) - FEW
            why = Cell(f"{more} other reason{'s' * (more > 1)}, in trials.csv")
            rows.append((Cell(label), counted, Cell(""), why))
    columns = (
        Column("algorithm"),
        Column("trials", numeric=True),
        Column("first"),
        Column("reason"),
    )
    return Sheet("Why no solution was found", columns, tuple(rows), NOTE)


def _where(trial: Planned) -> str:
    point = [f"{name} = {scalar(value)}" for name, value in trial.point.items()]
    return ", ".join([*point, f"seed {trial.seed}"])

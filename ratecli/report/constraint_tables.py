"""Which constraints were kept where, and which trials have no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ratecli.ledger.records import VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.groups import SeedGroup, seed_groups
from ratecli.report.identity import (
    UNKNOWN,
    count_by_status,
    identity_column,
    identity_columns,
    key_cell,
    sort_groups,
    status_cell,
)
from ratecli.report.sheet import Sheet, SheetCell, SheetColumn, estimate_cell, value_cell
from ratecli.report.unsolved import NO_SOLUTION

ORDINARY_STATUSES = frozenset({"ok", "not_met", NO_SOLUTION})
"""Statuses that the promises or the reasons why nothing was found already tell of."""
MAX_STACKS = 20
"""Of failed trials, in a report."""
MAX_STACK_LENGTH = 6000
"""Characters of a stack that are told: its end says most."""


def constraint_sheet(ledger: Ledger) -> Sheet:
    """Which constraint holds where: one row a group and constraint, splits side by side."""
    rows = [
        (
            *(key_cell(group, key) for key in identity_columns(ledger)),
            SheetCell(name),
            *_constraint_cells(ledger, group, name),
            status_cell(group.statuses),
        )
        for group in sort_groups(seed_groups(ledger.algorithms), identity_columns(ledger))
        for name in ledger.constraints
    ]
    heads = [identity_column(ledger, name) for name in identity_columns(ledger)]
    splits = [SheetColumn(split, numeric=True) for split in ledger.splits]
    note = (
        "Mean violation ± half its 95 % interval over seeds, and in how many of the trials the constraint "
        f"holds (violation at most 0). ✓ all, ✗ not all, {UNKNOWN} not measured."
    )
    columns = (*heads, SheetColumn("constraint"), *splits, SheetColumn("status"))
    return Sheet("Promises at each sweep point", columns, tuple(rows), note)


def satisfaction_sheet(ledger: Ledger) -> Sheet:
    """How often each algorithm kept each constraint, over all seeds and sweep points."""
    members: dict[tuple[str, str], list[SeedGroup]] = {}
    for group in seed_groups(ledger.algorithms):
        members.setdefault((group.label, group.variant), []).append(group)
    rows = [
        (
            SheetCell(label),
            SheetCell(variant or UNKNOWN),
            SheetCell(name),
            *(_kept_cell(found, split, name) for split in ledger.splits),
            status_cell(sum((Counter(group.statuses) for group in found), Counter())),
        )
        for (label, variant), found in members.items()
        for name in ledger.constraints
    ]
    splits = [SheetColumn(split, numeric=True) for split in ledger.splits]
    heads = [SheetColumn("algorithm"), SheetColumn("variant"), SheetColumn("constraint")]
    note = (
        "Trials (seeds and sweep points) in which the constraint holds, of those in which it was "
        f"measured on that split; {UNKNOWN} in none."
    )
    return Sheet("Promises kept", (*heads, *splits, SheetColumn("status")), tuple(rows), note)


def failures_sheet(ledger: Ledger) -> Sheet:
    """Trials without an answer, or stopped before it, with the reason; alike seeds in one row."""
    seeds: dict[tuple[str, str, str, str], list[int]] = {}
    points: dict[tuple[str, str, str, str], Mapping[str, Any]] = {}
    stacks: dict[tuple[str, str, str, str], str] = {}
    for trial in ledger.plan:
        status = ledger.status(trial)
        if status not in ORDINARY_STATUSES:
            key = (trial.label, repr(dict(trial.point)), status, ledger.reason(trial))
            seeds.setdefault(key, []).append(trial.seed)
            points[key] = trial.point
            if key not in stacks:
                told = len(stacks) < MAX_STACKS
                stacks[key] = _stack(ledger, trial) if told else ""
    rows = [
        (
            SheetCell(key[0]),
            *(value_cell(points[key].get(name)) for name in ledger.sweep),
            SheetCell(", ".join(map(str, found))),
            SheetCell(key[2], tone=status_cell({key[2]: 1}).tone),
            SheetCell(key[3], more=stacks[key]),
        )
        for key, found in seeds.items()
    ]
    sweep = [identity_column(ledger, name) for name in ledger.sweep]
    columns = (SheetColumn("algorithm"), *sweep, *map(SheetColumn, ["seed", "status", "reason"]))
    return Sheet("Trials that did not finish", columns, tuple(rows))


def status_sheet(ledger: Ledger) -> Sheet:
    """How the trials of each algorithm ended, and the time that they took together."""
    labels = list(dict.fromkeys(trial.label for trial in ledger.plan))
    found = {label: Counter[str]() for label in labels}
    seconds = dict.fromkeys(labels, 0.0)
    for trial in ledger.plan:
        found[trial.label][ledger.status(trial)] += 1
        result = ledger.results.get(trial.key)
        seconds[trial.label] += result.seconds if result else 0.0
    statuses = [status for status, *_ in count_by_status(sum(found.values(), Counter()))]
    rows = [
        (
            SheetCell(label),
            value_cell(found[label].total()),
            *(_count_cell(found[label][status], status) for status in statuses),
            SheetCell(f"{seconds[label]:,.1f}", seconds[label]),
        )
        for label in labels
    ]
    numeric = [SheetColumn(name, numeric=True) for name in ("trials", *statuses, "seconds")]
    note = "Seconds are those of all trials one after another, each in its process."
    return Sheet("How trials ended", (SheetColumn("algorithm"), *numeric), tuple(rows), note)


def _count_cell(count: int, status: str) -> SheetCell:
    return SheetCell(str(count), count, status_cell({status: count}).tone if count else "none")


def _stack(ledger: Ledger, trial: PlannedTrial) -> str:
    """The end of what a trial left of its stack."""
    result = ledger.results.get(trial.key)
    text = str(result.info.get("traceback") or "") if result else ""
    return text if len(text) <= MAX_STACK_LENGTH else f"...{text[-MAX_STACK_LENGTH:]}"


def _constraint_cells(ledger: Ledger, group: SeedGroup, name: str) -> Iterable[SheetCell]:
    for split in ledger.splits:
        held, trials = group.held(split, name)
        found = group.estimate(split, VIOLATION_PREFIX + name)
        if not trials:
            yield SheetCell(UNKNOWN)
            continue
        amount = "not measured" if found.mean is None else estimate_cell(found, found.n).text
        share = f" ({held}/{trials})" if trials > 1 else ""
        yield SheetCell(
            f"{_mark(held, trials)} {amount}{share}", found.mean, _held_tone(held, trials)
        )


def _kept_cell(found: Sequence[SeedGroup], split: str, name: str) -> SheetCell:
    pairs = [group.held(split, name) for group in found]
    held, trials = (sum(pair[i] for pair in pairs) for i in (0, 1))
    if not trials:
        return SheetCell(UNKNOWN)
    text = f"{_mark(held, trials)} {held} of {trials}"
    return SheetCell(text, held / trials, _held_tone(held, trials))


def _mark(held: int, trials: int) -> str:
    return "✓" if held == trials else "✗"


def _held_tone(held: int, trials: int) -> str:
    if held == trials:
        return "good"
    return "part" if held else "bad"

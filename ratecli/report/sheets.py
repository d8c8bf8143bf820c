"""The report's tables: requested tables, constraints, statuses, failures and unsolved trials."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ratecli.ledger.records import FILTER_STAGE_PREFIX, VIOLATION_PREFIX, PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.groups import SeedGroup, SplitMetric, is_share, seed_groups
from ratecli.report.sheet import (
    UNKNOWN,
    Sheet,
    SheetCell,
    SheetColumn,
    count_by_status,
    estimate_cell,
    format_scalar,
    identity_column,
    identity_columns,
    key_cell,
    sort_groups,
    status_cell,
    value_cell,
)

NO_SOLUTION = "no_solution_found"
MAX_REASONS = 3
"""Maximum number of reasons listed for an algorithm, the most frequent ones."""
NUMBER = re.compile(r"[-+]?(\d[\d,.]*(e[-+]?\d+)?|inf\b|nan\b)")
NO_SOLUTION_NOTE = (
    "Reasons by how many trials of the algorithm they are of, told as the first of these told "
    "them: its numbers are its own."
)


def no_solution_sheet(ledger: Ledger) -> Sheet:
    """Return the most frequent reasons why trials of each algorithm found no solution."""
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


ORDINARY_STATUSES = frozenset({"ok", "not_met", NO_SOLUTION})
"""Statuses already covered by the constraint tables or the table of unsolved trials."""
MAX_STACKS = 20
"""Maximum number of tracebacks in a report."""
MAX_STACK_LENGTH = 6000
"""Maximum characters of a traceback; the end is kept, as it is the most informative part."""


def constraint_sheet(ledger: Ledger) -> Sheet:
    """Return constraint satisfaction, by group and constraint (rows) and split (columns)."""
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
        "Mean violation ± half its 95 % interval over seeds, and in how many of the trials the "
        f"constraint holds (violation at most 0). ✓ all, ✗ not all, {UNKNOWN} not measured."
    )
    columns = (*heads, SheetColumn("constraint"), *splits, SheetColumn("status"))
    return Sheet("Promises at each sweep point", columns, tuple(rows), note)


def satisfaction_sheet(ledger: Ledger) -> Sheet:
    """Return how often each algorithm satisfied each constraint, over seeds and sweep points."""
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
    """Return failed and unfinished trials with reasons; seeds that ended alike share a row."""
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
    """Return how the trials of each algorithm ended, and their total time."""
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
    """Return the end of a trial's traceback, or ""."""
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


MEANS_LEGEND = (
    "Mean ± half the width of the 95 % Student-t interval over n seeds (resampled: the seed, with "
    "every split that is not official and every random decision that is drawn from it). Trials "
    "without an answer and NaN values are in no mean."
)
SHARES_LEGEND = (
    "Shares of trials, with the exact 95 % interval of Clopper and Pearson: solution_rate of those "
    "that gave a classifier, failure_rate of those whose classifier breaks a constraint on the "
    "rows of the table (where none was given nothing fails). Trials that crashed, ran out of time "
    "or diverged are in neither."
)


@dataclass(frozen=True)
class SheetField:
    """A column and the function that fills it for a group."""

    column: SheetColumn
    cell: Callable[[SeedGroup], SheetCell]


def cell_legend(ledger: Ledger) -> str:
    """Return the explanation of cells that applies to all tables."""
    asked = {name for table in ledger.asked("tables") for name in table.get("columns") or ()}
    asked |= {entry.get("metric", "") for entry in ledger.experiment.get("expect") or ()}
    return f"{MEANS_LEGEND} {SHARES_LEGEND}" if any(map(is_share, asked)) else MEANS_LEGEND


def requested_sheets(ledger: Ledger) -> list[Sheet]:
    """Return a sheet for each entry of `report: tables`, then those of the filter.

    Without entries, there is one sheet with all metrics.
    """
    return list(ledger.once("asked sheets", lambda: _requested_sheets(ledger)))


def _requested_sheets(ledger: Ledger) -> list[Sheet]:
    asked = ledger.asked("tables") or [{}]
    found = []
    for position, table in enumerate(asked, 1):
        title = table.get("file") or f"Table {position}"
        found.append(_requested_sheet(ledger.of(table.get("columns") or ()), table, title))
    return [*found, *_stage_sheets(ledger.stage)]


def _stage_sheets(stage: Ledger) -> list[Sheet]:
    """Return the sheets about the filter before training, on the training and test sets."""
    splits = [split for split in ("train", "test") if split in stage.splits]
    if stage.plan and not splits:
        splits = ["train"]  # no filter was found, which the table reports
    columns = [name for name in stage.metrics if name.startswith(FILTER_STAGE_PREFIX)]
    title = "The filter before training"
    return [_requested_sheet(stage, {"split": each, "columns": columns}, title) for each in splits]


def unlisted_constraints(ledger: Ledger) -> set[str]:
    """Return the constraints whose violations are in no requested table."""
    tables = ledger.asked("tables") or [{}]
    every = ledger.algorithms.metrics
    shown = {name for table in tables for name in table.get("columns") or every}
    return {name for name in ledger.constraints if VIOLATION_PREFIX + name not in shown}


def _requested_sheet(ledger: Ledger, table: Mapping[str, Any], title: str) -> Sheet:
    rows = list(table.get("rows") or identity_columns(ledger))
    split = table.get("split") or "test"
    found = seed_groups(ledger, by_seed="seed" in rows)
    names = _distinguishing_names(ledger, rows, found)
    metrics = table.get("columns") or ledger.metrics
    shown = [place for name in metrics for place in _places(ledger, name, split)]
    fields = [
        *(
            SheetField(identity_column(ledger, name), partial(key_cell, name=name))
            for name in names
        ),
        *(_metric_field(place, shown) for place in shown),
        *_count_fields(shown),
    ]
    cells = tuple(
        tuple(field.cell(group) for field in fields) for group in sort_groups(found, names)
    )
    return Sheet(f"{title} ({split})", tuple(field.column for field in fields), cells)


def _distinguishing_names(
    ledger: Ledger, asked: Sequence[str], found: Sequence[SeedGroup]
) -> list[str]:
    """Return the requested names, plus those needed to tell different rows apart."""

    def rows(names: Sequence[str]) -> int:
        return len({tuple(key_cell(group, name).text for name in names) for group in found})

    names = list(asked)
    for name in identity_columns(ledger):
        if name not in names and rows([*names, name]) > rows(names):
            names.append(name)
    return names


def _places(ledger: Ledger, metric: str, split: str) -> list[SplitMetric]:
    """Return the splits on which to show a metric: all for a violation, otherwise the given one."""
    splits = ledger.splits if metric.startswith(VIOLATION_PREFIX) else [split]
    return [(each, metric) for each in splits]


def _metric_field(place: SplitMetric, shown: Sequence[SplitMetric]) -> SheetField:
    split, metric = place
    title = f"{metric} {split}" if metric.startswith(VIOLATION_PREFIX) else metric
    return SheetField(
        SheetColumn(title, numeric=True),
        lambda group: estimate_cell(group.estimate(split, metric), group.trials(shown)),
    )


def _count_fields(shown: Sequence[SplitMetric]) -> list[SheetField]:
    return [
        SheetField(SheetColumn("n", numeric=True), lambda group: value_cell(group.trials(shown))),
        SheetField(SheetColumn("status"), lambda group: status_cell(group.statuses)),
    ]

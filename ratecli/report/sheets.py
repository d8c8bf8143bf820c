"""The tables that the file asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ratecli.ledger.records import STAGE, VIOLATION
from ratecli.ledger.view import Ledger
from ratecli.report.groups import Group, groups, is_share
from ratecli.report.identity import column, identity, key_cell, ordered, status_cell
from ratecli.report.outcomes import Place
from ratecli.report.sheet import Cell, Column, Sheet, plain, with_interval

HOW = (
    "Mean ± half the width of the 95 % Student-t interval over n seeds (resampled: the seed, with "
    "every split that is not official and every random decision that is drawn from it). Trials "
    "without an answer and NaN values are in no mean."
)
SHARES = (
    "Shares of trials, with the exact 95 % interval of Clopper and Pearson: solution_rate of those that "
    "gave a classifier, failure_rate of those whose classifier breaks a constraint on the rows of the "
    "table (where none was given nothing fails). Trials that crashed, ran out of time or diverged are in "
    "neither."
)


@dataclass(frozen=True)
class Field:
    """A column and how a group fills it."""

    column: Column
    cell: Callable[[Group], Cell]


def how(ledger: Ledger) -> str:
    """What the cells of all tables are."""
    asked = {name for table in ledger.asked("tables") for name in table.get("columns") or ()}
    asked |= {entry.get("metric", "") for entry in ledger.experiment.get("expect") or ()}
    return f"{HOW} {SHARES}" if any(map(is_share, asked)) else HOW


def asked_sheets(ledger: Ledger) -> list[Sheet]:
    """One for each entry of `report: tables`, or one with everything; last that of the filter, if any."""
    return list(ledger.once("asked sheets", lambda: _asked_sheets(ledger)))


def _asked_sheets(ledger: Ledger) -> list[Sheet]:
    asked = ledger.asked("tables") or [{}]
    found = []
    for position, table in enumerate(asked, 1):
        title = table.get("file") or f"Table {position}"
        found.append(_asked_sheet(ledger.of(table.get("columns") or ()), table, title))
    return [*found, *_stage_sheets(ledger.stage)]


def _stage_sheets(stage: Ledger) -> list[Sheet]:
    """What the filter before training did, on training rows and on test rows."""
    splits = [split for split in ("train", "test") if split in stage.splits]
    if stage.plan and not splits:
        splits = ["train"]  # none was found: the table says so
    columns = [name for name in stage.metrics if name.startswith(STAGE)]
    title = "The filter before training"
    return [_asked_sheet(stage, {"split": each, "columns": columns}, title) for each in splits]


def unshown(ledger: Ledger) -> set[str]:
    """Constraints whose violations no table asks for."""
    tables = ledger.asked("tables") or [{}]
    every = ledger.algorithms.metrics
    shown = {name for table in tables for name in table.get("columns") or every}
    return {name for name in ledger.constraints if VIOLATION + name not in shown}


def _asked_sheet(ledger: Ledger, table: Mapping[str, Any], title: str) -> Sheet:
    rows = list(table.get("rows") or identity(ledger))
    split = table.get("split") or "test"
    found = groups(ledger, by_seed="seed" in rows)
    names = _telling_apart(ledger, rows, found)
    metrics = table.get("columns") or ledger.metrics
    shown = [place for name in metrics for place in _places(ledger, name, split)]
    fields = [
        *(Field(column(ledger, name), partial(key_cell, name=name)) for name in names),
        *(_metric_field(place, shown) for place in shown),
        *_count_fields(shown),
    ]
    cells = tuple(tuple(field.cell(group) for field in fields) for group in ordered(found, names))
    return Sheet(f"{title} ({split})", tuple(field.column for field in fields), cells)


def _telling_apart(ledger: Ledger, asked: Sequence[str], found: Sequence[Group]) -> list[str]:
    """The names asked for, and those without which two different rows would look alike."""

    def rows(names: Sequence[str]) -> int:
        return len({tuple(key_cell(group, name).text for name in names) for group in found})

    names = list(asked)
    for name in identity(ledger):
        if name not in names and rows([*names, name]) > rows(names):
            names.append(name)
    return names


def _places(ledger: Ledger, metric: str, split: str) -> list[Place]:
    """What is shown of a metric: one split, of a violation all."""
    splits = ledger.splits if metric.startswith(VIOLATION) else [split]
    return [(each, metric) for each in splits]


def _metric_field(place: Place, shown: Sequence[Place]) -> Field:
    split, metric = place
    title = f"{metric} {split}" if metric.startswith(VIOLATION) else metric
    return Field(
        Column(title, numeric=True),
        lambda group: with_interval(group.estimate(split, metric), group.trials(shown)),
    )


def _count_fields(shown: Sequence[Place]) -> list[Field]:
    return [
        Field(Column("n", numeric=True), lambda group: plain(group.trials(shown))),
        Field(Column("status"), lambda group: status_cell(group.statuses)),
    ]

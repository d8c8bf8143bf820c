"""The tables that the file asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ratecli.ledger.records import FILTER_STAGE_PREFIX, VIOLATION_PREFIX
from ratecli.ledger.view import Ledger
from ratecli.report.groups import SeedGroup, is_share, seed_groups
from ratecli.report.identity import (
    identity_column,
    identity_columns,
    key_cell,
    sort_groups,
    status_cell,
)
from ratecli.report.outcomes import SplitMetric
from ratecli.report.sheet import Sheet, SheetCell, SheetColumn, estimate_cell, value_cell

MEANS_LEGEND = (
    "Mean ± half the width of the 95 % Student-t interval over n seeds (resampled: the seed, with "
    "every split that is not official and every random decision that is drawn from it). Trials "
    "without an answer and NaN values are in no mean."
)
SHARES_LEGEND = (
    "Shares of trials, with the exact 95 % interval of Clopper and Pearson: solution_rate of those that "
    "gave a classifier, failure_rate of those whose classifier breaks a constraint on the rows of the "
    "table (where none was given nothing fails). Trials that crashed, ran out of time or diverged are in "
    "neither."
)


@dataclass(frozen=True)
class SheetField:
    """A column and how a group fills it."""

    column: SheetColumn
    cell: Callable[[SeedGroup], SheetCell]


def cell_legend(ledger: Ledger) -> str:
    """What the cells of all tables are."""
    asked = {name for table in ledger.asked("tables") for name in table.get("columns") or ()}
    asked |= {entry.get("metric", "") for entry in ledger.experiment.get("expect") or ()}
    return f"{MEANS_LEGEND} {SHARES_LEGEND}" if any(map(is_share, asked)) else MEANS_LEGEND


def requested_sheets(ledger: Ledger) -> list[Sheet]:
    """One for each entry of `report: tables`, or one with everything; last that of the filter, if any."""
    return list(ledger.once("asked sheets", lambda: _requested_sheets(ledger)))


def _requested_sheets(ledger: Ledger) -> list[Sheet]:
    asked = ledger.asked("tables") or [{}]
    found = []
    for position, table in enumerate(asked, 1):
        title = table.get("file") or f"Table {position}"
        found.append(_requested_sheet(ledger.of(table.get("columns") or ()), table, title))
    return [*found, *_stage_sheets(ledger.stage)]


def _stage_sheets(stage: Ledger) -> list[Sheet]:
    """What the filter before training did, on training rows and on test rows."""
    splits = [split for split in ("train", "test") if split in stage.splits]
    if stage.plan and not splits:
        splits = ["train"]  # none was found: the table says so
    columns = [name for name in stage.metrics if name.startswith(FILTER_STAGE_PREFIX)]
    title = "The filter before training"
    return [_requested_sheet(stage, {"split": each, "columns": columns}, title) for each in splits]


def unlisted_constraints(ledger: Ledger) -> set[str]:
    """Constraints whose violations no table asks for."""
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
    """The names asked for, and those without which two different rows would look alike."""

    def rows(names: Sequence[str]) -> int:
        return len({tuple(key_cell(group, name).text for name in names) for group in found})

    names = list(asked)
    for name in identity_columns(ledger):
        if name not in names and rows([*names, name]) > rows(names):
            names.append(name)
    return names


def _places(ledger: Ledger, metric: str, split: str) -> list[SplitMetric]:
    """What is shown of a metric: one split, of a violation all."""
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

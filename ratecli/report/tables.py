"""Tidy tables of an experiment's results: metrics.csv, trials.csv and summary.csv."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ratecli.ledger.view import Ledger, split_rank
from ratecli.report.expectations import ExpectationComparison, compare_expectations
from ratecli.report.groups import SeedGroup, seed_groups

NUMBERS = ("mean", "low", "high", "n", "nan")
EXPECTED = ("expect", "figure", "within", "source", "verdict")
MetricKey = tuple[str, str, str, str, str]
"""Identifies a row of the summary: algorithm, variant, point, split, metric."""
TYPES = dict.fromkeys(["value", "mean", "low", "high"], "float64") | {"n": "int64", "nan": "int64"}


def metrics_table(ledger: Ledger) -> pd.DataFrame:
    """Return a row per measured value: algorithm, variant, <sweep>, seed, split, metric, value."""
    rows = [
        (
            item.trial.label,
            item.variant,
            *_point(ledger, item.trial.point),
            item.trial.seed,
            item.split,
            item.metric,
            item.value,
        )
        for item in ledger.measurements()
    ]
    return _frame(
        rows,
        ["algorithm", "variant", *ledger.sweep, "seed", "split", "metric", "value"],
        ledger.sweep,
    )


def trials_table(ledger: Ledger) -> pd.DataFrame:
    """Return a row per planned trial, whatever its status."""
    rows = [
        (
            trial.label,
            *_point(ledger, trial.point),
            trial.seed,
            ledger.status(trial),
            ledger.reason(trial),
        )
        for trial in ledger.plan
    ]
    return _frame(rows, ["algorithm", *ledger.sweep, "seed", "status", "reason"], ledger.sweep)


def summary_table(ledger: Ledger) -> pd.DataFrame:
    """Return means over seeds with 95 % Student-t intervals; `n` counts values, `nan` NaN values.

    The variation is over seeds and everything that depends on them: splits that are not official,
    training and random decisions. Trials without results are ignored.

    If the file has expectations, five columns show them. A row with several expectations is
    repeated for each; expectations without values come last.
    """
    expected: dict[MetricKey, list[ExpectationComparison]] = {}
    for each in compare_expectations(ledger):
        where = _metric_key(each.group, each.entry.split, each.entry.metric)
        expected.setdefault(where, []).append(each)
    columns = EXPECTED if expected else ()
    rows = []
    for group in seed_groups(ledger):
        for split, metric in sorted(
            group.values, key=lambda place: (split_rank(place[0]), ledger.metrics.index(place[1]))
        ):
            row = _summary_row(ledger, group, split, metric)
            asked = expected.pop(_metric_key(group, split, metric), [])
            rows += [(*row, *_expected(each)) for each in asked] or [(*row, *[None] * len(columns))]
    for each in (each for asked in expected.values() for each in asked):
        row = _summary_row(ledger, each.group, each.entry.split, each.entry.metric)
        rows.append((*row, *_expected(each)))
    heads = ["algorithm", "variant", *ledger.sweep, "split", "metric", *NUMBERS, *columns]
    return _frame(rows, heads, ledger.sweep)


def _summary_row(ledger: Ledger, group: SeedGroup, split: str, metric: str) -> tuple[Any, ...]:
    found = group.estimate(split, metric)
    head = (group.label, group.variant, *_point(ledger, group.point), split, metric)
    return (*head, found.mean, found.low, found.high, found.n, found.nan)


def _metric_key(group: SeedGroup, split: str, metric: str) -> MetricKey:
    return group.label, group.variant, repr(group.point), split, metric


def _expected(each: ExpectationComparison) -> tuple[Any, ...]:
    entry = each.entry
    return entry.kind, each.figure, entry.within, entry.source, str(each.verdict)


def csv_text(frame: pd.DataFrame, *, nan: str = "nan") -> str:
    """Format as CSV.

    Floats are written by `repr`, so that reading restores the same bits; None is empty.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(frame.columns)
    texts = (_texts(frame.iloc[:, at].tolist(), nan) for at in range(frame.shape[1]))
    writer.writerows(zip(*texts, strict=True))
    return buffer.getvalue()


def _point(ledger: Ledger, point: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(point.get(name) for name in ledger.sweep)


def _frame(
    rows: Sequence[tuple[Any, ...]], columns: Sequence[str], sweep: Sequence[str]
) -> pd.DataFrame:
    """Return a frame.

    Seeds (of any size) and sweep values stay Python objects, so 1 and 1.0 stay distinct.
    """
    data = zip(*rows, strict=True) if rows else [()] * len(columns)
    types = {name: kind for name, kind in TYPES.items() if name not in sweep}
    series = (
        pd.Series(list(values), dtype=types.get(name, object), name=name)
        for name, values in zip(columns, data, strict=True)
    )
    return pd.concat(list(series), axis=1)


def _texts(values: Sequence[Any], nan: str) -> list[str]:
    """Format a column's values; most are strings already in a large table."""
    return [value if type(value) is str else _text(value, nan) for value in values]


def _text(value: Any, nan: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return nan if math.isnan(value) else repr(value)
    return str(value)

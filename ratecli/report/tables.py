"""Tidy tables of an experiment's results: metrics.csv, trials.csv and summary.csv."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ratecli.ledger.view import Ledger, split_rank
from ratecli.report.check.expectations import compare_expectations
from ratecli.report.groups import SeedGroup, group_by, seed_groups, trial_values
from ratecli.report.sheet import format_setting

NUMBERS = ("mean", "low", "high", "n", "nan")
EXPECTED = ("expect", "figure", "within", "source", "verdict")
TYPES = dict.fromkeys(["value", "mean", "low", "high"], "float64") | {"n": "int64", "nan": "int64"}


def metrics_table(ledger: Ledger) -> pd.DataFrame:
    """Return a row per measured value: algorithm, variant, <sweep>, seed, split, metric, value."""
    rows = (
        [trial.label, variant, *_point(ledger, trial.point), trial.seed, *place_and_value]
        for trial in ledger.plan
        for variant, *place_and_value in trial_values(ledger, trial)
    )
    columns = ["algorithm", "variant", *ledger.sweep, "seed", "split", "metric", "value"]
    return _frame(rows, columns, ledger.sweep)


def trials_table(ledger: Ledger) -> pd.DataFrame:
    """Return a row per planned trial, whatever its status, with the chosen setting if tuned."""
    chosen = {
        key: format_setting(row["setting"])
        for key, result in ledger.results.items()
        for row in result.trace
        if row.get("chosen")
    }
    rows = (
        [
            trial.label,
            *_point(ledger, trial.point),
            *(trial.seed, ledger.status(trial), ledger.reason(trial)),
            *([chosen.get(trial.key, "")] if chosen else []),
        ]
        for trial in ledger.plan
    )
    columns = ["algorithm", *ledger.sweep, "seed", "status", "reason"]
    return _frame(rows, [*columns, *(["setting"] if chosen else [])], ledger.sweep)


def summary_table(ledger: Ledger) -> pd.DataFrame:
    """Return means over seeds with 95 % Student-t intervals; `n` counts values, `nan` NaN values.

    The variation is over seeds and everything that depends on them: splits that are not official,
    training and random decisions. Trials without results are ignored.

    If the file has expectations, five columns show them. A row with several expectations is
    repeated for each; expectations without values come last.
    """
    order = {metric: k for k, metric in enumerate(ledger.metrics)}
    groups: dict[tuple[str, ...], SeedGroup] = {}
    for group in seed_groups(ledger):
        places = sorted(group.estimates, key=lambda place: (split_rank(place[0]), order[place[1]]))
        groups |= {_key(group, *place): group for place in places}
    expected = group_by(
        compare_expectations(ledger),
        lambda each: _key(each.group, each.entry.split, each.entry.metric),
    )
    groups |= {key: each[0].group for key, each in expected.items() if key not in groups}
    rows = []
    for key, group in groups.items():
        *_, split, metric = key
        found = group.estimate(split, metric)
        row = [
            *(group.label, group.variant, *_point(ledger, group.point), split, metric),
            *(found.mean, found.low, found.high, found.n, found.nan),
        ]
        cells = [
            [each.entry.kind, each.figure, each.entry.within, each.entry.source, str(each.verdict)]
            for each in expected.get(key, ())
        ]
        rows += [row + more for more in cells or [[None] * len(EXPECTED) if expected else []]]
    columns = ["algorithm", "variant", *ledger.sweep, "split", "metric", *NUMBERS]
    return _frame(rows, [*columns, *(EXPECTED if expected else ())], ledger.sweep)


def _key(group: SeedGroup, split: str, metric: str) -> tuple[str, ...]:
    """Return what identifies a row of the summary."""
    return group.label, group.variant, repr(group.point), split, metric


def _point(ledger: Ledger, point: Mapping[str, Any]) -> list[Any]:
    return [point.get(name) for name in ledger.sweep]


def _frame(
    rows: Iterable[Sequence[Any]], columns: Sequence[str], sweep: Sequence[str]
) -> pd.DataFrame:
    """Return a frame.

    Seeds (of any size) and sweep values stay Python objects, so 1 and 1.0 stay distinct.
    """
    frame = pd.DataFrame(list(rows), columns=list(columns), dtype=object)
    own = set(columns) - set(sweep)
    return frame.astype({name: kind for name, kind in TYPES.items() if name in own})


def csv_text(frame: pd.DataFrame, *, nan: str = "nan") -> str:
    """Format as CSV.

    Floats are written by `repr`, so that reading restores the same bits; None is empty.
    """

    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return nan if math.isnan(value) else repr(float(value))
        return str(value)

    return str(frame.map(text).to_csv(index=False, lineterminator="\n"))

"""Rows of a ledger as what they stand for; what no run can have written is refused.

A ledger may come from someone else. Nothing in it is a pickle; here its types are looked at, so that
whatever reads it can rely on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratecli.ledger.records import (
    CACHED_STATUSES,
    END_WARNINGS_KEY,
    FAILED_STATUSES,
    MeasuredValue,
    PlannedTrial,
    TrialResult,
)

SqlRow = tuple[Any, ...]
KNOWN_STATUSES = CACHED_STATUSES | FAILED_STATUSES
SCALAR_TYPES = (str, int, float, bool)


class InvalidRowError(ValueError):
    """A row that no run of ours has written."""


def parse_planned_trial(row: SqlRow) -> PlannedTrial:
    """A row of `plan` without its position."""
    key, label, algorithm = map(_text, row[:3])
    options, point, seed, metrics = map(_parse_json, row[3:])
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InvalidRowError("a seed is no whole number")
    for name, value in _mapping(point).items():
        if not isinstance(value, SCALAR_TYPES):
            raise InvalidRowError(f"the sweep's {name!r} is no single value")
    texts = {name: _text(text) for name, text in _mapping(metrics).items()}
    return PlannedTrial(key, label, algorithm, _mapping(options), point, seed, texts)


def parse_trial_result(
    row: SqlRow,
    values: tuple[MeasuredValue, ...],
    models: Mapping[str, bytes] | None = None,
    encoding: str = "",
) -> TrialResult:
    """A row of `trials` with what belongs to it."""
    _, key, status, reason, seconds, info, trace, multipliers = row
    if status not in KNOWN_STATUSES:
        raise InvalidRowError(f"no trial ends as {status!r}")
    steps = _parse_json(trace)
    if not isinstance(steps, list):
        raise InvalidRowError("a trace is no list")
    return TrialResult(
        key=_text(key),
        status=status,
        reason=_text(reason),
        seconds=parse_sql_number(seconds),
        info=_mapping(_parse_json(info)),
        trace=tuple(map(_mapping, steps)),
        multipliers={
            name: parse_sql_number(each)
            for name, each in _mapping(_parse_json(multipliers)).items()
        },
        values=values,
        models=models or {},
        encoding=encoding,
    )


def parse_measured_value(measure: SqlRow, given: object) -> MeasuredValue:
    """A row of `numbers` with the names of what it measures; NULL is NaN."""
    if len(measure) != 3:
        raise InvalidRowError("a number measures nothing")
    variant, split, metric = map(_text, measure)
    return MeasuredValue(
        variant, split, metric, float("nan") if given is None else parse_sql_number(given)
    )


def parse_sql_number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InvalidRowError(f"{str(given)[:40]!r} stands where a number should")
    return float(given)


def parse_meta(name: str, text: object) -> Any:
    """What `meta` holds under a name."""
    found = _parse_json(text)
    if name in {"warnings", END_WARNINGS_KEY} and not isinstance(found, list):
        raise InvalidRowError(f"{str(found)[:40]!r} stands where a list should")
    return [_text(each) for each in found] if name in {"warnings", END_WARNINGS_KEY} else found


def _parse_json(text: object) -> Any:
    try:
        return json.loads(_text(text))
    except (ValueError, RecursionError) as error:
        raise InvalidRowError("it holds text that is no JSON") from error


def _mapping(given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise InvalidRowError(f"{str(given)[:40]!r} stands where a mapping should")
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise InvalidRowError(f"{str(given)[:40]!r} stands where text should")
    return given

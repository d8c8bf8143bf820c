"""Rows of a ledger as what they stand for; what no run can have written is refused.

A ledger may come from someone else. Nothing in it is a pickle; here its types are looked at, so that
whatever reads it can rely on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratecli.ledger.records import AT_END, CACHED, FAILED, Planned, TrialResult, Value

Row = tuple[Any, ...]
STATUSES = CACHED | FAILED
SCALARS = (str, int, float, bool)


class ForeignRowError(ValueError):
    """A row that no run of ours has written."""


def planned(row: Row) -> Planned:
    """A row of `plan` without its position."""
    key, label, algorithm = map(_text, row[:3])
    options, point, seed, metrics = map(_parsed, row[3:])
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ForeignRowError("a seed is no whole number")
    for name, value in _mapping(point).items():
        if not isinstance(value, SCALARS):
            raise ForeignRowError(f"the sweep's {name!r} is no single value")
    texts = {name: _text(text) for name, text in _mapping(metrics).items()}
    return Planned(key, label, algorithm, _mapping(options), point, seed, texts)


def result(
    row: Row,
    values: tuple[Value, ...],
    models: Mapping[str, bytes] | None = None,
    encoding: str = "",
) -> TrialResult:
    """A row of `trials` with what belongs to it."""
    _, key, status, reason, seconds, info, trace, multipliers = row
    if status not in STATUSES:
        raise ForeignRowError(f"no trial ends as {status!r}")
    steps = _parsed(trace)
    if not isinstance(steps, list):
        raise ForeignRowError("a trace is no list")
    return TrialResult(
        key=_text(key),
        status=status,
        reason=_text(reason),
        seconds=number(seconds),
        info=_mapping(_parsed(info)),
        trace=tuple(map(_mapping, steps)),
        multipliers={name: number(each) for name, each in _mapping(_parsed(multipliers)).items()},
        values=values,
        models=models or {},
        encoding=encoding,
    )


def value(measure: Row, given: object) -> Value:
    """A row of `numbers` with the names of what it measures; NULL is NaN."""
    if len(measure) != 3:
        raise ForeignRowError("a number measures nothing")
    variant, split, metric = map(_text, measure)
    return Value(variant, split, metric, float("nan") if given is None else number(given))


def number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ForeignRowError(f"{str(given)[:40]!r} stands where a number should")
    return float(given)


def parsed_meta(name: str, text: object) -> Any:
    """What `meta` holds under a name."""
    found = _parsed(text)
    if name in {"warnings", AT_END} and not isinstance(found, list):
        raise ForeignRowError(f"{str(found)[:40]!r} stands where a list should")
    return [_text(each) for each in found] if name in {"warnings", AT_END} else found


def _parsed(text: object) -> Any:
    try:
        return json.loads(_text(text))
    except (ValueError, RecursionError) as error:
        raise ForeignRowError("it holds text that is no JSON") from error


def _mapping(given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ForeignRowError(f"{str(given)[:40]!r} stands where a mapping should")
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise ForeignRowError(f"{str(given)[:40]!r} stands where text should")
    return given

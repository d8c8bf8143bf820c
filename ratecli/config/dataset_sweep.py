"""Experiments that sweep over data sets (`dataset`), and groups defined separately for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from ratecli.config.algorithm import entry_sweep
from ratecli.config.base import MAX_RULE_LENGTH, validate_rule
from ratecli.config.validation import quote_value
from ratecli.errors import Diagnostic, FaultError, InvalidValueError, Loc, did_you_mean

DATASET_AXIS = "dataset"
"""The swept name whose values are names of data sets; each is then a separate problem."""

COMBINED_TABLE_HINT = "without sweep: {dataset: [...]} the rows of all data sets are one table"


def _validate_group(value: object) -> object:
    if not isinstance(value, dict):
        return validate_rule(value)
    found: list[Diagnostic] = []
    for name, text in value.items():
        try:
            validate_rule(text)
        except FaultError as error:
            found += [each.under(name) for each in error.faults]
    if found:
        raise InvalidValueError(found)
    return value


_CONDITION_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_RULE_LENGTH}
GroupCondition = Annotated[
    str | dict[str, str],
    PlainValidator(_validate_group),
    WithJsonSchema(
        {
            "anyOf": [
                _CONDITION_SCHEMA,
                {"type": "object", "additionalProperties": _CONDITION_SCHEMA},
            ]
        }
    ),
]


def dataset_sweep_conflicts(raw: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Yield errors about swept data sets and about groups defined for each data set."""
    datasets = raw.get("datasets")
    if not isinstance(datasets, dict):
        return
    for loc, value in _swept_datasets(raw):
        if not isinstance(value, str) or value not in datasets:
            hint = did_you_mean(str(value), datasets, "data sets here")
            yield Diagnostic(
                "E104", f"{quote_value(value)} is not a data set of this file", hint, loc=loc
            )
    swept = DATASET_AXIS in _mapping_or_empty(raw.get("sweep"))
    for loc in () if swept else _own_dataset_axes(raw):
        message = f"'{DATASET_AXIS}' is swept for one algorithm and not for the others"
        hint = "sweep it for all: an algorithm's own sweep may then take some of the data sets"
        yield Diagnostic("E104", message, hint, loc=loc, key=True)
    for name, group in _mapping_or_empty(raw.get("groups")).items():
        if isinstance(group, dict):
            yield from _group_conflicts(("groups", name), group, datasets, swept=swept)


def _group_conflicts(
    loc: Loc, group: Mapping[str, Any], datasets: Mapping[str, Any], *, swept: bool
) -> Iterator[Diagnostic]:
    if not swept:
        message = f"'{loc[-1]}' is stated for each data set, and all of them are one problem"
        yield Diagnostic("E104", message, COMBINED_TABLE_HINT, loc=loc, key=True)
    for name in group:
        if name not in datasets:
            message = f"{quote_value(name)} is not a data set of this file"
            hint = did_you_mean(str(name), datasets, "data sets here")
            yield Diagnostic("E104", message, hint, loc=(*loc, name), key=True)
    missing = [name for name in datasets if name not in group]
    if missing and set(group) <= set(datasets):
        message = f"the group '{loc[-1]}' is not stated for {quote_value(missing[0])}"
        yield Diagnostic("E102", message, f"add {missing[0]}: condition", loc=loc, key=True)


def _own_dataset_axes(raw: Mapping[str, Any]) -> Iterator[Loc]:
    """Yield the locations where an algorithm's own sweep names data sets."""
    entries = raw.get("algorithms")
    for k, entry in enumerate(entries if isinstance(entries, list) else []):
        if DATASET_AXIS in entry_sweep(entry):
            yield "algorithms", k, next(iter(entry)), "sweep", DATASET_AXIS


def _swept_datasets(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, Any]]:
    """Yield each value that any sweep gives to `dataset`, with its location."""
    sweeps: dict[Loc, Any] = {("sweep",): raw.get("sweep")}
    for loc in _own_dataset_axes(raw):
        sweeps[loc[:-1]] = entry_sweep(raw["algorithms"][loc[1]])
    for loc, sweep in sweeps.items():
        axis = _mapping_or_empty(sweep).get(DATASET_AXIS, [])
        if isinstance(axis, str):
            yield (*loc, DATASET_AXIS), axis
        for k, value in enumerate(axis if isinstance(axis, list) else []):
            yield (*loc, DATASET_AXIS, k), value
        for word in ("include", "exclude"):
            points = _mapping_or_empty(sweep).get(word)
            for k, point in enumerate(points if isinstance(points, list) else []):
                if DATASET_AXIS in _mapping_or_empty(point):
                    yield (*loc, word, k, DATASET_AXIS), point[DATASET_AXIS]


def _mapping_or_empty(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

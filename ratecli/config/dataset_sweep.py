"""Data sets taken one by one: a swept name `dataset`, and groups that each of them states anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError, WithJsonSchema

from ratecli.config.algorithm import own_sweep
from ratecli.config.base import MAX_RULE, as_rule
from ratecli.config.complaint import Complaint, complaints_of, raised, shown
from ratecli.config.document import Loc
from ratecli.errors import did_you_mean

DATASET = "dataset"
"""The swept name whose values are names of data sets: each is then a problem of its own."""

TOGETHER = "without sweep: {dataset: [...]} the rows of all data sets are one table"


def _group(value: object) -> object:
    if not isinstance(value, dict):
        return as_rule(value)
    found: list[Complaint] = []
    for name, text in value.items():
        try:
            as_rule(text)
        except ValidationError as error:
            found += [complaint.under(name) for complaint in complaints_of(error)]
    if found:
        raise raised(found, "group")
    return value


_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_RULE}
Group = Annotated[
    str | dict[str, str],
    PlainValidator(_group),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}]}),
]


def one_by_one(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Complaints about data sets that are swept, and about groups stated for each data set."""
    datasets = raw.get("datasets")
    if not isinstance(datasets, dict):
        return
    for loc, value in _values(raw):
        if not isinstance(value, str) or value not in datasets:
            hint = did_you_mean(str(value), datasets, "data sets here")
            yield Complaint(loc, "E104", f"{shown(value)} is not a data set of this file", hint)
    swept = DATASET in _mapping(raw.get("sweep"))
    for loc in () if swept else _own(raw):
        message = f"'{DATASET}' is swept for one algorithm and not for the others"
        hint = "sweep it for all: an algorithm's own sweep may then take some of the data sets"
        yield Complaint(loc, "E104", message, hint, key=True)
    for name, group in _mapping(raw.get("groups")).items():
        if isinstance(group, dict):
            yield from _stated(("groups", name), group, datasets, swept=swept)


def _stated(
    loc: Loc, group: Mapping[str, Any], datasets: Mapping[str, Any], *, swept: bool
) -> Iterator[Complaint]:
    if not swept:
        message = f"'{loc[-1]}' is stated for each data set, and all of them are one problem"
        yield Complaint(loc, "E104", message, TOGETHER, key=True)
    for name in group:
        if name not in datasets:
            message = f"{shown(name)} is not a data set of this file"
            hint = did_you_mean(str(name), datasets, "data sets here")
            yield Complaint((*loc, name), "E104", message, hint, key=True)
    missing = [name for name in datasets if name not in group]
    if missing and set(group) <= set(datasets):
        message = f"the group '{loc[-1]}' is not stated for {shown(missing[0])}"
        yield Complaint(loc, "E102", message, f"add {missing[0]}: condition", key=True)


def _own(raw: Mapping[str, Any]) -> Iterator[Loc]:
    """Where an algorithm's own sweep names data sets."""
    entries = raw.get("algorithms")
    for k, entry in enumerate(entries if isinstance(entries, list) else []):
        if DATASET in own_sweep(entry):
            yield "algorithms", k, next(iter(entry)), "sweep", DATASET


def _values(raw: Mapping[str, Any]) -> Iterator[tuple[Loc, Any]]:
    """Every value that any sweep gives to `dataset`, and where it stands."""
    sweeps: dict[Loc, Any] = {("sweep",): raw.get("sweep")}
    for loc in _own(raw):
        sweeps[loc[:-1]] = own_sweep(raw["algorithms"][loc[1]])
    for loc, sweep in sweeps.items():
        axis = _mapping(sweep).get(DATASET, [])
        if isinstance(axis, str):
            yield (*loc, DATASET), axis
        for k, value in enumerate(axis if isinstance(axis, list) else []):
            yield (*loc, DATASET, k), value
        for word in ("include", "exclude"):
            points = _mapping(sweep).get(word)
            for k, point in enumerate(points if isinstance(points, list) else []):
                if DATASET in _mapping(point):
                    yield (*loc, word, k, DATASET), point[DATASET]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

"""A file read, checked against its data, and planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ratecli.datasets import registry
from ratecli.datasets.load import missing
from ratecli.faults import Fault, FaultError
from ratecli.rates.expression import Where
from ratecli.runner.cases import Case, Columns, Reading
from ratecli.runner.plan import Plan, make_plan
from ratecli.runner.world import Data, stacked_columns, tables, world
from ratecli.spec.document import Document
from ratecli.spec.experiment import Experiment, load_experiment

SMALL_GROUP = 30


@dataclass(frozen=True)
class Prepared:
    """An experiment read, checked against its data, and planned."""

    path: Path
    experiment: Experiment
    document: Document
    data: Data
    cases: tuple[Case, ...]
    plan: Plan
    warnings: tuple[Fault, ...]


def understand(path: Path, overrides: Sequence[str] = ()) -> Prepared:
    """Read a file and check all that can be checked without data; nothing is planned."""
    experiment, document = load_experiment(path, overrides)
    reading = Reading(experiment, document)
    cases = tuple(reading.cases())
    data = _data(experiment, document, path, offline=False)
    return Prepared(path, experiment, document, data, cases, Plan((), ()), tuple(reading.warnings))


def _data(experiment: Experiment, document: Document, path: Path, *, offline: bool) -> Data:
    options = {name: entry.options() for name, entry in experiment.datasets.items()}
    faults = []
    for name, entry in options.items():
        try:
            if "source" in entry:
                registry.settle(entry)
        except FaultError as error:
            faults += _placed(error, document, ("datasets", name))
    if faults:
        raise FaultError(faults)
    return Data.of(options, path.parent, offline=offline)


def absent_files(prepared: Prepared) -> list[str]:
    """Data files that are not there yet."""
    data = prepared.data
    return [file for entry in data.options().values() for file in missing(entry, data.folder)]


def prepare(path: Path, overrides: Sequence[str] = (), *, offline: bool = False) -> Prepared:
    """Read a file, fetch and read its data, check both and plan every trial."""
    known = understand(path, overrides)
    experiment, document = known.experiment, known.document
    data = _data(experiment, document, path, offline=offline)
    columns = _columns(data, document)
    reading = Reading(experiment, document, columns)
    cases = tuple(reading.cases())
    warnings = [*reading.warnings, *_check_rows(experiment, document, data, reading)]
    plan = make_plan(experiment, cases, data)
    return Prepared(path, experiment, document, data, cases, plan, tuple(warnings))


def _columns(data: Data, document: Document) -> Columns:
    """All columns with their values; faults of reading the data get the place of its entry."""
    faults: list[Fault] = []
    for name, text in data.entries:
        try:
            tables(Data(((name, text),), data.base, data.offline))
        except FaultError as error:
            faults += _placed(error, document, ("datasets", name))
    if faults:
        raise FaultError(faults)
    found = stacked_columns(list(tables(data).values()))
    return Columns({name: _unique(column) for name, column in found.items()})


def _unique(column: Any) -> list[str | float]:
    if column.dtype.kind == "f":
        return [float(value) for value in np.unique(column[~np.isnan(column)])]
    return sorted({value for value in column if value is not None})


def _placed(error: FaultError, document: Document, loc: tuple[str, ...]) -> list[Fault]:
    return [
        fault if fault.place else fault.at(document.place(loc, key=True)) for fault in error.faults
    ]


def _check_rows(
    experiment: Experiment, document: Document, data: Data, reading: Reading
) -> list[Fault]:
    """Faults and warnings that only the rows of the first seed can tell: splits, empty groups."""
    column = experiment.deployed.column if experiment.deployed else None
    if column is not None and column not in (reading.columns or Columns({})).values:
        place = document.place(("deployed", "column"))
        raise FaultError(Fault("E205", f"there is no column '{column}'", place=place))
    try:
        rows = world(data, experiment.seeds[0], column)
    except FaultError as error:
        raise FaultError(_placed(error, document, ("datasets",))) from None
    faults, warnings = [], []
    for name, conditions in reading.groups.items():
        where = Where.of(set(), iter(conditions))
        count = int(rows.sample.rows(where).sum())
        place = document.place(("groups", name))
        if not count:
            faults.append(Fault("E408", f"no row is in the group '{name}'", place=place))
        elif count < SMALL_GROUP:
            message = f"the group '{name}' has only {count} rows: its rates say little"
            warnings.append(Fault("W401", message, place=place))
    if faults:
        raise FaultError(faults)
    return warnings

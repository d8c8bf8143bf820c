"""A streamed table as an entry of `datasets:` describes it: its records and its column roles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import MISSING_TO_MEAN, DatasetSpec
from ratecli.datasets.columns import ColumnFacts, read_label
from ratecli.datasets.load import (
    feature_error,
    feature_names,
    find_own_files,
)
from ratecli.datasets.text_format import TextFormat, other_notation_error
from ratecli.errors import Diagnostic, FaultError, errors_at
from ratecli.streaming.records import (
    MAX_DISTINCT_NUMBERS,
    MAX_TEXT_LEVELS,
    WEIGHT_RANGE,
    RecordProgress,
    common_names,
    open_or_write_store,
)

BASE_MEMORY = 360 * 2**20
"""Memory of a process before it reads anything, in bytes: mostly Python and its libraries."""
PIECE_COPIES = 8
"""Number of copies of a piece of records in memory, in double precision and the like."""
BATCH_COLUMN_BYTES = 40 * 2**15
"""Bytes per column of the pool of batches, as features, including a copy while it is filled."""
FEATURE_PAIR_BYTES = 3 * 8
"""Bytes per pair of features: curvatures, and the solver's copies."""


class StreamedTable:
    """A table of n rows that need not fit in memory.

    Attributes
    ----------
    store, columns
        The records of the rows, and the facts about each column.
    features, label, weight
        Names of columns; label and weight are None if there is none.
    label_of
        1, 0 or NaN for each value of the label's column, sorted; empty without a label.
    digest, files
        As in `Table`.
    """

    def __init__(
        self,
        entry: DatasetSpec,
        base: Path,
        progress: RecordProgress | None = None,
        slices: Sequence[str] = (),
        deployed: str | None = None,
    ) -> None:
        """Read the table of an entry with `stream: true`, writing its records if needed.

        The columns `slices` define groups of rows; `deployed` is that of a deployed model's
        decisions, which is not a feature.

        Raises
        ------
        FaultError
            E205, E403 to E407, E411 as for a table in memory, E413 if records cannot be stored.
        """
        own = find_own_files(entry, base, deployed)
        with errors_at("path"):
            names = common_names(own)
        self.label, self.weight = entry.label, entry.weight
        self.features = feature_names(entry, names, deployed)
        with errors_at("path"):
            self.store = open_or_write_store(own, entry.categorical or (), progress)
        self.columns = {column.name: column for column in self.store.columns}
        self.digest, self.files = own.digest, own.named_sums
        self._check_columns(entry, slices)
        self.label_of = np.zeros(0)
        if entry.label is not None:
            self.label_of = _labels(self.columns[entry.label], entry.positive)

    def __len__(self) -> int:
        return self.store.rows

    def _check_columns(self, entry: DatasetSpec, slices: Sequence[str]) -> None:
        """Raise the first error of the columns in their roles."""
        form, means = TextFormat.of_spec(entry), entry.missing == MISSING_TO_MEAN
        for name in self.features:
            facts, meant_as_text = self.columns[name], name in (entry.categorical or ())
            if name in self.constants:
                continue
            fault = feature_error(facts, form, meant_as_text=meant_as_text, means=means)
            if fault is None and not facts.kept:
                message = f"column '{name}' has more than {MAX_TEXT_LEVELS} values"
                fault = Diagnostic("E411", message, "drop it")
            if fault is not None:
                raise FaultError(fault)
        for name in self.columns.keys() & {*entry.number_columns}:
            if fault := other_notation_error(name, self.columns[name].words, form):
                raise FaultError(fault)
        for name in self.columns.keys() & {*slices}:
            check_splits_rows(self.columns[name])
        if entry.weight is not None:
            _check_weight(self.columns[entry.weight])

    @cached_property
    def constants(self) -> dict[str, str]:
        """The features with the same value in all rows, with this value, "" if it is missing."""
        found = {name: self.columns[name].only_value(len(self)) for name in self.features}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def memory(self) -> int:
        """Approximate memory in bytes of a process that reads the table, whatever its rows."""
        features = [self.columns[name] for name in self.features]
        sizes = [len(each.words) or 1 + bool(each.missing.many) for each in features]
        width = sum(sizes) + 1
        pieces = PIECE_COPIES * self.store.at_once * self.store.record.itemsize
        batches = BATCH_COLUMN_BYTES * len(sizes)
        return BASE_MEMORY + pieces + batches + FEATURE_PAIR_BYTES * width * width

    def values(self) -> dict[str, NDArray[Any]]:
        """Return the sorted values of each column; placeholders if there are too many numbers."""
        found: dict[str, NDArray[Any]] = {}
        for name, column in self.columns.items():
            if column.kept:
                many = range(MAX_DISTINCT_NUMBERS + 1) if column.values is None else column.values
                known = [each for each in many if each is not None]
                found[name] = np.array(known, object if column.is_text else float)
        return found


def check_memory(name: str, table: StreamedTable, bound: int | None) -> None:
    """Raise E412 if reading the table piece by piece takes more than `bound` bytes."""
    if bound is not None and table.memory > bound:
        message = (
            f"reading '{name}' in chunks takes about {table.memory / 2**20:.0f} MiB, "
            f"but the limit of a trial is {bound / 2**20:.0f} MiB"
        )
        hint = "increase limits: {memory: ...}, or leave out columns with drop: [...]"
        raise FaultError(Diagnostic("E412", message, hint))


def check_splits_rows(column: ColumnFacts) -> None:
    """Raise E411 if a column has too many values to distinguish rows by."""
    if not column.kept:
        message = f"column '{column.name}' has too many values to define groups of streamed rows"
        raise FaultError(Diagnostic("E411", message, "use a column with fewer values"))


@errors_at("weight")
def _check_weight(column: ColumnFacts) -> None:
    if column.is_text:
        message = f"weight column '{column.name}' holds text"
        raise FaultError(Diagnostic("E411", message, "name another column"))
    if column.no_weight.many:
        low, high = (f"{end:g}" for end in WEIGHT_RANGE)
        row = column.no_weight.first + 1
        message = f"weight column '{column.name}' is not between {low} and {high} in row {row}"
        hint = "correct the row, or multiply the whole column"
        raise FaultError(Diagnostic("E411", message, hint))


def _labels(column: ColumnFacts, positive: Any) -> NDArray[np.float64]:
    """Return the label of each value of the label's column; raise E406 if there are too many."""
    values = column.values
    if values is None:
        many = MAX_TEXT_LEVELS if column.is_text else MAX_DISTINCT_NUMBERS
        message = f"label column '{column.name}' has more than {many} values, not two"
        hint = "give a column with two values as 'label'"
        raise FaultError(Diagnostic("E406", message, hint, loc=("label",)))
    whole = not column.is_text and all(value.is_integer() for value in values)
    return read_label(pd.Series(list(map(int, values)) if whole else values), column.name, positive)

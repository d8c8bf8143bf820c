"""A streamed table as an entry of `datasets:` describes it: its records and its column roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets import load, registry
from ratecli.datasets import tables as own
from ratecli.datasets.columns import (
    FEW_LEVELS,
    CellCounts,
    ColumnKind,
    has_stray_words,
    missing_cells_error,
    stray_word_error,
)
from ratecli.datasets.download import sha256_of
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.label import MISSING_WORDS, read_label
from ratecli.datasets.load import ColumnRoles, column_roles
from ratecli.datasets.paths import (
    find_user_file,
    missing_file_error,
    resolve_user_path,
    unreadable_file_error,
)
from ratecli.errors import Diagnostic, FaultError, errors_at
from ratecli.streaming.reading import TableFiles
from ratecli.streaming.scan import (
    MAX_DISTINCT_NUMBERS,
    MAX_TEXT_LEVELS,
    RecordProgress,
    open_or_write_store,
)
from ratecli.streaming.store import ColumnFacts, RecordStore, cached_sha256


@errors_at("path")
def table_files_of(entry: DatasetEntry, base: Path) -> TableFiles:
    """Return the file that an entry names, or all tables of the folder, sorted by name.

    Raises
    ------
    FaultError
        E405 if there is none, E404 if the format is unknown or there are several.
    """
    given = str(entry.path)
    path = resolve_user_path(given, base)
    if not path.is_dir():
        paths = [find_user_file(given, base)]
    else:
        paths = sorted(
            each for each in path.iterdir() if each.suffix.lower() in own.FORMAT_BY_SUFFIX
        )
        if not paths:
            way = "put files that end in .parquet or .csv there"
            raise missing_file_error(given, "is a folder without a table", way)
    kinds = {entry.format or own.table_format(each) for each in paths}
    if len(kinds) > 1:
        message = f"'{given}' holds tables of both formats"
        raise FaultError(Diagnostic("E404", message, "keep those of one format in the folder"))
    separator = entry.separator or own.separator_of(paths[0])
    return TableFiles(tuple(paths), kinds.pop(), separator)


def entry_digest(entry: DatasetEntry, base: Path) -> str:
    """Return the digest that the table of an entry will have, streamed or in memory."""
    if entry.stream:
        files = table_files_of(entry, base)
        return streamed_digest(entry, files, file_checksums(entry, files))
    return load.table_digest(entry, base)


@errors_at("path")
def file_checksums(entry: DatasetEntry, files: TableFiles) -> list[str]:
    """Return the SHA-256 of each file; raise E403 if it differs from the stated one.

    If one is stated, the checksum is computed again instead of being read from the cache.
    """
    read = cached_sha256 if entry.sha256 is None else sha256_of
    try:
        sums = [read(path) for path in files.paths]
    except OSError as error:
        raise unreadable_file_error(str(entry.path), files.paths[0], error) from error
    if entry.sha256 is not None and len(sums) > 1:
        message = f"'{entry.path}' is a folder, and 'sha256' is of one file"
        hint = "leave out 'sha256', or name one file"
        raise FaultError(Diagnostic("E403", message, hint, loc=("sha256",)))
    load.check_sha256(entry, sums[0])
    return sums


def streamed_digest(entry: DatasetEntry, files: TableFiles, sums: Sequence[str]) -> str:
    """Return the digest of the table, from its files' checksums and the entry's options."""
    content = {"streamed": list(sums), "kind": files.kind, "options": entry.table_options()}
    return registry.json_sha256(content)


BASE_MEMORY = 360 * 2**20
"""Memory of a process before it reads anything, in bytes: mostly Python and its libraries."""
PIECE_COPIES = 8
"""Number of copies of a piece of records in memory, in double precision and the like."""
BATCH_COLUMN_BYTES = 40 * 2**15
"""Bytes per column of the pool of batches, as features, including a copy while it is filled."""
FEATURE_PAIR_BYTES = 3 * 8
"""Bytes per pair of features: curvatures, and the solver's copies."""


@dataclass(frozen=True)
class StreamedTable:
    """A table of n rows that need not fit in memory.

    Attributes
    ----------
    store
        The records of the rows.
    label_of
        1, 0 or NaN for each level or number of the label's column, in their order; empty without a
        label.
    digest, files
        As in `Table`.
    """

    store: RecordStore
    roles: ColumnRoles
    label_of: NDArray[np.float64]
    digest: str
    files: tuple[tuple[str, str], ...]

    def __len__(self) -> int:
        return self.store.rows

    @cached_property
    def columns(self) -> Mapping[str, ColumnFacts]:
        return {column.name: column for column in self.store.columns}

    @property
    def kinds(self) -> dict[str, ColumnKind]:
        """The kind of value in each column."""
        return {name: "text" if each.is_text else "number" for name, each in self.columns.items()}

    @property
    def memory(self) -> int:
        """Approximate memory in bytes of a process that reads the table, whatever its rows."""
        features = [self.columns[name] for name in self.roles.features]
        sizes = [
            len(column.levels or ()) if column.numbers is None else 1 + (column.numbers.missing > 0)
            for column in features
        ]
        width = sum(sizes) + 1
        pieces = PIECE_COPIES * self.store.at_once * self.store.record.itemsize
        batches = BATCH_COLUMN_BYTES * len(sizes)
        return BASE_MEMORY + pieces + batches + FEATURE_PAIR_BYTES * width * width

    def values(self) -> dict[str, NDArray[Any]]:
        """Return the sorted values of each column; placeholders if there are too many numbers."""
        return {name: _values(column) for name, column in self.columns.items() if column.kept}


def _values(column: ColumnFacts) -> NDArray[Any]:
    if column.numbers is None:
        known = [level for level in column.levels or () if level is not None]
        return np.array(known, dtype=object)
    many = range(MAX_DISTINCT_NUMBERS + 1)
    return np.array(many if column.numbers.distinct is None else column.numbers.distinct, float)


def read_streamed_table(
    entry: DatasetEntry, base: Path, progress: RecordProgress | None = None
) -> StreamedTable:
    """Return the table of an entry with `stream: true`, writing its records if needed.

    Raises
    ------
    FaultError
        E205, E403 to E407, E411 as for a table in memory, E413 if records cannot be stored.
    """
    files = table_files_of(entry, base)
    sums = file_checksums(entry, files)
    with errors_at("path"):
        names = files.names()
    roles = column_roles(entry, names)
    with errors_at("path"):
        store = open_or_write_store(files, sums, entry.categorical, progress)
    known = {column.name: column for column in store.columns}
    for name in roles.features:
        for fault in _feature_diagnostics(known[name], entry, store.rows):
            raise FaultError(fault)
    for name in known.keys() & dict(entry.slices).keys():
        check_splits_rows(known[name])
    if roles.weight is not None:
        _check_weight(known[roles.weight])
    label_of = np.zeros(0)
    if roles.label is not None:
        label_of = _labels(known[roles.label], entry.positive)
    named = tuple((path.name, each) for path, each in zip(files.paths, sums, strict=True))
    return StreamedTable(store, roles, label_of, streamed_digest(entry, files, sums), named)


@lru_cache(maxsize=8)
def open_streamed_table(entry: DatasetEntry, base: Path) -> StreamedTable:
    """Return the table of an entry, which is kept for later calls."""
    return read_streamed_table(entry, base)


def check_memory(name: str, table: StreamedTable, bound: int | None) -> None:
    """Raise E412 if reading the table piece by piece takes more than `bound` bytes."""
    if bound is not None and table.memory > bound:
        message = (
            f"to read '{name}' piece by piece takes about {table.memory / 2**20:.0f} MiB, "
            f"and a trial may take {bound / 2**20:.0f}"
        )
        hint = "say limits: {memory: ...} of more, or leave out columns: drop: [...]"
        raise FaultError(Diagnostic("E412", message, hint))


def check_splits_rows(column: ColumnFacts) -> None:
    """Raise E411 if a column has too many values to distinguish rows by."""
    if not column.kept:
        message = f"column '{column.name}' has too many values to define groups of streamed rows"
        raise FaultError(Diagnostic("E411", message, "take a column with fewer"))


def _feature_diagnostics(
    column: ColumnFacts, entry: DatasetEntry, rows: int
) -> Iterator[Diagnostic]:
    """Yield the errors of a feature column: missing or infinite values, stray words, too many
    levels.
    """
    name = column.name
    if column.numbers is not None:
        facts = column.numbers
        missing = CellCounts(facts.missing, facts.first_missing)
        infinite = CellCounts(facts.infinite, facts.first_infinite)
        means = entry.fills_with_means
        if fault := missing_cells_error(name, rows, missing, infinite, means=means):
            yield fault
        return
    if name not in entry.categorical and column.first_word:
        words = (level for level in column.levels or () if level is not None)
        distinct = sum(word.casefold() not in MISSING_WORDS for word in words)
        share = column.not_numbers / column.present
        if has_stray_words(distinct if column.kept else FEW_LEVELS + 1, share):
            yield stray_word_error(name, column.first_word_row, column.first_word)
    if not column.kept:
        message = f"column '{name}' has more than {MAX_TEXT_LEVELS} values"
        yield Diagnostic("E411", message, "name it under 'drop'")


@errors_at("weight")
def _check_weight(column: ColumnFacts) -> None:
    if column.numbers is None:
        message = f"weight column '{column.name}' holds text"
        raise FaultError(Diagnostic("E411", message, "name another column"))
    facts = column.numbers
    first = [k for k in (facts.first_missing, facts.first_infinite, facts.not_positive) if k >= 0]
    if first:
        message = f"weight column '{column.name}' is not a positive number in row {min(first) + 1}"
        raise FaultError(Diagnostic("E411", message, "drop such rows, or give them a small weight"))


def _labels(column: ColumnFacts, positive: Any) -> NDArray[np.float64]:
    """Return the label of each level or number of the label's column; raise E406 if there are too
    many.
    """
    values: Sequence[Any] | None = column.levels
    if column.numbers is not None:
        values = column.numbers.distinct
        if values is not None and all(float(value).is_integer() for value in values):
            values = [int(value) for value in values]
    if values is None:
        many = MAX_TEXT_LEVELS if column.is_text else MAX_DISTINCT_NUMBERS
        message = f"label column '{column.name}' has more than {many} values, not two"
        hint = "add a column that says yes or no, and name it as 'label'"
        raise FaultError(Diagnostic("E406", message, hint, loc=("label",)))
    return read_label(pd.Series(values), column.name, positive)

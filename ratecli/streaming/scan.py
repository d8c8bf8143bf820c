"""Write the records of a streamed table while its files are read.

Words are numbered as they occur. The format of records depends on all rows: on which columns hold
words, and on whether single precision represents all numbers. It is guessed from the first rows,
and records are written by that guess. If it was wrong, the files are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratecli.datasets import tables
from ratecli.datasets.load import OwnFiles
from ratecli.datasets.text_format import other_notation_error, spelled_numbers
from ratecli.streaming.store import (
    FACTS_FILE,
    RECORDS_FILE,
    ColumnFacts,
    RecordStore,
    open_record_store,
    replace_on_success,
    streamed_tables_folder,
)

MAX_TEXT_LEVELS = 2**16 - 1
"""Largest number of distinct words in a column that can be used for features or groups."""
MAX_DISTINCT_NUMBERS = 64
"""Largest number of distinct numbers in a column that are listed."""
WEIGHT_RANGE = (1e-9, 1e9)
"""Smallest and largest weight of a row, because sums over streamed rows use single precision."""
RECORDS_VERSION = 8
"""Increased when the records of the same files, or the facts about their columns, change."""
BLOCK_ROWS = 2**12
"""Rows of records that are filled at once, so that they stay in the CPU's cache."""

NumberArray: TypeAlias = NDArray[np.floating]
RecordProgress = Callable[[int, int | None], None]
"""Called with the number of rows written and the total, None if that is not known yet."""


def open_or_write_store(
    own: OwnFiles, categorical: Sequence[str], progress: RecordProgress | None = None
) -> RecordStore:
    """Return the store of a table's files, writing it if needed.

    Raises
    ------
    FaultError
        E404 if a file cannot be read as a table, E413 if records cannot be stored.
    """
    first = own.files[0]
    key = [RECORDS_VERSION, own.sums, first.kind, asdict(first.form), sorted(categorical)]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    folder = (streamed_tables_folder() / name).absolute()
    found = open_record_store(folder)
    if found is not None:
        return found
    with replace_on_success(folder / FACTS_FILE) as facts:
        store = _write_store(own, categorical, facts.parent, progress or (lambda *_: None))
        facts.write_text(store.facts(), "utf-8")
        # another process may have written the file meanwhile, with the same content
        store.path.replace(folder / RECORDS_FILE)
    return replace(store, folder=folder)


def _write_store(
    own: OwnFiles, categorical: Collection[str], folder: Path, progress: RecordProgress
) -> RecordStore:
    texts = set(categorical)
    counts = [file.rows() for file in own.files]
    total = None if None in counts else sum(filter(None, counts))
    progress(0, total)
    layout: RecordStore | None = None

    def report(rows: int) -> None:
        progress(rows, total)

    while True:
        with (folder / RECORDS_FILE).open("wb") as file:
            layout, store, large = _scan_and_write(own, texts, file, layout, report)
        if layout.has_format_of(store) and not large:
            return replace(store, folder=folder)
        layout, total = None if large else store, store.rows
        texts |= large


def common_names(own: OwnFiles) -> list[str]:
    """Return the column names; raise E404 if a file has other columns than the first."""
    first, *others = own.files
    names = first.names()
    for file in others:
        found = file.names()
        if found != names:
            other = [*sorted({*names} ^ {*found}), "the order"][0]
            reason = f"its columns are not those of '{first.path.name}': '{other}'"
            hint = "all files of a table need the same columns"
            raise tables.not_a_table_error(file.path, reason, hint)
    return names


def _scan_and_write(
    own: OwnFiles,
    categorical: Collection[str],
    file: BinaryIO,
    layout: RecordStore | None,
    progress: Callable[[int], None],
) -> tuple[RecordStore, RecordStore, set[str]]:
    """Write all records in a layout, by default guessed from the first batch.

    Returns the layout, a store with the facts about all rows, and the columns of integers that have
    to be read as text. The records are complete if there are none and both have the same format.

    Raises
    ------
    FaultError
        E404 if a file cannot be read as a table.
    """
    first, rows, names = own.files[0], 0, common_names(own)
    scans = {name: ColumnScan(first, name, categorical=name in categorical) for name in names}

    def scanned() -> RecordStore:
        return RecordStore(first.path, rows, tuple(scan.result() for scan in scans.values()))

    for batch in chain.from_iterable(each.batches() for each in own.files):
        columns = zip(names, batch.columns, strict=True)
        pieces = {name: scans[name].add(array, rows) for name, array in columns}
        rows += batch.num_rows
        layout = layout or scanned()
        _write_records(file, layout, pieces, batch.num_rows)
        progress(rows)
    if layout is None or not rows:
        raise tables.no_rows_error(first.path)
    return layout, scanned(), {name for name, scan in scans.items() if scan.large}


ColumnPiece = tuple[NumberArray | None, NDArray[np.int64] | None]
"""A batch of a column: its numbers, None after the first word that is not a number; and the codes
of its words, None for columns of numbers and after too many words.
"""


def _write_records(
    file: BinaryIO, layout: RecordStore, pieces: Mapping[str, ColumnPiece], rows: int
) -> None:
    """Write the records of a batch, unless a column does not have the values that they need."""
    columns: list[Any] = [pieces[name][0] for name in layout.numbers]
    columns += [pieces[name][1] for name in layout.texts]
    if any(column is None for column in columns):
        return
    numbers, records = len(layout.numbers), np.empty(rows, layout.record)
    with np.errstate(over="ignore"):  # a wrong guess may overflow
        for first in range(0, rows, BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            for k, column in enumerate(columns):
                part, place = ("numbers", k) if k < numbers else ("codes", k - numbers)
                records[part][some, place] = column[some]
    records.tofile(file)


class ColumnScan:
    """Collects facts about a column, batch by batch.

    Attributes
    ----------
    levels
        The codes of the words so far, None as a word for missing values; None if there are too
        many.
    distinct
        The distinct numbers so far, sorted; None if there are too many.
    numeric
        Whether every word so far is a number or marks a missing value.
    number_type, large
        Whether a file holds the column as numbers, not as text; whether some are integers that
        doubles do not represent exactly.
    """

    def __init__(self, file: tables.TableFile, name: str, *, categorical: bool) -> None:
        self.file, self.categorical, self.numeric = file, categorical, not categorical
        self.facts, self.number_type, self.large = ColumnFacts(name), False, False
        self.levels: dict[str | None, int] | None = {}
        self.distinct: NumberArray | None = np.zeros(0)

    def add(self, array: pa.Array, start: int) -> ColumnPiece:
        """Add the values of the rows from `start` on, and return them."""
        kind = tables.value_type(array)
        numbers: NumberArray | None
        codes = None
        if tables.is_number_type(kind) and not self.categorical:
            self.number_type, numbers = True, _read_numbers(array)
            self.large |= tables.has_large_integers(array)
        else:
            words = tables.read_words(self.file, self.facts.name, array)
            codes = self._add_words(words, start)
            self.numeric &= words.numbers is not None
            numbers = words.numbers if self.numeric else None
        if numbers is not None:
            self._add_numbers(numbers, start)
        return numbers, codes

    def _add_words(self, piece: tables.WordCodes, start: int) -> NDArray[np.int64] | None:
        """Add words, and return their codes, None if there are too many."""
        facts, levels, codes = self.facts, self.levels, None
        counts = np.bincount(piece.codes, minlength=len(piece.words))
        if levels is not None:
            (occur,) = np.nonzero(counts)
            place = np.zeros(len(counts), np.int64)
            place[occur] = [levels.setdefault(w, len(levels)) for w in piece.words[occur].tolist()]
            codes = place[piece.codes]
            if len(levels) > MAX_TEXT_LEVELS:
                facts.other_notation = self._other_notation()
                self.levels = codes = None
        if piece.numbers is not None:
            facts.present += int((~np.isnan(piece.numbers)).sum())
            return codes
        known = [word is not None for word in piece.words]
        numbers = spelled_numbers(pa.array(piece.words, pa.string()), self.file.form)
        rows = (known & np.isnan(numbers))[piece.codes]
        if not facts.strays.many and rows.any():
            facts.first_stray = str(piece.words[piece.codes[np.argmax(rows)]])
        facts.strays = facts.strays.including(rows, start)
        facts.present += int(counts[known].sum())
        return codes

    def _add_numbers(self, values: NumberArray, start: int) -> None:
        facts = self.facts
        if not np.isfinite(values).all():
            facts.missing = facts.missing.including(np.isnan(values), start)
            facts.infinite = facts.infinite.including(np.isinf(values), start)
        weights = (values >= WEIGHT_RANGE[0]) & (values <= WEIGHT_RANGE[1])
        facts.no_weight = facts.no_weight.including(~weights, start)
        facts.least = min(facts.least, float(np.fmin.reduce(values, initial=0.0)))
        facts.most = max(facts.most, float(np.fmax.reduce(values, initial=0.0)))
        if facts.single:
            with np.errstate(over="ignore"):
                same = values.astype(np.float32, copy=False) == values
            facts.single = bool((same | np.isnan(values)).all())
        if self.distinct is not None:
            found = np.unique(np.concatenate([self.distinct, values[~np.isnan(values)]]))
            self.distinct = found if len(found) <= MAX_DISTINCT_NUMBERS else None

    def result(self) -> ColumnFacts:
        """Return the facts about all batches; raise E404 if some hold numbers, others text."""
        words, numbers = list(filter(None, self.levels or ())), self.distinct
        alike = numbers is not None and tables.spell_alike(words, numbers)
        if self.numeric and not (alike and self.file.kind == "parquet"):
            values = None if self.distinct is None else self.distinct.tolist()
            return replace(self.facts, is_text=False, values=values)
        if self.number_type:
            reason = f"column '{self.facts.name}' holds numbers in one file and text in another"
            raise tables.not_a_table_error(self.file.path, reason, "store it as text in all files")
        if self.levels is None:
            return self.facts
        other = self._other_notation()
        return replace(self.facts, values=list(self.levels), other_notation=other)

    def _other_notation(self) -> tuple[str, str] | None:
        """Return message and hint of the error if the words are numbers in another notation."""
        error = other_notation_error(self.facts.name, self.levels or (), self.file.form)
        return None if error is None else (error.message, error.help or "")


def _read_numbers(array: pa.Array) -> NumberArray:
    """Return the values of a column of numbers, NaN where missing; float32 columns stay float32."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type) or array.null_count:
        array = tables.as_doubles(array)
    found = array.to_numpy(zero_copy_only=False)
    return np.asarray(found, np.float32 if found.dtype == np.float32 else np.float64)

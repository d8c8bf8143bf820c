"""Write the records of a streamed table while its files are read.

Words are numbered as they occur. The format of records depends on all rows: on the number of words
of each column, and on whether single precision represents all numbers. It is guessed from the first
rows, and records are written by that guess. If it was wrong, the files are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratecli.datasets import tables
from ratecli.datasets.columns import MISSING_WORDS
from ratecli.datasets.load import OwnFiles
from ratecli.streaming.store import (
    FACTS_FILE,
    RECORDS_FILE,
    ColumnFacts,
    NumberFacts,
    RecordStore,
    array_bytes,
    open_record_store,
    record_dtype,
    replace_on_success,
    streamed_tables_folder,
)

MAX_TEXT_LEVELS = 2**16 - 1
"""Largest number of distinct words in a column that can be used for features or groups."""
MAX_DISTINCT_NUMBERS = 64
"""Largest number of distinct numbers in a column that are listed."""
RECORDS_VERSION = 5
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
    key = [RECORDS_VERSION, own.sums, first.kind, first.separator, sorted(categorical)]
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
    return RecordStore(folder, store.rows, store.columns)


def _write_store(
    own: OwnFiles, categorical: Sequence[str], folder: Path, progress: RecordProgress
) -> RecordStore:
    counts = [file.rows() for file in own.files]
    total = None if None in counts else sum(filter(None, counts))
    progress(0, total)
    with (folder / RECORDS_FILE).open("w+b", buffering=2**20) as file:
        writer = RecordWriter(file)
        rows, columns = _scan_and_write(own, categorical, writer, lambda n: progress(n, total))
        store = RecordStore(folder, rows, tuple(columns))
        if not writer.holds(store):
            file.seek(0)
            file.truncate()
            exact = RecordWriter.exact(file, store)
            again = _scan_and_write(own, categorical, exact, lambda n: progress(n, rows))
            if again != (rows, columns):
                raise OSError("the table changed while it was read")
    return store


def common_names(own: OwnFiles) -> list[str]:
    """Return the column names; raise E404 if a file has other columns than the first."""
    first, *others = own.files
    names = first.names()
    for file in others:
        found = file.names()
        if found != names:
            differing = [name for name in (*names, *found) if (name in names) != (name in found)]
            other = differing[0] if differing else "the order"
            reason = f"its columns are not those of '{first.path.name}': '{other}'"
            hint = "all files of a table need the same columns"
            raise tables.not_a_table_error(file.path, reason, hint)
    return names


def _batches(own: OwnFiles) -> Iterator[Mapping[str, pa.Array]]:
    """Yield batches of all columns by name, in the order of the rows."""
    for file in own.files:
        for batch in file.batches():
            names = [name.strip() for name in batch.schema.names]
            yield dict(zip(names, batch.columns, strict=True))


def _scan_and_write(
    own: OwnFiles,
    categorical: Collection[str],
    writer: RecordWriter,
    progress: Callable[[int], None],
) -> tuple[int, list[ColumnFacts]]:
    """Return the number of rows and the facts about each column, and write all records.

    Raises
    ------
    FaultError
        E404 if a file cannot be read as a table.
    """
    path, rows = own.files[0].path, 0
    scans = {name: ColumnScan(path, name, name in categorical) for name in common_names(own)}
    for batch in _batches(own):
        writer.add({name: scans[name].add(array, rows) for name, array in batch.items()})
        rows += len(next(iter(batch.values())))
        progress(rows)
    if not rows:
        raise tables.no_rows_error(path)
    return rows, [scan.facts() for scan in scans.values()]


class ColumnPiece(NamedTuple):
    """A batch of a column as words, as numbers (None unless all words are), or as both."""

    words: tables.WordCodes | None
    numbers: NumberArray | None


@dataclass
class ColumnScan:
    """Collects facts about a column, batch by batch.

    Attributes
    ----------
    levels
        Words so far in order, None as a word for missing values; None if there are too many.
    numeric
        Whether every word so far is a number or marks a missing value.
    any_number
        Whether any value so far is a number.
    number_type
        Whether a file holds the column as numbers, not as text.
    """

    path: Path
    name: str
    categorical: bool
    numbers: NumberFacts = field(default_factory=NumberFacts)
    text: ColumnFacts = field(init=False)
    levels: dict[str | None, None] | None = field(default_factory=dict)
    numeric: bool = field(init=False)
    any_number: bool = False
    number_type: bool = False

    def __post_init__(self) -> None:
        self.text, self.numeric = ColumnFacts(self.name), not self.categorical

    def add(self, array: pa.Array, start: int) -> ColumnPiece:
        """Add the values of the rows from `start` on, and return them."""
        kind = tables.value_type(array)
        words: tables.WordCodes | None = None
        values: NumberArray | None
        if tables.is_number_type(kind) and not self.categorical:
            self.number_type = True
            values = _read_numbers(array)
        else:
            words = tables.read_words(self.path, self.name, array)
            self._add_words(words, start)
            self.numeric &= tables.is_text_type(kind) and words.numbers is not None
            values = words.numbers if self.numeric else None
        if values is not None:
            _add_numbers(self.numbers, values, start)
            self.any_number = self.any_number or not np.isnan(values).all()
        return ColumnPiece(words, values)

    def _add_words(self, piece: tables.WordCodes, start: int) -> None:
        counts = np.bincount(piece.codes, minlength=len(piece.words))
        if self.levels is not None:
            self.levels.update(dict.fromkeys(piece.words[counts > 0].tolist()))
            if len(self.levels) > MAX_TEXT_LEVELS:
                self.levels = None
        if piece.numbers is not None:
            self.text.present += int((~np.isnan(piece.numbers)).sum())
            return
        known = [word is not None and word.casefold() not in MISSING_WORDS for word in piece.words]
        stray = [
            there and np.isnan(tables.parse_number_word(word))
            for there, word in zip(known, piece.words, strict=True)
        ]
        self.text.present += int(counts[known].sum())
        self.text.not_numbers += int(counts[stray].sum())
        rows = np.array(stray)[piece.codes]
        if not self.text.first_word and rows.any():
            row = int(np.argmax(rows))
            self.text.first_word_row = start + row
            self.text.first_word = str(piece.words[piece.codes[row]])

    def facts(self) -> ColumnFacts:
        """Return the facts about all batches."""
        if self.numeric and (self.any_number or not self.levels):
            return ColumnFacts(self.name, self.numbers)
        if self.number_type:
            reason = f"column '{self.name}' holds numbers in one file and text in another"
            raise tables.not_a_table_error(self.path, reason, "store it as text in all files")
        if self.levels is not None:
            self.text.levels = list(self.levels)
        return self.text


def _read_numbers(array: pa.Array) -> NumberArray:
    """Return the values of a column of numbers, NaN where missing; float32 columns stay float32."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type) or array.null_count:
        array = tables.as_doubles(array)
    found = array.to_numpy(zero_copy_only=False)
    return np.asarray(found, np.float32 if found.dtype == np.float32 else np.float64)


def _add_numbers(facts: NumberFacts, values: NumberArray, start: int) -> None:
    """Add the numbers of the rows from `start` on."""
    finite = np.isfinite(values)
    if not finite.all():
        missing, infinite = np.isnan(values), np.isinf(values)
        facts.missing += int(missing.sum())
        facts.infinite += int(infinite.sum())
        facts.first_missing = _first_row(facts.first_missing, missing, start)
        facts.first_infinite = _first_row(facts.first_infinite, infinite, start)
    facts.not_positive = _first_row(facts.not_positive, ~(values > 0), start)
    facts.least = min(facts.least, float(np.fmin.reduce(values, initial=0.0)))
    facts.most = max(facts.most, float(np.fmax.reduce(values, initial=0.0)))
    facts.single = facts.single and fits_single_precision(values)
    if facts.distinct is not None:
        distinct = np.unique(np.concatenate([facts.distinct, values[~np.isnan(values)]]))
        facts.distinct = distinct.tolist() if len(distinct) <= MAX_DISTINCT_NUMBERS else None


def fits_single_precision(values: NumberArray) -> bool:
    """Return whether single precision represents all of the numbers exactly."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    return bool(((narrow == values) | np.isnan(values)).all())


def _first_row(known: int, marked: NDArray[np.bool_], start: int) -> int:
    return start + int(np.argmax(marked)) if known < 0 and marked.any() else known


class RecordWriter:
    """Writes records in a format guessed from the first rows; `fits` is false if it was wrong."""

    def __init__(self, file: BinaryIO) -> None:
        self.fits = True
        self._file = file
        self._numbers = list[str]()
        self._codes = dict[str, dict[str | None, int]]()
        self._record: np.dtype[np.void] | None = None

    @classmethod
    def exact(cls, file: BinaryIO, store: RecordStore) -> RecordWriter:
        """Return a writer in the format of a store."""
        writer = cls(file)
        writer._numbers = [column.name for column in store.numbers]
        writer._codes = {column.name: _codes_of(column.levels or ()) for column in store.texts}
        writer._record = store.record
        return writer

    def add(self, pieces: Mapping[str, ColumnPiece]) -> None:
        """Write the next rows, given by column."""
        record = self._record = self._record or self._guess(pieces)
        if not self.fits:
            return
        columns: list[Any] = [pieces[name].numbers for name in self._numbers]
        kind = record["codes"].base
        columns += [_encode(codes, pieces[name].words, kind) for name, codes in self._codes.items()]
        self.fits = all(column is not None for column in columns)
        if self.fits and columns:
            records = np.empty(len(columns[0]), record)
            _fill_records(records, columns)
            self._file.write(array_bytes(records))

    def _guess(self, pieces: Mapping[str, ColumnPiece]) -> np.dtype[np.void]:
        """Fix the columns and the format of records by the first rows."""
        single = True
        for name, (words, numbers) in pieces.items():
            # as long as all values are missing, the column is taken for text
            if numbers is not None and (words is None or not np.isnan(numbers).all()):
                self._numbers.append(name)
                single = single and fits_single_precision(numbers)
            elif words is not None:
                self._codes[name] = _codes_of(words.words[np.unique(words.codes)].tolist())
        most = max(map(len, self._codes.values()), default=0)
        return record_dtype(len(self._numbers), len(self._codes), single=single, levels=most)

    def holds(self, store: RecordStore) -> bool:
        """Return whether the file now has the records of `store`."""
        names = [[column.name for column in each] for each in (store.numbers, store.texts)]
        return (
            self.fits and names == [self._numbers, [*self._codes]] and self._record == store.record
        )


def _codes_of(words: Sequence[str | None]) -> dict[str | None, int]:
    return {word: k for k, word in enumerate(dict.fromkeys(words))}


def _encode(
    codes: dict[str | None, int], piece: tables.WordCodes | None, kind: np.dtype[Any]
) -> NDArray[np.integer] | None:
    """Return words as codes, adding new words to `codes`; None if there are too many."""
    if piece is None:
        return None
    for k in np.unique(piece.codes):
        codes.setdefault(piece.words[k], len(codes))
    if len(codes) > np.iinfo(kind).max + 1:
        return None
    return np.array([codes.get(word, 0) for word in piece.words], kind)[piece.codes]


def _fill_records(records: Any, columns: Sequence[Any]) -> None:
    """Put the columns of numbers, then those of codes, into records."""
    numbers = records["numbers"].shape[1]
    with np.errstate(over="ignore"):  # a wrong guess may overflow
        for first in range(0, len(records), BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            for k, column in enumerate(columns):
                part, place = ("numbers", k) if k < numbers else ("codes", k - numbers)
                records[part][some, place] = column[some]

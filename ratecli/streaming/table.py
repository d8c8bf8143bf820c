"""A streamed table: its columns in their roles, and its rows as records of fixed width.

Records are written while the files are read, and read many times.

Numbers are stored in single precision if that is exact for all of them, else in double precision;
words by their index among the levels of their column, which are numbered as they occur. So a record
contains exactly the table's values in a few bytes, and rows from anywhere are read with one call.
Which columns are features, and how rows are split, is not stored. Records are in the folder
`streamed` of the data folder; what was removed there is written again.

The format of records depends on all rows: on which columns hold words, and on whether single
precision represents all numbers. It is guessed from the first batch, and records are written by
that guess. If it was wrong, the files are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets import tables
from ratecli.datasets.columns import FEW_LEVELS, ColumnFacts, read_label
from ratecli.datasets.files import data_folder
from ratecli.datasets.load import EntryFiles, check_columns, feature_names, find_files
from ratecli.datasets.text_format import spelled_numbers
from ratecli.errors import Diagnostic, FaultError, errors_at
from ratecli.files import staged_folder

RECORDS_FILE, FACTS_FILE = "records", "facts.json"
UNFINISHED_RECORDS_PREFIX = ".new-"
"""Prefix of folders that are still being written."""
MAX_PIECE_BYTES = 2**21
"""Maximum size of the records that are read at once."""
MOST_ROWS, MIN_PIECE_ROWS = 2**13, 2**8

MAX_TEXT_LEVELS = 2**16 - 1
"""Largest number of distinct words in a column that can be used for features or groups."""
MAX_DISTINCT_NUMBERS = 64
"""Largest number of distinct numbers in a column that are listed."""
WEIGHT_RANGE = (1e-9, 1e9)
"""Smallest and largest weight of a row, because sums over streamed rows use single precision."""
RECORDS_VERSION = 9
"""Increased when the records of the same files, or the facts about their columns, change."""
BLOCK_ROWS = 2**12
"""Rows of records that are filled at once, so that they stay in the CPU's cache."""

BASE_MEMORY = 360 * 2**20
"""Memory of a process before it reads anything, in bytes: mostly Python and its libraries."""
PIECE_COPIES = 8
"""Number of copies of a piece of records in memory, in double precision and the like."""
BATCH_COLUMN_BYTES = 40 * 2**15
"""Bytes per column of the pool of batches, as features, including a copy while it is filled."""
FEATURE_PAIR_BYTES = 3 * 8
"""Bytes per pair of features: curvatures, and the solver's copies."""

RecordProgress = Callable[[int, int | None], None]
"""Called with the number of rows written and the total, None if that is not known yet."""


@dataclass(frozen=True)
class RecordFormat:
    """The columns of a record: the numbers, the words, and whether numbers are `single`."""

    numbers: tuple[str, ...]
    words: tuple[str, ...]
    single: bool

    @classmethod
    def of(cls, columns: Iterable[ColumnFacts]) -> RecordFormat:
        """Return the format for columns of a table."""
        words = tuple(each.name for each in columns if each.is_text)
        numbers = [each for each in columns if not each.is_text]
        single = all(each.single for each in numbers)
        return cls(tuple(each.name for each in numbers), words, single)

    @property
    def dtype(self) -> np.dtype[np.void]:
        numbers = ("numbers", "<f4" if self.single else "<f8", (len(self.numbers),))
        return np.dtype([numbers, ("codes", "<u2", (len(self.words),))])


@dataclass(frozen=True)
class RecordStore:
    """n records in a folder, and the facts about each column of the table."""

    folder: Path
    rows: int
    columns: tuple[ColumnFacts, ...]

    @cached_property
    def format(self) -> RecordFormat:
        return RecordFormat.of(self.columns)

    @cached_property
    def record(self) -> np.dtype[np.void]:
        return self.format.dtype

    @cached_property
    def places(self) -> dict[str, int]:
        """Index of each column among the numbers of a record, or among its codes."""
        own = (self.format.numbers, self.format.words)
        return {name: k for names in own for k, name in enumerate(names)}

    @property
    def path(self) -> Path:
        return self.folder / RECORDS_FILE

    @cached_property
    def at_once(self) -> int:
        """Number of rows read at once: a power of two, the same for all readers of the store."""
        fits = max(MAX_PIECE_BYTES // max(self.record.itemsize, 1), MIN_PIECE_ROWS)
        return min(MOST_ROWS, 1 << (fits.bit_length() - 1))

    def pieces(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Any]]:
        """Yield pieces of `at_once` records from `first` to before `last`, with their start."""
        last = self.rows if last is None else last
        for start in range(first, last, self.at_once):
            count = min(self.at_once, last - start)
            yield start, read_items(self.path, self.record, start, count)

    def as_json(self) -> str:
        """Return the text from which `open_record_store` restores the store."""
        return json.dumps(asdict(self), default=str)


def open_record_store(folder: Path) -> RecordStore | None:
    """Return the store in a folder; None if it is incomplete."""
    try:
        content = json.loads((folder / FACTS_FILE).read_text("utf-8"))
        store = TypeAdapter(RecordStore).validate_python(content | {"folder": folder})
        size = store.path.stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    return store if size == store.rows * store.record.itemsize else None


def read_items(path: Path, dtype: np.dtype[Any], start: int, count: int) -> Any:
    """Return items of a file, counted from 0; raise OSError if it ends before the last one."""
    found = np.fromfile(path, dtype, count, offset=start * dtype.itemsize)
    if len(found) < count:
        raise OSError(f"'{path}' ends too early: was it changed while it was read?")
    return found


def read_runs(path: Path, dtype: np.dtype[Any], runs: Iterable[int], length: int) -> Any:
    """Return runs of `length` items of a file; the last one may be shorter."""
    parts, size = [], length * dtype.itemsize
    with path.open("rb", buffering=0) as file:
        for run in runs:
            file.seek(run * size)
            parts.append(file.read(size))
    return np.frombuffer(b"".join(parts), dtype)


@contextmanager
def write_together(folder: Path, *names: str) -> Iterator[list[Path]]:
    """Yield temporary paths for files of a folder, and move them there on success, in order.

    Raises
    ------
    FaultError
        E413 if they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with staged_folder(folder, UNFINISHED_RECORDS_PREFIX) as new:
            yield [new / name for name in names]
            for name in names:  # another process may have written the same content meanwhile
                (new / name).replace(folder / name)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"the records of a streamed table cannot be stored in '{folder}': {reason}"
        hint = "they take about as many bytes as the table; set RATECLI_DATA to another folder"
        raise FaultError(Diagnostic("E413", message, hint)) from error


def open_or_write_store(
    files: EntryFiles, categorical: Sequence[str], progress: RecordProgress | None = None
) -> RecordStore:
    """Return the store of a table's files, writing it if needed.

    Raises
    ------
    FaultError
        E404 if a file cannot be read as a table, E413 if records cannot be stored.
    """
    first = files.own[0]
    sums = [sha256 for _, sha256 in files.sums]
    key = [RECORDS_VERSION, sums, first.kind, asdict(first.form), sorted(categorical)]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
    folder = (data_folder() / "streamed" / digest).absolute()
    if (known := open_record_store(folder)) is not None:
        return known
    with write_together(folder, RECORDS_FILE, FACTS_FILE) as (records, facts):
        found = _write_store(files, categorical, records, progress or (lambda *_: None))
        store = replace(found, folder=folder)
        facts.write_text(store.as_json(), "utf-8")
    return store


def _write_store(
    files: EntryFiles, categorical: Collection[str], path: Path, progress: RecordProgress
) -> RecordStore:
    """Write the records of a table, and return their store; raise E404 for broken files."""
    first, names, texts = files.own[0], files.names, {*categorical}
    counts = [file.rows() for file in files.own]
    total = None if None in counts else sum(filter(None, counts))
    progress(0, total)
    written: RecordFormat | None = None
    while True:
        rows, scans = 0, [ColumnScan(first, name, asked=name in texts) for name in names]
        with path.open("wb") as file:
            for batch in chain.from_iterable(each.batches() for each in files.own):
                pairs = zip(scans, batch.columns, strict=True)
                values = {scan.facts.name: scan.add(array, rows) for scan, array in pairs}
                written = written or RecordFormat.of([scan.facts for scan in scans])
                _write_records(file, written, values, batch.num_rows)
                rows += batch.num_rows
                progress(rows, total)
        if not rows:
            raise tables.no_rows_error(first.path)
        columns = tuple(scan.finished() for scan in scans)
        if (needed := RecordFormat.of(columns)) == written:
            return RecordStore(path.parent, rows, columns)
        texts, written, total = {*needed.words}, needed, rows


def _write_records(
    file: BinaryIO, form: RecordFormat, values: Mapping[str, NDArray[Any]], rows: int
) -> None:
    """Write the records of a batch; they are of no use once a column needs another format."""
    records = np.empty(rows, form.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, rows, BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            for part, names in (("numbers", form.numbers), ("codes", form.words)):
                for k, name in enumerate(names):
                    records[part][some, k] = values[name][some]
    records.tofile(file)


class ColumnScan:
    """Collects facts about a column, batch by batch.

    A column holds words if that is `asked`, if a word is not a number, if it has integers that
    doubles do not represent exactly, or if text of a Parquet file spells a number in two ways.
    """

    def __init__(self, file: tables.TableFile, name: str, *, asked: bool) -> None:
        self.file, self.facts = file, ColumnFacts(name, is_text=asked)
        self.asked, self.number_type, self.spelled = asked, False, set[str]()
        self.distinct: NDArray[np.floating] | None = np.zeros(0)
        self.codes: dict[str | None, int] = {}

    def add(self, array: pa.Array, start: int) -> NDArray[Any]:
        """Add the values of the rows from `start` on; return their numbers, or codes of words.

        Raises E404 if some batches hold numbers, others text.
        """
        facts = self.facts
        if tables.is_number_type(tables.value_type(array)) and not self.asked:
            self.number_type = True
            if tables.has_large_integers(array):
                facts.is_text = self.asked = True
            elif not facts.is_text:
                return self._add_numbers(_read_numbers(array), start)
        words = tables.read_words(self.file, facts.name, array)
        facts.is_text |= words.numbers is None
        if facts.is_text and self.number_type and not self.asked:
            reason = f"column '{facts.name}' holds numbers in one file and text in another"
            raise tables.not_a_table_error(self.file.path, reason, "store it as text in all files")
        counts = np.bincount(words.codes, minlength=len(words.words))
        if facts.is_text or words.numbers is None:
            return self._add_words(words, counts, start)
        if len(self.spelled) <= FEW_LEVELS:
            self.spelled.update(filter(None, words.words[counts > 0][: FEW_LEVELS + 2]))
        return self._add_numbers(words.numbers, start)

    def _add_words(
        self, piece: tables.WordCodes, counts: NDArray[np.int64], start: int
    ) -> NDArray[np.int64]:
        """Add words, each of which occurs `counts` times, and return their codes.

        After `MAX_TEXT_LEVELS` distinct words, only those that are not numbers are added.
        """
        facts, place = self.facts, np.zeros(len(piece.words), np.int64)
        for k in np.flatnonzero(counts).tolist():
            word = piece.words[k]
            code = self.codes.get(word)
            if code is None:
                if len(self.codes) >= MAX_TEXT_LEVELS:
                    facts.kept = False
                    if len(self.codes) >= 2 * MAX_TEXT_LEVELS or self._is_number(word):
                        continue
                code = self.codes[word] = len(self.codes)
                facts.words.append(word)
                facts.counts.append(0)
                facts.firsts.append(start + int(np.argmax(piece.codes == k)))
            facts.counts[code] += int(counts[k])
            place[k] = code
        return place[piece.codes]

    def _is_number(self, word: str | None) -> bool:
        spelled = spelled_numbers(pa.array([word], pa.string()), self.file.form)
        return word is not None and not np.isnan(spelled[0])

    def _add_numbers(self, values: NDArray[np.floating], start: int) -> NDArray[np.floating]:
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
        return values

    def finished(self) -> ColumnFacts:
        """Return the facts about all batches."""
        facts, distinct = self.facts, self.distinct
        facts.numbers = None if distinct is None else distinct.tolist()
        alike = distinct is not None and tables.spell_alike(self.spelled, distinct)
        if alike and self.file.kind == "parquet":
            facts.is_text = True
        return facts


def _read_numbers(array: pa.Array) -> NDArray[np.floating]:
    """Return the values of a column of numbers, NaN where missing; float32 columns stay float32."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type) or array.null_count:
        array = tables.as_doubles(array)
    found = array.to_numpy(zero_copy_only=False)
    return np.asarray(found, np.float32 if found.dtype == np.float32 else np.float64)


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
        files = find_files(entry, base, deployed)
        with errors_at("path"):
            names = files.names
        self.label, self.weight = entry.label, entry.weight
        self.features = feature_names(entry, names, deployed)
        with errors_at("path"):
            self.store = open_or_write_store(files, entry.categorical or (), progress)
        self.columns = {column.name: column for column in self.store.columns}
        self.digest, self.files = files.digest, files.sums
        self._check_columns(entry, slices)
        self.label_of = np.zeros(0)
        if entry.label is not None:
            self.label_of = _labels(self.columns[entry.label], entry.positive)

    def __len__(self) -> int:
        return self.store.rows

    @property
    def weight_at(self) -> int | None:
        """Index of the weight among the numbers of a record; None if rows count alike."""
        return None if self.weight is None else self.store.places[self.weight]

    def _check_columns(self, entry: DatasetSpec, slices: Sequence[str]) -> None:
        """Raise the first error of the columns in their roles."""
        check_columns(entry, self.features, self.columns, len(self))
        division = entry.division
        for name in self.columns.keys() & {*slices, division.by, *(division.stratify or ())}:
            if not self.columns[name].kept:
                message = f"column '{name}' has too many values to define groups of streamed rows"
                raise FaultError(Diagnostic("E411", message, "use a column with fewer values"))
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

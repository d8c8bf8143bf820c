"""A streamed table as records of fixed width: written once, read many times.

Numbers are stored in single precision if that is exact for all of them, else in double precision;
words by their index among the levels of their column. So a record contains exactly the
table's values in a few bytes, and rows from anywhere are read with one call. Which columns are
features, and how rows are split, is not stored. Stores are in the folder `streamed` of the data
folder; a store that was removed is written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from ratecli.datasets.columns import CellCounts
from ratecli.datasets.files import data_folder
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import staged_folder
from ratecli.rates.syntax import value_text

RECORDS_FILE, FACTS_FILE = "records", "facts.json"
UNFINISHED_RECORDS_PREFIX = ".new-"
"""Prefix of folders that are still being written."""
MAX_PIECE_BYTES = 2**21
"""Maximum size of the records that are read at once."""
MOST_ROWS, MIN_PIECE_ROWS = 2**13, 2**8


@dataclass
class ColumnFacts:
    """Facts about a column of a streamed table.

    Attributes
    ----------
    is_text
        Whether the column holds words; otherwise numbers.
    values
        The distinct words as they occur, None for a missing one; or the distinct numbers, sorted.
        None if there are more than `scan.MAX_TEXT_LEVELS` or `scan.MAX_DISTINCT_NUMBERS`.
    present
        Number of rows of a text column with a word that does not mark a missing value.
    strays, first_stray
        The rows of a text column with a word that is neither a number nor marks a missing value,
        and the first such word.
    other_notation
        Message and hint of the error if the words of a text column are numbers in another notation.
    single
        Whether no number changes when it is stored in single precision.
    missing, infinite, no_weight
        The rows without a number, with an infinite one, and without one in `scan.WEIGHT_RANGE`.
    least, most
        The minimum and maximum of the numbers and 0.
    """

    name: str
    is_text: bool = True
    values: list[Any] | None = None
    present: int = 0
    strays: CellCounts = field(default_factory=CellCounts)
    first_stray: str = ""
    other_notation: tuple[str, str] | None = None
    single: bool = True
    missing: CellCounts = field(default_factory=CellCounts)
    infinite: CellCounts = field(default_factory=CellCounts)
    no_weight: CellCounts = field(default_factory=CellCounts)
    least: float = 0.0
    most: float = 0.0

    @property
    def levels(self) -> list[str | None]:
        """The words of a text column, in the order of their codes; empty for numbers."""
        return (self.values or []) if self.is_text else []

    def only_value(self, rows: int) -> str | None:
        """Return the value if all `rows` have the same, "" if all lack one, else None."""
        if self.values == [None] or self.missing.many == rows:
            return ""
        if self.values is None or len(self.values) > 1 or self.missing.many:
            return None
        return value_text(self.values[0])

    @property
    def sorted_values(self) -> list[Any] | None:
        """The values in order, None last."""
        return self.values and sorted(self.values, key=lambda value: (value is None, value or 0))

    @property
    def kept(self) -> bool:
        """Whether records contain the column."""
        return not self.is_text or self.values is not None


@dataclass(frozen=True)
class RecordStore:
    """n records in a folder; numbers of a record are in the order of the number columns."""

    folder: Path
    rows: int
    columns: tuple[ColumnFacts, ...]

    @cached_property
    def numbers(self) -> dict[str, ColumnFacts]:
        return {column.name: column for column in self.columns if not column.is_text}

    @cached_property
    def texts(self) -> dict[str, ColumnFacts]:
        """The text columns that records contain."""
        return {column.name: column for column in self.columns if column.is_text and column.kept}

    @property
    def places(self) -> dict[str, int]:
        """Index of each column among the numbers of a record, or among its codes."""
        return {name: k for each in (self.numbers, self.texts) for k, name in enumerate(each)}

    @cached_property
    def record(self) -> np.dtype[np.void]:
        kind = "<f4" if all(column.single for column in self.numbers.values()) else "<f8"
        numbers, texts = len(self.numbers), len(self.texts)
        return np.dtype([("numbers", kind, (numbers,)), ("codes", "<u2", (texts,))])

    @property
    def path(self) -> Path:
        return self.folder / RECORDS_FILE

    @property
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

    def has_format_of(self, other: RecordStore) -> bool:
        """Return whether records have the same columns, stored in the same way."""
        mine, others = ([*each.numbers, *each.texts] for each in (self, other))
        return mine == others and self.record == other.record

    def facts(self) -> str:
        """Return the JSON text from which `open_record_store` restores the store."""
        return json.dumps({"rows": self.rows, "columns": list(map(asdict, self.columns))})


def open_record_store(folder: Path) -> RecordStore | None:
    """Return the store in a folder; None if it is incomplete."""
    try:
        content = json.loads((folder / FACTS_FILE).read_text("utf-8"))
        columns = TypeAdapter(tuple[ColumnFacts, ...]).validate_python(content["columns"])
        store = RecordStore(folder, content["rows"], columns)
        size = store.path.stat().st_size
    except (OSError, ValueError, KeyError, TypeError):
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


def streamed_tables_folder() -> Path:
    """Return the folder of everything that is stored about streamed tables."""
    return data_folder() / "streamed"


@contextmanager
def replace_on_success(path: Path) -> Iterator[Path]:
    """Yield a temporary file name and atomically rename it to `path` on success.

    Raises
    ------
    FaultError
        E413 if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with staged_folder(path.parent, UNFINISHED_RECORDS_PREFIX) as folder:
            new = folder / path.name
            yield new
            new.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        message = (
            f"the records of a streamed table cannot be stored in '{streamed_tables_folder()}': "
            f"{reason}"
        )
        hint = "they take about as many bytes as the table; set RATECLI_DATA to another folder"
        raise FaultError(Diagnostic("E413", message, hint)) from error

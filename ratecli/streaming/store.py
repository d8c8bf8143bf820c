"""A streamed table as records of fixed width: written once, read many times.

Numbers are stored in single precision if that is exact for all of them, else in double precision;
words by their index among the levels of their column. So a record contains exactly the
table's values in a few bytes, and rows from anywhere are read with one call. Which columns are
features, and how rows are split, is not stored. Stores are in the folder `streamed` of the data
folder; a store that was removed is written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ratecli.datasets.files import data_folder
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import staged_folder

RECORDS_FILE, FACTS_FILE = "records", "facts.json"
UNFINISHED_RECORDS_PREFIX = ".new-"
"""Prefix of folders that are still being written."""
MAX_PIECE_BYTES = 2**21
"""Maximum size of the records that are read at once."""
MOST_ROWS, MIN_PIECE_ROWS = 2**13, 2**8


@dataclass
class NumberFacts:
    """Facts about a column of numbers.

    Attributes
    ----------
    single
        Whether single precision represents all of them exactly.
    distinct
        The distinct numbers, sorted; None if there are more than `scan.MAX_DISTINCT_NUMBERS`.
    missing, infinite
        Number of rows with a missing or an infinite value.
    first_missing, first_infinite
        The first such row, -1 if there is none.
    not_positive
        The first row without a positive number, -1 if there is none.
    least, most
        The minimum and maximum of the numbers and 0.
    """

    single: bool = True
    distinct: list[float] | None = field(default_factory=list)
    missing: int = 0
    infinite: int = 0
    first_missing: int = -1
    first_infinite: int = -1
    not_positive: int = -1
    least: float = 0.0
    most: float = 0.0


@dataclass
class ColumnFacts:
    """Facts about a column of a streamed table.

    Attributes
    ----------
    numbers
        None for a column of text.
    levels
        The distinct words of a text column as they occur, None if values are missing. None for
        columns of numbers, and if there are more than `scan.MAX_TEXT_LEVELS` words.
    present, not_numbers
        Number of rows of a text column with a word that does not mark a missing value, and with a
        word that is not a number either.
    first_word_row, first_word
        The first row with a word that is not a number, and the word; -1 if there is none.
    """

    name: str
    numbers: NumberFacts | None = None
    levels: list[str | None] | None = None
    present: int = 0
    not_numbers: int = 0
    first_word_row: int = -1
    first_word: str = ""

    @property
    def is_text(self) -> bool:
        return self.numbers is None

    @property
    def sorted_levels(self) -> list[str | None]:
        """The levels in alphabetical order, None last."""
        return sorted(self.levels or (), key=lambda word: (word is None, word or ""))

    @property
    def kept(self) -> bool:
        """Whether records contain the column."""
        return self.numbers is not None or self.levels is not None


@dataclass(frozen=True)
class RecordStore:
    """n records in a folder; numbers of a record are in the order of the number columns."""

    folder: Path
    rows: int
    columns: tuple[ColumnFacts, ...]

    @cached_property
    def numbers(self) -> tuple[ColumnFacts, ...]:
        return tuple(column for column in self.columns if not column.is_text)

    @cached_property
    def texts(self) -> tuple[ColumnFacts, ...]:
        """The text columns that records contain."""
        return tuple(column for column in self.columns if column.is_text and column.kept)

    @cached_property
    def record(self) -> np.dtype[np.void]:
        single = all(column.numbers and column.numbers.single for column in self.numbers)
        most = max((len(column.levels or ()) for column in self.texts), default=0)
        return record_dtype(len(self.numbers), len(self.texts), single=single, levels=most)

    @property
    def path(self) -> Path:
        return self.folder / RECORDS_FILE

    @property
    def at_once(self) -> int:
        """Number of rows read at once: a power of two, the same for all readers of the store."""
        fits = max(MAX_PIECE_BYTES // max(self.record.itemsize, 1), MIN_PIECE_ROWS)
        return min(MOST_ROWS, 1 << (fits.bit_length() - 1))

    def pieces(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Any]]:
        """Yield the records from `first` to before `last` in pieces of `at_once`, with their start.

        The buffer is reused: an array is valid only until the next one is requested.
        """
        last = self.rows if last is None else last
        buffer = np.empty(self.at_once, self.record)
        with self.path.open("rb", buffering=0) as file:
            file.seek(first * self.record.itemsize)
            for start in range(first, last, self.at_once):
                piece = buffer[: min(self.at_once, last - start)]
                read_exactly(file, piece)
                yield start, piece

    def facts(self) -> str:
        """Return the JSON text from which `open_record_store` restores the store."""
        return json.dumps({"rows": self.rows, "columns": list(map(asdict, self.columns))})


def open_record_store(folder: Path) -> RecordStore | None:
    """Return the store in a folder; None if it is incomplete."""
    try:
        content = json.loads((folder / FACTS_FILE).read_text("utf-8"))
        columns = tuple(map(_column_facts, content["columns"]))
        store = RecordStore(folder, content["rows"], columns)
        size = (folder / RECORDS_FILE).stat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return store if size == store.rows * store.record.itemsize else None


def _column_facts(content: dict[str, Any]) -> ColumnFacts:
    numbers = content["numbers"] and NumberFacts(**content["numbers"])
    return ColumnFacts(**content | {"numbers": numbers})


def record_dtype(numbers: int, codes: int, *, single: bool, levels: int) -> np.dtype[np.void]:
    """Return the dtype of a record; `levels` is the largest number of words of a column."""
    return np.dtype(
        [
            ("numbers", "<f4" if single else "<f8", (numbers,)),
            ("codes", "u1" if levels <= 2**8 else "<u2", (codes,)),
        ]
    )


def array_bytes(array: NDArray[Any]) -> memoryview:
    """Return the bytes of a contiguous array."""
    whole: Any = array.reshape(-1).view(np.uint8)
    return memoryview(whole)


def read_exactly(file: BinaryIO, piece: NDArray[Any]) -> None:
    """Fill an array from a file; raise OSError if the file ends before."""
    view = array_bytes(piece)
    while view:
        count = file.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise OSError("the file of a streamed table ends too early: was it changed meanwhile?")
        view = view[count:]


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

"""A streamed table as records of fixed width: written once, read many times.

Numbers are stored in single precision if that is exact for all of them, else in double precision;
words by their index among the levels of their column. So a record contains exactly the table's
values in a few bytes, and rows from anywhere are read with one call. Which columns are features,
and how rows are split, is not stored. Stores are in the folder `streamed` of the data folder; a
store that was removed is written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from ratecli.datasets.columns import ColumnFacts
from ratecli.datasets.files import data_folder
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import staged_folder

RECORDS_FILE, FACTS_FILE = "records", "facts.json"
UNFINISHED_RECORDS_PREFIX = ".new-"
"""Prefix of folders that are still being written."""
MAX_PIECE_BYTES = 2**21
"""Maximum size of the records that are read at once."""
MOST_ROWS, MIN_PIECE_ROWS = 2**13, 2**8


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


def streamed_tables_folder() -> Path:
    """Return the folder of everything that is stored about streamed tables."""
    return (data_folder() / "streamed").absolute()

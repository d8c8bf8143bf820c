"""Writing the records of a streamed table while its files are read.

The format of records is known only when all is read: the sorted words of each column, and whether
single precision represents all numbers. The first rows are a good guess, so records are written by
that guess, with words numbered as they occur, and renumbered at the end if later rows added words.
If the guess was wrong, the files are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ratecli.streaming.reading import (
    NumberArray,
    TableFiles,
    WordPiece,
    is_number_type,
    parse_written_numbers,
    read_numbers,
    read_words,
    value_type,
)
from ratecli.streaming.scan import column_to_json, fits_single_precision, scan_columns
from ratecli.streaming.store import (
    FACTS_FILE,
    RECORDS_FILE,
    RecordStore,
    array_bytes,
    open_record_store,
    read_exactly,
    record_dtype,
    records_unwritable,
    replace_on_success,
    streamed_tables_folder,
)

RECORDS_VERSION = 3
"""Increased when the records of the same files, or the facts about their columns, change."""
BLOCK_ROWS = 2**12
"""Rows of records that are filled at once, so that they stay in the CPU's cache."""

RecordProgress = Callable[[int, int | None], None]
"""Called with the number of rows written and the total, None if that is not known yet."""


def open_or_write_store(
    files: TableFiles,
    sums: Sequence[str],
    categorical: Sequence[str],
    tell: RecordProgress | None = None,
) -> RecordStore:
    """Return the store of files with these SHA-256 sums, writing it if needed.

    Raises
    ------
    FaultError
        E404 if a file cannot be read as a table, E413 if records cannot be stored.
    """
    said = [RECORDS_VERSION, list(sums), files.kind, files.separator, sorted(categorical)]
    key = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    folder = (streamed_tables_folder() / key[:32]).absolute()
    found = open_record_store(folder)
    if found is None:
        with replace_on_success(folder / FACTS_FILE) as facts:
            store = _write_store(files, categorical, facts.parent, tell or _no_progress)
            content = {
                "rows": store.rows,
                "columns": [column_to_json(column) for column in store.columns],
            }
            facts.write_text(json.dumps(content), "utf-8")
            # another process may have written the file meanwhile, with the same content
            store.path.replace(folder / RECORDS_FILE)
        found = open_record_store(folder)
    if found is None:
        raise records_unwritable(OSError("it was removed meanwhile"))
    return found


def _no_progress(_: int, __: int | None) -> None:
    pass


def _write_store(
    files: TableFiles, categorical: Sequence[str], folder: Path, tell: RecordProgress
) -> RecordStore:
    names, total = files.names(), files.rows()
    tell(0, total)
    with (folder / RECORDS_FILE).open("w+b", buffering=2**20) as file:
        draft = RecordDraft(file)

        def heed(found: Mapping[str, NumberArray | WordPiece], rows: int) -> None:
            draft.add(found)
            tell(rows, total)

        rows, columns = scan_columns(files, names, categorical, heed)
        store = RecordStore(folder, rows, tuple(columns))
        if not draft.finished(store):
            file.seek(0)
            file.truncate()
            _write(store, files, file, tell)
    return store


class RecordDraft:
    """Records in the format guessed from the first rows; `right` while that format fits."""

    def __init__(self, file: BinaryIO) -> None:
        self.right = True
        self._file = file
        self._numbers = list[str]()
        self._codes = dict[str, dict[str | None, int]]()
        self._record = record_dtype(0, 0, single=True, levels=0)

    def add(self, found: Mapping[str, NumberArray | WordPiece]) -> None:
        """Write the next rows: the numbers or words of each column."""
        if not self._numbers and not self._codes:
            self._begin(found)
        texts = {name: each for name, each in found.items() if isinstance(each, WordPiece)}
        values = [each for each in found.values() if not isinstance(each, WordPiece)]
        self.right = self.right and list(texts) == list(self._codes)
        codes = [self._numbered(name, each) for name, each in texts.items() if self.right]
        if self.right:
            piece = np.empty(len([*values, *codes][0]), self._record)
            fill_records(piece, values, codes)
            self._file.write(array_bytes(piece))

    def _begin(self, found: Mapping[str, NumberArray | WordPiece]) -> None:
        """Fix the format of records by the first rows."""
        for name, each in found.items():
            if isinstance(each, WordPiece):
                known = {each.words[k] for k in set(each.codes.tolist())}
                ordered = sorted(known, key=lambda word: (word is None, word or ""))
                self._codes[name] = {word: k for k, word in enumerate(ordered)}
            else:
                self._numbers.append(name)
        single = all(fits_single_precision(found[name]) for name in self._numbers)
        most = max(map(len, self._codes.values()), default=0)
        self._record = record_dtype(
            len(self._numbers), len(self._codes), single=single, levels=most
        )

    def _numbered(self, name: str, found: WordPiece) -> NDArray[Any]:
        """Return the words of a column as codes, numbering new words; unset `right` if codes
        overflow.
        """
        known = self._codes[name]
        counts = np.bincount(found.codes, minlength=len(found.words)).tolist()
        for word, count in zip(found.words, counts, strict=True):
            if count:
                known.setdefault(word, len(known))
        kind = self._record["codes"].base
        self.right = self.right and len(known) <= np.iinfo(kind).max + 1
        if not self.right:
            return found.codes
        return np.array([known.get(word, 0) for word in found.words], kind)[found.codes]

    def finished(self, store: RecordStore) -> bool:
        """Return whether the file now holds the records of `store`, renumbering words if needed."""
        names = [column.name for column in store.numbers], [column.name for column in store.texts]
        if not self.right or names != (self._numbers, list(self._codes)):
            return False
        if self._record != store.record:
            return False
        places = []
        for column in store.texts:
            at = {word: k for k, word in enumerate(column.levels or ())}
            places.append(np.array([at[word] for word in self._codes[column.name]]))
        if not all((place == np.arange(len(place))).all() for place in places):
            self._renumber(store, places)
        return True

    def _renumber(self, store: RecordStore, places: Sequence[NDArray[np.intp]]) -> None:
        """Replace the codes in all records by the indices of the sorted words."""
        buffer = np.empty(BLOCK_ROWS, store.record)
        for start in range(0, store.rows, BLOCK_ROWS):
            piece = buffer[: min(BLOCK_ROWS, store.rows - start)]
            self._file.seek(start * store.record.itemsize)
            read_exactly(self._file, piece)
            for k, place in enumerate(places):
                piece["codes"][:, k] = place[piece["codes"][:, k]]
            self._file.seek(start * store.record.itemsize)
            self._file.write(array_bytes(piece))


def fill_records(piece: Any, values: Sequence[Any], codes: Sequence[NDArray[Any]]) -> None:
    """Put columns of numbers and of codes into records."""
    with np.errstate(over="ignore"):  # a wrong guess may overflow
        for first in range(0, len(piece), BLOCK_ROWS):
            some = slice(first, first + BLOCK_ROWS)
            for name, columns in (("numbers", values), ("codes", codes)):
                for k, column in enumerate(columns):
                    piece[name][some, k] = column[some]


def _write(store: RecordStore, files: TableFiles, file: BinaryIO, tell: RecordProgress) -> None:
    """Write every record, given all facts about the columns."""
    levels = {
        column.name: {word: k for k, word in enumerate(column.levels or ())}
        for column in store.texts
    }
    written, path = 0, files.paths[0]
    for batch in files.batches():
        piece, codes = np.empty(len(next(iter(batch.values()))), store.record), []
        for column in store.texts:
            found = read_words(path, column.name, batch[column.name])
            place = [levels[column.name].get(word, 0) for word in found.words]
            codes.append(np.array(place)[found.codes])
        values = [_numbers(path, column.name, batch[column.name]) for column in store.numbers]
        fill_records(piece, values, codes)
        file.write(array_bytes(piece))
        written += len(piece)
        tell(written, store.rows)
    if written != store.rows:
        raise OSError("the table changed while it was read")


def _numbers(path: Path, name: str, array: Any) -> NumberArray:
    if is_number_type(value_type(array)):
        return read_numbers(array)
    told = parse_written_numbers(read_words(path, name, array))
    if told is None:
        raise OSError("the table changed while it was read")
    return told

"""The records of a streamed table, written while its files are read.

What records hold is known when all is read: the words of each column, sorted, and whether single precision
holds all numbers. The first rows are a good guess. By that records are written on the way, words numbered as
they come, and numbered anew where later rows brought others; where the guess was wrong, files are read again.
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
    Files,
    Numbers,
    Words,
    is_number,
    numbers,
    value_type,
    words,
    written_numbers,
)
from ratecli.streaming.scan import as_json, is_single, scanned
from ratecli.streaming.store import (
    FACTS,
    RECORDS,
    Store,
    fill,
    home,
    moved,
    raw,
    record_of,
    stored,
    unwritable,
)

VERSION = 3
"""Counted up whenever records of the same files, or what is told of their columns, are others."""
BLOCK = 2**12
"""Rows of records that are filled at once: they stay in the processor's cache."""

Tell = Callable[[int, int | None], None]
"""Told how many rows are written, and how many there are, None if that is not known yet."""


def opened(
    files: Files, sums: Sequence[str], categorical: Sequence[str], tell: Tell | None = None
) -> Store:
    """The store of files with these sha256, written if it is not there.

    Raises
    ------
    FaultError
        E404 for what is no table, E413 where records cannot be kept.
    """
    said = [VERSION, list(sums), files.kind, files.separator, sorted(categorical)]
    key = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    folder = (home() / key[:32]).absolute()
    found = stored(folder)
    if found is None:
        with moved(folder / FACTS) as facts:
            store = _written(files, categorical, facts.parent, tell or _silent)
            content = {"rows": store.rows, "columns": [as_json(column) for column in store.columns]}
            facts.write_text(json.dumps(content), "utf-8")
            store.path.replace(folder / RECORDS)  # of the same content, whoever was faster
        found = stored(folder)
    if found is None:
        raise unwritable(OSError("it was removed meanwhile"))
    return found


def _silent(_: int, __: int | None) -> None:
    pass


def _written(files: Files, categorical: Sequence[str], folder: Path, tell: Tell) -> Store:
    names, total = files.names(), files.rows()
    tell(0, total)
    with (folder / RECORDS).open("w+b", buffering=2**20) as file:
        draft = Draft(file)

        def heed(found: Mapping[str, Numbers | Words], rows: int) -> None:
            draft.add(found)
            tell(rows, total)

        rows, columns = scanned(files, names, categorical, heed)
        store = Store(folder, rows, tuple(columns))
        if not draft.finished(store):
            file.seek(0)
            file.truncate()
            _write(store, files, file, tell)
    return store


class Draft:
    """Records as the first rows have it; `right` while others can be written so."""

    def __init__(self, file: BinaryIO) -> None:
        self.right = True
        self._file = file
        self._numbers = list[str]()
        self._codes = dict[str, dict[str | None, int]]()
        self._record = record_of(0, 0, single=True, levels=0)

    def add(self, found: Mapping[str, Numbers | Words]) -> None:
        """The next rows: of each column its numbers or words."""
        if not self._numbers and not self._codes:
            self._begin(found)
        texts = {name: each for name, each in found.items() if isinstance(each, Words)}
        values = [each for each in found.values() if not isinstance(each, Words)]
        self.right = self.right and list(texts) == list(self._codes)
        codes = [self._numbered(name, each) for name, each in texts.items() if self.right]
        if self.right:
            piece = np.empty(len([*values, *codes][0]), self._record)
            filled(piece, values, codes)
            self._file.write(raw(piece))

    def _begin(self, found: Mapping[str, Numbers | Words]) -> None:
        for name, each in found.items():
            if isinstance(each, Words):
                known = {each.words[k] for k in set(each.codes.tolist())}
                ordered = sorted(known, key=lambda word: (word is None, word or ""))
                self._codes[name] = {word: k for k, word in enumerate(ordered)}
            else:
                self._numbers.append(name)
        single = all(is_single(found[name]) for name in self._numbers)
        most = max(map(len, self._codes.values()), default=0)
        self._record = record_of(len(self._numbers), len(self._codes), single=single, levels=most)

    def _numbered(self, name: str, found: Words) -> NDArray[Any]:
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

    def finished(self, store: Store) -> bool:
        """Whether what is written are the records of `store`, now that all is known."""
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

    def _renumber(self, store: Store, places: Sequence[NDArray[np.intp]]) -> None:
        buffer = np.empty(BLOCK, store.record)
        for start in range(0, store.rows, BLOCK):
            piece = buffer[: min(BLOCK, store.rows - start)]
            self._file.seek(start * store.record.itemsize)
            fill(self._file, piece)
            for k, place in enumerate(places):
                piece["codes"][:, k] = place[piece["codes"][:, k]]
            self._file.seek(start * store.record.itemsize)
            self._file.write(raw(piece))


def filled(piece: Any, values: Sequence[Any], codes: Sequence[NDArray[Any]]) -> None:
    """Put columns of numbers and of codes into records."""
    with np.errstate(over="ignore"):  # of a guess that was wrong
        for first in range(0, len(piece), BLOCK):
            some = slice(first, first + BLOCK)
            for name, columns in (("numbers", values), ("codes", codes)):
                for k, column in enumerate(columns):
                    piece[name][some, k] = column[some]


def _write(store: Store, files: Files, file: BinaryIO, tell: Tell) -> None:
    """Every record, where all is known of the columns."""
    levels = {
        column.name: {word: k for k, word in enumerate(column.levels or ())}
        for column in store.texts
    }
    written, path = 0, files.paths[0]
    for batch in files.batches():
        piece, codes = np.empty(len(next(iter(batch.values()))), store.record), []
        for column in store.texts:
            found = words(path, column.name, batch[column.name])
            place = [levels[column.name].get(word, 0) for word in found.words]
            codes.append(np.array(place)[found.codes])
        values = [_numbers(path, column.name, batch[column.name]) for column in store.numbers]
        filled(piece, values, codes)
        file.write(raw(piece))
        written += len(piece)
        tell(written, store.rows)
    if written != store.rows:
        raise OSError("the table changed while it was read")


def _numbers(path: Path, name: str, array: Any) -> Numbers:
    if is_number(value_type(array)):
        return numbers(array)
    told = written_numbers(words(path, name, array))
    if told is None:
        raise OSError("the table changed while it was read")
    return told

"""Facts about each column of a streamed table, collected in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratecli.datasets import tables as own
from ratecli.datasets.label import MISSING_WORDS
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

MAX_TEXT_LEVELS = 2**16 - 1
"""Largest number of distinct words in a column that can be used for features or groups."""
MAX_DISTINCT_NUMBERS = 64
"""Largest number of distinct numbers in a column that are listed."""


@dataclass
class NumberFacts:
    """Facts about a column of numbers.

    Attributes
    ----------
    single
        Whether single precision represents all of them exactly.
    distinct
        The distinct numbers, sorted; None if there are more than `MAX_DISTINCT_NUMBERS`.
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

    def add(self, values: NumberArray, start: int) -> None:
        """Add the numbers of the rows from `start` on."""
        finite = np.isfinite(values)
        if not finite.all():
            gone, infinite = np.isnan(values), np.isinf(values)
            self.missing += int(gone.sum())
            self.infinite += int(infinite.sum())
            self.first_missing = _first(self.first_missing, gone, start)
            self.first_infinite = _first(self.first_infinite, infinite, start)
        positive = values > 0
        if not positive.all():
            self.not_positive = _first(self.not_positive, ~positive, start)
        self.least = min(self.least, float(np.fmin.reduce(values, initial=0.0)))
        self.most = max(self.most, float(np.fmax.reduce(values, initial=0.0)))
        self.single = self.single and fits_single_precision(values)
        if self.distinct is not None:
            known = np.unique(np.concatenate([self.distinct, values[~np.isnan(values)]]))
            self.distinct = known.tolist() if len(known) <= MAX_DISTINCT_NUMBERS else None


def fits_single_precision(values: Any) -> bool:
    """Return whether single precision represents all of the numbers exactly."""
    if values.dtype == np.float32:
        return True
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return bool(((narrow == values) | np.isnan(values)).all())


def _first(known: int, marked: NDArray[np.bool_], start: int) -> int:
    return start + int(np.argmax(marked)) if known < 0 and marked.any() else known


@dataclass
class WordFacts:
    """Facts about a column of words, which may turn out to be numbers written as text.

    Attributes
    ----------
    levels
        Number of rows of each word, in order of first occurrence; None as a word for missing
        values. None if there are more than `MAX_TEXT_LEVELS` words.
    numeric
        Whether every word so far is a number or marks a missing value.
    said
        Whether any word is a number.
    slips, told
        Number of rows with a word that is not a number, and of rows with a word that does not mark
        a missing value.
    slip
        The first row with a word that is not a number, and the word.
    """

    levels: Counter[str | None] | None = field(default_factory=Counter)
    numeric: bool = True
    said: bool = False
    slips: int = 0
    told: int = 0
    slip: tuple[int, str] | None = None

    def add(self, found: WordPiece, start: int) -> NumberArray | None:
        """Add the words of the rows from `start` on; return their numbers if all so far are
        numbers.
        """
        counts = np.bincount(found.codes, minlength=len(found.words))
        if self.levels is not None:
            for word, count in zip(found.words, counts.tolist(), strict=True):
                if count:
                    self.levels[word] += count
            if len(self.levels) > MAX_TEXT_LEVELS:
                self.levels = None
        values = parse_written_numbers(found)
        if values is not None:
            self.told += int((~np.isnan(values)).sum())
            self.said = self.said or not np.isnan(values).all()
            return values if self.numeric else None
        self.numeric = False
        self._slips(found, counts, start)
        return None

    def _slips(self, found: WordPiece, counts: NDArray[np.int64], start: int) -> None:
        """Count the words that are neither numbers nor marks of missing values."""
        wrong = np.zeros(len(found.words), dtype=bool)
        for k, word in enumerate(found.words):
            if word is not None and word.casefold() not in MISSING_WORDS:
                wrong[k] = np.isnan(own.parse_number_word(word))
                self.told += int(counts[k])
        self.slips += int(counts[wrong].sum())
        if self.slip is None and counts[wrong].any():
            row = int(np.argmax(wrong[found.codes]))
            self.slip = start + row, str(found.words[found.codes[row]])


@dataclass(frozen=True)
class ScannedColumn:
    """Facts about a column after all of it was read.

    Attributes
    ----------
    levels
        The distinct words of a text column, sorted, followed by None if values are missing. None
        for columns of numbers, and if there are more than `MAX_TEXT_LEVELS` words.
    counts
        Number of rows of each level.
    told, slips, slip
        As in `WordFacts`.
    """

    name: str
    numbers: NumberFacts | None
    levels: tuple[str | None, ...] | None = None
    counts: tuple[int, ...] = ()
    told: int = 0
    slips: int = 0
    slip: tuple[int, str] | None = None

    @property
    def is_text(self) -> bool:
        return self.numbers is None

    @property
    def kept(self) -> bool:
        """Whether records contain the column."""
        return self.numbers is not None or self.levels is not None


PieceCallback = Callable[[Mapping[str, NumberArray | WordPiece], int], None]
"""Called with the numbers or words of a batch by column, and the number of rows read so far."""


def scan_columns(
    files: TableFiles, names: Collection[str], categorical: Collection[str], heed: PieceCallback
) -> tuple[int, list[ScannedColumn]]:
    """Return the number of rows and the facts about each column; call `heed` for every batch.

    Raises
    ------
    FaultError
        E404 if a file cannot be read as a table.
    """
    path = files.paths[0]
    number_facts = {name: NumberFacts() for name in names}
    word_facts: dict[str, WordFacts] = {}
    rows = 0
    for batch in files.batches():
        found = dict[str, NumberArray | WordPiece]()
        for name, array in batch.items():
            text, told = _scan_piece(path, name, array, word_facts, rows, text=name in categorical)
            if told is not None:
                number_facts[name].add(told, rows)
            if text is None or (told is not None and word_facts[name].said):
                assert told is not None
                found[name] = told
            else:  # as long as all values are missing, the column is passed on as words
                found[name] = text
        rows += len(next(iter(batch.values())))
        heed(found, rows)
    if not rows:
        raise own.not_a_table_error(
            path, "it has no rows", "give it some below the names of its columns"
        )
    return rows, [
        _column(name, number_facts[name], word_facts.get(name), text=name in categorical)
        for name in names
    ]


def _scan_piece(
    path: Path, name: str, array: pa.Array, facts: dict[str, WordFacts], start: int, *, text: bool
) -> tuple[WordPiece | None, NumberArray | None]:
    """Return a batch of a column as words and as numbers.

    There are no words for a column of numbers, and no numbers unless every word is one.
    """
    kind = value_type(array)
    if is_number_type(kind) and not text:
        return None, read_numbers(array)
    own_facts = facts.setdefault(name, WordFacts(numeric=not text and own.is_text_type(kind)))
    found = read_words(path, name, array)
    told = own_facts.add(found, start)
    return found, None if text else told


def _column(
    name: str, numeric: NumberFacts, facts: WordFacts | None, *, text: bool
) -> ScannedColumn:
    if facts is None or (facts.numeric and facts.said and not text):
        return ScannedColumn(name, numeric)
    if facts.levels is None:
        return ScannedColumn(name, None, None, (), facts.told, facts.slips, facts.slip)
    listed = sorted(facts.levels.items(), key=_with_none_last)
    levels, counts = tuple(word for word, _ in listed), tuple(count for _, count in listed)
    return ScannedColumn(name, None, levels, counts, facts.told, facts.slips, facts.slip)


def _with_none_last(item: tuple[str | None, Any]) -> tuple[bool, str]:
    return item[0] is None, item[0] or ""


def column_to_json(column: ScannedColumn) -> dict[str, Any]:
    """Return the facts as plain JSON values, which `column_from_json` reads."""
    found: dict[str, Any] = {"name": column.name}
    if column.numbers is not None:
        return found | {"numbers": vars(column.numbers)}
    slip = None if column.slip is None else list(column.slip)
    levels = None if column.levels is None else list(column.levels)
    told = {"told": column.told, "slips": column.slips, "slip": slip}
    return found | {"levels": levels, "counts": list(column.counts)} | told


def column_from_json(content: Mapping[str, Any]) -> ScannedColumn:
    if "numbers" in content:
        return ScannedColumn(content["name"], NumberFacts(**content["numbers"]))
    levels, slip = content["levels"], content["slip"]
    return ScannedColumn(
        content["name"],
        None,
        None if levels is None else tuple(levels),
        tuple(content["counts"]),
        content["told"],
        content["slips"],
        None if slip is None else (slip[0], slip[1]),
    )

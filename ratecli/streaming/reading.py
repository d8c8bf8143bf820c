"""Reading the files of a streamed table in batches of rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ratecli.datasets import tables as own

BATCH = 2**15
"""Rows of a Parquet file per batch."""
PIECE = 2**22
"""Bytes of a CSV file per batch."""
BUFFER = 2**18
"""Read buffer per column of a Parquet file, in bytes."""

NumberArray: TypeAlias = NDArray[np.floating]


@dataclass(frozen=True)
class WordPiece:
    """A batch of a text column: (m,) the index of each row's word, and the distinct words.

    Words are stripped of surrounding whitespace; an empty word is None.
    """

    codes: NDArray[np.int64]
    words: tuple[str | None, ...]


@dataclass(frozen=True)
class TableFiles:
    """Files of one format that form one table, one after the other.

    Attributes
    ----------
    kind
        `csv` or `parquet`.
    separator
        Separator of columns in a CSV file.
    """

    paths: tuple[Path, ...]
    kind: str
    separator: str

    def names(self) -> list[str]:
        """Return the column names; raise E404 if a file has other columns than the first."""
        first = self._names(self.paths[0])
        for path in self.paths[1:]:
            names = self._names(path)
            if names != first:
                differing = sorted(set(first) ^ set(names)) or [
                    a for a, b in zip(first, names, strict=True) if a != b
                ]
                reason = f"its columns are not those of '{self.paths[0].name}': '{differing[0]}'"
                raise own.not_a_table_error(
                    path, reason, "all files of a table need the same columns"
                )
        return first

    def rows(self) -> int | None:
        """Return the number of rows, or None for CSV files; raise E404 if a file is broken."""
        if self.kind == "csv":
            return None
        return sum(map(_rows, self.paths))

    def _names(self, path: Path) -> list[str]:
        if self.kind == "csv":
            own.check_separator(self.separator)
            names = own.read_header(path, self.separator)
        else:
            try:
                found = pa.parquet.read_schema(path).names
            except (pa.ArrowException, OSError) as error:
                raise own.broken_parquet_error(path, error) from error
            names = [name.strip() for name in found]
        own.check_unique_names(path, names)
        return names

    def batches(self) -> Iterator[Mapping[str, pa.Array]]:
        """Yield batches of all columns by name, in the order of the rows.

        Raises
        ------
        FaultError
            E404 if a file is broken.
        """
        for path in self.paths:
            found = self._csv(path) if self.kind == "csv" else self._parquet(path)
            with closing(found):
                for batch in found:
                    names = [name.strip() for name in batch.schema.names]
                    yield dict(zip(names, batch.columns, strict=True))

    def _csv(self, path: Path) -> Generator[pa.RecordBatch]:
        parsing, options = own.csv_options(path, self.separator)
        reading = pa.csv.ReadOptions(block_size=PIECE, use_threads=False)
        try:
            with pa.csv.open_csv(path, reading, parsing, options) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise own.broken_csv_error(path, error) from error

    def _parquet(self, path: Path) -> Generator[pa.RecordBatch]:
        try:
            schema = pa.parquet.read_schema(path)
            texts = [field.name for field in schema if own.is_text_type(field.type)]
            with pa.parquet.ParquetFile(
                path, buffer_size=BUFFER, pre_buffer=False, read_dictionary=texts
            ) as file:
                yield from file.iter_batches(batch_size=BATCH, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise own.broken_parquet_error(path, error) from error


def _rows(path: Path) -> int:
    try:
        found: int = pa.parquet.read_metadata(path).num_rows
    except (pa.ArrowException, OSError) as error:
        raise own.broken_parquet_error(path, error) from error
    return found


def is_number_type(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds numbers."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def value_type(array: pa.Array) -> pa.DataType:
    """Return the type of the values of a column, dictionary-encoded or not."""
    return array.type.value_type if pa.types.is_dictionary(array.type) else array.type


def read_numbers(array: pa.Array) -> NumberArray:
    """Return the values of a column of numbers, NaN where missing; float32 columns stay float32."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type) or array.null_count:
        array = own.as_doubles(array)
    found = array.to_numpy(zero_copy_only=False)
    return np.asarray(found, np.float32 if found.dtype == np.float32 else np.float64)


def read_words(path: Path, name: str, array: pa.Array) -> WordPiece:
    """Return the values of any other column as words.

    Raises E404 if it holds neither numbers nor text.
    """
    kind = value_type(array)
    if not (own.is_text_type(kind) or _is_text_like(kind)):
        raise own.not_a_table_error(
            path, f"column '{name}' holds {kind}", "keep numbers and text only"
        )
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = pc.fill_null(array.indices, len(array.dictionary)).to_numpy(zero_copy_only=False)
    if own.is_text_type(kind):
        with own.check_representable(path, name, kind):
            told: list[Any] = pc.utf8_trim_whitespace(array.dictionary).to_pylist()
        found = tuple(word or None for word in told)
    else:
        listed = own.python_values(path, name, array.dictionary)
        found = tuple(None if each is None else str(each) for each in listed)
    return WordPiece(np.asarray(codes, dtype=np.int64), (*found, None))


def _is_text_like(kind: pa.DataType) -> bool:
    """Return whether values of the type are converted to text."""
    shown = (pa.types.is_boolean, pa.types.is_null, pa.types.is_temporal, is_number_type)
    return any(each(kind) for each in shown)


def parse_written_numbers(found: WordPiece) -> NumberArray | None:
    """Return the numbers that words represent, NaN for missing ones; None if a word is not one."""
    texts = pa.chunked_array([pa.array([word or "" for word in found.words], pa.string())])
    told = own.parse_number_words(texts, own.is_missing_word(texts))
    return None if told is None else told[found.codes]

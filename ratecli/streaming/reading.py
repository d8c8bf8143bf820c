"""Reading the files of a streamed table in batches of rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
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
        first, *others = self.paths
        names = own.column_names(first, self.kind, self.separator)
        for path in others:
            found = own.column_names(path, self.kind, self.separator)
            if found != names:
                other = next(
                    (name for name in (*names, *found) if name not in names or name not in found),
                    "the order",
                )
                reason = f"its columns are not those of '{first.name}': '{other}'"
                raise own.not_a_table_error(
                    path, reason, "all files of a table need the same columns"
                )
        return names

    def rows(self) -> int | None:
        """Return the number of rows, or None for CSV files; raise E404 if a file is broken."""
        if self.kind == "csv":
            return None
        total = 0
        for path in self.paths:
            with own.parquet_errors(path):
                total += pa.parquet.read_metadata(path).num_rows
        return total

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
        with own.parquet_errors(path):
            schema = pa.parquet.read_schema(path)
            texts = [field.name for field in schema if own.is_text_type(field.type)]
            with pa.parquet.ParquetFile(
                path, buffer_size=BUFFER, pre_buffer=False, read_dictionary=texts
            ) as file:
                yield from file.iter_batches(batch_size=BATCH, use_threads=False)


def read_numbers(array: pa.Array) -> NumberArray:
    """Return the values of a column of numbers, NaN where missing; float32 columns stay float32."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_decimal(array.type) or array.null_count:
        array = own.as_doubles(array)
    found = array.to_numpy(zero_copy_only=False)
    return np.asarray(found, np.float32 if found.dtype == np.float32 else np.float64)

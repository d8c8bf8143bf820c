"""Read the user's CSV and Parquet files strictly, and write tables in these formats.

Text fields are stripped of surrounding spaces; the `MISSING_WORDS` are missing values. A column is
numeric if all its values are numbers, and none is a code: a number with leading zeros, or an
integer that is too large for a double. Otherwise, or if `categorical` names it, it is text.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from ratecli.datasets.columns import FEW_LEVELS
from ratecli.datasets.files import check_is_file, read_errors, sha256_of
from ratecli.datasets.text_format import (
    PLAIN,
    TextFormat,
    has_nul,
    how_to_set,
    is_utf_8,
    sniff_format,
    spelled_numbers,
)
from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.syntax import MISSING_WORDS, PYTHON_NONE, value_text

FORMAT_BY_SUFFIX = dict.fromkeys([".csv", ".tsv", ".txt", ".data"], "csv") | dict.fromkeys(
    [".parquet", ".pq"], "parquet"
)
_LARGEST_EXACT = 2**53
_CODE = r"^[+-]?(0[0-9]|[0-9]{16,}$)"
"""Leading zeros, or an integer that may be larger than `_LARGEST_EXACT`."""
_FEW_WORDS = 100
"""Words that are parsed first, because Arrow is slow to reject many words that are no numbers."""

NUL_HELP = "the file is binary or damaged: write it again, or set 'format: parquet'"

BATCH = 2**15
"""Rows of a Parquet file per batch."""
PIECE = 2**22
"""Bytes of a CSV file per batch, and the largest size of a row."""
BUFFER = 2**18
"""Read buffer per column of a Parquet file, in bytes."""


def guess_separator(names: Sequence[str]) -> str | None:
    """Return the probable separator of a table that was read as one column, or None."""
    found = re.search("[;\t|,]", names[0]) if len(names) == 1 else None
    return found and found.group()


def table_format(path: Path) -> str:
    """Return the format, `csv` or `parquet`, that the suffix stands for; raise E404 for others."""
    kind = FORMAT_BY_SUFFIX.get(path.suffix.lower())
    if kind is None:
        message = f"'{path.name}' ends in neither .csv nor .parquet"
        raise FaultError(Diagnostic("E404", message, "set 'format: csv' or 'format: parquet'"))
    return kind


def not_a_table_error(path: Path, reason: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E404", f"'{path.name}' is not a table: {reason}", way))


@dataclass(frozen=True)
class TableFile:
    """A file with a table: its kind, `csv` or `parquet`, and how it writes rows and numbers."""

    path: Path
    kind: str
    form: TextFormat = PLAIN

    @classmethod
    def of(cls, path: Path, form: TextFormat = PLAIN, kind: str | None = None) -> TableFile:
        """Return the file; raise E404 if its kind is unknown."""
        return cls(path, kind or table_format(path), form)

    @property
    def separator(self) -> str:
        return self.form.separator_of(self.path)

    def names(self) -> list[str]:
        """Return the names of the columns; raise E404 if it is no table with distinct names."""
        self.form.check()
        if self.kind == "csv":
            found = self._header()
        else:
            with self._content_errors():
                found = pa.parquet.read_schema(self.path).names
        names = [name.strip() for name in found]
        if "" in names:
            reason = f"its column {names.index('') + 1} has no name"
            raise not_a_table_error(self.path, reason, "add a name in the first line")
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            reason = f"column '{name}' occurs {count} times"
            raise not_a_table_error(self.path, reason, "give each column a unique name")
        return names

    def rows(self) -> int | None:
        """Return the number of rows, None for a CSV file; raise E404 if a file is broken."""
        if self.kind == "csv":
            return None
        with self._content_errors():
            return int(pa.parquet.read_metadata(self.path).num_rows)

    def read(self) -> pa.Table:
        """Return the table as in the file, CSV columns as text; only column names are stripped."""
        names = self.names()
        with self._content_errors():
            if self.kind == "csv":
                reading = pa.csv.ReadOptions(block_size=PIECE, encoding=self._encoding)
                table = pa.csv.read_csv(self.path, reading, **self._csv_options())
            else:
                table = pa.parquet.ParquetFile(self.path).read()
        if table.num_rows == 0:
            raise no_rows_error(self.path)
        return table.rename_columns(names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, with the column names of the file; E404 if it is broken."""
        with self._content_errors():
            if self.kind == "csv":
                reading = pa.csv.ReadOptions(
                    block_size=PIECE, use_threads=False, encoding=self._encoding
                )
                with pa.csv.open_csv(self.path, reading, **self._csv_options()) as reader:
                    yield from reader
            else:
                schema = pa.parquet.read_schema(self.path)
                texts = [field.name for field in schema if is_text_type(field.type)]
                with pa.parquet.ParquetFile(
                    self.path, buffer_size=BUFFER, pre_buffer=False, read_dictionary=texts
                ) as file:
                    yield from file.iter_batches(batch_size=BATCH, use_threads=False)

    def _csv_options(self) -> dict[str, Any]:
        """Return options for PyArrow to split the fields of a file and to read them as text."""
        types = dict.fromkeys(self._header(), pa.string())
        return {
            "parse_options": pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
            "convert_options": pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        }

    @property
    def _encoding(self) -> str:
        """The encoding as PyArrow wants it: it reads UTF-8 without a detour by its own name."""
        return "utf8" if self.form.codec == "utf-8-sig" else self.form.codec

    @contextmanager
    def _content_errors(self) -> Iterator[None]:
        """Convert errors about the content of the file to an E404."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeError, csv.Error) as error:
            if getattr(error, "errno", None):  # an error of the file system
                raise
            reason = (str(error).splitlines() or ["no reason given"])[0][:200]
            way = "check 'format'"
            if self.kind == "csv":
                reason, way = self._what_is_wrong(error, reason)
            raise not_a_table_error(self.path, reason, way) from error

    def _what_is_wrong(self, error: Exception, reason: str) -> tuple[str, str]:
        """Return why a CSV file is no table, and what to do.

        By default the reason is that of the reader's error.
        """
        found, keys = sniff_format(self.path), dict[str, str]()
        undecoded = isinstance(error, UnicodeError) or "UTF8" in reason
        if (undecoded or has_nul(self.path, self.form)) and found.codec != self.form.codec:
            undecoded, keys = True, {"encoding": found.encoding}
        if found.separator_of(self.path) != self.separator:
            keys["separator"] = found.separator_of(self.path)
        if undecoded:
            reason = f"it is not {self.form.encoding.upper()} text"
            return reason, how_to_set(keys) if "encoding" in keys else NUL_HELP
        if has_nul(self.path, self.form):
            return "it has a NUL character", NUL_HELP
        if keys:
            return reason, how_to_set(keys)
        if "straddling" in reason or "does not end" in reason:
            reason = f"a row has over {PIECE:,} characters"
        return reason, "check 'separator' and quotes; all rows need equally many fields"

    def _header(self) -> list[str]:
        """Return the names in the first line, as written; raise E404 if this is not a CSV file."""
        with self.path.open(encoding=self.form.codec, newline="") as text, self._content_errors():
            head = text.read(PIECE)
            if "\0" in head or (len(head) == PIECE and not {"\r", "\n"} & {*head}):
                raise csv.Error("the first line does not end")
            if self.form.codec != PLAIN.codec and is_utf_8(head, self.form.codec):
                raise UnicodeError("it is UTF-8 text")
            if not head.strip():
                raise not_a_table_error(
                    self.path, "it is empty", "begin with a line of column names"
                )
            rows = csv.reader(io.StringIO(head, newline=""), delimiter=self.separator, strict=True)
            return next((row for row in rows if row), [])


def no_rows_error(path: Path) -> FaultError:
    way = "add rows below the column names"
    return not_a_table_error(path, "it has no rows", way)


def read_own_table(file: TableFile, categorical: Collection[str] = ()) -> pd.DataFrame:
    """Return the columns of the file, numeric or text, with index 0..n-1.

    Do not change the frame: the next caller for the same file gets the same object.
    """
    whole = replace(file, path=file.path.absolute())
    return _read(whole, tuple(categorical), sha256_of(file.path))


@lru_cache(maxsize=1)
def _read(file: TableFile, categorical: tuple[str, ...], sha256: str) -> pd.DataFrame:
    del sha256  # part of the cache key: a changed file is read again
    table = file.read()
    found = typed_columns(file, table, table.column_names, categorical)
    del table
    pa.default_memory_pool().release_unused()
    return found


def typed_columns(
    file: TableFile, table: pa.Table, names: Collection[str], categorical: Collection[str]
) -> pd.DataFrame:
    """Return some columns of a raw table, numeric or text, with index 0..n-1."""
    index, place = pd.RangeIndex(table.num_rows), {n: k for k, n in enumerate(table.column_names)}
    arrays = {
        name: _typed(file, name, table.column(place[name]), text=name in categorical)
        for name in names
    }
    columns = {
        name: pd.Series(values, index, dtype=object) if values.dtype == object else values
        for name, values in arrays.items()
    }
    return pd.DataFrame(columns, index, copy=False)


def _typed(file: TableFile, name: str, column: pa.ChunkedArray, *, text: bool) -> NDArray[Any]:
    """Return a numeric array, or an object array of text with None for missing values."""
    kind = value_type(column)
    text = text or has_large_integers(column)
    if is_number_type(kind) and not text:
        if pa.types.is_integer(column.type) and column.null_count == 0:
            return np.asarray(column.to_numpy())
        return np.asarray(as_doubles(column).to_numpy())
    _check_type(file.path, name, column)
    words = _stripped(file.path, name, column)
    numbers = None if text else _parse(words, file.form)
    if numbers is not None and file.kind == "parquet":
        known = {*pc.unique(words).to_pylist()} - {""}
        numbers = None if spell_alike(known, np.unique(numbers[~np.isnan(numbers)])) else numbers
    return _as_text(file, name, words) if numbers is None else _as_integers(numbers)


class WordCodes(NamedTuple):
    """Text as (m,) indices of the distinct `words`, None for a missing value.

    `numbers` are the (m,) numbers that the words represent, NaN for missing ones; None if a word is
    not a number.
    """

    codes: NDArray[np.int64]
    words: NDArray[np.object_]
    numbers: NDArray[np.float64] | None


def read_words(file: TableFile, name: str, column: pa.Array) -> WordCodes:
    """Return the values of a column as words.

    Raises E404 if it holds neither numbers nor text.
    """
    _check_type(file.path, name, column)
    array = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = pa.concat_arrays([_stripped(file.path, name, array.dictionary), pa.array([""])])
    codes = pc.fill_null(array.indices.cast(pa.int64()), len(words) - 1).to_numpy()
    numbers = _parse(words, file.form)
    return WordCodes(
        codes, _as_text(file, name, words), None if numbers is None else numbers[codes]
    )


def _check_type(path: Path, name: str, column: Any) -> None:
    """Raise E404 unless an Arrow array has numbers, text, or values that can be shown as text."""
    kind, types = value_type(column), pa.types
    tests = (is_text_type, is_number_type, types.is_boolean, types.is_null, types.is_temporal)
    if not any(test(kind) for test in tests):
        raise not_a_table_error(path, f"column '{name}' holds {kind}", "keep numbers and text only")


def _stripped(path: Path, name: str, column: Any) -> Any:
    """Return the values of an Arrow array as text without surrounding spaces, "" if missing.

    Raises E404 if they cannot be represented.
    """
    kind = value_type(column)
    with _check_representable(path, name):
        if not is_text_type(kind):
            column = pa.array(map(_word, column.to_pylist()), pa.string())
        found = pc.utf8_trim_whitespace(pc.fill_null(column.cast(pa.string()), ""))
        found.validate(full=True)  # UTF-8 inside of words
        return pc.if_else(_are_missing(found), "", found)


def _are_missing(words: Any) -> Any:
    """Return which words of an Arrow array without surrounding spaces stand for a missing value."""
    named = pc.is_in(pc.utf8_lower(words), value_set=pa.array(sorted(MISSING_WORDS)))
    return pc.or_(named, pc.equal(words, PYTHON_NONE))


def missing_values(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values (n,) of an array of any type are missing, as in a column of a table."""
    if values.dtype.kind not in "OUS":
        return np.asarray(pd.isna(values))
    words = pa.array([str(value).strip() for value in values.tolist()], pa.string())
    return np.asarray(_are_missing(words).to_numpy(zero_copy_only=False))


def _word(value: object) -> str | None:
    """Return a value as text, whole numbers without a decimal point; None if it is missing."""
    if isinstance(value, float):
        return value_text(value)
    return None if value is None else str(value)


def _as_text(file: TableFile, name: str, words: Any) -> NDArray[np.object_]:
    """Return an Arrow array of text as objects, None for an empty word; E404 for NUL characters."""
    if pc.any(pc.match_substring(words, "\0")).as_py():
        raise not_a_table_error(file.path, f"column '{name}' has a NUL character", NUL_HELP)
    found = words.to_numpy(zero_copy_only=False)
    found[np.equal(found, "")] = None
    return np.asarray(found)


def _parse(words: Any, form: TextFormat) -> NDArray[np.float64] | None:
    """Return the numbers that words represent, NaN for "".

    None if a word is not a number, or a code that other words would equal as a number.
    """
    numbers = np.zeros(0)
    for some in (words[:_FEW_WORDS], words):
        numbers = spelled_numbers(some, form)
        gaps = pc.match_substring_regex(some, r"^(?i:[+-]nan)?$").to_numpy(zero_copy_only=False)
        if (np.isnan(numbers) & ~gaps.astype(bool)).any():
            return None
    codes = words.filter(pc.match_substring_regex(words, _CODE)).to_pylist()
    zeros = any(word.lstrip("+-").startswith("0") for word in codes)
    return None if zeros or any(abs(int(word)) > _LARGEST_EXACT for word in codes) else numbers


def spell_alike(words: Collection[str], numbers: Collection[float]) -> bool:
    """Return whether few distinct words spell one of the numbers in two ways, as 1 and 1.0 do.

    In text of a Parquet file these are two values; a CSV file does not tell numbers from text.
    """
    return len(words) <= FEW_LEVELS and len(numbers) < len(words)


def has_large_integers(column: Any) -> bool:
    """Return whether an Arrow array holds integers that doubles do not represent exactly."""
    kind = value_type(column)
    if not (pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)):
        return False
    values = column.dictionary_decode() if kind != column.type else column
    ends = pc.min_max(values).as_py().values()
    return any(end is not None and abs(end) > _LARGEST_EXACT for end in ends)


def value_type(column: Any) -> pa.DataType:
    """Return the type of the values of an Arrow array, dictionary-encoded or not."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def is_number_type(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def is_text_type(kind: pa.DataType) -> bool:
    """Return whether values of the type are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_doubles(column: Any) -> Any:
    """Return an Arrow array as doubles; large integers are rounded as NumPy rounds them."""
    return column.cast(pa.float64(), safe=False)


@contextmanager
def _check_representable(path: Path, name: str) -> Iterator[None]:
    """Raise an E404 that names the column if Arrow or Python cannot represent one of its values."""
    try:
        yield
    except (OverflowError, ValueError) as error:  # errors of Arrow and Unicode are ValueErrors
        way = "keep to UTF-8 text, the years 1 to 9999 and known time zones"
        reason = f"column '{name}' holds values that cannot be read"
        raise not_a_table_error(path, reason, way) from error


def _as_integers(values: NDArray[np.float64]) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return integers if all values are whole, so that they print as they were written."""
    if np.isfinite(values).all() and (np.abs(values) < _LARGEST_EXACT).all():
        whole = values.astype(np.int64)
        return whole if (whole == values).all() else values
    return values


def read_table_file(path: Path, form: TextFormat) -> tuple[TableFile, pa.Table]:
    """Return a file in a format, and its raw table.

    Raises
    ------
    FaultError
        E104 for an invalid format; E404 or E405 for a file that cannot be read as a table.
    """
    with read_errors(str(path)):
        check_is_file(str(path), path, "give the path of a CSV or Parquet file")
        file = TableFile.of(path, form)
        return file, file.read()


def format_of_output(table: Path, output: Path | None) -> str:
    """Return the format of the output, `csv` or `parquet`; standard output (None) is CSV.

    Raises
    ------
    FaultError
        E104 if the suffix is unknown, if the output is the table itself, or if it would be Parquet
        and the table is a CSV, which does not specify the types of its columns.
    """
    if output is None:
        return "csv"
    form, origin = (FORMAT_BY_SUFFIX.get(path.suffix.lower()) for path in (output, table))
    message = hint = ""
    if form is None:
        message = f"the format of '{output}' is unknown"
        hint = "use a name that ends in .csv, .tsv or .parquet"
    elif output.exists() and output.samefile(table):
        message, hint = f"'{output}' is the table itself", "name another file with --output"
    elif form == "parquet" != origin:
        message = (
            f"'{output}' would be Parquet, but '{table}' does not specify the types of its columns"
        )
        hint = "write a CSV file instead"
    if form is None or message:
        raise FaultError(Diagnostic("E104", message, hint))
    return form


def table_bytes(table: pa.Table, origin: TableFile, output: Path | None) -> bytes:
    """Return the table as bytes in the format of the output; CSV has quotes only where needed.

    CSV is written as the file `origin`, which the table comes from, writes or would write it.

    Raises
    ------
    FaultError
        E104 as `format_of_output`, and for text that the encoding cannot represent; E404 for a
        column that cannot be written as text.
    """
    form = format_of_output(origin.path, output)
    if form == "parquet":
        buffer = io.BytesIO()
        pa.parquet.write_table(table, buffer)
        return buffer.getvalue()
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        with _check_representable(origin.path, name):
            values = column.to_pylist()
        if origin.form.decimal != PLAIN.decimal and pa.types.is_floating(value_type(column)):
            values = [
                each if each is None else str(each).replace(".", origin.form.decimal)
                for each in values
            ]
        columns.append(values)
    text = io.StringIO()
    mark = origin.form.separator_of(output or origin.path)
    writer = csv.writer(text, delimiter=mark, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(zip(*columns, strict=True))
    try:
        return text.getvalue().encode(origin.form.encoding)
    except UnicodeEncodeError as error:
        message = f"{error.object[error.start]!r} cannot be written in {origin.form.encoding}"
        raise FaultError(Diagnostic("E104", message, how_to_set({"encoding": "utf-8"}))) from error

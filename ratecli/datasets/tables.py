"""Read the user's CSV and Parquet files strictly, and write tables in these formats.

Text fields are stripped of surrounding spaces; an empty one is missing. A column is numeric if all
its fields are numbers or words for a missing value; otherwise, or if `categorical` names it, it is
text.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
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

from ratecli.datasets.download import looks_like_html, sha256_of
from ratecli.datasets.label import MISSING_WORDS
from ratecli.datasets.paths import missing_file_error, unreadable_file_error
from ratecli.errors import Diagnostic, FaultError

FORMAT_BY_SUFFIX = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".data": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_NO_SEPARATORS = ('"', "\r", "\n", "\0")
_HEAD = 2**16
_MISSING = pa.array(sorted(MISSING_WORDS))
_LARGEST_EXACT = 2**53


def read_own_table(
    path: Path, kind: str, separator: str, categorical: Collection[str] = ()
) -> pd.DataFrame:
    """Return the columns of the file, numeric or text, with index 0..n-1.

    Do not change the frame: the next caller for the same file gets the same object.
    """
    return _read(path.absolute(), kind, separator, tuple(categorical), sha256_of(path))


@lru_cache(maxsize=1)
def _read(
    path: Path, kind: str, separator: str, categorical: tuple[str, ...], sha256: str
) -> pd.DataFrame:
    del sha256  # part of the cache key: a changed file is read again
    table = read_raw_table(path, kind, separator)
    return typed_columns(path, table, table.column_names, categorical)


def read_raw_table(path: Path, kind: str, separator: str) -> pa.Table:
    """Return the table as in the file, CSV columns as text; only column names are stripped."""
    names = column_names(path, kind, separator)
    if kind == "csv":
        table = _read_csv(path, separator, names)
    else:
        with parquet_errors(path):
            table = pa.parquet.ParquetFile(path).read()
    if table.num_rows == 0:
        raise not_a_table_error(
            path, "it has no rows", "give it some below the names of its columns"
        )
    return table.rename_columns(names)


def typed_columns(
    path: Path, table: pa.Table, names: Collection[str], categorical: Collection[str]
) -> pd.DataFrame:
    """Return some columns of a raw table, numeric or text, with index 0..n-1."""
    index, text = pd.RangeIndex(table.num_rows), frozenset(categorical)
    place = {name: k for k, name in enumerate(table.column_names)}
    arrays = {
        name: _typed(path, name, table.column(place[name]), text=name in text) for name in names
    }
    columns = {
        name: pd.Series(values, index, dtype=object) if values.dtype == object else values
        for name, values in arrays.items()
    }
    return pd.DataFrame(columns, index)


def separator_of(path: Path) -> str:
    """Return the default separator of a file: a tab for .tsv, else a comma."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def guess_separator(names: Sequence[str]) -> str | None:
    """Return the probable separator of a table that was read as one column, or None."""
    found = re.search("[;\t|]", names[0]) if len(names) == 1 else None
    return found and found.group()


def check_separator(separator: str) -> None:
    """Raise E104 if `separator` cannot separate columns."""
    if len(separator) != 1 or separator in _NO_SEPARATORS or not separator.isascii():
        message = f"{separator!r} cannot separate columns"
        hint = "use a comma, semicolon, tab or the like"
        raise FaultError(Diagnostic("E104", message, hint, loc=("separator",)))


def table_format(path: Path) -> str:
    """Return the format, `csv` or `parquet`, that the suffix stands for; raise E404 for others."""
    kind = FORMAT_BY_SUFFIX.get(path.suffix.lower())
    if kind is None:
        message = f"'{path.name}' ends in neither .csv nor .parquet"
        raise FaultError(Diagnostic("E404", message, "say 'format: csv' or 'format: parquet'"))
    return kind


def not_a_table_error(path: Path, reason: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E404", f"'{path.name}' is not a table: {reason}", way))


def _check_unique_names(path: Path, names: list[str]) -> None:
    for number, name in enumerate(names, start=1):
        if not name:
            raise not_a_table_error(
                path, f"its column {number} has no name", "name it in the first line"
            )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        reason = f"column '{repeated[0]}' is there {names.count(repeated[0])} times"
        raise not_a_table_error(path, reason, "give each column a name of its own")


def column_names(path: Path, kind: str, separator: str) -> list[str]:
    """Return the names of a file's columns; raise E404 if it is no table with distinct names."""
    if kind == "csv":
        check_separator(separator)
        names = read_header(path, separator)
    else:
        with parquet_errors(path):
            names = pa.parquet.read_schema(path).names
    names = [name.strip() for name in names]
    _check_unique_names(path, names)
    return names


def _read_csv(path: Path, separator: str, names: Sequence[str]) -> pa.Table:
    parsing, options = csv_options(path, separator)
    try:
        return pa.csv.read_csv(path, parse_options=parsing, convert_options=options)
    except pa.ArrowInvalid as error:
        raise broken_csv_error(path, error, names) from error


def csv_options(path: Path, separator: str) -> tuple[Any, Any]:
    """Return options for PyArrow to split the fields of a file and to read them as text."""
    names = read_header(path, separator)
    options = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    return pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True), options


def broken_csv_error(path: Path, error: Exception, names: Sequence[str] = ()) -> FaultError:
    """Return the E404 for an Arrow error on a CSV file whose first line has the given `names`."""
    if "UTF8" in str(error) or "UTF-8" in str(error):
        return not_utf8_error(path)
    reason = str(error).removeprefix("CSV parse error: ").splitlines()[0][:200]
    way = "every row needs as many fields as the first line"
    if mark := guess_separator(names):
        way = f"columns seem to be separated by {mark!r}: say so with 'separator'"
    return not_a_table_error(path, reason, way)


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Convert Arrow's errors about a Parquet file to an E404."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0][:200]
        raise not_a_table_error(
            path, f"Parquet cannot read it: {reason}", "check 'format'"
        ) from error


def read_header(path: Path, separator: str) -> list[str]:
    """Return the names in the first line, as written; raise E404 if this is not a CSV file."""
    with path.open("rb") as opened:
        head = opened.read(_HEAD)
    if not head.strip():
        raise not_a_table_error(
            path, "it is empty", "give a file with a line of column names and rows"
        )
    if looks_like_html(head):
        raise not_a_table_error(path, "it is an HTML page", "download the data itself")
    if b"\0" in head:
        raise not_a_table_error(path, "it is a binary file", "say 'format: parquet' if it is one")
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            rows = csv.reader(text, delimiter=separator, strict=True)
            return next((row for row in rows if row), [])
    except UnicodeDecodeError as error:
        raise not_utf8_error(path) from error
    except csv.Error as error:
        raise not_a_table_error(
            path, f"its first line cannot be read: {error}", "check the quotes"
        ) from error


def not_utf8_error(path: Path) -> FaultError:
    return not_a_table_error(path, "it is not UTF-8 text", "save it as UTF-8")


def _typed(path: Path, name: str, column: pa.ChunkedArray, *, text: bool) -> NDArray[Any]:
    """Return a numeric array, or an object array of text with None for missing values."""
    kind = value_type(column)
    if is_number_type(kind) and not text:
        return _as_numbers(column)
    parse = is_text_type(kind) and not text
    if parse and not pa.types.is_dictionary(column.type):
        with check_representable(path, name, kind):
            numbers = _cast(pc.utf8_trim_whitespace(column))
        if numbers is not None and not np.isnan(numbers).all():
            return _as_integers(numbers)
    words = read_words(path, name, column)
    numbers = parse_words(words) if parse else None
    if numbers is not None and not np.isnan(numbers).all():
        return _as_integers(numbers)
    return np.array(words.words, dtype=object)[words.codes]


class WordCodes(NamedTuple):
    """Text as (m,) indices of the distinct `words`.

    Words are stripped of surrounding whitespace; an empty word is None.
    """

    codes: NDArray[np.int64]
    words: tuple[str | None, ...]


def value_type(column: pa.ChunkedArray | pa.Array) -> pa.DataType:
    """Return the type of the values of a column, dictionary-encoded or not."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def read_words(path: Path, name: str, column: pa.ChunkedArray | pa.Array) -> WordCodes:
    """Return the values of a column as words.

    Raises E404 if it holds neither numbers nor text.
    """
    kind = value_type(column)
    check_column_type(path, name, kind)
    array = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks()
    codes = pc.fill_null(array.indices, len(array.dictionary)).to_numpy(zero_copy_only=False)
    with check_representable(path, name, kind):
        words = array.dictionary
        texts = (pc.utf8_trim_whitespace(words) if is_text_type(kind) else words).to_pylist()
    found = tuple(None if text in {None, ""} else str(text) for text in texts)
    return WordCodes(np.asarray(codes, dtype=np.int64), (*found, None))


def parse_words(found: WordCodes) -> NDArray[np.float64] | None:
    """Return the numbers that words represent, NaN for missing ones; None if a word is not one."""
    texts = pa.array(["" if word is None else word for word in found.words], pa.string())
    missing = pc.is_in(pc.utf8_lower(texts), value_set=_MISSING)
    unsigned = pc.replace_substring_regex(texts, r"^\+([0-9.])", r"\1")
    numbers = _cast(pc.if_else(missing, pa.scalar(None, pa.string()), unsigned))
    return None if numbers is None else numbers[found.codes]


def _cast(words: pa.ChunkedArray | pa.Array) -> NDArray[np.float64] | None:
    try:
        numbers = words.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return np.asarray(numbers, dtype=np.float64)


def is_number_type(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def check_column_type(path: Path, name: str, kind: pa.DataType) -> None:
    """Raise E404 for a column that is neither numbers nor text nor can be shown as text."""
    tests = (is_text_type, is_number_type, pa.types.is_boolean, pa.types.is_null)
    if not any(test(kind) for test in (*tests, pa.types.is_temporal)):
        raise not_a_table_error(path, f"column '{name}' holds {kind}", "keep numbers and text only")


def python_values(path: Path, name: str, column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return the values of a column as Python objects; raise E404 if that is impossible."""
    with check_representable(path, name, column.type):
        values: list[Any] = column.to_pylist()
    return values


@contextmanager
def check_representable(path: Path, name: str, kind: pa.DataType) -> Iterator[None]:
    """Raise an E404 that names the column if Arrow or Python cannot represent one of its values."""
    try:
        yield
    except (OverflowError, ValueError) as error:  # errors of Arrow and Unicode are ValueErrors
        reason = f"column '{name}' holds {kind} values that cannot be read"
        way = "keep to the years 1 to 9999 and to known time zones, or store the column as text"
        if is_text_type(kind.value_type if pa.types.is_dictionary(kind) else kind):
            reason, way = f"column '{name}' holds text that is not UTF-8", "save it as UTF-8"
        raise not_a_table_error(path, reason, way) from error


def is_text_type(kind: pa.DataType) -> bool:
    """Return whether values of the type are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _as_numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    if pa.types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.to_numpy())
    return np.asarray(as_doubles(column).to_numpy())


def as_doubles(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return numbers of any type as doubles; large integers are rounded as NumPy rounds them."""
    return column.cast(pa.float64(), safe=False)


def parse_number_word(word: str) -> float:
    """Return the number, NaN if the word is none; stricter than Python, which accepts 1_000."""
    try:
        return float(word) if word.isascii() and "_" not in word else math.nan
    except ValueError:
        return math.nan


def _as_integers(values: NDArray[np.float64]) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return integers if all values are whole, so that they print as they were written."""
    if np.isfinite(values).all() and (np.abs(values) < _LARGEST_EXACT).all():
        whole = values.astype(np.int64)
        return whole if (whole == values).all() else values
    return values


FILE_NAME_HELP = "end its name in .csv, .tsv or .parquet"


SEPARATOR_HELP = "columns seem to be separated by {mark}: say --separator {mark}"


def read_table_file(
    path: Path, separator: str, read: Callable[[Path, str, str], Any] = read_raw_table
) -> Any:
    """Return `read(path, format, separator)` for a table's file; by default the raw table.

    Raises
    ------
    FaultError
        E104 for an invalid separator; E404 or E405 for a file that cannot be read as a table.
    """
    try:
        there = path.is_file()
    except OSError as error:  # for example a name that is too long
        raise unreadable_file_error(str(path), path, error) from error
    if not there:
        what = "is a folder" if path.is_dir() else "does not exist"
        raise missing_file_error(str(path), what, "give the path of a CSV or Parquet file")
    kind = table_format(path)
    check_separator(separator)
    try:
        return read(path, kind, separator)
    except OSError as error:
        raise unreadable_file_error(str(path), path, error) from error


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
    form = FORMAT_BY_SUFFIX.get(output.suffix.lower())
    if form is None:
        raise _refused_output(f"'{output}' does not say which format it is to have", FILE_NAME_HELP)
    if output.exists() and output.samefile(table):
        raise _refused_output(f"'{output}' is the table itself", "name another file with --output")
    if form == "parquet" and FORMAT_BY_SUFFIX.get(table.suffix.lower()) != "parquet":
        message = (
            f"'{output}' would be Parquet, and '{table}' does not say of which types its columns "
            "are"
        )
        raise _refused_output(message, "let the output be a CSV as well")
    return form


def table_bytes(table: pa.Table, origin: Path, form: str, separator: str) -> bytes:
    """Return the table as bytes in the format; CSV is UTF-8 with quotes only where needed.

    Raises
    ------
    FaultError
        E404 for a column that cannot be written as text; `origin` is the file the table comes from.
    """
    if form == "parquet":
        buffer = io.BytesIO()
        pa.parquet.write_table(table, buffer)
        return buffer.getvalue()
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(table.column_names)
    columns = zip(table.column_names, table.columns, strict=True)
    writer.writerows(zip(*(python_values(origin, *each) for each in columns), strict=True))
    return text.getvalue().encode()


def _refused_output(message: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E104", message, way))

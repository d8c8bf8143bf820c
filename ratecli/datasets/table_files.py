"""Tables read from files that a command names, and written as bytes of a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ratecli.datasets import tables as own
from ratecli.datasets.paths import missing_file_error, unreadable_file_error
from ratecli.datasets.tables import FORMAT_BY_SUFFIX, python_values
from ratecli.errors import Diagnostic, FaultError

FILE_NAME_HELP = "end its name in .csv, .tsv or .parquet"


SEPARATOR_HELP = "columns seem to be separated by {mark}: say --separator {mark}"


def read_table_file(
    path: Path, separator: str, read: Callable[[Path, str, str], Any] = own.read_raw_table
) -> Any:
    """What `read` makes of a table's file, its format and its separator: the table as it stands.

    Raises
    ------
    FaultError
        E104 for a separator that separates nothing, E404, E405 for a file that is no table.
    """
    try:
        there = path.is_file()
    except OSError as error:  # such as a name that is too long
        raise unreadable_file_error(str(path), path, error) from error
    if not there:
        what = "is a folder" if path.is_dir() else "does not exist"
        raise missing_file_error(str(path), what, "give the path of a CSV or Parquet file")
    kind = own.table_format(path)
    own.check_separator(separator)
    try:
        return read(path, kind, separator)
    except OSError as error:
        raise unreadable_file_error(str(path), path, error) from error


def format_of_output(table: Path, output: Path | None) -> str:
    """`csv` or `parquet`: what the output's name promises; standard output (None) is a CSV.

    Raises
    ------
    FaultError
        E104 where its name promises nothing, where it is the table itself, or where it would be Parquet
        and the table, a CSV, does not say of which types its columns are.
    """
    if output is None:
        return "csv"
    form = FORMAT_BY_SUFFIX.get(output.suffix.lower())
    if form is None:
        raise _refused_output(f"'{output}' does not say which format it is to have", FILE_NAME_HELP)
    if output.exists() and output.samefile(table):
        raise _refused_output(f"'{output}' is the table itself", "name another file with --output")
    if form == "parquet" and FORMAT_BY_SUFFIX.get(table.suffix.lower()) != "parquet":
        message = f"'{output}' would be Parquet, and '{table}' does not say of which types its columns are"
        raise _refused_output(message, "let the output be a CSV as well")
    return form


def table_bytes(table: pa.Table, origin: Path, form: str, separator: str) -> bytes:
    """The table in the format; a CSV in UTF-8, fields in quotes only where they need them.

    Raises
    ------
    FaultError
        E404 for a column of `origin`, where the table comes from, that cannot be written as text.
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

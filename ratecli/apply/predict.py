"""A stored classifier's answers on the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ratecli.apply.answers import PredictedColumns, prediction_columns
from ratecli.apply.stored import StoredModel, load_applicable_model
from ratecli.datasets import tables as own
from ratecli.datasets.apply_encoder import columns_as_known, encode_new_rows, new_row_warnings
from ratecli.datasets.columns import ColumnKind, as_float_array, is_text
from ratecli.datasets.table_files import (
    SEPARATOR_HELP,
    format_of_output,
    read_table_file,
    table_bytes,
)
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import atomic_write
from ratecli.models.base import Classifier, Features
from ratecli.models.grouped import append_memberships
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Sample
from ratecli.sampling.slices import slice_memberships


@dataclass(frozen=True)
class PredictRequest:
    """What is to be predicted, and how.

    Attributes
    ----------
    model, variant
        A stored classifier's file, or the folder of a trial and the variant (None: the main one).
    table, separator
        A CSV or Parquet file; what separates the columns of a CSV, None for what its name promises.
    output
        Where the table goes with the answers; None: its bytes are given back.
    prefix
        Stands before the names of the columns that are added.
    seed
        Decides what a randomized classifier leaves to chance.
    """

    model: Path
    table: Path
    output: Path | None = None
    variant: str | None = None
    separator: str | None = None
    prefix: str = ""
    seed: int = 0


@dataclass(frozen=True)
class PredictResult:
    """What came of it: a line that sums it up, warnings, and the table's bytes if it is in no file."""

    line: str
    warnings: tuple[Diagnostic, ...]
    content: bytes | None = None


def predict_file(asked: PredictRequest) -> PredictResult:
    """Answer for every row, and add the answers to the table as columns.

    Raises
    ------
    FaultError
        As `load_applicable_model`; E404, E405 where the table is none, E205, E407, E411 where it does not fit the model
        or has columns of the names to be added, E104 for an output that cannot be, E505 where nothing
        can be written.
    """
    model = load_applicable_model(asked.model, asked.variant)
    separator = own.separator_of(asked.table) if asked.separator is None else asked.separator
    table = read_table_file(asked.table, separator)
    form = format_of_output(asked.table, asked.output)
    found, warnings = predict_table(model, asked.table, table, asked.seed)
    whole = _append_columns(table, found.columns, asked.prefix)
    between = own.separator_of(asked.output or asked.table)
    written = table_bytes(
        whole, asked.table, form, between if asked.separator is None else separator
    )
    line = f"{asked.output or asked.table}: {_summary_line(found, table.num_rows)}"
    if asked.output is None:
        return PredictResult(line, warnings, written)
    atomic_write(asked.output, written)
    return PredictResult(line, warnings)


def predict_table(
    model: StoredModel, path: Path, table: pa.Table, seed: int
) -> tuple[PredictedColumns, tuple[Diagnostic, ...]]:
    """A model's answers on the rows of a table that stands in the file `path`, and warnings.

    Raises
    ------
    FaultError
        E205, E404, E407, E411 where the table does not fit the model.
    """
    known = _known_columns(model, path, table)
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # `prediction_columns` tells of scores that are no numbers
        X = _features_with_slices(
            model.classifier, encode_new_rows(model.encoding.encoder, known), known
        )
        found = prediction_columns(model.classifier, X, seed)
    return found, tuple(new_row_warnings(model.encoding.encoder, known))


def _summary_line(found: PredictedColumns, rows: int) -> str:
    return f"{rows} row{'s' * (rows != 1)}, {found.told}"


def _known_columns(model: StoredModel, path: Path, table: pa.Table) -> pd.DataFrame:
    """The columns that a classifier needs: those of its features and of the slices it looks at."""
    looked_at = {
        condition.column for text in model.classifier.slices for condition in parse_conditions(text)
    }
    kinds: dict[str, ColumnKind | None] = {
        **{name: model.encoding.kind(name) for name in sorted(looked_at)},
        **model.encoding.encoder.kinds,
    }
    there = [name for name in table.column_names if name in kinds]
    if kinds and not there and (mark := own.guess_separator(table.column_names)):
        message = f"'{path}' has no column that the model needs"
        raise FaultError(Diagnostic("E205", message, SEPARATOR_HELP.format(mark=repr(mark))))
    as_text = [name for name in there if kinds[name] == "text"]
    frame = own.typed_columns(path, table.select(there), there, as_text)
    return columns_as_known(frame, kinds, table.column_names)


def _features_with_slices(classifier: Classifier, X: Features, columns: pd.DataFrame) -> Features:
    """The features, and behind them who is in the slices that the classifier looks at."""
    n = len(columns)
    arrays: dict[str, Any] = {
        str(name): np.asarray(column, dtype=object) if is_text(column) else as_float_array(column)
        for name, column in columns.items()
    }
    nothing = np.full(n, "")
    sample = Sample(arrays, np.full(n, np.nan), nothing, nothing, np.ones(n))
    return append_memberships(X, slice_memberships(sample, classifier.slices))


def _append_columns(table: pa.Table, columns: Mapping[str, Any], prefix: str) -> pa.Table:
    """Raises E411 where the table has one of that name."""
    taken = [prefix + name for name in columns if prefix + name in table.column_names]
    if taken:
        message = f"the table has a column '{taken[0]}' already, which is to be added"
        hint = "rename it, or put something before the names with --prefix"
        raise FaultError(Diagnostic("E411", message, hint))
    for name, values in columns.items():
        table = table.append_column(prefix + name, pa.array(values))
    return table

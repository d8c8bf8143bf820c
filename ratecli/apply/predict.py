"""Apply a stored classifier to the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from ratecli.apply.stored import StoredModel, load_applicable_model
from ratecli.datasets import tables as own
from ratecli.datasets.columns import ColumnKind
from ratecli.datasets.encode import columns_as_known, encode_new_rows, new_row_warnings
from ratecli.datasets.tables import SEPARATOR_HELP, format_of_output, read_table_file, table_bytes
from ratecli.errors import Diagnostic, FaultError
from ratecli.files import atomic_write
from ratecli.ledger.records import random_stream
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.proxies import ProxyFilter, SampledFilter
from ratecli.sampling.encoding import append_slices, slice_columns_of


@dataclass(frozen=True)
class PredictedColumns:
    """Predicted columns (n,) by name, and a short summary."""

    columns: Mapping[str, NDArray[np.generic]]
    summary: str


def prediction_columns(classifier: Classifier, X: Features, seed: int) -> PredictedColumns:
    """Return the predictions of a classifier as columns.

    A classifier yields `score`, the `chance` of a positive decision and the `decision` (1 or 0); a
    regressor yields an `estimate`. A filter yields the `chance` that a row is kept, the `value` of
    its proxy (sampled, counted from 0), and whether the row is `kept`, according to that value's
    chance. A filter that keeps rows by a hash has no `value`.

    Randomized decisions are sampled: with the same seed, the row at the same position gets the same
    random number, whatever the chances are and however many rows follow.

    Raises
    ------
    FaultError
        E404 if scores are not finite.
    """
    scores = classifier.score(X)
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores))[0]) + 1
        message = f"the model gives row {row} a score that is not finite"
        raise FaultError(Diagnostic("E404", message, "look at the numbers of that row"))
    if isinstance(classifier, ProxyFilter):
        return _filter_columns(classifier, X, seed)
    chances = classifier.decide(X)
    if np.isnan(chances).any():
        return _estimate_columns(classifier.estimate(X))
    return _decision_columns(scores, chances, seed)


def _filter_columns(found: ProxyFilter, X: Features, seed: int) -> PredictedColumns:
    columns: dict[str, NDArray[np.generic]] = {"chance": found.keep_probability(X)}
    how = "by a hash of each"
    if isinstance(found, SampledFilter):
        kept = found.decide(X) > 0.5
    else:
        columns["value"], kept = found.sample_rows(X, random_stream(seed, "predict"))
        how = f"sampled with --seed {seed}"
    columns["kept"] = kept.astype(np.int8)
    return PredictedColumns(columns, f"{kept.sum()} of them kept, {how}")


def _decision_columns(scores: Array, chances: Array, seed: int) -> PredictedColumns:
    draws = random_stream(seed, "predict").random(len(chances))
    yes = draws < chances
    drawn = int(((chances > 0) & (chances < 1)).sum())
    summary = f"{yes.sum()} yes, {(~yes).sum()} no"
    if drawn:
        summary += f"; {drawn} of them by chance, sampled with --seed {seed}"
    columns: dict[str, NDArray[np.generic]] = {
        "score": scores,
        "chance": chances,
        "decision": yes.astype(np.int8),
    }
    return PredictedColumns(columns, summary)


def _estimate_columns(estimates: Array) -> PredictedColumns:
    summary = f"estimates from {estimates.min():g} to {estimates.max():g}"
    return PredictedColumns({"estimate": estimates}, summary)


@dataclass(frozen=True)
class PredictRequest:
    """A table to predict for, a model, and options.

    Attributes
    ----------
    model, variant
        A stored classifier's file, or a trial's folder and a variant (None: the main variant).
    table, separator
        A CSV or Parquet file, and the separator of a CSV file; None infers it from the file name.
    output
        File for the table with predictions; None returns its bytes instead.
    prefix
        Prefix of the names of added columns.
    seed
        Seed for the decisions of a randomized classifier.
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
    """A summary line, warnings, and the bytes of the table if it was not written to a file."""

    line: str
    warnings: tuple[Diagnostic, ...]
    content: bytes | None = None


def predict_file(request: PredictRequest) -> PredictResult:
    """Predict for every row, and add the predictions to the table as columns.

    Raises
    ------
    FaultError
        As `load_applicable_model`; E404, E405 for a table that cannot be read, E205, E407, E411 if
        it does not fit the model or already has a column to be added, E104 for an invalid output,
        E505 if the output cannot be written.
    """
    model = load_applicable_model(request.model, request.variant)
    separator = own.separator_of(request.table) if request.separator is None else request.separator
    table = read_table_file(request.table, separator)
    form = format_of_output(request.table, request.output)
    found, warnings = predict_table(model, request.table, table, request.seed)
    whole = _append_columns(table, found.columns, request.prefix)
    output_separator = own.separator_of(request.output or request.table)
    written = table_bytes(
        whole, request.table, form, output_separator if request.separator is None else separator
    )
    line = f"{request.output or request.table}: {_summary_line(found, table.num_rows)}"
    if request.output is None:
        return PredictResult(line, warnings, written)
    atomic_write(request.output, written)
    return PredictResult(line, warnings)


def predict_table(
    model: StoredModel, path: Path, table: pa.Table, seed: int
) -> tuple[PredictedColumns, tuple[Diagnostic, ...]]:
    """Return a model's predictions for a table read from the file `path`, and warnings.

    Raises
    ------
    FaultError
        E205, E404, E407, E411 if the table does not fit the model.
    """
    known = _known_columns(model, path, table)
    # `prediction_columns` reports scores that are not finite
    with np.errstate(over="ignore", invalid="ignore"):
        X = encode_new_rows(model.encoding.encoder, known)
        found = prediction_columns(
            model.classifier, append_slices(model.classifier, X, known), seed
        )
    return found, tuple(new_row_warnings(model.encoding.encoder, known))


def _summary_line(found: PredictedColumns, rows: int) -> str:
    return f"{rows} row{'s' * (rows != 1)}, {found.summary}"


def _known_columns(model: StoredModel, path: Path, table: pa.Table) -> pd.DataFrame:
    """Return the columns that a classifier needs, for its features and its slices."""
    kinds: dict[str, ColumnKind | None] = {
        **{name: model.encoding.kind(name) for name in slice_columns_of(model.classifier)},
        **model.encoding.encoder.kinds,
    }
    there = [name for name in table.column_names if name in kinds]
    if kinds and not there and (mark := own.guess_separator(table.column_names)):
        message = f"'{path}' has no column that the model needs"
        raise FaultError(Diagnostic("E205", message, SEPARATOR_HELP.format(mark=repr(mark))))
    as_text = [name for name in there if kinds[name] == "text"]
    frame = own.typed_columns(path, table.select(there), there, as_text)
    return columns_as_known(frame, kinds, table.column_names)


def _append_columns(table: pa.Table, columns: Mapping[str, Any], prefix: str) -> pa.Table:
    """Append columns to a table. Raise E411 if it already has one of their names."""
    taken = [prefix + name for name in columns if prefix + name in table.column_names]
    if taken:
        message = f"the table already has a column '{taken[0]}', which would be added"
        hint = "rename it, or add a prefix to the new names with --prefix"
        raise FaultError(Diagnostic("E411", message, hint))
    for name, values in columns.items():
        table = table.append_column(prefix + name, pa.array(values))
    return table

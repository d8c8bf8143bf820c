"""A stored classifier's answers on the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ratecli.apply.answers import Answers, answers
from ratecli.apply.stored import Stored, stored
from ratecli.datasets import tables as own
from ratecli.datasets.apply_encoder import apply, as_known, surprises
from ratecli.datasets.columns import Kind, floats, is_text
from ratecli.datasets.table_files import SEPARATED, content, format_of_output, table_of
from ratecli.errors import Fault, FaultError
from ratecli.files import atomic_write
from ratecli.models.base import Classifier, Features
from ratecli.models.grouped import with_members
from ratecli.rates.parser import parse_conditions
from ratecli.rates.sample import Sample
from ratecli.sampling.slices import memberships


@dataclass(frozen=True)
class Asked:
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
class Predicted:
    """What came of it: a line that sums it up, warnings, and the table's bytes if it is in no file."""

    line: str
    warnings: tuple[Fault, ...]
    content: bytes | None = None


def predict(asked: Asked) -> Predicted:
    """Answer for every row, and add the answers to the table as columns.

    Raises
    ------
    FaultError
        As `stored`; E404, E405 where the table is none, E205, E407, E411 where it does not fit the model
        or has columns of the names to be added, E104 for an output that cannot be, E505 where nothing
        can be written.
    """
    model = stored(asked.model, asked.variant)
    separator = own.separator_of(asked.table) if asked.separator is None else asked.separator
    table = table_of(asked.table, separator)
    form = format_of_output(asked.table, asked.output)
    found, warnings = answered(model, asked.table, table, asked.seed)
    whole = _with_columns(table, found.columns, asked.prefix)
    between = own.separator_of(asked.output or asked.table)
    written = content(whole, asked.table, form, between if asked.separator is None else separator)
    line = f"{asked.output or asked.table}: {_line(found, table.num_rows)}"
    if asked.output is None:
        return Predicted(line, warnings, written)
    atomic_write(asked.output, written)
    return Predicted(line, warnings)


def answered(
    model: Stored, path: Path, table: pa.Table, seed: int
) -> tuple[Answers, tuple[Fault, ...]]:
    """A model's answers on the rows of a table that stands in the file `path`, and warnings.

    Raises
    ------
    FaultError
        E205, E404, E407, E411 where the table does not fit the model.
    """
    known = _known_columns(model, path, table)
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # `answers` tells of scores that are no numbers
        X = _seen(model.classifier, apply(model.encoding.encoder, known), known)
        found = answers(model.classifier, X, seed)
    return found, tuple(surprises(model.encoding.encoder, known))


def _line(found: Answers, rows: int) -> str:
    return f"{rows} row{'s' * (rows != 1)}, {found.told}"


def _known_columns(model: Stored, path: Path, table: pa.Table) -> pd.DataFrame:
    """The columns that a classifier needs: those of its features and of the slices it looks at."""
    looked_at = {
        condition.column for text in model.classifier.slices for condition in parse_conditions(text)
    }
    kinds: dict[str, Kind | None] = {
        **{name: model.encoding.kind(name) for name in sorted(looked_at)},
        **model.encoding.encoder.kinds,
    }
    there = [name for name in table.column_names if name in kinds]
    if kinds and not there and (mark := own.other_separator(table.column_names)):
        message = f"'{path}' has no column that the model needs"
        raise FaultError(Fault("E205", message, SEPARATED.format(mark=repr(mark))))
    as_text = [name for name in there if kinds[name] == "text"]
    frame = own.typed(path, table.select(there), there, as_text)
    return as_known(frame, kinds, table.column_names)


def _seen(classifier: Classifier, X: Features, columns: pd.DataFrame) -> Features:
    """The features, and behind them who is in the slices that the classifier looks at."""
    n = len(columns)
    arrays: dict[str, Any] = {
        str(name): np.asarray(column, dtype=object) if is_text(column) else floats(column)
        for name, column in columns.items()
    }
    nothing = np.full(n, "")
    sample = Sample(arrays, np.full(n, np.nan), nothing, nothing, np.ones(n))
    return with_members(X, memberships(sample, classifier.slices))


def _with_columns(table: pa.Table, columns: Mapping[str, Any], prefix: str) -> pa.Table:
    """Raises E411 where the table has one of that name."""
    taken = [prefix + name for name in columns if prefix + name in table.column_names]
    if taken:
        message = f"the table has a column '{taken[0]}' already, which is to be added"
        hint = "rename it, or put something before the names with --prefix"
        raise FaultError(Fault("E411", message, hint))
    for name, values in columns.items():
        table = table.append_column(prefix + name, pa.array(values))
    return table

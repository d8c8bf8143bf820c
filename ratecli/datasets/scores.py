"""Scores of existing models as columns of a table: its own, from files, or by stored models."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.columns import as_float_array, is_text, read_numbers, value_key
from ratecli.datasets.table import Table
from ratecli.datasets.tables import FORMAT_BY_SUFFIX, TableFile, read_own_table
from ratecli.errors import Diagnostic, FaultError, did_you_mean, errors_at
from ratecli.models.base import Array, features_of_entries
from ratecli.models.external_models import TEXT_TYPE, OnnxModel, StoredPipeline
from ratecli.models.tree_formats.arrays import FileColumn, layout_of
from ratecli.models.tree_formats.lightgbm import lightgbm_columns, read_lightgbm
from ratecli.models.tree_formats.xgboost import cut_word, read_xgboost, xgboost_columns
from ratecli.models.trees import TreeEnsemble


def score_with_model(
    suffix: str, content: bytes, frame: pd.DataFrame, features: Sequence[str]
) -> Array:
    """Return the probability (n,) of the second class by the model in a file's content.

    The suffix is `.txt` for LightGBM's text, `.json` for XGBoost's JSON, `.skops` for classifiers
    and pipelines of scikit-learn, which get text columns with NaN for missing values, `.onnx` for
    ONNX. A model without names of columns takes the `features`.

    Raises
    ------
    ValueError
        If the content is no such classifier of two classes.
    FaultError
        E202 without onnxruntime, E205 for a column that the table does not have, E407 and E411 for
        values that the model does not take.
    """
    if suffix == ".skops":
        pipeline = StoredPipeline(content)
        _check_columns(pipeline.names, list(map(str, frame.columns)))
        given = frame[pipeline.names]
        return pipeline.scores(given.where(given.notna(), np.nan))
    if suffix == ".onnx":
        return _onnx_scores(content, frame, features)
    if suffix == ".json":
        columns = xgboost_columns(content)
        return _tree_scores(read_xgboost(content, layout_of(columns)), columns, frame)
    text, named = content.decode().replace("\r\n", "\n"), _by_name(frame)
    columns = lightgbm_columns(text, lambda name: name in named and is_text(named[name]))
    return _tree_scores(read_lightgbm(text, layout_of(columns)), columns, frame)


def _onnx_scores(content: bytes, frame: pd.DataFrame, features: Sequence[str]) -> Array:
    try:
        model = OnnxModel(content)
    except ImportError:
        hint = "pip install 'ratecli[onnx]'"
        message = "ONNX models need onnxruntime, which is not installed"
        raise FaultError(Diagnostic("E202", message, hint)) from None
    kinds = dict(model.inputs)
    if model.width:
        if len(features) != model.width:
            raise ValueError(f"it takes {model.width} columns without names, not {len(features)}")
        kinds = dict.fromkeys(features, *kinds.values())
    named = {str(name): column for name, column in frame.items()}
    _check_columns(list(kinds), named)
    return model.scores([_onnx_column(named[name], kind) for name, kind in kinds.items()])


def _onnx_column(column: pd.Series, kind: str) -> NDArray[Any]:
    """Return a column as a type of ONNX, which has missing values of decimal numbers only."""
    if kind != TEXT_TYPE and is_text(column):
        raise ValueError(f"it takes numbers in column '{column.name}', which holds text")
    if kind in {TEXT_TYPE, "tensor(int64)"} and column.isna().any():
        row = int(np.argmax(column.isna())) + 1
        message = f"column '{column.name}' has no value in row {row}, and the model needs one"
        raise FaultError(Diagnostic("E407", message, "fill in the values, or drop such rows"))
    return column.astype(str).to_numpy(object) if kind == TEXT_TYPE else as_float_array(column)


def _by_name(frame: pd.DataFrame) -> Mapping[str, pd.Series]:
    """Return the columns by name; LightGBM writes underscores for spaces."""
    plain = {str(name): column for name, column in frame.items()}
    return {name.replace(" ", "_"): column for name, column in plain.items()} | plain


def _tree_scores(trees: TreeEnsemble, columns: list[FileColumn], frame: pd.DataFrame) -> Array:
    if trees.classes != 2:
        classes = f"it has {trees.classes} classes, not two"
        raise ValueError("it predicts numbers" if trees.classes == 1 else classes)
    named = _by_name(frame)
    _check_columns([column.name for column in columns], named)
    values = [_column_values(column, named[column.name]) for column in columns]
    starts = np.cumsum(trees.layout.sizes) - trees.layout.sizes
    places, entries = np.tile(starts, (len(frame), 1)), np.column_stack(values)
    for k in trees.layout.categories:
        codes = entries[:, k]
        places[:, k] += np.nan_to_num(codes).astype(np.intp)
        entries[:, k] = ~np.isnan(codes)
    X = features_of_entries(places, entries, trees.width)
    return np.asarray(trees.probabilities(X)[:, 1])


def _check_columns(names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            message = f"the model needs a column '{name}', which the table does not have"
            hint = did_you_mean(name, known, "columns")
            raise FaultError(Diagnostic("E205", message, hint))


def _column_values(column: FileColumn, values: pd.Series) -> Array:
    """Return numbers, or codes of categories, (n,), NaN where missing."""
    if not column.used:
        return np.full(len(values), np.nan)
    if column.words is not None:
        return _category_codes(column, values)
    if is_text(values):
        shown = next(iter(values.dropna()), "")
        message = f"the model takes numbers in column '{column.name}', not text, such as '{shown}'"
        hint = "its file does not say which categories the column has: name a CSV of its scores"
        raise FaultError(Diagnostic("E411", message, hint))
    numbers = as_float_array(values)
    if column.levels > 0:
        codes = np.trunc(numbers)
        other = np.nan if column.unknown == "missing" else column.levels - 1.0
        known = np.isnan(codes) | ((codes >= 0) & (codes < column.levels))
        numbers = np.where(known, codes, other)
    return numbers


def _category_codes(column: FileColumn, values: pd.Series) -> Array:
    """Return the codes (n,) of a category's values.

    Raises E411 for a value that is refused, ValueError if categories cannot be told apart.
    """
    assert column.words is not None
    exact = {str(word): code for code, word in enumerate(column.words)}
    alike = {value_key(word): code for code, word in enumerate(column.words)}
    if len(exact) < len(column.words):
        raise ValueError(f"two categories of column '{column.name}' are the same")
    if len(alike) < len(column.words):  # such as '1' and '01'
        alike = {}

    def code(value: Any) -> float:
        word = str(value)
        for known, key in ((exact, word), (alike, value_key(value)), (exact, cut_word(word))):
            if key in known:
                return known[key]
        if column.unknown == "refused":
            row = int(np.argmax(values == value)) + 1
            message = f"the model knows no category '{value}' of column '{column.name}', row {row}"
            hint = did_you_mean(str(value), exact, "categories")
            raise FaultError(Diagnostic("E411", message, hint))
        return np.nan

    codes, levels = pd.factorize(values)
    return np.array([*map(code, levels), np.nan], dtype=np.float64)[codes]


LIGHTGBM_START = b"tree"
"""First line of LightGBM's files, which end in .txt as tables may."""
MODEL_SUFFIXES = (".json", ".onnx", ".skops")
"""Suffixes of other files with models."""


def add_scores(table: Table, entry: DatasetSpec, files: Mapping[str, Path]) -> Table:
    """Return the table with a column for each score of a file, given by name.

    Raises
    ------
    FaultError
        E205 for a column that the table does not have, E404 for a file that cannot be read, E407
        for missing or infinite scores, E411 for text, for a file with another number of rows, and
        for a column that has another role or exists already.
    """
    if not entry.scores:
        return table
    columns, names = dict[str, NDArray[np.float64]](), [str(name) for name in table.frame.columns]
    for place, name in enumerate(entry.score_columns):
        with errors_at("scores", place):
            _check_column(name, names, {entry.label, entry.weight, *table.features})
            _read_scores(table.frame[name])
    for name, path in files.items():
        with errors_at("scores", name):
            if name in names:
                message = f"the table already has a column '{name}'"
                hint = f"give the score another name, or use the column: scores: [{name}]"
                raise FaultError(Diagnostic("E411", message, hint))
            found = _read(path, name, table.frame, table.features)
            columns[name] = _read_scores(pd.Series(found, name=name))
    return replace(table, frame=table.frame.assign(**columns))


def _check_column(name: str, names: list[str], taken: set[str | None]) -> None:
    if name not in names:
        hint = did_you_mean(name, names, "columns")
        raise FaultError(Diagnostic("E205", f"'{name}' under 'scores' is not a column", hint))
    if name in taken:
        message = f"column '{name}' cannot be a score: it has another role, too"
        raise FaultError(Diagnostic("E411", message, "name a column that is not used elsewhere"))


def _read_scores(column: pd.Series) -> NDArray[np.float64]:
    """Return the scores (n,) in a column; raise E407 unless all are finite, E411 for text."""
    return read_numbers(column, code="E407", hint="fill in the scores, or drop such rows")


def _read(
    path: Path, name: str, frame: pd.DataFrame, features: Sequence[str]
) -> NDArray[np.float64]:
    """Return the scores (n,) of the rows of a table by a file, of numbers or with a model."""
    suffix = path.suffix.lower()
    with path.open("rb") as opened:
        starts_model = opened.readline(len(LIGHTGBM_START) + 2).rstrip() == LIGHTGBM_START
    if suffix in FORMAT_BY_SUFFIX and not starts_model:
        return _read_numbers(path, name, len(frame))
    if suffix == ".txt" or suffix in MODEL_SUFFIXES:
        try:
            return score_with_model(suffix, path.read_bytes(), frame, features)
        except ValueError as error:
            message = f"'{path.name}' has no model that can be evaluated: {error}"
            hint = "apply the model where it was trained, and name a CSV file of its scores"
            raise FaultError(Diagnostic("E404", message, hint)) from error
    raise FaultError(
        Diagnostic(
            "E404",
            f"'{path.name}' is no file of scores that can be read",
            "name a table of numbers (.csv, .parquet), or a model of LightGBM (.txt), XGBoost "
            "(.json), scikit-learn (.skops) or ONNX (.onnx)",
        )
    )


def _read_numbers(path: Path, name: str, rows: int) -> NDArray[np.float64]:
    found = read_own_table(TableFile.of(path))
    if name not in found and found.shape[1] > 1:
        message = f"'{path.name}' has {found.shape[1]} columns, and none is called '{name}'"
        hint = did_you_mean(name, map(str, found.columns), "columns")
        raise FaultError(Diagnostic("E205", message, hint))
    column = found[name] if name in found else found.iloc[:, 0]
    if len(column) != rows:
        message = f"'{path.name}' has {len(column)} rows, but the table has {rows}"
        hint = "write one score for each row, in the order of the table, below a line with a name"
        raise FaultError(Diagnostic("E411", message, hint))
    return _read_scores(column.rename(name))

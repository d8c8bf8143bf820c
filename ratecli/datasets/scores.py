"""Scores of existing models as columns of a table: its own, from files, or by stored models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.columns import as_float_array, check_scores, is_text
from ratecli.datasets.files import find_user_file, read_errors, sha256_of
from ratecli.datasets.registry import json_sha256
from ratecli.datasets.stored_models import score_with_model
from ratecli.datasets.table import Table
from ratecli.datasets.tables import FORMAT_BY_SUFFIX, TableFile, read_own_table
from ratecli.errors import Diagnostic, FaultError, did_you_mean, errors_at

LIGHTGBM_START = b"tree"
"""First line of LightGBM's files, which end in .txt as tables may."""
MODEL_SUFFIXES = (".json", ".onnx", ".skops")
"""Suffixes of other files with models."""


def digest_with_scores(digest: str, entry: DatasetSpec, base: Path) -> str:
    """Return the digest of a table with its scores, given the one without; files are only hashed.

    Raises
    ------
    FaultError
        E405 if a file is missing.
    """
    if not entry.scores:
        return digest
    sums = [(name, sha256) for name, _, sha256 in _files(entry, base)]
    return json_sha256({"table": digest, "columns": entry.score_columns, "files": sums})


def score_files(entry: DatasetSpec, base: Path) -> list[Path]:
    """Return the files of scores and models; raise E405 if one is missing."""
    return [path for _, path, _ in _files(entry, base)]


def _files(entry: DatasetSpec, base: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield the name of each score with a file, the file, and its SHA-256."""
    for name, given in entry.score_files.items():
        if given is not None:
            with errors_at("scores", name), read_errors(given):
                path = find_user_file(given, base)
                yield name, path, sha256_of(path)


def add_scores(table: Table, entry: DatasetSpec, base: Path) -> Table:
    """Return the table with a column for each score of a file.

    Raises
    ------
    FaultError
        E205 for a column that the table does not have, E404 and E405 for a file that cannot be
        read, E407 for missing or infinite scores, E411 for text, for a file with another number of
        rows, and for a column that has another role or exists already.
    """
    if not entry.scores:
        return table
    columns, names = dict[str, NDArray[np.float64]](), [str(name) for name in table.frame.columns]
    for place, name in enumerate(entry.score_columns):
        with errors_at("scores", place):
            _check_column(name, names, {entry.label, entry.weight, *table.features})
            check_scores(name, _numbers(table.frame[name], name))
    files = list(table.files)
    for name, path, sha256 in _files(entry, base):
        with errors_at("scores", name):
            if name in names:
                message = f"the table already has a column '{name}'"
                hint = f"give the score another name, or use the column: scores: [{name}]"
                raise FaultError(Diagnostic("E411", message, hint))
            columns[name] = _read(path, name, table.frame, table.features)
            check_scores(name, columns[name])
            files.append((path.name, sha256))
    return replace(
        table,
        frame=table.frame.assign(**columns),
        files=tuple(files),
        digest=digest_with_scores(table.digest, entry, base),
    )


def _check_column(name: str, names: list[str], taken: set[str | None]) -> None:
    if name not in names:
        hint = did_you_mean(name, names, "columns")
        raise FaultError(Diagnostic("E205", f"'{name}' under 'scores' is not a column", hint))
    if name in taken:
        message = f"column '{name}' cannot be a score: it has another role, too"
        raise FaultError(Diagnostic("E411", message, "name a column that is not used elsewhere"))


def _numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    if is_text(column):
        shown = next(iter(column.dropna()), "")
        message = f"column '{name}' holds text, such as '{shown}', not scores"
        raise FaultError(Diagnostic("E411", message, "scores are numbers"))
    return as_float_array(column)


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
    return _numbers(column, str(column.name))

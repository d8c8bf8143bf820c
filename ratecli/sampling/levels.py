"""Rows at several levels of decision: each stands once for every level, which has a bias of its own.

M linear classifiers that share their weights and differ in the bias are one linear classifier on rows
that stand M times, with the level as M zeros and ones behind the features. Goals that speak of several
thresholds on one score, such as the area under the precision-recall curve (Eban et al. 2017;
Narasimhan, Cotter, Gupta 2019, appendix E), are then goals of rates like any other.

A rate that names no level counts each row M times: its value is right, a standard error of it (`margin`)
is too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.datasets.table import Table
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Features
from ratecli.rates.sample import Sample

LEVEL_COLUMN = "level"
"""The column that says of each copy of a row which one it is: 0.0 to M - 1."""

T = TypeVar("T", bound=np.generic)


def level_count(entry: Mapping[str, Any]) -> int:
    """M of an entry of `datasets:`, 1 where it says nothing."""
    return int(entry.get("levels", 1))


def check_level_column(table: Table, levels: int) -> None:
    """Raises E411 where rows are to stand at levels and their table has such a column of its own."""
    if levels > 1 and LEVEL_COLUMN in table.frame:
        message = (
            f"with 'levels' each row gets a column '{LEVEL_COLUMN}', and the table already has one"
        )
        raise FaultError(Diagnostic("E411", message, "rename the table's own column"))


def column_at_levels(columns: Mapping[str, Any], levels: int) -> Mapping[str, Any]:
    """Columns (n,) as those of M n rows, the copies of each row next to each other; the level last."""
    if levels == 1:
        return columns
    found = {name: np.repeat(column, levels) for name, column in columns.items()}
    rows = len(next(iter(columns.values())))
    found[LEVEL_COLUMN] = np.tile(np.arange(levels, dtype=float), rows)
    return found


def sample_at_levels(sample: Sample, levels: int) -> Sample:
    """All that rates read of the M copies of each row: alike in everything but the level."""

    def each(values: NDArray[T]) -> NDArray[T]:
        return np.repeat(values, levels)

    return replace(
        sample,
        columns=column_at_levels(sample.columns, levels),
        label=each(sample.label),
        dataset=each(sample.dataset),
        part=each(sample.part),
        weight=each(sample.weight),
        deployed=None if sample.deployed is None else each(sample.deployed),
        _cache={},
    )


def features_at_levels(X: Features, levels: int) -> Features:
    """(M n, d + M) features, sparse where X is: those of each row M times, and which level it is."""
    n = X.shape[0]
    if isinstance(X, np.ndarray):
        return np.hstack([np.repeat(X, levels, axis=0), np.tile(np.eye(levels), (n, 1))])
    which = sparse.kron(np.ones((n, 1)), sparse.eye_array(levels), format="csr")
    rows = X[np.repeat(np.arange(n), levels)]
    return sparse.csr_array(sparse.hstack([rows, which], format="csr"))

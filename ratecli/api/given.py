"""Rows as scikit-learn gives them: a frame or an array, and columns beside it that rules may name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from ratecli.datasets import own
from ratecli.datasets.columns import Kind, floats, is_text
from ratecli.faults import Fault, FaultError
from ratecli.models.base import Features
from ratecli.runner.prepare import distinct

ALONE = "sensitive"
"""What an array of one sensitive feature is called that has no name."""


@dataclass(frozen=True)
class Given:
    """n rows.

    Attributes
    ----------
    frame
        The columns of X, numeric or text (`datasets.own`), where X is a frame.
    matrix
        (n, d) X itself, where it is an array: its columns are called x0, x1, ...
    beside
        Sensitive features, numeric or text: rules see them before a column of X of the same name.
    """

    frame: pd.DataFrame | None
    matrix: Features | None
    beside: pd.DataFrame

    @classmethod
    def of(cls, X: Any, sensitive: Any = None) -> Given:
        """Raises E411 where a frame has columns of neither numbers nor text, ValueError for other lengths."""
        count = X.shape[0]
        beside = _beside(sensitive, count)
        if isinstance(X, pd.DataFrame):
            return cls(typed(X, "X"), None, beside)
        return cls(None, X, beside)

    def __len__(self) -> int:
        return len(self.beside)

    @property
    def names(self) -> list[str]:
        """Of the columns of X; a sparse array has none that can be named."""
        if self.frame is not None:
            return list(self.frame.columns)
        assert self.matrix is not None
        dense = isinstance(self.matrix, np.ndarray)
        return [f"x{k}" for k in range(self.matrix.shape[1])] if dense else []

    @cached_property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """(n,) arrays by name: of text with None, or of floats with NaN."""
        return _Columns(self._all)

    @cached_property
    def _all(self) -> dict[str, Any]:
        return {name: self._column(name) for name in [*self.names, *self.beside.columns]}

    def _column(self, name: str) -> Any:
        if name in self.beside:
            return self.beside[name]
        if self.frame is not None:
            return self.frame[name]
        return (self.matrix, int(name[1:]))

    def kinds(self) -> dict[str, Kind]:
        """What each column holds."""
        return {name: self._kind(column) for name, column in self._all.items()}

    @staticmethod
    def _kind(column: Any) -> Kind:
        return "number" if isinstance(column, tuple) or not is_text(column) else "text"

    def values(self) -> Mapping[str, Sequence[str | float]]:
        """The texts or floats that occur in each column."""
        return _Values(self.columns)

    def take(self, rows: NDArray[np.intp]) -> Given:
        frame = None if self.frame is None else self.frame.iloc[rows].reset_index(drop=True)
        matrix = None if self.matrix is None else self.matrix[rows]
        return Given(frame, matrix, self.beside.iloc[rows].reset_index(drop=True))


@dataclass(frozen=True)
class _Columns(Mapping[str, NDArray[Any]]):
    """Arrays made of columns when they are asked for: most never are."""

    of: Mapping[str, Any]

    def __getitem__(self, name: str) -> NDArray[Any]:
        column = self.of[name]
        if isinstance(column, tuple):
            matrix, k = column
            return np.asarray(matrix[:, k], dtype=np.float64)
        return np.asarray(column, dtype=object) if is_text(column) else floats(column)

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)


@dataclass(frozen=True)
class _Values(Mapping[str, Sequence[str | float]]):
    of: Mapping[str, NDArray[Any]]

    def __getitem__(self, name: str) -> Sequence[str | float]:
        return distinct(self.of[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)


def typed(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """The columns of a frame as numbers or text, as a file of them would be read.

    Categories and strings stay text, though they may look like numbers, and so do truth values.
    """
    table = as_table(frame, what)
    text = [each.name for each in table.schema if _is_text(each.type)]
    return own.typed(Path(what), table, table.column_names, text)


def as_table(frame: pd.DataFrame, what: str) -> pa.Table:
    """Raises E411 for columns of several kinds, E404 for two of one name."""
    named = frame.set_axis(list(map(str, frame.columns)), axis=1)
    if not named.columns.is_unique:
        twice = named.columns[named.columns.duplicated()][0]
        raise FaultError(Fault("E404", f"{what} has two columns called '{twice}'"))
    try:
        return pa.Table.from_pandas(named, preserve_index=False)
    except (pa.ArrowException, TypeError) as error:
        reason = " ".join(map(str, error.args))
        raise FaultError(
            Fault("E411", f"a column of {what} holds neither numbers nor text: {reason}")
        ) from None


def _is_text(kind: pa.DataType) -> bool:
    return any(
        said(kind)
        for said in (pa.types.is_dictionary, pa.types.is_string, pa.types.is_large_string)
    )


def _beside(sensitive: Any, count: int) -> pd.DataFrame:
    if sensitive is None:
        return pd.DataFrame(index=range(count))
    found = typed(_framed(sensitive), "sensitive_features")
    if len(found) != count:
        raise ValueError(f"sensitive_features has {len(found)} rows, and X has {count}")
    return found


def _framed(sensitive: Any) -> pd.DataFrame:
    """A frame of what may be one, a mapping, a series or an array (n,)."""
    if isinstance(sensitive, pd.DataFrame):
        return sensitive
    if isinstance(sensitive, Mapping):
        return pd.DataFrame({name: np.asarray(values) for name, values in sensitive.items()})
    if isinstance(sensitive, pd.Series):
        return sensitive.to_frame(ALONE if sensitive.name is None else sensitive.name)
    array = np.asarray(sensitive)
    if array.ndim != 1:
        message = "sensitive_features must be a DataFrame, so that rules can name its columns"
        raise ValueError(f"{message}, not an array of shape {array.shape}")
    return pd.DataFrame({ALONE: array})

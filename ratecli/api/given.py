"""Rows as scikit-learn gives them: a frame or an array, and columns beside it that rules may name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from ratecli.datasets import own
from ratecli.datasets.columns import Kind, Lazy, floats, is_text
from ratecli.faults import Fault, FaultError, did_you_mean
from ratecli.models.base import Features
from ratecli.runner.prepare import distinct

ALONE = "sensitive"
"""What an array of one sensitive feature is called that has no name."""


@dataclass(frozen=True)
class Given:
    """n rows.

    Attributes
    ----------
    raw
        X, where it is a frame.
    matrix
        (n, d) X itself, where it is an array: its columns are called x0, x1, ...
    beside
        Sensitive features, numeric or text. A column of X of the same name has the same values.
    """

    raw: pd.DataFrame | None
    matrix: Features | None
    beside: pd.DataFrame

    @classmethod
    def of(cls, X: Any, sensitive: Any = None, **others: Any) -> Given:
        """Rows of X; `others` are further arguments that have a value for each row, such as y.

        Raises
        ------
        FaultError
            E411 for sensitive features that are neither numbers nor text, E404 for repeated names.
        ValueError
            For another number of rows, as `check_indices`, or if a sensitive feature has the name of a
            column of X and other values.
        """
        beside = _beside(sensitive, X.shape[0])
        check_indices({"X": X, **others, "sensitive_features": sensitive})
        if isinstance(sensitive, Mapping):
            parts = {f"sensitive_features[{name!r}]": each for name, each in sensitive.items()}
            check_indices({"X": X, **others, **parts})
        given = cls(None, X, beside)
        if isinstance(X, pd.DataFrame):
            frame = X.set_axis(list(map(str, X.columns)), axis=1)
            if not frame.columns.is_unique:
                twice = frame.columns[frame.columns.duplicated()][0]
                raise FaultError(Fault("E404", f"X has two columns called '{twice}'"))
            given = cls(frame, None, beside)
        for name in beside.columns.intersection(given.names):
            given.check_same(name)
        return given

    def __len__(self) -> int:
        return len(self.beside)

    @cached_property
    def names(self) -> list[str]:
        """Of the columns of X; a sparse array has none that can be named."""
        if self.raw is not None:
            return list(self.raw.columns)
        dense = self.matrix if isinstance(self.matrix, np.ndarray) else np.zeros((0, 0))
        return [f"x{k}" for k in range(dense.shape[1])]

    @cached_property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """(n,) arrays by name: of text with None, or of floats with NaN."""
        return Lazy([*self.names, *self.beside.columns], self._column)

    @cached_property
    def values(self) -> Mapping[str, Sequence[str | float]]:
        """The texts or floats that occur in each column."""
        return Lazy(list(self.columns), lambda name: distinct(self.columns[name]))

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """What each column holds."""
        frames = [self.beside] if self.raw is None else [self.features(self.names), self.beside]
        told = {str(name): is_text(each[name]) for each in frames for name in each}
        return {name: "text" if told.get(name) else "number" for name in self.columns}

    def check_same(self, name: str) -> None:
        """Raise ValueError unless a sensitive feature has the values of the column of X with its name."""
        own, beside = self._of_X(name), _array(self.beside[name])
        if own.dtype == beside.dtype:
            differs = (own != beside) & ~(pd.isna(own) & pd.isna(beside))
            if not differs.any():
                return
            row = int(np.argmax(differs))
        else:
            row = 0
        raise ValueError(
            f"X and sensitive_features both have a column '{name}', with different values "
            f"({own.tolist()[row]!r} and {beside.tolist()[row]!r} in row {row + 1}): rename one of them"
        )

    def _column(self, name: str) -> NDArray[Any]:
        return _array(self.beside[name]) if name in self.beside else self._of_X(name)

    def _of_X(self, name: str) -> NDArray[Any]:
        if self.raw is not None:
            return _array(typed(self.raw[[name]], "X")[name])
        assert self.matrix is not None
        return np.asarray(self.matrix[:, int(name[1:])], dtype=np.float64)

    def features(self, names: Iterable[str]) -> pd.DataFrame:
        """Those of some columns that X has, numeric or text; index 0..n-1."""
        assert self.raw is not None
        return typed(self.raw[[name for name in names if name in self.raw]], "X")

    def require(self, names: Iterable[str]) -> None:
        """Raises E205 for a column that there is nowhere."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            hint = did_you_mean(missing[0], self.columns, "columns")
            raise FaultError(Fault("E205", f"there is no column '{missing[0]}'", hint))

    def named(self, names: Iterable[str]) -> pd.DataFrame:
        """Those of some columns that rules may name."""
        there = {name: pd.Series(self.columns[name]) for name in names if name in self.columns}
        return pd.DataFrame(there, index=range(len(self)))

    def take(self, rows: NDArray[np.intp]) -> Given:
        raw = None if self.raw is None else self.raw.iloc[rows]
        matrix = None if self.matrix is None else self.matrix[rows]
        return Given(raw, matrix, self.beside.iloc[rows].reset_index(drop=True))


def check_indices(arguments: Mapping[str, Any]) -> None:
    """Raise ValueError if two arguments are pandas objects of equal length with different indices.

    scikit-learn takes rows by position and pandas aligns them by index. Where the two differ, either may
    be meant, so neither is guessed.
    """
    pandas = {
        name: each for name, each in arguments.items() if isinstance(each, pd.DataFrame | pd.Series)
    }
    first, *others = pandas or [""]
    for name in others:
        index, other = pandas[first].index, pandas[name].index
        if len(index) != len(other) or index.equals(other):  # other lengths are refused elsewhere
            continue
        pairs = list(zip(index.tolist(), other.tolist(), strict=True))
        row = next((k for k, (one, another) in enumerate(pairs) if one != another), None)
        if row is None:
            continue
        one, another = pairs[row]
        same = index.is_unique and set(index) == set(other)  # repeated ones `loc` would multiply
        reorder = f"give {name}.loc[{first}.index], or, " if same else ""
        raise ValueError(
            f"{first} and {name} have different indices ({one!r} and {another!r} in row {row + 1}), so it "
            f"is not clear which rows belong together: {reorder}if they belong together by position, "
            "call reset_index(drop=True) on both"
        )


def _array(column: pd.Series) -> NDArray[Any]:
    return np.asarray(column, dtype=object) if is_text(column) else floats(column)


def typed(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """The columns of a frame as numbers or text, as a file of them would be read.

    Categories and strings stay text, though they may look like numbers, and so do truth values.
    """
    table = as_table(frame, what)
    text = [each.name for each in table.schema if _is_text(each.type)]
    return own.typed(Path(what), table, table.column_names, text)


def as_table(frame: pd.DataFrame, what: str) -> pa.Table:
    """Raises E411 for a column of several kinds."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = " ".join(map(str, error.args))
        message = f"a column of {what} holds neither numbers nor text: {reason}"
        raise FaultError(Fault("E411", message)) from None


def _is_text(kind: pa.DataType) -> bool:
    return any(
        said(kind)
        for said in (pa.types.is_dictionary, pa.types.is_string, pa.types.is_large_string)
    )


def _beside(sensitive: Any, count: int) -> pd.DataFrame:
    if sensitive is None:
        return pd.DataFrame(index=range(count))
    framed = _framed(sensitive)
    found = typed(framed.set_axis(list(map(str, framed.columns)), axis=1), "sensitive_features")
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

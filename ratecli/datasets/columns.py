"""Columns of a table: numbers, and text with None for missing values.

Also indicator features of bins and categories, and a lazily filled mapping of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

T = TypeVar("T")
ColumnKind: TypeAlias = Literal["number", "text"]

MISSING_CATEGORY = "(missing)"
"""The category, in feature names, of rows with a missing value."""


@dataclass(frozen=True)
class LevelCodes:
    """A text column: (n,) positions of the rows' levels in `names`, which is sorted."""

    codes: NDArray[np.intp]
    names: NDArray[np.object_]


def level_codes(column: pd.Series) -> LevelCodes:
    """Return the codes of a text column; missing values have a level of their own."""
    values = column.to_numpy(dtype=object)
    filled = np.where(pd.isna(values), MISSING_CATEGORY, values)
    return LevelCodes(*pd.factorize(filled, sort=True))


def as_text(values: Any) -> pd.Series:
    """Return an object column of str and None, whatever text type pandas read."""
    column = pd.Series(values).astype(object)
    return column.where(column.notna(), None).astype(object)


def is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)


def with_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with every non-numeric column converted to text, and index 0..n-1."""
    columns = {
        name: as_text(column) if is_text(column) else column for name, column in frame.items()
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def as_float_array(column: pd.Series) -> NDArray[np.float64]:
    return column.to_numpy(dtype=np.float64)


def as_array(column: pd.Series) -> NDArray[Any]:
    """Return text as an object array, with None for missing values, or numbers as floats."""
    return np.asarray(column, dtype=object) if is_text(column) else as_float_array(column)


def equals_indicator(column: pd.Series, value: str) -> NDArray[np.float64]:
    """Return 1 where a text column equals the value, else 0."""
    return np.asarray(column == value, dtype=np.float64)


def bin_indicators(values: NDArray[np.float64], edges: Sequence[float]) -> NDArray[np.float64]:
    """Return (n, k): 1 where edges[b] < value <= edges[b + 1], for each bin b of k, else 0.

    Values outside the edges, the lowest edge included, are in no bin.
    """
    columns = [(values > low) & (values <= high) for low, high in pairwise(edges)]
    return np.column_stack(columns).astype(np.float64)


def step_indicators(values: NDArray[np.float64], edges: Sequence[float]) -> NDArray[np.float64]:
    """Return (n, k): 1 for each value's bin and all lower bins; 0 if it is in no bin."""
    inside = bin_indicators(values, edges)
    return np.cumsum(inside[:, ::-1], axis=1)[:, ::-1]


def category_indicators(column: pd.Series) -> NDArray[np.float64]:
    """Return (n, k) indicators of the k values that occur, in alphabetical order."""
    levels, found = np.unique(column.fillna(MISSING_CATEGORY).to_numpy(str), return_inverse=True)
    return np.eye(len(levels))[found]


@dataclass(frozen=True)
class LazyMapping(Mapping[str, T]):
    """A mapping whose values are made on first use, since most columns of a table are not used."""

    names: Iterable[str]
    make: Callable[[str], T]
    made: dict[str, T] = field(default_factory=dict)

    def __getitem__(self, name: str) -> T:
        if name not in self.made:
            if name not in self.known:
                raise KeyError(name)
            self.made[name] = self.make(name)
        return self.made[name]

    def __contains__(self, name: object) -> bool:
        return name in self.known

    def __iter__(self) -> Iterator[str]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    @cached_property
    def known(self) -> Mapping[str, None]:
        return dict.fromkeys(self.names)

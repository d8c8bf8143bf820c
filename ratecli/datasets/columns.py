"""Columns of a table: numbers, and text with None for missing values, and errors in them.

Also indicator features of bins and categories, and a lazily filled mapping of columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError

_NUMBER_SHARE = 0.9
"""Share of numbers from which a text column is taken for a numeric one with errors in it."""

FEW_LEVELS = 20


def has_stray_words(distinct: int, share: float) -> bool:
    """Return whether a text column looks numeric with a few stray words.

    `distinct` is its number of distinct words, `share` the share of rows that are not numbers.
    """
    return distinct > FEW_LEVELS and share <= 1 - _NUMBER_SHARE


def stray_word_error(name: str, row: int, word: str) -> Diagnostic:
    """Return the E411 for the first stray word; `row` counts from 0."""
    message = f"column '{name}' holds numbers, but '{word}' in row {row + 1}"
    return Diagnostic(
        "E411", message, "correct it, or name the column under 'categorical' or 'drop'"
    )


FILL_HELP = "fill in the values, or name the column under 'drop' or 'categorical'"
FILL_OR_MEAN_HELP = "say 'missing: mean', fill in the values, or name the column under 'drop'"


class CellCounts(NamedTuple):
    """How many cells are marked, and the row of the first one, from 0; -1 if there is none."""

    many: int = 0
    first: int = -1

    @classmethod
    def of(cls, marked: NDArray[np.bool_]) -> CellCounts:
        return cls(int(marked.sum()), int(np.argmax(marked)) if marked.any() else -1)


def missing_cells_error(
    name: str, rows: int, missing: CellCounts, infinite: CellCounts, *, means: bool
) -> Diagnostic | None:
    """Return the E407 for a feature with `rows` rows, or None if it is usable.

    If `means`, numbers may be missing, but not all of them.
    """
    if means and missing.many == rows:
        return Diagnostic("E407", f"column '{name}' has no number at all", "name it under 'drop'")
    wrong = [each for each in ([infinite] if means else [missing, infinite]) if each.many]
    if not wrong:
        return None
    first = min(each.first for each in wrong)
    what = "an infinite value" if first == infinite.first else "no number"
    total = sum(each.many for each in wrong)
    message = f"column '{name}' has {what} in row {first + 1}, and {total} such rows in all"
    return Diagnostic("E407", message, FILL_HELP if infinite.many else FILL_OR_MEAN_HELP)


def no_mean_error(name: str) -> Diagnostic:
    """Return the E407 for a feature without a number in any training row."""
    message = f"column '{name}' has no number in the training rows, whose mean a missing one is"
    return Diagnostic("E407", message, "name it under 'drop', or look at 'split'")


def check_scale(name: str, scale: float) -> None:
    """Raise E407 for a feature whose standard deviation is too small or too large to divide by."""
    if not sys.float_info.min <= scale <= sys.float_info.max / 2:
        size = "small" if scale < 1 else "large"
        message = f"the numbers of column '{name}' are too {size} to be scaled"
        way = "give it in other units, or name it under 'drop'"
        raise FaultError(Diagnostic("E407", message, way))


def out_of_range_error(name: str, shown: str, mean: float, scale: float) -> Diagnostic:
    """Return the E407 for a number that would become an infinite feature."""
    message = (
        f"column '{name}' has {shown}, which is too far from its numbers in the training rows: "
        f"their mean is {mean:g}, and their standard deviation {scale:g}"
    )
    return Diagnostic(
        "E407", message, "correct it, or name the column under 'drop' before training"
    )


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

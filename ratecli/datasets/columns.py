"""Columns of a table: numbers, text with None for missing values, labels, and errors in them.

Also indicator features of bins and categories, and a mapping of columns made on first use.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.errors import MAX_LISTED, Diagnostic, FaultError, did_you_mean, errors_at
from ratecli.rates.syntax import value_text

T = TypeVar("T")
ColumnKind: TypeAlias = Literal["number", "text"]

MISSING_CATEGORY = "(missing)"
"""The category, in feature names, of rows with a missing value."""

FEW_LEVELS = 20
"""A text column with more distinct words was probably meant to be numeric if most are numbers."""
STRAY_SHARE = 0.1
"""Largest share of rows with other words in such a column."""

_PAIRS = ({"0", "1"}, {"-1", "1"}, {"false", "true"})
_POSITIVE = ("1", "true")


class CellCounts(NamedTuple):
    """How many cells are marked, and the row of the first one, from 0; -1 if there is none."""

    many: int = 0
    first: int = -1

    @classmethod
    def of(cls, marked: NDArray[np.bool_]) -> CellCounts:
        return cls(int(marked.sum()), int(np.argmax(marked)) if marked.any() else -1)

    def including(self, marked: NDArray[np.bool_], start: int) -> CellCounts:
        """Return the counts after more rows, which begin with row `start`."""
        many, first = CellCounts.of(marked)
        return CellCounts(self.many + many, start + first if many and not self.many else self.first)


NO_CELLS = CellCounts()


@dataclass
class ColumnFacts:
    """Facts about a column that decide which roles it can have.

    Attributes
    ----------
    is_text
        Whether the column holds words; otherwise numbers.
    words, counts, firsts
        The distinct words as they occur, None for a missing one; in how many rows and in which one,
        from 0, first.
    kept
        Whether `words` are all words, and not too many to be features or to define groups.
    numbers
        The distinct numbers, sorted; None if there are more than a few, or if they are unknown.
    missing, infinite, no_weight
        The rows without a number, with an infinite one, and with one that is no weight of a row.
    single
        Whether no number changes when it is stored in single precision.
    least, most
        The minimum and maximum of the numbers and 0.
    """

    name: str
    is_text: bool = False
    words: list[str | None] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    kept: bool = True
    numbers: list[float] | None = None
    missing: CellCounts = NO_CELLS
    infinite: CellCounts = NO_CELLS
    no_weight: CellCounts = NO_CELLS
    single: bool = True
    least: float = 0.0
    most: float = 0.0

    @classmethod
    def of(cls, column: pd.Series) -> ColumnFacts:
        """Return the facts about a column in memory that decide whether it can be a feature.

        Distinct numbers are known if there is only one.
        """
        name = str(column.name)
        if is_text(column):
            codes, words = pd.factorize(column)
            _, firsts = np.unique(codes[codes >= 0], return_index=True)
            rows = np.flatnonzero(codes >= 0)[firsts]
            counts = np.bincount(codes[codes >= 0], minlength=len(words))
            missing = CellCounts.of(codes < 0)
            return cls(name, True, [*words], counts.tolist(), rows.tolist(), missing=missing)
        values = as_float_array(column)
        known = values[~np.isnan(values)]
        same = len(known) and (known == known[0]).all()
        missing, infinite = (CellCounts.of(marked(values)) for marked in (np.isnan, np.isinf))
        numbers = [float(known[0])] if same else None
        return cls(name, numbers=numbers, missing=missing, infinite=infinite)

    @property
    def values(self) -> list[Any] | None:
        """All distinct values, sorted, a missing word last; None if they are too many."""
        if not self.is_text:
            return self.numbers
        return sorted(self.words, key=lambda word: (word is None, word)) if self.kept else None

    def only_value(self, rows: int) -> str | None:
        """Return the value if all `rows` have the same, "" if all lack one, else None."""
        known: list[Any] | None = self.words if self.is_text else self.numbers
        if known == [None] or self.missing.many == rows:
            return ""
        one = known is not None and len(known) == 1 and not self.missing.many
        return value_text(known[0]) if one and known else None


def missing_cells_error(
    name: str, missing: CellCounts, infinite: CellCounts, *, means: bool
) -> Diagnostic | None:
    """Return the E407 for a feature with infinite numbers, or missing ones unless `means`."""
    wrong = infinite if infinite.many or means else missing
    if not wrong.many:
        return None
    what = "an infinite value" if infinite.many else "no number"
    message = (
        f"column '{name}' has {what} in row {wrong.first + 1} ({wrong.many} such rows in total)"
    )
    hint = "fill in the values, or drop the column"
    return Diagnostic("E407", message, hint if infinite.many else f"set missing to mean, {hint}")


def constant_columns_text(values: Mapping[str, str]) -> str:
    """Return that columns have the same value in all rows, with each value; "" is a missing one."""
    shown = [f"'{name}' ({value or 'empty'})" for name, value in values.items()]
    listed = ", ".join(shown[:MAX_LISTED]) + ", ..." * (len(shown) > MAX_LISTED)
    return f"all rows have the same value in {listed}"


def constant_columns_warning(values: Mapping[str, str]) -> Diagnostic:
    """Return the W411 for columns that are left out of the features."""
    message = f"{constant_columns_text(values)}: left out of the features"
    return Diagnostic("W411", message, "add them to 'drop' if they are meant to be constant")


def no_mean_error(name: str) -> FaultError:
    """Return the E407 for a feature without a number in any training row."""
    message = f"column '{name}' has no number in the training rows to compute their mean"
    return FaultError(Diagnostic("E407", message, "drop it, or check 'split'"))


def check_scale(name: str, scale: float) -> None:
    """Raise E407 for a feature whose standard deviation is too small or too large to divide by."""
    if not sys.float_info.min <= scale <= sys.float_info.max / 2:
        size = "small" if scale < 1 else "large"
        message = f"the numbers of column '{name}' are too {size} to be scaled"
        way = "use other units, or drop it"
        raise FaultError(Diagnostic("E407", message, way))


def out_of_range_error(name: str, shown: str, mean: float, scale: float) -> FaultError:
    """Return the E407 for a number that would become an infinite feature."""
    message = (
        f"column '{name}' has {shown}, which is too far from its numbers in the training rows: "
        f"their mean is {mean:g}, and their standard deviation {scale:g}"
    )
    hint = "correct it, or drop the column before training"
    return FaultError(Diagnostic("E407", message, hint))


def level_codes(column: pd.Series) -> pd.Categorical:
    """Return the sorted levels of a text column; missing values have a level of their own."""
    return pd.Categorical(column.fillna(MISSING_CATEGORY))


def is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)


def with_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with index 0..n-1 and text as objects: str, and None for missing values."""
    columns = {
        name: column.astype(object).where(column.notna(), None) if is_text(column) else column
        for name, column in frame.items()
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def as_float_array(column: pd.Series) -> NDArray[np.float64]:
    return column.to_numpy(dtype=np.float64)


def as_array(column: pd.Series) -> NDArray[Any]:
    """Return text as an object array, with None for missing values, or numbers as floats."""
    return np.asarray(column, dtype=object) if is_text(column) else as_float_array(column)


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
    return pd.get_dummies(column.fillna(MISSING_CATEGORY)).to_numpy(np.float64)


class LazyMapping(Mapping[str, T]):
    """A mapping whose values are made on first use, since most columns of a table are not used."""

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._names = dict.fromkeys(names)
        self._value = cache(make)

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._value(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read_label(column: pd.Series, name: str, positive: Any = None) -> NDArray[np.float64]:
    """Return 1 for the positive value, 0 for the other one, NaN for missing values.

    Raises
    ------
    FaultError
        E406 unless there are two values, one of which is known to be positive.
    """
    codes, levels = pd.factorize(column)
    shown = label_values(levels)
    keys = [value_key(level) for level in levels]
    chosen = _positive(shown, name, positive)
    meaning = [float(key == chosen) for key in keys]
    return np.array([*meaning, np.nan])[codes]  # the code of a missing value is -1


MAX_NUMBER = 1e100
"""Largest size of a numeric label or an outcome: sums of squares must be finite."""
SIZE_LIMIT = f"but numbers must be at most {MAX_NUMBER:g} in size"


def within_max(ends: tuple[float, float]) -> tuple[float, float]:
    """Return the part of a range that `MAX_NUMBER` allows."""
    return max(ends[0], -MAX_NUMBER), min(ends[1], MAX_NUMBER)


def read_numbers(
    column: pd.Series,
    role: str = "column",
    ends: tuple[float, float] = (-math.inf, math.inf),
    *,
    wanted: str = "",
    code: str = "E406",
    hint: str = "correct such rows, or drop them",
    text_hint: str = "numbers are needed: name another column",
    empty: bool = False,
) -> NDArray[np.float64]:
    """Return the numbers of a column in a `role`, such as "label column"; NaN where missing.

    `wanted` replaces "between low and high" in the message. `hint` and `text_hint` are its help for
    wrong numbers and for text.

    Raises
    ------
    FaultError
        E411 if the column holds text; `code` if it holds an infinite number, one outside its
        `ends`, or, unless it may be `empty`, none in some row.
    """
    name, (low, high) = column.name, ends
    if is_text(column):
        shown = next(iter(column.dropna()), "")
        message = f"{role} '{name}' holds text, such as '{shown}'"
        raise FaultError(Diagnostic("E411", message, text_hint))
    values = as_float_array(column)
    right = np.isfinite(values) & (values >= low) & (values <= high) | (empty & np.isnan(values))
    wrong = CellCounts.of(~right)
    if wrong.many:
        first, row = values[wrong.first], column.index[wrong.first] + 1
        shown = "no number" if np.isnan(first) else f"{first:g}"
        if np.isfinite(ends).any():
            shown_range = wanted or f"between {low:g} and {high:g}"
            row = f"{row}, which is not {shown_range}"
        message = f"{role} '{name}' has {shown} in row {row} ({wrong.many} such rows in total)"
        raise FaultError(Diagnostic(code, message, hint))
    return values


def read_number_label(column: pd.Series, ends: tuple[float, float]) -> NDArray[np.float64]:
    """Return the numbers of a label in a range, NaN where missing; E411 for text, else E406."""
    with errors_at("label"):
        values = read_numbers(
            column,
            "label column",
            (-MAX_NUMBER, MAX_NUMBER),
            wanted=f"at most {MAX_NUMBER:g} in size",
            hint="use other units, or correct the rows",
            text_hint="'target: number' needs numbers; leave 'target' out for two classes",
            empty=True,
        )
    if not np.isfinite(ends).any():
        return values
    hint = "a guarantee needs the range of all labels: widen 'label_range', or correct the rows"
    with errors_at("label_range"):
        return read_numbers(column, "label column", within_max(ends), hint=hint, empty=True)


def value_key(value: Any) -> str:
    """Return a key that is equal for equal values however they are written.

    For example 1, 1.0 and '1'; true, True and 'True'.
    """
    word = str(value).strip()
    if word.casefold() in ("true", "false"):
        return word.casefold()
    try:
        return format(float(word), ".17g")
    except ValueError:
        return word


def label_values(values: Iterable[Any]) -> dict[str, str]:
    """Return the values of a label, by their keys, as written in the table."""
    return {value_key(value): str(value).strip() for value in values}


@errors_at("label")
def _positive(shown: dict[str, str], name: str, positive: Any) -> str:
    """Return the key of the positive value; raise E406 if the label is unusable or ambiguous."""
    values = ", ".join(f"'{word}'" for word in sorted(shown.values())[:6])
    if not shown:
        way = "leave 'label' out if the table has no labels"
        raise FaultError(Diagnostic("E406", f"label column '{name}' is empty", way))
    if len(shown) > 2:
        more = ", ..." if len(shown) > 6 else ""
        message = f"label column '{name}' has {len(shown)} values, not two: {values}{more}"
        way = (
            "give a column with two values as 'label'; or, if the label is a "
            "number, set 'target: number' (of init: --target)"
        )
        raise FaultError(Diagnostic("E406", message, way))
    if positive is not None and value_key(positive) not in shown:
        message = f"'{positive}' is not a value of the label column '{name}'"
        hint = did_you_mean(str(positive), shown.values(), "values")
        raise FaultError(Diagnostic("E406", message, hint, loc=("positive",)))
    if len(shown) == 1:
        message = f"label column '{name}' has only one class: {values}"
        raise FaultError(Diagnostic("E406", message, "training needs rows of both classes"))
    if positive is not None:
        return value_key(positive)
    if set(shown) not in _PAIRS:
        message = f"label column '{name}' has the values {values}: which value is positive?"
        example = max(shown.values())
        raise FaultError(Diagnostic("E406", message, f"for example 'positive: {example}'"))
    return next(word for word in _POSITIVE if word in shown)

"""Read a label: a column of two values as positive and negative, or a column of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.columns import as_float_array, is_text
from ratecli.errors import Diagnostic, FaultError, did_you_mean, errors_at

MISSING_WORDS = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
"""Words, in lower case, for a missing value in numeric columns and labels."""

_PAIRS = ({"0", "1"}, {"-1", "1"}, {"false", "true"})
_POSITIVE = ("1", "true")


def read_label(column: pd.Series, name: str, positive: Any = None) -> NDArray[np.float64]:
    """Return 1 for the positive value, 0 for the other one, NaN for missing values."""
    codes, levels = pd.factorize(column)
    keys = [None if _missing(level) else value_key(level) for level in levels]
    shown = {word: str(level) for word, level in zip(keys, levels, strict=True) if word is not None}
    chosen = _positive(shown, name, positive)
    meaning = [np.nan if word is None else float(word == chosen) for word in keys]
    return np.array([*meaning, np.nan])[codes]  # the code of a missing value is -1


def read_number(
    column: pd.Series, name: str, label_range: tuple[float, float]
) -> NDArray[np.float64]:
    """Return the numbers of the column, NaN where missing.

    Raises
    ------
    FaultError
        E411 if the column holds text; E406 if it holds no number at all, an infinite one, or one
        outside the range.
    """
    if is_text(column):
        shown = next((word for word in column if word is not None), "")
        message = f"label column '{name}' holds text, such as '{shown}'"
        way = "a label that is a number needs numbers; leave 'target' out for two classes"
        raise FaultError(Diagnostic("E411", message, way, loc=("label",)))
    label = as_float_array(column)
    if np.isnan(label).all():
        raise _no_label(name)
    low, high = label_range
    wrong = ~(np.isfinite(label) & (label >= low) & (label <= high) | np.isnan(label))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        message = (
            f"label column '{name}' holds {label[row]:g} in row {row + 1}, which is not from "
            f"{low:g} to {high:g}, and {int(wrong.sum())} such rows in all"
        )
        way = (
            "a promise holds only if no label can lie outside 'label_range': widen it, or mend the "
            "rows"
        )
        raise FaultError(Diagnostic("E406", message, way, loc=("label_range",)))
    return label


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


def _missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().casefold() in MISSING_WORDS
    return bool(np.isnan(value))


@errors_at("label")
def _positive(shown: dict[str, str], name: str, positive: Any) -> str:
    """Return the key of the positive value; raise E406 if the label is unusable or ambiguous."""
    values = ", ".join(f"'{word}'" for word in sorted(shown.values())[:6])
    if not shown:
        raise _no_label(name)
    if len(shown) > 2:
        message = f"label column '{name}' has {len(shown)} values, not two: {values}"
        more = ", ..." if len(shown) > 6 else ""
        way = (
            "add a column that says yes or no, and name it as 'label'; or, if the label is a "
            "number, say 'target: number'"
        )
        raise FaultError(Diagnostic("E406", message + more, way))
    if positive is not None and value_key(positive) not in shown:
        message = f"'{positive}' is not a value of the label column '{name}'"
        hint = did_you_mean(str(positive), shown.values(), "values")
        raise FaultError(Diagnostic("E406", message, hint, loc=("positive",)))
    if len(shown) == 1:
        message = f"label column '{name}' holds one class only: {values}"
        raise FaultError(Diagnostic("E406", message, "training needs rows of both classes"))
    return value_key(positive) if positive is not None else _usual_positive(shown, name, values)


def _no_label(name: str) -> FaultError:
    way = "leave 'label' out if the table has no labels"
    message = f"label column '{name}' holds no value at all"
    return FaultError(Diagnostic("E406", message, way, loc=("label",)))


def _usual_positive(shown: dict[str, str], name: str, values: str) -> str:
    if set(shown) not in _PAIRS:
        message = f"label column '{name}' has the values {values}: which one is positive?"
        example = max(shown.values())
        raise FaultError(Diagnostic("E406", message, f"say so, as in 'positive: {example}'"))
    return next(word for word in _POSITIVE if word in shown)

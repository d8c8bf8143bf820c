"""The two kinds of columns a table has: numbers, and text with None where a value is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MISSING_CATEGORY = "(missing)"
"""The category, in feature names, of rows without a value."""


def as_text(values: Any) -> pd.Series:
    """An object column of str and None, whatever text type pandas read it with."""
    column = pd.Series(values).astype(object)
    return column.where(column.notna(), None).astype(object)


def is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)


def with_text(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with every column that is not numeric turned into text."""
    columns = {
        name: as_text(column) if is_text(column) else column for name, column in frame.items()
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def floats(column: pd.Series) -> NDArray[np.float64]:
    return np.asarray(column, dtype=np.float64)


def equals(column: pd.Series, value: str) -> NDArray[np.float64]:
    """1 where a text column holds the value, else 0."""
    return np.asarray(column == value, dtype=np.float64)

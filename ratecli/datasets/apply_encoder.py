"""Apply an encoder to new rows, which may have unseen categories or missing numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.datasets.columns import ColumnKind, LevelCodes, as_float_array, is_text
from ratecli.datasets.encode import EncodedFeatures, Encoder, NumericBlock, OneHotBlock
from ratecli.datasets.label import MISSING_WORDS
from ratecli.datasets.table import Table
from ratecli.datasets.tables import parse_number_word
from ratecli.errors import Diagnostic, FaultError, did_you_mean


def encode_new_rows(encoder: Encoder, frame: pd.DataFrame) -> EncodedFeatures:
    """Return (n, d) features of rows; the columns may be in any order, and there may be others.

    A missing number is replaced by the mean of the training rows; a category not seen in training
    has no feature. `new_row_warnings` reports both, unless the training rows had missing numbers,
    too.

    Raises
    ------
    FaultError
        E205 for each missing column, E411 for text where training rows had numbers or numbers where
        they had text, E407 for infinite values.
    """
    return encoder.transform(_table(encoder, frame))


def new_row_warnings(encoder: Encoder, frame: pd.DataFrame) -> list[Diagnostic]:
    """Return warnings about new rows.

    W404 for each column with categories not seen in training, W405 for each with missing numbers
    that had none in training.
    """
    table = _table(encoder, frame)
    return [fault for block in encoder.blocks for fault in _block_warnings(block, table)]


def columns_as_known(
    frame: pd.DataFrame, kinds: Mapping[str, ColumnKind | None], names: Collection[str] = ()
) -> pd.DataFrame:
    """Return some columns of a table converted to their known kinds (None: either kind).

    `names` are all columns of the table, if the frame has only some of them, for suggestions.

    Raises
    ------
    FaultError
        As `encode_new_rows`.
    """
    hints = {
        name: did_you_mean(name, names or map(str, frame.columns), "columns")
        for name in kinds
        if name not in frame
    }
    faults = [
        Diagnostic("E205", f"there is no column '{name}', which the model needs", hint)
        for name, hint in hints.items()
    ]
    faults += [
        fault
        for name, kind in kinds.items()
        if name not in hints
        for fault in _wrong_kind(frame[name], name, kind)
    ]
    if faults:
        raise FaultError(faults)
    return pd.DataFrame(
        {
            name: _as_numbers(frame[name]) if kind == "number" else frame[name]
            for name, kind in kinds.items()
        }
    )


def _table(encoder: Encoder, frame: pd.DataFrame) -> Table:
    kinds = encoder.kinds
    return Table(
        columns_as_known(frame, kinds), tuple(kinds), np.full(len(frame), np.nan), digest=""
    )


def _wrong_kind(column: pd.Series, name: str, kind: ColumnKind | None) -> Iterator[Diagnostic]:
    if kind == "text" and not is_text(column):
        message = f"column '{name}' holds numbers, and it held text in training"
        yield Diagnostic(
            "E411", message, "give its values as text, written as they were in training"
        )
    elif kind == "number":
        yield from _no_numbers(column, name)


def _no_numbers(column: pd.Series, name: str) -> Iterator[Diagnostic]:
    values = _as_numbers(column)
    slips = np.isnan(values) & ~_is_missing(column)
    if slips.any():
        row = _first(slips)
        message = (
            f"column '{name}' held numbers in training, and here '{column.iloc[row]}' "
            f"in row {row + 1}{_in_all(slips)}"
        )
        yield Diagnostic("E411", message, "correct it; an empty field is a missing number")
    infinite = np.isinf(values)
    if infinite.any():
        message = (
            f"column '{name}' has an infinite value in row {_first(infinite) + 1}"
            f"{_in_all(infinite)}"
        )
        yield Diagnostic("E407", message, "correct it; an empty field is a missing number")


def _as_numbers(column: pd.Series) -> NDArray[np.float64]:
    """Return the column as numbers, NaN for other words."""
    if not is_text(column):
        return as_float_array(column)
    return np.array(
        [np.nan if word is None else parse_number_word(word) for word in column], dtype=float
    )


def _is_missing(column: pd.Series) -> NDArray[np.bool_]:
    """Return where the value is missing, or is a word for a missing value."""
    if not is_text(column):
        return np.isnan(as_float_array(column))
    return np.array(
        [word is None or word.casefold() in MISSING_WORDS for word in column], dtype=bool
    )


def _block_warnings(block: NumericBlock | OneHotBlock, table: Table) -> Iterator[Diagnostic]:
    column = table.values[block.column]
    if isinstance(column, LevelCodes):
        new = ~block.entries(table)[1].astype(bool)
        if new.any():
            shown = column.names[column.codes[_first(new)]]
            message = (
                f"column '{block.column}': {_rows(new)} with a value that no training row had, "
                f"such as '{shown}'; none of its features is theirs"
            )
            yield Diagnostic("W404", message)
        return
    assert isinstance(block, NumericBlock)
    if np.isnan(column).any() and not block.missing:
        message = (
            f"column '{block.column}': {_rows(np.isnan(column))} without a number, which counts as "
            f"the mean of the training rows, {block.mean:g}"
        )
        yield Diagnostic("W405", message)


def _rows(which: NDArray[np.bool_]) -> str:
    count = int(which.sum())
    return f"{count} row{'s' * (count != 1)}"


def _in_all(which: NDArray[np.bool_]) -> str:
    count = int(which.sum())
    return f", and {count} such in all" if count > 1 else ""


def _first(which: NDArray[np.bool_]) -> int:
    """Return the position of the first True, from 0."""
    return int(np.flatnonzero(which)[0])

"""Errors for columns with missing, infinite or unscalable numbers, or with stray words."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
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

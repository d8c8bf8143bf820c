"""A column of numbers with a few words among them, which would become thousands of categories."""

from __future__ import annotations

from ratecli.errors import Diagnostic

_NUMBER_SHARE = 0.9
"""Share of numbers from which a text column looks like numbers with slips among them."""

FEW_LEVELS = 20


def has_stray_words(distinct: int, share: float) -> bool:
    """Of so many distinct words, where those that are no numbers are such a share of the rows."""
    return distinct > FEW_LEVELS and share <= 1 - _NUMBER_SHARE


def stray_word_error(name: str, row: int, word: str) -> Diagnostic:
    """The E411 for the first of them; rows count from 0."""
    message = f"column '{name}' holds numbers, but '{word}' in row {row + 1}"
    return Diagnostic(
        "E411", message, "correct it, or name the column under 'categorical' or 'drop'"
    )

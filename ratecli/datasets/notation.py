"""Numbers that a table writes with other signs: a decimal comma, signs between thousands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ratecli.datasets.columns import FEW_LEVELS, STRAY_SHARE
from ratecli.datasets.text_format import DECIMALS, PLAIN, THOUSANDS, TextFormat, how_to_set
from ratecli.errors import Diagnostic

OR_TEXT = "; or name the column under 'categorical' or 'drop'"
"""What else a feature with numbers in another notation can be."""
_FIRST_WORDS = 1000
"""Words that are looked at first, because most texts hold no numbers."""
_NOTATIONS = tuple(
    replace(PLAIN, decimal=decimal, thousands=thousands)
    for decimal in DECIMALS
    for thousands in ("", *THOUSANDS)
    if decimal != thousands
)


def spelled_numbers(words: Any, form: TextFormat) -> NDArray[np.float64]:
    """Return the numbers that words (m,) of an Arrow array spell, NaN for other words.

    A word is read in the notation of the format only: 26.5 is no number with a decimal comma.
    """
    there, plain = pa.array(_are_numbers(words, form)), words
    if form.thousands:
        plain = pc.replace_substring_regex(plain, _thousands(form), "")
    plain = pc.replace_substring(pc.utf8_ltrim(plain, "+"), form.decimal, ".")
    found = pc.if_else(there, plain, pa.scalar(None, pa.string())).cast(pa.float64())
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.float64)


def _are_numbers(words: Any, form: TextFormat) -> NDArray[np.bool_]:
    whole, point = r"\d+", re.escape(form.decimal)
    if form.thousands:
        mark = _thousands(form)
        whole = rf"[1-9]\d{{0,2}}(?:{mark}\d{{2,3}})*{mark}\d{{3}}|{whole}"
    number = rf"(?:(?:{whole})(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
    found = pc.match_substring_regex(words, rf"^[+-]?(?:{number}|(?i:inf|infinity))$")
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)


def _thousands(form: TextFormat) -> str:
    return f"[{THOUSANDS[form.thousands]}]"


class _Words:
    """The distinct words of a column, and which of them are numbers in each notation."""

    def __init__(self, words: Iterable[str | None]) -> None:
        known = {word for word in words if word}
        self._read(sorted(known)[:_FIRST_WORDS])
        if len(known) > _FIRST_WORDS and self.any.mean() > STRAY_SHARE:
            self._read(sorted(known))

    def _read(self, words: Sequence[str]) -> None:
        self.words = pa.array(words, pa.string())
        self.masks = {each: _are_numbers(self.words, each) for each in _NOTATIONS}
        self.any = np.logical_or.reduce([*self.masks.values()])

    def are_mostly(self, mask: NDArray[np.bool_]) -> bool:
        """Whether the words are numbers, with few stray words among many."""
        strays = 1 - mask.mean() if len(mask) else 1.0
        return not strays or (len(mask) > FEW_LEVELS and strays < STRAY_SHARE)


def other_notation_error(
    name: str,
    words: Iterable[str | None],
    form: TextFormat,
    otherwise: str = "",
    advise: Callable[[Mapping[str, str]], str] = how_to_set,
) -> Diagnostic | None:
    """Return the E411 for a text column whose values are numbers in another notation, or None.

    `words` are its values, which may be repeated. The hint is what `advise` returns for the keys
    to state, and `otherwise`.
    """
    column = _Words(words)
    own = column.masks[_notation(form)]
    counts = {
        each: int(mask.sum())
        for each, mask in column.masks.items()
        if column.are_mostly(mask) and mask.sum() > own.sum()
    }
    if counts:
        best = [each for each in counts if counts[each] == max(counts.values())]
        changes = [each.changes(_notation(form)) for each in best]
        ways = [each for each in changes if len(each) == min(map(len, changes))]
        other = column.masks[best[0]]
        hint = " or ".join(map(advise, ways)) + ", whichever is meant" * (len(ways) > 1)
    elif column.are_mostly(column.any) and column.any.sum() > own.sum():
        other, hint = column.any, "write all numbers alike"
    else:
        return None
    if not form.has_plain_numbers:  # other columns may need the stated signs
        hint = f"write them with the stated signs, or {hint}"
    word = column.words[int(np.argmax(other & ~own))]
    message = f"column '{name}' holds numbers that are written as '{word}'"
    return Diagnostic("E411", message, f"{hint}{otherwise}")


def _notation(form: TextFormat) -> TextFormat:
    return replace(PLAIN, decimal=form.decimal, thousands=form.thousands)


def sniff_notation(
    columns: Mapping[str, Sequence[str | None]],
    form: TextFormat,
    given: Mapping[str, str | None],
    separator: str,
) -> tuple[TextFormat, str]:
    """Return the format with the notation that fits most columns, by name, and all `given` keys.

    Also return a note if the sign may have another role, else "". Of a decimal comma and a comma
    between thousands, the second is more likely if commas separate columns, too.
    """
    read = {name: _Words(words) for name, words in columns.items()}
    fits = {
        each: [name for name, column in read.items() if column.are_mostly(column.masks[each])]
        for each in _NOTATIONS
        if each == each.updated({key: given.get(key) for key in ("decimal", "thousands")})
    }
    if not fits:  # the given signs exclude each other, which is an error later
        return form, ""
    most = max(map(len, fits.values()))
    best = [each for each in fits if len(fits[each]) == most]
    fewest = min(len(each.stated()) for each in best)
    best = [each for each in best if len(each.stated()) == fewest]
    best.sort(key=lambda each: (each.decimal == ",") == (separator == ","))
    chosen, *others = best
    note = ""
    if others:
        errors = (other_notation_error(name, columns[name], PLAIN) for name in fits[chosen])
        message = next(error.message for error in errors if error is not None)
        note = f"{message}; if they mean something else, {how_to_set(others[0].stated())}"
    return form.updated(chosen.stated()), note

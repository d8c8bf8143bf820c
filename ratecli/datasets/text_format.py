"""How a text file writes a table: its separator, the signs in its numbers, its encoding."""

from __future__ import annotations

import codecs
import csv
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ratecli.config.dataset import DatasetSpec
from ratecli.datasets.columns import FEW_LEVELS, STRAY_SHARE
from ratecli.errors import Diagnostic, FaultError

DECIMALS = (".", ",")
THOUSANDS = {",": ",", ".": ".", " ": " \u00a0\u2009\u202f", "'": "'\u2019"}
"""The signs between thousands, each with the characters that it stands for."""
_SEPARATORS = (",", ";", "\t", "|")
_NO_SEPARATORS = ('"', "\r", "\n", "\0")
_UTF_16_SHARE = 0.1
"""Smallest share of zero bytes in a file of UTF-16 text, all at even or all at odd places."""
_HEAD, _CHUNK = 2**16, 2**20


@dataclass(frozen=True)
class TextFormat:
    """How a text file writes a table.

    Attributes
    ----------
    separator
        The character between columns; None for a tab in a file that ends in .tsv, else a comma.
    decimal, thousands
        The decimal sign of numbers, and the sign between their thousands, "" if there is none.
    encoding
        The name of the encoding, as Python knows it.
    """

    separator: str | None = None
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"

    @classmethod
    def of_spec(cls, spec: DatasetSpec) -> TextFormat:
        """Return the format of a user's own table."""
        return PLAIN.updated({key: getattr(spec, key) for key in FORMAT_KEYS})

    @classmethod
    def of(cls, keys: object) -> TextFormat:
        """Return the format of some stated keys; raise ValueError if they are no format."""
        if not isinstance(keys, dict) or not all(isinstance(v, str) for v in keys.values()):
            raise ValueError("the format of its tables is not valid")
        try:
            form = PLAIN.updated(keys)
            form.check()
        except (TypeError, FaultError) as error:
            raise ValueError(f"the format of its tables is not valid: {error}") from error
        return form

    def stated(self) -> dict[str, str]:
        """Return the keys that differ from their defaults."""
        return self.changes(PLAIN)

    def changes(self, other: TextFormat) -> dict[str, str]:
        """Return the keys that differ from those of another format."""
        return {key: each for key, each in asdict(self).items() if each != getattr(other, key)}

    def updated(self, keys: Mapping[str, str | None]) -> TextFormat:
        """Return this format with other values of some keys; those with None remain."""
        return replace(self, **{key: each for key, each in keys.items() if each is not None})

    def separator_of(self, path: Path) -> str:
        """Return the separator of a file."""
        return self.separator or ("\t" if path.suffix.lower() == ".tsv" else ",")

    @property
    def has_plain_numbers(self) -> bool:
        """Whether numbers have a decimal point and no sign between thousands."""
        return (self.decimal, self.thousands) == (PLAIN.decimal, PLAIN.thousands)

    @property
    def codec(self) -> str:
        """The encoding to open a file with: a mark of the byte order is no text."""
        name = codecs.lookup(self.encoding).name
        return "utf-8-sig" if name == "utf-8" else name

    def check(self) -> None:
        """Raise E104 for a sign that cannot have its role, or for an unknown encoding."""
        mark = "," if self.separator is None else self.separator
        if len(mark) != 1 or mark in _NO_SEPARATORS or not mark.isascii():
            way = "use a comma, semicolon, tab or the like"
            raise _refusal("separator", f"{mark!r} cannot separate columns", way)
        if self.decimal not in DECIMALS:
            message = f"{self.decimal!r} cannot be the decimal sign"
            raise _refusal("decimal", message, "use '.' or ','")
        if self.thousands and self.thousands not in THOUSANDS:
            message = f"{self.thousands!r} cannot separate thousands"
            raise _refusal("thousands", message, f"use one of {' '.join(map(repr, THOUSANDS))}")
        if self.thousands == self.decimal:
            message = f"{self.decimal!r} cannot both be the decimal sign and separate thousands"
            raise _refusal("thousands", message, "change 'decimal' or 'thousands'")
        try:
            is_text = codecs.lookup(self.encoding)._is_text_encoding  # noqa: SLF001 (no other way)
        except (LookupError, ValueError):
            is_text = False
        if not is_text:
            message = f"no encoding is called '{self.encoding}'"
            raise _refusal("encoding", message, "for example utf-8, utf-16, cp1252 or latin-1")


PLAIN = TextFormat()
FORMAT_KEYS = tuple(asdict(PLAIN))


def _refusal(key: str, message: str, way: str) -> FaultError:
    return FaultError(Diagnostic("E104", message, way, loc=(key,)))


def how_to_set(keys: Mapping[str, str]) -> str:
    """Return how to state keys of a table, in a file and as options of commands."""
    lines = ", ".join(f"{key}: {json.dumps(value)}" for key, value in keys.items())
    given = " ".join(f"--{key} {_shell(value)}" for key, value in keys.items())
    return f"set {lines} (for a command: {given})"


def _shell(value: str) -> str:
    return "$'\\t'" if value == "\t" else shlex.quote(value)


def sniff_format(path: Path) -> TextFormat:
    """Return the encoding and the separator that a file seems to have.

    They are the defaults if nothing else fits. Signs of numbers are not looked at.
    """
    found = TextFormat(encoding=_sniff_encoding(path))
    with path.open(encoding=found.codec, errors="replace", newline="") as opened:
        head = opened.read(_HEAD)
    lines = head.splitlines(keepends=True)
    if len(head) == _HEAD and len(lines) > 1:
        del lines[-1]  # it is cut off
    default, widths = found.separator_of(path), dict[str, int]()
    for mark in dict.fromkeys([default, *_SEPARATORS]):
        widths[mark] = _common_width(lines, mark)
    best = max(widths, key=widths.__getitem__)
    if widths[best] < 2:
        best = " " if _common_width(lines, " ") >= 2 else default
    return found if best == default else replace(found, separator=best)


def _common_width(lines: list[str], mark: str) -> int:
    """Return the number of fields of every row with this separator, 0 if rows differ."""
    try:
        widths = {len(row) for row in csv.reader(lines, delimiter=mark) if row}
    except csv.Error:
        return 0
    return widths.pop() if len(widths) == 1 else 0


def _sniff_encoding(path: Path) -> str:
    with path.open("rb") as opened:
        head = opened.read(_HEAD)
        rest = partial(opened.read, _CHUNK)
        if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
            return "utf-32"
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        even, odd = (head[first::2].count(0) for first in (0, 1))
        if even + odd:  # text of one byte a character has no zeros
            if max(even, odd) < _UTF_16_SHARE * len(head) or min(even, odd):
                return PLAIN.encoding
            return "utf-16-le" if odd else "utf-16-be"
        decoders = {
            name: codecs.getincrementaldecoder(name)() for name in (PLAIN.encoding, "cp1252")
        }
        for chunk in [head, *iter(rest, b""), b""]:
            for name in [*decoders]:
                try:
                    decoders[name].decode(chunk, final=not chunk)
                except UnicodeDecodeError:
                    del decoders[name]
        return next(iter(decoders), "latin-1")


def is_utf_8(text: str, codec: str) -> bool:
    """Whether text that was decoded by another codec is UTF-8 text with more than ASCII."""
    if text.isascii():
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text.encode(codec))
    except UnicodeError:
        return False
    return True


def has_nul(path: Path, form: TextFormat) -> bool:
    """Return whether a text file has a NUL character."""
    with path.open(encoding=form.codec, errors="replace", newline="") as opened:
        return any("\0" in chunk for chunk in iter(partial(opened.read, _CHUNK), ""))


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
    if form.has_plain_numbers:
        with suppress(pa.ArrowInvalid):  # most columns have numbers only, or none
            numbers = words.cast(pa.float64()).to_numpy(zero_copy_only=False)
            return np.asarray(numbers, dtype=np.float64)
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

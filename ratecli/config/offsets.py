"""From a character of a scalar's value back to the character of the file it was written as."""

from __future__ import annotations

import re

FOLDED_BREAK = re.compile(r"[ \t]*(?:\r\n|[\r\n\x85\u2028\u2029])[ \t]*")
HEX_ESCAPES = {"x": 4, "u": 6, "U": 10}


def character_offsets(raw: str, value: str, style: str) -> list[tuple[int, int]]:
    """For each character of `value`, and for its end, where it stands in `raw`: start and end.

    Walks both texts side by side. What cannot be matched (odd folding) points to where it stopped.
    """
    at = _first_character(raw, style)
    found: list[tuple[int, int]] = []
    for character in value:
        at = _skip_fold(raw, at, character)
        if at >= len(raw):
            break
        found.append((at, at + _written_length(raw, at, style)))
        at = found[-1][1]
    missing = len(value) + 1 - len(found)
    return found + [(min(at, len(raw)), min(at, len(raw)) + 1)] * missing


def _first_character(raw: str, style: str) -> int:
    if style in {"|", ">"}:
        header = FOLDED_BREAK.search(raw)
        return _after_indent(raw, header.end()) if header else len(raw)
    return len(style)


def _after_indent(raw: str, at: int) -> int:
    while at < len(raw) and raw[at] in " \t\r\n":
        at += 1
    return at


def _skip_fold(raw: str, at: int, character: str) -> int:
    """A line break with its indentation stands for one blank; blanks of the text stay."""
    while (fold := FOLDED_BREAK.match(raw, at)) and character not in " \n":
        at = fold.end()
    return at


def _written_length(raw: str, at: int, style: str) -> int:
    """How many characters of `raw` the character at `at` was written with."""
    if fold := FOLDED_BREAK.match(raw, at):
        return fold.end() - at
    if style == "'" and raw.startswith("''", at):
        return 2
    if style == '"' and raw[at] == "\\":
        return HEX_ESCAPES.get(raw[at + 1 : at + 2], 2)
    return 1

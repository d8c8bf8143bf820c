"""Render diagnostics as text, JSON or GitHub annotations."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from itertools import accumulate

from ratecli.errors import Diagnostic, SourceLocation

UNPRINTABLE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that move the cursor, or change colour or text direction."""


def terminal_safe(text: str) -> str:
    """Replace escape codes and direction marks, so that text from files is safe on a terminal."""
    return "".join("\ufffd" if _is_unprintable(character) else character for character in text)


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in UNPRINTABLE_CATEGORIES and character not in "\n\t"


def terminal_safe_json(value: object) -> str:
    """Return indented JSON in Unicode, with characters escaped that a terminal would interpret."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(
        json.dumps(character)[1:-1] if _is_unprintable(character) else character
        for character in text
    )


RESET = "\033[0m"
BOLD = "\033[1m"
RED = "\033[1;31m"
YELLOW = "\033[1;33m"
BLUE = "\033[1;34m"

TAB = "    "
ELLIPSIS = "..."
MIN_RENDER_WIDTH = 20
MAX_RENDERED = 100
"""Number of diagnostics to print as text; JSON and GitHub output contains all."""
CHARACTERS_PER_CELL = 20
"""Characters to examine per terminal cell, since a line may be as long as its file."""
CONTEXT_SHARE = 0.3
"""Fraction of a cut line's width to keep before the span."""


def render_diagnostics(faults: Iterable[Diagnostic], color: bool, width: int = 100) -> str:
    """Return text in compiler style, with a blank line between diagnostics.

    Each has its code and message, the location, the line with carets, and help.
    """
    diagnostics = list(faults)
    more = len(diagnostics) - MAX_RENDERED
    rest = [f"... and {more} more: correct these first"] if more > 0 else []
    return "\n\n".join(
        [*(_render_one(fault, color, width) for fault in diagnostics[:MAX_RENDERED]), *rest]
    )


def diagnostics_to_json(faults: Iterable[Diagnostic]) -> str:
    """Return a list of objects with the same keys, locations flattened; null where unknown."""
    return terminal_safe_json([_record(fault) for fault in faults])


def diagnostics_to_github(faults: Iterable[Diagnostic]) -> str:
    """Return a workflow command per diagnostic, which GitHub displays next to the line."""
    return "\n".join(_command(fault) for fault in faults)


def _render_one(fault: Diagnostic, color: bool, width: int) -> str:
    accent = RED if fault.is_error else YELLOW
    label = _paint(f"{_severity(fault)}[{fault.code}]", accent, color)
    lines = [label + _paint(f": {strip_control_characters(fault.message)}", BOLD, color)]
    gutter = 3
    if fault.place is not None:
        gutter = len(str(fault.place.line)) + 2
        lines += _place_lines(fault.place, gutter, accent if color else "", width)
    if fault.help:
        lines.append(
            f"{' ' * gutter}{_paint('=', BLUE, color)} help: {strip_control_characters(fault.help)}"
        )
    return "\n".join(lines)


def _place_lines(place: SourceLocation, gutter: int, accent: str, width: int) -> list[str]:
    color = bool(accent)
    arrow = _paint("-->", BLUE, color)
    where = f"{strip_control_characters(place.file)}:{place.line}:{place.column}"
    bar = " " * gutter + _paint("|", BLUE, color)
    number = _paint(f" {place.line} |", BLUE, color)
    excerpt, indent, carets = _window(place, max(MIN_RENDER_WIDTH, width - gutter - 2))
    marks = _paint("^" * carets, accent, color)
    return [
        f"{' ' * (gutter - 1)}{arrow} {where}",
        bar,
        f"{number} {excerpt}".rstrip(),
        f"{bar} {' ' * indent}{marks}",
    ]


def _window(place: SourceLocation, width: int) -> tuple[str, int, int]:
    """Return the line, cut on both sides of the span if it is too long, and its carets.

    The carets are described by their indentation and number.
    """
    margin, start = width * CHARACTERS_PER_CELL, min(place.column - 1, len(place.excerpt))
    first = max(0, start - margin)
    last = start + min(place.width, margin) + margin
    line = [_printable(character) for character in place.excerpt[first:last]]
    start -= first
    end = min(start + place.width, len(line))
    before, span, after = line[:start], line[start:end], line[end:]
    if _width(line) <= width:
        head, tail = ELLIPSIS * (first > 0), ELLIPSIS * (last < len(place.excerpt))
    else:
        width -= 2 * len(ELLIPSIS)
        span_width = min(_width(span), width)
        left = max(int(CONTEXT_SHARE * width), width - span_width - _width(after))
        reversed_before, head = _fit(before[::-1], min(left, width - span_width))
        before = reversed_before[::-1]
        span, _ = _fit(span, width - _width(before))
        after, tail = _fit(line[start + len(span) :], width - _width(before) - _width(span))
    text = head + "".join((*before, *span, *after)) + tail
    return text, len(head) + _width(before), max(1, _width(span))


def _printable(character: str) -> str:
    """Return what to display for a character: spaces for a tab, a mark for control characters."""
    if character == "\t":
        return TAB
    return "\ufffd" if unicodedata.category(character) in UNPRINTABLE_CATEGORIES else character


def _width(characters: Iterable[str]) -> int:
    """Return the number of terminal cells: none for combining characters, two for wide ones."""
    return sum(
        len(text) if text == TAB else 2 if unicodedata.east_asian_width(text) in {"W", "F"} else 1
        for text in characters
        if text == TAB or unicodedata.category(text) not in {"Mn", "Me"}
    )


def _fit(characters: list[str], width: int) -> tuple[list[str], str]:
    """Return as many characters as fit, and an ellipsis if there are more."""
    ends = accumulate(_width([each]) for each in characters)
    count = sum(end <= width for end in ends)
    return characters[:count], ELLIPSIS if count < len(characters) else ""


def strip_control_characters(text: str) -> str:
    """Return the text as one line without control characters."""
    return "".join(map(_printable, " ".join(text.splitlines())))


def _paint(text: str, style: str, color: bool) -> str:
    return f"{style}{text}{RESET}" if color else text


def _severity(fault: Diagnostic) -> str:
    return "error" if fault.is_error else "warning"


def _record(fault: Diagnostic) -> dict[str, str | int | None]:
    place = fault.place
    return {
        "code": fault.code,
        "severity": _severity(fault),
        "message": fault.message,
        "help": fault.help,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "end_column": place.column + place.width if place else None,
    }


def _command(fault: Diagnostic) -> str:
    properties: dict[str, str | int] = {}
    if fault.place is not None:
        place = fault.place
        end = place.column + place.width
        properties = {"file": place.file, "line": place.line, "endLine": place.line}
        properties |= {"col": place.column, "endColumn": end}
    properties["title"] = fault.code
    listed = ",".join(f"{key}={_escape_property(str(value))}" for key, value in properties.items())
    message = strip_control_characters(fault.message) + (
        f"\nhelp: {strip_control_characters(fault.help)}" if fault.help else ""
    )
    return f"::{_severity(fault)} {listed}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    """Escape the message of a GitHub workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    """Escape the value of a property of a GitHub workflow command."""
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")

"""Render diagnostics as text, JSON or GitHub annotations."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ratecli.errors import Diagnostic, SourceLocation

UNPRINTABLE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that move the cursor, or change colour or text direction."""

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


def terminal_safe(text: str) -> str:
    """Replace escape codes and direction marks in text that may come from files.

    It is then safe on a terminal, in Markdown and on pages.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join("\ufffd" if _is_unprintable(character) else character for character in text)


def strip_control_characters(text: str) -> str:
    """Return the text as one line without control characters."""
    line = " ".join(text.splitlines()).replace("\t", TAB)
    return terminal_safe(line)


def plain_value(value: object) -> str:
    """Return a value of a file as one line in the manner of YAML: `null`, `true`, `[a, b]`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {plain_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(plain_value, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in UNPRINTABLE_CATEGORIES and character not in "\n\t"


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


def _render_one(fault: Diagnostic, color: bool, width: int) -> str:
    def paint(text: str, style: str) -> str:
        return f"{style}{text}{RESET}" if color else text

    accent, place = RED if fault.is_error else YELLOW, fault.place
    label = paint(f"{_severity(fault)}[{fault.code}]", accent)
    lines = [label + paint(f": {strip_control_characters(fault.message)}", BOLD)]
    indent = " " * (3 if place is None else len(str(place.line)) + 2)
    if place is not None:
        excerpt, before, carets = _window(place, max(MIN_RENDER_WIDTH, width - len(indent) - 2))
        file, bar = strip_control_characters(place.file), indent + paint("|", BLUE)
        number = paint(f" {place.line} |", BLUE)
        lines += [
            f"{indent[1:]}{paint('-->', BLUE)} {file}:{place.line}:{place.column}",
            bar,
            f"{number} {excerpt}".rstrip(),
            f"{bar} {' ' * before}{paint('^' * carets, accent)}",
        ]
    if fault.help:
        lines.append(f"{indent}{paint('=', BLUE)} help: {strip_control_characters(fault.help)}")
    return "\n".join(lines)


def _window(place: SourceLocation, width: int) -> tuple[str, int, int]:
    """Return the line, cut on both sides of the span if it is too long, and its carets.

    The carets are described by their indentation and number.
    """
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  only needed for diagnostics

    def fit(text: str, cells: int) -> str:
        return text if cell_len(text) <= cells else set_cell_size(text, cells)

    line, margin = place.excerpt, width * CHARACTERS_PER_CELL
    start = min(place.column - 1, len(line))
    end = min(start + min(place.width, margin), len(line))
    first, last = max(0, start - margin), end + margin
    before, span, after = (
        terminal_safe(part.replace("\t", TAB))
        for part in (line[first:start], line[start:end], line[end:last])
    )
    head, tail = ELLIPSIS * (first > 0), ELLIPSIS * (last < len(line))
    if cell_len(before + span + after) > width:
        head = tail = ELLIPSIS
        room = width - 2 * len(ELLIPSIS)
        span = fit(span, room)
        before = fit(before[::-1], (room - cell_len(span)) // 2)[::-1]
        after = fit(after, room - cell_len(before) - cell_len(span))
    return head + before + span + after + tail, cell_len(head + before), max(1, cell_len(span))


def diagnostics_to_json(faults: Iterable[Diagnostic]) -> str:
    """Return a list of objects with the same keys, locations flattened; null where unknown."""
    return json.dumps([_record(fault) for fault in faults], indent=2)


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


def diagnostics_to_github(faults: Iterable[Diagnostic]) -> str:
    """Return a workflow command per diagnostic, which GitHub displays next to the line."""
    return "\n".join(_command(fault) for fault in faults)


def _command(fault: Diagnostic) -> str:
    record = _record(fault)
    properties = {
        "file": record["file"],
        "line": record["line"],
        "endLine": record["line"],
        "col": record["column"],
        "endColumn": record["end_column"],
        "title": fault.code,
    }
    listed = ",".join(
        f"{key}={_escape(str(value)).replace(':', '%3A').replace(',', '%2C')}"
        for key, value in properties.items()
        if value is not None
    )
    message = strip_control_characters(fault.message)
    if fault.help:
        message += f"\nhelp: {strip_control_characters(fault.help)}"
    return f"::{_severity(fault)} {listed}::{_escape(message)}"


def _escape(text: str) -> str:
    """Escape the message of a GitHub workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _severity(fault: Diagnostic) -> str:
    return "error" if fault.is_error else "warning"


def aligned(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield the heads and the rows of a table with aligned columns; `right` are flush right."""
    columns = []
    for head, *cells in zip(heads, *rows, strict=True):
        width = max(map(len, (head, *cells)))
        pad = str.rjust if head in right else str.ljust
        columns.append([pad(text, width) for text in (head, *cells)])
    return zip(*columns, strict=True)


def text_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()
) -> str:
    """Return aligned columns, one line per row, with nothing cut; those in `right` to the right."""
    safe = [[terminal_safe(" ".join(text.splitlines())) for text in row] for row in rows]
    return "\n".join("  ".join(line).rstrip() for line in aligned(heads, safe, right))


def render_text(
    path: Path, facts: Mapping[str, Any], filters: Mapping[str, Callable[..., Any]]
) -> str:
    """Return the text of a Jinja template, in which a line with a block alone is left out."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  slow

    environment = Environment(  # noqa: S701  the text is no HTML
        loader=FileSystemLoader(path.parent),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= filters
    return environment.get_template(path.name).render(facts)

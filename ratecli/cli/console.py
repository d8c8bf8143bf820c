"""What a person sees: faults on standard error, tables and lines on standard output."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

import typer

from ratecli.errors import Diagnostic
from ratecli.plain_text import terminal_safe, terminal_safe_json

MAX_WIDTH = 120


def print_diagnostics(faults: Iterable[Diagnostic]) -> None:
    """Faults in the order of their places, on standard error."""
    from ratecli.render import render_diagnostics  # noqa: PLC0415  not needed while all is well

    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    text = render_diagnostics(sort_diagnostics(faults), color, min(terminal_width(), MAX_WIDTH))
    if text:
        typer.echo(text, err=True, color=color)


def sort_diagnostics(faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Each once; those without a place last."""
    return sorted(dict.fromkeys(faults), key=_position)


def _position(fault: Diagnostic) -> tuple[bool, bool, str, int, int]:
    place = fault.place
    if place is None:
        return True, True, "", 0, 0
    return False, place.file == "--set", place.file, place.line, place.column


def terminal_width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def format_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[str] = ()
) -> str:
    """Aligned columns, those named in `right` to the right; nothing is cut, one line a row."""
    rows = [[terminal_safe(" ".join(text.splitlines())) for text in row] for row in rows]
    flush = [head in set(right) for head in heads]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, flush, strict=True)
        ).rstrip()
        for row in [heads, *rows]
    ]
    return "\n".join(lines)


def pluralize(count: int, noun: str) -> str:
    """`1 trial`, `8 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def print_json(value: object) -> None:
    typer.echo(terminal_safe_json(value))


def replace_unencodable(*streams: TextIO) -> None:
    """Show a '?' where a terminal lacks a character, rather than fail."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

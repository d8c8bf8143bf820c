"""Console output: diagnostics on standard error, tables and lines on standard output."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from ratecli.errors import Diagnostic, FaultError
from ratecli.render import terminal_safe, terminal_safe_json

DownloadCallback = Callable[[str, int, int], None]
RecordCallback = Callable[[str, int, int | None], None]
MEGABYTE = 1e6


@contextmanager
def download_progress(*, quiet: bool = False) -> Iterator[DownloadCallback | None]:
    """Yield a callback that prints download progress, or None if `quiet`.

    SIGTERM raises an exception inside the context, so that partial downloads are removed.
    """
    meter = DownloadMeter(live=sys.stderr.isatty())
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield None if quiet else meter.tell
    finally:
        signal.signal(signal.SIGTERM, before)
        meter.end()


def _terminated(number: int, _: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def record_progress(*, quiet: bool = False) -> Iterator[RecordCallback | None]:
    """Yield a callback that prints how many rows of a streamed table were written, or None."""
    if quiet:
        yield None
        return
    counter = RecordCounter(live=sys.stderr.isatty())
    try:
        yield counter.tell
    finally:
        counter.end()


@dataclass
class RecordCounter:
    """Prints the progress of writing records.

    If `live`, it updates a line; otherwise it prints a line per data set when writing begins.
    """

    live: bool
    line: str = ""

    def tell(self, name: str, done: int, total: int | None) -> None:
        rows = "" if total is None else f"{total:,} rows"
        if not self.live:
            if not done:
                typer.echo(f"writing records of '{name}'{rows and f': {rows}'}", err=True)
            return
        told = f"{100 * done // max(total, 1)}% of {rows}" if total else f"{done:,} rows"
        line = f"writing records of '{name}'  {told}"
        if line != self.line:
            typer.echo(f"\r{line}", nl=False, err=True)
        self.line = line

    def end(self) -> None:
        if self.live and self.line:
            typer.echo(err=True)
        self.line = ""


@dataclass
class DownloadMeter:
    """Prints the progress of downloads.

    If `live`, it updates a line; otherwise it prints a line per file when it is complete.
    """

    live: bool
    percent: int = -1
    name: str = ""
    finished: set[str] = field(default_factory=set)

    def tell(self, name: str, done: int, total: int) -> None:
        percent = 100 * done // max(total, 1)
        if name != self.name:
            self.end()
        if self.live and (name, percent) != (self.name, self.percent):
            typer.echo(f"\r{name}  {percent}% of {total / MEGABYTE:.1f} MB", nl=False, err=True)
        elif not self.live and done >= total and name not in self.finished:
            typer.echo(f"fetched {name}, {total / MEGABYTE:.1f} MB", err=True)
            self.finished.add(name)
        self.name, self.percent = name, percent

    def end(self) -> None:
        if self.live and self.name:
            typer.echo(err=True)
        self.name = ""


MAX_WIDTH = 120


def print_diagnostics(faults: Iterable[Diagnostic]) -> None:
    """Print diagnostics on standard error, in the order of their locations."""
    from ratecli.render import render_diagnostics  # noqa: PLC0415  only needed for diagnostics

    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    text = render_diagnostics(sort_diagnostics(faults), color, min(terminal_width(), MAX_WIDTH))
    if text:
        typer.echo(text, err=True, color=color)


def sort_diagnostics(faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return diagnostics by location without duplicates; those without a location come last."""
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
    """Return aligned columns, one line per row, with nothing cut.

    Columns named in `right` are right-aligned.
    """
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
    """Return a count with its noun: `1 trial`, `8 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def print_json(value: object) -> None:
    typer.echo(terminal_safe_json(value))


def replace_unencodable(*streams: TextIO) -> None:
    """Print '?' for characters the terminal cannot encode, instead of failing."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
"""128 + SIGPIPE, the exit code that shells report for programs whose reader exited."""


class CommandGroup(TyperGroup):
    """Lists commands in the order in which they were added and turns exceptions into exit codes."""

    def invoke(self, ctx: Any) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except FaultError as error:
            print_diagnostics(error.faults)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # Python flushes stdout again at exit, which would raise.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_PIPE_CLOSED) from None
        return answer

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(self.commands)

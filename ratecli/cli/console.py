"""Console output: diagnostics on standard error, tables and lines on standard output."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from ratecli.errors import Diagnostic, FaultError
from ratecli.render import terminal_safe

KILOBYTE = 1000
MAX_WIDTH = 120
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
"""128 + SIGPIPE, the exit code that shells report for programs whose reader exited."""


@dataclass
class ProgressMeter:
    """Prints progress on standard error, unless it is `quiet`.

    It prints a line when a task begins and, if `live`, updates it.
    """

    live: bool
    quiet: bool = False
    task: str = ""

    def download(self, name: str, done: int, total: int | None) -> None:
        size = None if total is None else total // KILOBYTE
        self._show(f"fetching {name}", done // KILOBYTE, size, "kB")

    def record(self, name: str, done: int, total: int | None) -> None:
        """Show how many rows of a streamed table were written."""
        self._show(f"writing records of '{name}'", done, total, "rows")

    def _show(self, task: str, done: int, total: int | None, unit: str) -> None:
        begins = task != self.task
        if self.quiet or not (begins or self.live):
            return
        if begins:
            self.end()
        self.task = task
        size = "" if total is None else f": {total:,} {unit}"
        amount = f", {done:,} done" if self.live else ""
        start = "\r" if self.live else ""
        typer.echo(f"{start}{terminal_safe(f'{task}{size}{amount}')}", nl=not self.live, err=True)

    def end(self) -> None:
        if self.live and self.task:
            typer.echo(err=True)
        self.task = ""


@contextmanager
def progress_meter(*, quiet: bool = False) -> Iterator[ProgressMeter]:
    """Yield a meter for the progress of downloads and of writing streamed tables.

    SIGTERM raises an exception inside the context, so that partial files are removed.
    """
    meter = ProgressMeter(sys.stderr.isatty(), quiet)
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield meter
    finally:
        signal.signal(signal.SIGTERM, before)
        meter.end()


def _terminated(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text that may come from files: without characters that control the terminal."""
    typer.echo(terminal_safe(str(text)), err=err, nl=nl)


def print_diagnostics(faults: Iterable[Diagnostic]) -> None:
    """Print diagnostics on standard error, in the order of their locations."""
    from ratecli.render import render_diagnostics  # noqa: PLC0415  only needed for diagnostics

    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    width = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
    text = render_diagnostics(sort_diagnostics(faults), color, width)
    if text:
        typer.echo(text, err=True, color=color)


def sort_diagnostics(faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return diagnostics by location without duplicates; those without a location come last."""

    def position(fault: Diagnostic) -> tuple[bool, bool, str, int, int]:
        place = fault.place
        if place is None:
            return True, True, "", 0, 0
        return False, place.file == "--set", place.file, place.line, place.column

    return sorted(dict.fromkeys(faults), key=position)


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: `1 trial`, `8 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def replace_unencodable(*streams: TextIO) -> None:
    """Print '?' for characters the terminal cannot encode, instead of failing."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class CommandGroup(TyperGroup):
    """Turns exceptions of commands into exit codes, and lists commands by first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """List each command with the first sentence of its help, which click would cut."""
        rows = [
            (name, each.get_short_help_str(sys.maxsize)) for name, each in self.commands.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

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

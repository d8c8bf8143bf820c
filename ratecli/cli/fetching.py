"""What a download, or the writing of records, shows while it goes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

DownloadCallback = Callable[[str, int, int], None]
RecordCallback = Callable[[str, int, int | None], None]
MEGABYTE = 1e6


@contextmanager
def download_progress(*, quiet: bool = False) -> Iterator[DownloadCallback | None]:
    """Told of a file's bytes: a line that grows on a terminal, a line a file elsewhere.

    SIGTERM ends the process as an exception does, so that half a download is removed.
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
    """Told of rows that become records: a line that counts on a terminal, a line at the start elsewhere."""
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
    """`live` rewrites its line; otherwise a data set is told of when its first row is to be written."""

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
    """`live` rewrites its line; otherwise a file is told of when it is complete."""

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

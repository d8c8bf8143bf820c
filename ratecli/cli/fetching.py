"""What a download shows while it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

Told = Callable[[str, int, int], None]
MEGABYTE = 1e6


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Told | None]:
    """Told of a file's bytes: a line that grows on a terminal, a line a file elsewhere."""
    if quiet:
        yield None
        return
    meter = Meter(live=sys.stderr.isatty())
    try:
        yield meter.tell
    finally:
        meter.end()


@dataclass
class Meter:
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

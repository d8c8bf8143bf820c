"""Progress displays of a run: a live bar, plain lines, or failures only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from ratecli.ledger.records import FAILED_STATUSES, TrialResult
from ratecli.render import terminal_safe

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

LINE_SECONDS = 2.0
"""Minimum seconds between plain lines, so that logs of thousands of trials stay readable."""

TrialNamer = Callable[[str], str]
"""Returns the display name of the trial with this key."""


class RunProgress(Protocol):
    """Receives every trial; `start` and `done` serve as an executor's `on_start` and `on_done`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def start(self, key: str) -> None: ...

    def done(self, result: TrialResult) -> None: ...


def open_progress(
    total: int, cached: int, name: TrialNamer, *, quiet: bool = False, stream: TextIO | None = None
) -> RunProgress:
    """Return the display for `stream` (default: stderr).

    `cached` of the `total` trials are already stored.
    """
    out = stream or sys.stderr
    if quiet:
        return QuietProgress(name, out)
    tally = ProgressCounts(total, cached)
    return BarProgress(tally, name, out) if out.isatty() else LineProgress(tally, name, out)


@dataclass
class ProgressCounts:
    """Counts of ended and failed trials."""

    total: int
    cached: int
    ended: int = 0
    failed: int = 0

    def count(self, result: TrialResult) -> None:
        self.ended += 1
        self.failed += result.status in FAILED_STATUSES

    def __str__(self) -> str:
        width = len(str(self.total))
        asides = [f"{self.cached} stored before"] if self.cached else []
        asides += [f"{self.failed} failed"] if self.failed else []
        aside = f" ({', '.join(asides)})" if asides else ""
        return f"{self.cached + self.ended:{width}}/{self.total}{aside}"


class QuietProgress:
    """Prints failures only."""

    def __init__(self, name: TrialNamer, out: TextIO) -> None:
        self._name = name
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self, key: str) -> None:
        pass

    def done(self, result: TrialResult) -> None:
        if result.status in FAILED_STATUSES:
            self._print(failure_line(self._name(result.key), result))

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)


class LineProgress(QuietProgress):
    """For logs: prints an ended trial at most every two seconds, and the last one."""

    def __init__(self, tally: ProgressCounts, name: TrialNamer, out: TextIO) -> None:
        super().__init__(name, out)
        self._tally = tally
        self._shown = time.monotonic()
        self._kept = ""

    def __exit__(self, *error: object) -> None:
        if self._kept:
            self._print(self._kept)

    def done(self, result: TrialResult) -> None:
        super().done(result)
        self._tally.count(result)
        self._kept = (
            f"{self._tally}  {self._name(result.key)}: {result.status}, {result.seconds:.1f} s"
        )
        if time.monotonic() - self._shown >= LINE_SECONDS:
            self._print(self._kept)
            self._shown = time.monotonic()
            self._kept = ""


class BarProgress(QuietProgress):
    """For terminals: a bar with the time left and the running trials; failures scroll by above."""

    def __init__(self, tally: ProgressCounts, name: TrialNamer, out: TextIO) -> None:
        super().__init__(name, out)
        self._tally = tally
        self._current: dict[str, None] = {}
        self._bar = _rich_bar(out)
        self._task = self._bar.add_task("", total=tally.total, completed=tally.cached, now="")
        self._refresh()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._current.clear()
        self._refresh()
        self._bar.stop()

    def start(self, key: str) -> None:
        self._current[key] = None
        self._refresh()

    def done(self, result: TrialResult) -> None:
        super().done(result)
        self._tally.count(result)
        self._current.pop(result.key, None)
        self._bar.advance(self._task)
        self._refresh()

    def _refresh(self) -> None:
        now = "; ".join(map(self._name, self._current))
        self._bar.update(self._task, description=str(self._tally), now=now)

    def _print(self, line: str) -> None:
        self._bar.console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)


def failure_line(name: str, result: TrialResult) -> str:
    """Format a failed trial like other errors."""
    reason = result.reason or result.status
    return terminal_safe(f"error[E501]: {name}: {reason}")


def _rich_bar(out: TextIO) -> RichProgress:
    # import rich only here, as most commands do not need it
    from rich import progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    now = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[now]}", markup=False, table_column=now),
        console=Console(file=out),
        expand=True,
    )

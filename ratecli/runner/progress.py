"""Progress displays of a run: a live bar, plain lines, or failures only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TextIO

from ratecli.ledger.records import FAILED_STATUSES, TrialResult
from ratecli.render import terminal_safe

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

LINE_SECONDS = 2.0
"""Minimum seconds between plain lines, so that logs of thousands of trials stay readable."""

TrialNamer = Callable[[str], str]
"""Returns the display name of the trial with this key."""


def open_progress(
    total: int, stored: int, name: TrialNamer, *, quiet: bool = False, stream: TextIO | None = None
) -> RunProgress:
    """Return the display for `stream` (default: stderr).

    `stored` of the `total` trials have a result from an earlier run.
    """
    out = stream or sys.stderr
    if quiet:
        return RunProgress(name, out)
    counts = ProgressCounts(total, stored)
    return BarProgress(counts, name, out) if out.isatty() else LineProgress(counts, name, out)


@dataclass
class ProgressCounts:
    """Counts of ended and failed trials."""

    total: int
    stored: int
    ended: int = 0
    failed: int = 0

    def count(self, result: TrialResult) -> None:
        self.ended += 1
        self.failed += result.status in FAILED_STATUSES

    def __str__(self) -> str:
        width = len(str(self.total))
        asides = [f"{self.stored} stored before"] if self.stored else []
        asides += [f"{self.failed} failed"] if self.failed else []
        aside = f" ({', '.join(asides)})" if asides else ""
        return f"{self.stored + self.ended:{width}}/{self.total}{aside}"


class RunProgress:
    """Prints failures only; `start` and `done` are called for each trial."""

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


class LineProgress(RunProgress):
    """For logs: prints an ended trial at most every two seconds, and the last one."""

    def __init__(self, counts: ProgressCounts, name: TrialNamer, out: TextIO) -> None:
        super().__init__(name, out)
        self._counts = counts
        self._printed = time.monotonic()
        self._line = ""

    def __exit__(self, *error: object) -> None:
        if self._line:
            self._print(self._line)

    def done(self, result: TrialResult) -> None:
        super().done(result)
        self._counts.count(result)
        end = f"{result.status}, {result.seconds:.1f} s"
        self._line = f"{self._counts}  {self._name(result.key)}: {end}"
        if time.monotonic() - self._printed >= LINE_SECONDS:
            self._print(self._line)
            self._printed, self._line = time.monotonic(), ""


class BarProgress(RunProgress):
    """For terminals: a bar with the time left and the running trials; failures scroll by above."""

    def __init__(self, counts: ProgressCounts, name: TrialNamer, out: TextIO) -> None:
        super().__init__(name, out)
        self._counts = counts
        self._running: dict[str, None] = {}
        self._bar = _rich_bar(out)
        self._task = self._bar.add_task("", total=counts.total, completed=counts.stored, now="")
        self._refresh()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.clear()
        self._refresh()
        self._bar.stop()

    def start(self, key: str) -> None:
        self._running[key] = None
        self._refresh()

    def done(self, result: TrialResult) -> None:
        super().done(result)
        self._counts.count(result)
        self._running.pop(result.key, None)
        self._bar.advance(self._task)
        self._refresh()

    def _refresh(self) -> None:
        now = "; ".join(map(self._name, self._running))
        self._bar.update(self._task, description=str(self._counts), now=now)

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

"""The axis of a swept number on which several lines have points at the same places."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

DECADE = 10
"""A swept number that grows by more than this factor is drawn on a logarithmic scale."""
STEP = 0.012
"""How far apart, in shares of the axis, lines are put that have the same x: else one hides another."""
EDGE = 0.05
"""The share of the axis that stays free at either end."""
SHORT_LABEL = 6
"""Letters of a value that is a label of a logarithmic scale itself: 0.0013895 is none."""
ROUNDING = 1e-9
LETTER = 0.034
"""The share of a panel's width that a letter of a tick's label takes."""


@dataclass(frozen=True)
class SweepAxis:
    """The swept axis: its values from the least, and how many lines share it."""

    values: tuple[float, ...]
    lines: int

    @property
    def logarithmic(self) -> bool:
        return self.values[0] > 0 and self.values[-1] > DECADE * self.values[0]

    @property
    def _span(self) -> tuple[float, float]:
        """The least value and how far the greatest is from it, as the scale counts."""
        low, high = self._scaled(self.values[0]), self._scaled(self.values[-1])
        return low, high - low or 1.0

    def place(self, x: float, line: int) -> float:
        """Where a line has its point, beside those of the others and never as far as the next."""
        low, span = self._span
        shares = [(self._scaled(value) - low) / span for value in self.values]
        gap = min((b - a for a, b in itertools.pairwise(shares)), default=1.0)
        step = min(STEP, gap / 2 / self.lines, EDGE / self.lines) * span
        return self._plain(self._scaled(x) + step * (line - (self.lines - 1) / 2))

    def put_on(self, axes: Axes) -> None:
        """Scale, reach and labels of an axis."""
        low, span = self._span
        if self.logarithmic:
            axes.set_xscale("log")
        ends = low - EDGE * span, self._scaled(self.values[-1]) + EDGE * span
        axes.set_xlim(*map(self._plain, ends))
        shown = self._labelled()
        axes.set_xticks(shown, [f"{value:g}" for value in shown])
        axes.xaxis.set_minor_locator(NullLocator())

    def _wanted(self) -> tuple[float, ...]:
        """What labels are of: the values, or powers of 10 between them where theirs are long."""
        first, last = (math.log10(self.values[k]) if self.logarithmic else 0.0 for k in (0, -1))
        powers = tuple(
            10.0**k for k in range(math.ceil(first - ROUNDING), math.floor(last + ROUNDING) + 1)
        )
        long = any(len(f"{value:g}") > SHORT_LABEL for value in self.values)
        return powers if long and len(powers) > 1 else self.values

    def _labelled(self) -> list[float]:
        """Those with room for their labels, the last among them."""
        span = self._span[1]
        found: list[float] = []
        for value in reversed(self._wanted()):
            letters = max(len(f"{each:g}") for each in (value, *found[-1:])) + 1
            apart = (self._scaled(found[-1]) - self._scaled(value)) / span if found else 1.0
            if apart >= LETTER * letters:
                found.append(value)
        return found[::-1]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value

    def _plain(self, scaled: float) -> float:
        return math.exp(scaled) if self.logarithmic else scaled

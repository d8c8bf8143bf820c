"""What tells the lines of one algorithm apart: the values of whatever else is swept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.report.sheet import format_scalar

MAX_NAMED_LINES = 8
"""Lines of one algorithm that a legend lists all; of more it names the first and the last."""
UNNAMED_LINES = f"of more than {MAX_NAMED_LINES} lines of a kind the first, dark, and the last, light, are named"


@dataclass(frozen=True)
class LineSetting:
    """Which of several lines of one kind a line is.

    Attributes
    ----------
    name
        The values that only this line has, as `task = gpa, k = 2`; empty where it is the only one.
    shade
        From 0, dark, to 1, light; None for the plain colour of the only one.
    told
        Whether a legend names it.
    """

    name: str = ""
    shade: float | None = None
    told: bool = True

    def of(self, who: str) -> str:
        """What a legend calls the line of an algorithm or variant."""
        return f"{who}, {self.name}" if self.name else who


SINGLE_LINE = LineSetting()


def line_settings(
    points: Sequence[Mapping[str, Any]], along: Collection[str] = ()
) -> list[LineSetting]:
    """Those of lines of one kind, each by a sweep point on it; names that lines go along tell none apart."""
    last = len(points) - 1
    if last < 1:
        return [SINGLE_LINE] * len(points)
    names = dict.fromkeys(name for point in points for name in point if name not in along)
    varying = [name for name in names if len({repr(point.get(name)) for point in points}) > 1]
    return [
        LineSetting(
            ", ".join(
                f"{name} = {format_scalar(point[name])}" for name in varying if name in point
            ),
            k / last,
            last < MAX_NAMED_LINES or k in {0, last},
        )
        for k, point in enumerate(points)
    ]


def unnamed_lines_note(found: Iterable[LineSetting]) -> list[str]:
    """A note on lines that the legend does not name, if there are any."""
    return [] if all(setting.told for setting in found) else [UNNAMED_LINES]

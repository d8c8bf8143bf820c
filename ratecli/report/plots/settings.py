"""What tells the lines of one algorithm apart: the values of whatever else is swept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.report.sheet import scalar

MOST_NAMED = 8
"""Lines of one algorithm that a legend lists all; of more it names the first and the last."""
BETWEEN = (
    f"of more than {MOST_NAMED} lines of a kind the first, dark, and the last, light, are named"
)


@dataclass(frozen=True)
class Setting:
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


ALONE = Setting()


def settings(points: Sequence[Mapping[str, Any]], along: Collection[str] = ()) -> list[Setting]:
    """Those of lines of one kind, each by a sweep point on it; names that lines go along tell none apart."""
    last = len(points) - 1
    if last < 1:
        return [ALONE] * len(points)
    names = dict.fromkeys(name for point in points for name in point if name not in along)
    varying = [name for name in names if len({repr(point.get(name)) for point in points}) > 1]
    return [
        Setting(
            ", ".join(f"{name} = {scalar(point[name])}" for name in varying if name in point),
            k / last,
            last < MOST_NAMED or k in {0, last},
        )
        for k, point in enumerate(points)
    ]


def untold(found: Iterable[Setting]) -> list[str]:
    """A note on lines that the legend does not name, if there are any."""
    return [] if all(setting.told for setting in found) else [BETWEEN]

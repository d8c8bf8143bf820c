"""What a plot is to show: its axes, what is drawn in it, and what is known of the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.report.ledger import Ledger
from ratecli.report.naming import file_name
from ratecli.report.series import EVERYTHING, Choice, Plane


@dataclass(frozen=True)
class Level:
    """A value of x that a constraint asks for."""

    value: float
    label: str


@dataclass(frozen=True)
class Tradeoff:
    """A plot as the file asks for it, with what the runner knows of the truth."""

    name: str
    title: str
    plane: Plane
    choice: Choice = EVERYTHING
    diagonal: bool = False
    levels: tuple[Level, ...] = ()
    frontier: tuple[tuple[float, float], ...] = ()

    @property
    def caption(self) -> str:
        return self.title or f"{self.plane.y} against {self.plane.x} ({self.plane.split})"


def tradeoffs(ledger: Ledger) -> list[Tradeoff]:
    """Every plot that the file asks for; files of one name are told apart."""
    plots: list[Tradeoff] = []
    for position, asked in enumerate(ledger.asked("plots")):
        plane = _plane(ledger, asked)
        plots.append(
            Tradeoff(
                name=file_name(
                    asked.get("file") or f"tradeoff-{plane.x}-{plane.y}",
                    {plot.name for plot in plots},
                ),
                title=asked.get("title") or "",
                plane=plane,
                choice=Choice(
                    *(tuple(asked.get(key) or ()) for key in ("algorithms", "variants", "lines"))
                ),
                diagonal=bool(asked.get("diagonal")),
                levels=_levels(ledger, position),
                frontier=_frontier(ledger, position),
            )
        )
    return plots


def _plane(ledger: Ledger, asked: Mapping[str, Any]) -> Plane:
    x = asked["x"]
    swept = x not in ledger.metrics and x in ledger.sweep
    return Plane(x, asked["y"], asked.get("split") or "test", swept)


def _levels(ledger: Ledger, position: int) -> tuple[Level, ...]:
    plots: Sequence[Mapping[str, Any]] = ledger.meta.get("plots") or ()
    found = plots[position].get("levels") or () if position < len(plots) else ()
    return tuple(Level(float(level["value"]), str(level["label"])) for level in found)


def _frontier(ledger: Ledger, position: int) -> tuple[tuple[float, float], ...]:
    found = (ledger.meta.get("frontier") or {}).get(str(position)) or ()
    return tuple((float(x), float(y)) for x, y in found)

"""What a plot is to show: its axes, what is drawn in it, and what is known of the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratecli.report.ledger import Ledger
from ratecli.report.naming import plot_name
from ratecli.report.series import EVERYTHING, Choice, Plane


@dataclass(frozen=True)
class Level:
    """A value of an axis that a constraint asks for: in one panel, if it says in which."""

    value: float
    label: str
    panel: Any = None


@dataclass(frozen=True)
class Tradeoff:
    """A plot as the file asks for it, with what the runner knows of the truth."""

    name: str
    title: str
    plane: Plane
    choice: Choice = EVERYTHING
    diagonal: bool = False
    levels: tuple[Level, ...] = ()
    heights: tuple[Level, ...] = ()
    frontier: tuple[tuple[float, float], ...] = ()
    by: str = ""
    panels: tuple[Any, ...] = ()

    @property
    def caption(self) -> str:
        return self.title or f"{self.plane.y} against {self.plane.x} ({self.plane.split})"

    def parts(self) -> list[Tradeoff]:
        """Each panel as a plot of its own."""
        return [
            replace(
                self,
                levels=_in_panel(self.levels, value),
                heights=_in_panel(self.heights, value),
                **self.choice.in_panel(self.by, value),
            )
            for value in self.panels
        ]


def tradeoffs(ledger: Ledger) -> list[Tradeoff]:
    """Every plot of this kind that the file asks for."""
    kinds = [asked.get("kind", "tradeoff") for asked in ledger.asked("plots")]
    return [tradeoff(ledger, at) for at, kind in enumerate(kinds) if kind == "tradeoff"]


def tradeoff(ledger: Ledger, position: int) -> Tradeoff:
    """The plot at a position among all that the file asks for."""
    every = ledger.asked("plots")
    asked = every[position]
    choice = Choice(*(tuple(asked.get(key) or ()) for key in ("algorithms", "variants", "lines")))
    by = asked.get("by") or ""
    return Tradeoff(
        name=plot_name(every, position),
        title=asked.get("title") or "",
        plane=_plane(ledger, asked),
        choice=choice,
        diagonal=bool(asked.get("diagonal")),
        levels=_levels(ledger, position, "levels"),
        heights=_levels(ledger, position, "heights"),
        frontier=_frontier(ledger, position),
        by=by,
        panels=panels(ledger, by, choice),
    )


def panels(ledger: Ledger, by: str, choice: Choice) -> tuple[Any, ...]:
    """The values of a swept name at which something is to be drawn, in the order of the plan."""
    values = (
        trial.point[by] for trial in ledger.plan if by in trial.point and choice.takes(trial.label)
    )
    return tuple({repr(value): value for value in values}.values())


def _in_panel(levels: tuple[Level, ...], value: Any) -> tuple[Level, ...]:
    return tuple(each for each in levels if each.panel is None or repr(each.panel) == repr(value))


def _plane(ledger: Ledger, asked: Mapping[str, Any]) -> Plane:
    x = asked["x"]
    swept = x not in ledger.metrics and x in ledger.sweep
    return Plane(x, asked["y"], asked.get("split") or "test", swept)


def _levels(ledger: Ledger, position: int, which: str) -> tuple[Level, ...]:
    plots: Sequence[Mapping[str, Any]] = ledger.meta.get("plots") or ()
    found = plots[position].get(which) or () if position < len(plots) else ()
    return tuple(
        Level(float(level["value"]), str(level["label"]), level.get("panel")) for level in found
    )


def _frontier(ledger: Ledger, position: int) -> tuple[tuple[float, float], ...]:
    found = (ledger.meta.get("frontier") or {}).get(str(position)) or ()
    return tuple((float(x), float(y)) for x, y in found)

"""The options of trade-off plots: axes, selection, constraint levels and the known frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratecli.ledger.view import Ledger
from ratecli.report.file_names import plot_file_name
from ratecli.report.plots.series import SELECT_ALL, PlotAxes, PlotSelection


@dataclass(frozen=True)
class ConstraintLevel:
    """A limit that a constraint sets on an axis, in all panels or only in one."""

    value: float
    label: str
    panel: Any = None


@dataclass(frozen=True)
class TradeoffPlotOptions:
    """A trade-off plot of the experiment file, with the levels and frontier stored by the run."""

    name: str
    title: str
    plane: PlotAxes
    choice: PlotSelection = SELECT_ALL
    diagonal: bool = False
    levels: tuple[ConstraintLevel, ...] = ()
    heights: tuple[ConstraintLevel, ...] = ()
    frontier: tuple[tuple[float, float], ...] = ()
    by: str = ""
    panels: tuple[Any, ...] = ()
    splits: tuple[str, ...] = ()
    """The splits with panels of their own; empty for a single split, which is in `plane`."""

    @property
    def caption(self) -> str:
        splits = " and ".join(self.splits or [self.plane.split])
        return self.title or f"{self.plane.y} against {self.plane.x} ({splits})"

    @property
    def what(self) -> str:
        """Describe the marks and lines."""
        plane = self.plane
        splits = " and ".join(self.splits or [plane.split])
        line = (
            f"A line for each algorithm and variant along {plane.x}"
            if plane.swept
            else "A mark for each algorithm, variant and sweep point, lines along the sweep"
        )
        asked = "; dotted lines: what constraints ask for" if self.levels or self.heights else ""
        best = "; dashed: the best that any rule can do" if self.frontier else ""
        return f"{plane.y} over {plane.x} on {splits} rows. {line}{asked}{best}."

    @property
    def axes(self) -> tuple[str, str]:
        """The labels of x and y, without the split if it is in the panels' titles."""
        return (self.plane.x, self.plane.y) if self.splits else (self.plane.along, self.plane.up)

    def parts(self) -> list[TradeoffPlotOptions]:
        """Return each panel as a plot of its own; the panels of one value of `by` are adjacent."""
        found = [
            replace(
                self,
                levels=_in_panel(self.levels, value),
                heights=_in_panel(self.heights, value),
                **self.choice.in_panel(self.by, value),
            )
            for value in self.panels
        ]
        return [part for each in found or [self] for part in each.by_split()]

    def by_split(self) -> list[TradeoffPlotOptions]:
        """Return the panel for each split, or the plot itself for a single split."""
        named = f"{self.title} ({{}})" if self.by else "{}"
        return [
            replace(
                self, plane=replace(self.plane, split=split), title=named.format(split), splits=()
            )
            for split in self.splits
        ] or [self]


def read_tradeoffs(ledger: Ledger) -> list[TradeoffPlotOptions]:
    """Read all trade-off plots that the experiment file requests."""
    kinds = [asked.get("kind", "tradeoff") for asked in ledger.asked("plots")]
    return [read_tradeoff(ledger, at) for at, kind in enumerate(kinds) if kind == "tradeoff"]


def read_tradeoff(ledger: Ledger, position: int) -> TradeoffPlotOptions:
    """Read the plot at a position in the experiment file's list of plots."""
    every = ledger.asked("plots")
    asked = every[position]
    choice = PlotSelection(
        *(tuple(asked.get(key) or ()) for key in ("algorithms", "variants", "lines"))
    )
    by = asked.get("by") or ""
    splits = _splits(asked)
    return TradeoffPlotOptions(
        name=plot_file_name(every, position),
        title=asked.get("title") or "",
        plane=_plane(ledger, asked, splits[0]),
        choice=choice,
        diagonal=bool(asked.get("diagonal")),
        levels=_levels(ledger, position, "levels"),
        heights=_levels(ledger, position, "heights"),
        frontier=_frontier(ledger, position),
        by=by,
        panels=panel_values(ledger, by, choice),
        splits=splits if len(splits) > 1 else (),
    )


def panel_values(ledger: Ledger, by: str, choice: PlotSelection) -> tuple[Any, ...]:
    """Return the values of a swept name for the selected algorithms, in plan order."""
    values = (
        trial.point[by] for trial in ledger.plan if by in trial.point and choice.takes(trial.label)
    )
    return tuple({repr(value): value for value in values}.values())


def _in_panel(levels: tuple[ConstraintLevel, ...], value: Any) -> tuple[ConstraintLevel, ...]:
    return tuple(each for each in levels if each.panel is None or repr(each.panel) == repr(value))


def _splits(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the splits, which may be given as a string or a list."""
    split = asked.get("split") or "test"
    return (split,) if isinstance(split, str) else tuple(split)


def _plane(ledger: Ledger, asked: Mapping[str, Any], split: str) -> PlotAxes:
    x = asked["x"]
    swept = x not in ledger.metrics and x in ledger.sweep
    return PlotAxes(x, asked["y"], split, swept)


def _levels(ledger: Ledger, position: int, which: str) -> tuple[ConstraintLevel, ...]:
    plots: Sequence[Mapping[str, Any]] = ledger.meta.get("plots") or ()
    found = plots[position].get(which) or () if position < len(plots) else ()
    return tuple(
        ConstraintLevel(float(level["value"]), str(level["label"]), level.get("panel"))
        for level in found
    )


def _frontier(ledger: Ledger, position: int) -> tuple[tuple[float, float], ...]:
    found = (ledger.meta.get("frontier") or {}).get(str(position)) or ()
    return tuple((float(x), float(y)) for x, y in found)

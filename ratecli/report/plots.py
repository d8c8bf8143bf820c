"""Trade-off plots: what one metric costs in another, for every algorithm along the sweep."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ratecli.report.ledger import Ledger
from ratecli.report.naming import file_name
from ratecli.report.series import Plane, Point, Series, every_series

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, told apart by colour-blind readers too."""
MARKERS = "os^DvPX*"
STYLES = ("-", "--", ":", "-.")
FILLS = ("full", "none", "left", "bottom")
GREY = "#6b6b6b"
MANY_LEVELS = 8
MANY_ENTRIES = 6
STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "legend.fontsize": 8.5,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.85,
    "legend.handlelength": 2.8,
    "legend.title_fontsize": 8,
    "svg.hashsalt": "ratecli",
    "text.parse_math": False,
}


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
    levels: tuple[Level, ...] = ()
    frontier: tuple[tuple[float, float], ...] = ()

    @property
    def caption(self) -> str:
        return self.title or f"{self.plane.y} against {self.plane.x} ({self.plane.split})"


@dataclass(frozen=True)
class Picture:
    """A drawn plot; `name` is that of its files."""

    name: str
    caption: str
    svg: bytes
    png: bytes


def pictures(ledger: Ledger) -> list[Picture]:
    """Every plot that the file asks for."""
    return [draw(ledger, plot) for plot in tradeoffs(ledger)]


def tradeoffs(ledger: Ledger) -> list[Tradeoff]:
    plots: list[Tradeoff] = []
    for position, asked in enumerate(ledger.asked("plots")):
        plane = Plane(asked["x"], asked["y"], asked.get("split") or "test")
        plots.append(
            Tradeoff(
                name=file_name(
                    asked.get("file") or f"tradeoff-{plane.x}-{plane.y}",
                    {plot.name for plot in plots},
                ),
                title=asked.get("title") or "",
                plane=plane,
                levels=_levels(ledger, position),
                frontier=_frontier(ledger, position),
            )
        )
    return plots


def draw(ledger: Ledger, plot: Tradeoff) -> Picture:
    """The same bytes for the same ledger: no date, no version, no settings of the user's."""
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        figure = _figure(ledger, plot)
        svg, png = io.BytesIO(), io.BytesIO()
        nothing = dict.fromkeys(["Date", "Creator", "Format", "Type"])
        figure.savefig(svg, format="svg", metadata=nothing)
        figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return Picture(plot.name, plot.caption, svg.getvalue(), png.getvalue())


def _figure(ledger: Ledger, plot: Tradeoff) -> Figure:
    found = every_series(ledger, plot.plane)
    figure = Figure(figsize=(6.6, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlabel(f"{plot.plane.x} ({plot.plane.split})")
    axes.set_ylabel(f"{plot.plane.y} ({plot.plane.split})")
    axes.set_title(plot.title)
    _draw_levels(axes, plot.levels)
    handles = [_draw_series(axes, series) for series in found]
    handles += _draw_frontier(axes, plot.frontier) if found else []
    if found:
        _legend(figure, axes, handles, _counted(found))
    else:
        axes.text(0.5, 0.5, "no trial gave these numbers", transform=axes.transAxes, ha="center")
    return figure


def _draw_series(axes: Axes, series: Series) -> Line2D:
    colour = COLOURS[series.algorithm % len(COLOURS)]
    points = sum(map(len, series.lines))
    look: dict[str, Any] = {
        "color": colour,
        "fillstyle": FILLS[series.variant % len(FILLS)],
        "linestyle": STYLES[series.variant % len(STYLES)] if points > 1 else "none",
        "linewidth": 1.4,
        "marker": MARKERS[series.algorithm % len(MARKERS)],
        "markersize": 3 if points > 30 else 5.5,
        "markerfacecoloralt": "white",
    }
    for line in series.lines:
        _draw_intervals(axes, line, colour)
        axes.plot(*_places(line), **look)
    return Line2D([], [], label=series.name, **look)


def _draw_intervals(axes: Axes, line: Sequence[Point], colour: str) -> None:
    xerr = [point.x.half or 0.0 for point in line]
    yerr = [point.y.half or 0.0 for point in line]
    if any(xerr) or any(yerr):
        axes.errorbar(
            *_places(line),
            xerr=xerr,
            yerr=yerr,
            fmt="none",
            ecolor=colour,
            elinewidth=0.8,
            alpha=0.55,
        )


def _places(line: Sequence[Point]) -> tuple[list[float], list[float]]:
    places = [point.place for point in line if point.place]
    return [x for x, _ in places], [y for _, y in places]


def _draw_frontier(axes: Axes, frontier: Sequence[tuple[float, float]]) -> list[Line2D]:
    """Only where the algorithms are: what is possible elsewhere would push them into a corner."""
    left, right = axes.get_xlim()
    within = [point for point in frontier if left <= point[0] <= right]
    if not within:
        return []
    xs, ys = zip(*within, strict=True)
    look: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "zorder": 1.5}
    lines = axes.plot(xs, ys, "--", label="best possible", **look)
    axes.set_xlim(left, right)
    return lines


def _draw_levels(axes: Axes, levels: Sequence[Level]) -> None:
    """Lines at what the constraints ask for, named along the upper edge; none if they are many."""
    if not 0 < len(levels) <= MANY_LEVELS:
        return
    for level in levels:
        axes.axvline(level.value, color=GREY, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
    top = axes.secondary_xaxis("top")
    top.spines["top"].set_visible(False)
    top.set_xticks(
        [level.value for level in levels], [level.label for level in levels], rotation=45, ha="left"
    )
    top.tick_params(length=0, pad=1, labelsize=7, labelcolor=GREY)


def _legend(figure: Figure, axes: Axes, handles: Sequence[Line2D], title: str) -> None:
    if len(handles) > MANY_ENTRIES:
        figure.set_size_inches(8.6, 4.4)
        figure.legend(handles=handles, title=title, loc="outside right upper", alignment="left")
    else:
        axes.legend(handles=handles, title=title, loc="best", alignment="left")


def _counted(found: Sequence[Series]) -> str:
    """What a point and its bars are."""
    counts = [point.y.n for series in found for line in series.lines for point in line]
    least, most = min(counts), max(counts)
    if most == 1:
        return "one seed, no intervals"
    return f"mean, 95 % interval, {most if least == most else f'{least} to {most}'} seeds"


def _levels(ledger: Ledger, position: int) -> tuple[Level, ...]:
    plots: Sequence[Mapping[str, Any]] = ledger.meta.get("plots") or ()
    found = plots[position].get("levels") or () if position < len(plots) else ()
    return tuple(Level(float(level["value"]), str(level["label"])) for level in found)


def _frontier(ledger: Ledger, position: int) -> tuple[tuple[float, float], ...]:
    found = (ledger.meta.get("frontier") or {}).get(str(position)) or ()
    return tuple((float(x), float(y)) for x, y in found)

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
from ratecli.report.series import Plane, Point, Series, absent_variants, every_series, reach
from ratecli.report.tradeoff import Level, Tradeoff, tradeoffs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, told apart by colour-blind readers too."""
MARKERS = "os^DvPX*"
STYLES = ("-", "--", ":", "-.")
FILLS = ("full", "none", "left", "bottom")
LONG_DASHES = (0, (9, 4))
GREY = "#6b6b6b"
SIZE = (5.4, 3.7)
"""Inches: at the width of a paper's column the smallest letters are still some 5 points high."""
MANY_LEVELS = 8
MANY_ENTRIES = 6
MANY_POINTS = 30
SOME_POINTS = 10
END = 0.03
"""The share of the axis that stays free at either end of a swept x."""
ABSENT = "no trial gave a variant '{}'"
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
class Picture:
    """A drawn plot; `name` is that of its files."""

    name: str
    caption: str
    svg: bytes
    png: bytes


def pictures(ledger: Ledger) -> list[Picture]:
    """Every plot that the file asks for."""
    return [draw(ledger, plot) for plot in tradeoffs(ledger)]


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
    found = every_series(ledger, plot.plane, plot.choice)
    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    plane = plot.plane
    axes.set_xlabel(plane.x if plane.swept else f"{plane.x} ({plane.split})")
    axes.set_ylabel(f"{plane.y} ({plane.split})")
    axes.set_title(plot.title)
    _draw_levels(axes, plot.levels)
    handles = [_draw_series(axes, series, swept=plane.swept) for series in found]
    _draw_reach(axes, reach(ledger, plane, plot.choice))
    handles += _draw_frontier(axes, plot.frontier) if found else []
    handles += _draw_diagonal(axes, plane) if found and plot.diagonal else []
    if found:
        notes = [_counted(found), *map(ABSENT.format, absent_variants(ledger, plot.choice))]
        _legend(figure, axes, handles, "\n".join(notes))
    else:
        axes.text(0.5, 0.5, "no trial gave these numbers", transform=axes.transAxes, ha="center")
    return figure


def _draw_series(axes: Axes, series: Series, *, swept: bool) -> Line2D:
    """The series, and how the legend shows it."""
    look = _look(series)
    if series.flat:
        for (point,) in series.lines:
            _draw_flat(axes, point, look, swept=swept)
        return Line2D([], [], label=series.name, **look)
    for line in series.lines:
        (_draw_band if swept and len(line) > 1 else _draw_intervals)(axes, line, look["color"])
        xs, ys = _places(line)
        axes.plot(xs, ys, markevery=_marked(series, len(xs)), **look)
    return Line2D([], [], label=series.name, **look)


def _look(series: Series) -> dict[str, Any]:
    lined = series.flat or any(len(line) > 1 for line in series.lines)
    return {
        "color": COLOURS[series.algorithm % len(COLOURS)],
        "fillstyle": FILLS[series.variant % len(FILLS)],
        "linestyle": STYLES[series.variant % len(STYLES)] if lined else "none",
        "linewidth": 1.3,
        "marker": MARKERS[series.algorithm % len(MARKERS)],
        "markersize": 5,
        "markerfacecoloralt": "white",
    }


def _marked(series: Series, points: int) -> tuple[int, int] | None:
    """Which points of a long line get a marker: few, and not where its neighbours have theirs."""
    if points <= MANY_POINTS:
        return None
    step = points // SOME_POINTS
    return ((series.algorithm + 2 * series.variant) * step // 4 % step, step)


def _draw_flat(axes: Axes, point: Point, look: Mapping[str, Any], *, swept: bool) -> None:
    """A line over all of a swept x, marked at its ends, or across the plot, marked at its own x."""
    y = point.y.mean
    if y is None:
        return
    ends = {"xmin": END, "xmax": 1 - END} if swept else {}
    if point.y.half:
        axes.axhspan(y - point.y.half, y + point.y.half, **ends, **_band(look["color"]))
    line = axes.axhline(y, **ends, **look, zorder=1.8)
    if not swept:
        line.set_marker("none")
        if point.place:
            _draw_intervals(axes, [point], look["color"])
            axes.plot(*point.place, **look)


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
            elinewidth=0.8 if len(line) <= MANY_POINTS else 0.4,
            alpha=0.55 if len(line) <= MANY_POINTS else 0.3,
        )


def _draw_band(axes: Axes, line: Sequence[Point], colour: str) -> None:
    """The intervals of y; a swept x has none."""
    xs, ys = _places(line)
    halves = [point.y.half or 0.0 for point in line]
    if any(halves):
        low = [y - half for y, half in zip(ys, halves, strict=True)]
        high = [y + half for y, half in zip(ys, halves, strict=True)]
        axes.fill_between(xs, low, high, **_band(colour))


def _band(colour: str) -> dict[str, Any]:
    return {"facecolor": colour, "alpha": 0.14, "linewidth": 0, "zorder": 1.2}


def _places(line: Sequence[Point]) -> tuple[list[float], list[float]]:
    places = [point.place for point in line if point.place]
    return [x for x, _ in places], [y for _, y in places]


def _draw_reach(axes: Axes, swept: tuple[float, float] | None) -> None:
    """All of the sweep is shown, the part of it where no trial gave numbers too."""
    if swept is not None and swept[0] < swept[1]:
        low, high = swept
        edge = (high - low) * END / (1 - 2 * END)
        axes.set_xlim(low - edge, high + edge)


def _draw_diagonal(axes: Axes, plane: Plane) -> list[Line2D]:
    """The line y = x, where it passes what is drawn."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    low, high = max(left, bottom), min(right, top)
    if low >= high:
        return []
    label = f"{plane.y} = {plane.x}" + (", met exactly" if plane.swept else "")
    look: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "zorder": 1.5}
    lines = axes.plot([low, high], [low, high], linestyle=LONG_DASHES, label=label, **look)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    return lines


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
        figure.set_size_inches(SIZE[0] + 2.2, SIZE[1])
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

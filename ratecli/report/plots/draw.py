"""Draw the experiment's plots, and trade-off plots: one metric over another along the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ratecli.ledger.view import Ledger
from ratecli.report.plots.convergence import CONVERGENCE, draw_convergence, read_convergence
from ratecli.report.plots.filters import GROUP_SHARES, POSTERIORS
from ratecli.report.plots.group_shares import draw_group_shares, read_group_shares
from ratecli.report.plots.guarantee import GUARANTEE, draw_guarantee, read_guarantee
from ratecli.report.plots.posteriors import draw_posteriors, read_posteriors
from ratecli.report.plots.series import (
    LineSetting,
    PlotAxes,
    TradeoffPoint,
    TradeoffSeries,
    collect_series,
    missing_variants,
    swept_range,
    unnamed_lines_note,
)
from ratecli.report.plots.style import (
    GREY,
    MAX_COLUMNS,
    NO_NUMBERS,
    PANEL,
    SIZE,
    PlotImage,
    band_style,
    empty_figure,
    legend_below,
    line_style,
    make_plot_image,
    mark_empty,
    panel_columns,
    unique_handles,
)
from ratecli.report.plots.tooltips import TooltipFacts, Tooltips
from ratecli.report.plots.tradeoff import ConstraintLevel, TradeoffPlotOptions, read_tradeoff
from ratecli.report.sheet import estimate_cell, format_scalar

LONG_DASHES = (0, (9, 4))
PAIR = (4.3, 3.4)
"""Panel size in inches if there are two panels in a row."""
MANY_LEVELS = 8
MAX_LEGEND_ENTRIES = 6
"""A legend with more entries is placed beside the axes."""
TALL = 16
"""A legend with more entries is placed below the axes."""
MANY_POINTS = 30
SOME_POINTS = 10
MANY_PLACES = 60
"""If all series together have more points, markers are small and intervals faint."""
SMALL = 3
END = 0.03
"""Share of the axis left empty at either end of a swept x."""
TICKS = 5
"""Maximum number of ticks on an axis of a panel."""
MORE_TICKS = 7
"""Maximum number of ticks if there are two panels in a row."""
MISSING_VARIANT = "no trial gave a variant '{}'"
DrawnArtist: TypeAlias = Artist | Container
"""A drawn object that may have a tooltip."""


def draw_plots(ledger: Ledger) -> list[PlotImage]:
    """Draw every plot that the experiment file requests."""
    return [_draw_plot(ledger, position) for position in range(len(ledger.asked("plots")))]


def _draw_plot(ledger: Ledger, position: int) -> PlotImage:
    kind = ledger.asked("plots")[position].get("kind")
    if kind == CONVERGENCE:
        return draw_convergence(ledger, read_convergence(ledger, position))
    if kind == GUARANTEE:
        return draw_guarantee(ledger, read_guarantee(ledger, position))
    if kind == POSTERIORS:
        return draw_posteriors(ledger, read_posteriors(ledger, position))
    if kind == GROUP_SHARES:
        return draw_group_shares(ledger, read_group_shares(ledger, position))
    return draw_tradeoff(ledger, read_tradeoff(ledger, position))


def draw_tradeoff(ledger: Ledger, plot: TradeoffPlotOptions) -> PlotImage:
    """Draw one trade-off plot, with panels if it has any."""
    drawn = _panels if plot.panels or plot.splits else _figure
    return make_plot_image(plot.name, plot.caption, partial(drawn, ledger, plot), plot.what)


def _figure(ledger: Ledger, plot: TradeoffPlotOptions, told: Tooltips) -> Figure:
    figure = empty_figure(SIZE)
    axes = figure.add_subplot()
    along, up = plot.axes
    axes.set_xlabel(along)
    axes.set_ylabel(up)
    axes.set_title(plot.title)
    found, handles = _fill(axes, ledger, plot, told)
    if found:
        _legend(figure, axes, handles, _notes(ledger, plot, found))
    else:
        axes.text(0.5, 0.5, NO_NUMBERS, transform=axes.transAxes, ha="center")
    return figure


def _panels(ledger: Ledger, plot: TradeoffPlotOptions, told: Tooltips) -> Figure:
    """Draw small multiples.

    Each panel has its own axes, as magnitudes may differ. Panels that differ only in the split are
    side by side and share axes.
    """
    parts, (along, up) = plot.parts(), plot.axes
    wide = len(plot.splits) or panel_columns(len(parts))
    high = -(-len(parts) // wide)
    size = PAIR if wide < MAX_COLUMNS and not plot.panels else PANEL
    figure = empty_figure((max(size[0] * wide, SIZE[0]), size[1] * high))
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=11)
    every: list[TradeoffSeries] = []
    handles: list[Line2D] = []
    for position, part in enumerate(parts):
        like = figure.axes[-1] if plot.splits and position % wide else None
        axes = figure.add_subplot(high, wide, position + 1, sharex=like, sharey=like)
        axes.set_title(part.title, fontsize=9)
        axes.set_xlabel(along if position + wide >= len(parts) else "", fontsize=9)
        axes.set_ylabel(up if position % wide == 0 else "", fontsize=9)
        axes.tick_params(labelsize=8)
        found, shown = _fill(axes, ledger, part, told)
        every, handles = every + found, handles + shown
        if not found:
            mark_empty(axes)
        axes.locator_params(nbins=TICKS if size == PANEL else MORE_TICKS)
    if every:
        legend_below(figure, unique_handles(handles), _notes(ledger, plot, every))
    return figure


def _fill(
    axes: Axes, ledger: Ledger, plot: TradeoffPlotOptions, told: Tooltips
) -> tuple[list[TradeoffSeries], list[Line2D]]:
    """Draw one plot; return its series and legend handles."""
    found, plane = collect_series(ledger, plot.plane, plot.choice), plot.plane
    _draw_levels(axes, plot.levels, "x")
    _draw_levels(axes, plot.heights, "y")
    crowded = sum(len(line) for series in found for line in series.lines) > MANY_PLACES
    handles = [
        each
        for series in found
        for each in _draw_series(axes, series, plane, told, crowded=crowded)
    ]
    _draw_reach(axes, swept_range(ledger, plane, plot.choice))
    further = _draw_frontier(axes, plot.frontier) if found else []
    further += _draw_diagonal(axes, plane) if found and plot.diagonal else []
    for each in further:
        told.own(str(each.get_label()), each)
    return found, handles + further


def _notes(ledger: Ledger, plot: TradeoffPlotOptions, found: Sequence[TradeoffSeries]) -> str:
    absent = map(MISSING_VARIANT.format, missing_variants(ledger, plot.choice))
    left = unnamed_lines_note(setting for series in found for setting in series.settings)
    return "\n".join([_describe_point(found), *left, *absent])


def _draw_series(
    axes: Axes, series: TradeoffSeries, plane: PlotAxes, told: Tooltips, *, crowded: bool
) -> list[Line2D]:
    """Draw a series and return a legend handle for each of its named lines."""
    small = {"markersize": SMALL} if crowded and not plane.swept else {}
    for line, setting in zip(series.lines, series.settings, strict=True):
        look, label = _series_style(series, setting) | small, setting.of(series.name)
        if series.flat:
            told.own(label, *_draw_flat(axes, line[0], look, swept=plane.swept))
        else:
            told.own(label, *_draw_line(axes, series, line, look, plane, crowded=crowded))
        for point in line:
            told.point(axes, _tooltip_position(axes, point), label, _facts(plane, point))
    named = [setting for setting in series.settings if setting.told]
    return [
        Line2D([], [], label=each.of(series.name), **_series_style(series, each)) for each in named
    ]


def _draw_line(
    axes: Axes,
    series: TradeoffSeries,
    line: Sequence[TradeoffPoint],
    look: Mapping[str, Any],
    plane: PlotAxes,
    *,
    crowded: bool,
) -> list[DrawnArtist]:
    """Draw a line with its intervals and return the artists."""
    if plane.swept and len(line) > 1:
        parts = _draw_band(axes, line, look["color"])
    else:
        faint = crowded or len(line) > MANY_POINTS
        parts = _draw_intervals(axes, line, look["color"], faint=faint)
    xs, ys = _places(line)
    return [*parts, *axes.plot(xs, ys, markevery=_marker_positions(series, len(xs)), **look)]


def _tooltip_position(axes: Axes, point: TradeoffPoint) -> tuple[float, float]:
    """Return the position of a point's tooltip: the middle of the axis for a point without x."""
    return point.place or (sum(axes.get_xlim()) / 2, point.y.mean or 0.0)


def _facts(plane: PlotAxes, point: TradeoffPoint) -> TooltipFacts:
    swept = [(name, format_scalar(value)) for name, value in point.at.items()]
    x = [] if plane.swept else [(plane.along, estimate_cell(point.x, point.x.n).text)]
    y = (plane.up, estimate_cell(point.y, point.y.n).text)
    return (*swept, *x, y, ("n", str(point.y.n)))


def _series_style(series: TradeoffSeries, setting: LineSetting) -> dict[str, Any]:
    lined = series.flat or any(len(line) > 1 for line in series.lines)
    found = line_style(series.algorithm, series.variant, setting.shade)
    return found if lined else found | {"linestyle": "none"}


def _marker_positions(series: TradeoffSeries, points: int) -> tuple[int, int] | None:
    """Return which points of a long line get a marker: few, staggered between series."""
    if points <= MANY_POINTS:
        return None
    step = points // SOME_POINTS
    return ((series.algorithm + 2 * series.variant) * step // 4 % step, step)


def _draw_flat(
    axes: Axes, point: TradeoffPoint, look: Mapping[str, Any], *, swept: bool
) -> list[DrawnArtist]:
    """Draw a horizontal line: marked at its ends if x is swept, else at the point's own x."""
    y = point.y.mean
    if y is None:
        return []
    parts: list[DrawnArtist] = []
    ends = {"xmin": END, "xmax": 1 - END} if swept else {}
    if point.y.half:
        shown = band_style(look["color"])
        parts.append(axes.axhspan(y - point.y.half, y + point.y.half, **ends, **shown))
    line = axes.axhline(y, **ends, **look, zorder=1.8)
    if not swept:
        line.set_marker("none")
        if point.place:
            parts += _draw_intervals(axes, [point], look["color"])
            parts += axes.plot(*point.place, **look)
    return [*parts, line]


def _draw_intervals(
    axes: Axes, line: Sequence[TradeoffPoint], colour: str, *, faint: bool = False
) -> list[DrawnArtist]:
    xerr = [point.x.half or 0.0 for point in line]
    yerr = [point.y.half or 0.0 for point in line]
    if not (any(xerr) or any(yerr)):
        return []
    bars = axes.errorbar(
        *_places(line),
        xerr=xerr,
        yerr=yerr,
        fmt="none",
        ecolor=colour,
        elinewidth=0.5 if faint else 0.8,
        alpha=0.4 if faint else 0.55,
    )
    return [bars]


def _draw_band(axes: Axes, line: Sequence[TradeoffPoint], colour: str) -> list[DrawnArtist]:
    """Draw the intervals of y as a band; a swept x has no interval."""
    xs, ys = _places(line)
    halves = [point.y.half or 0.0 for point in line]
    if not any(halves):
        return []
    low = [y - half for y, half in zip(ys, halves, strict=True)]
    high = [y + half for y, half in zip(ys, halves, strict=True)]
    return [axes.fill_between(xs, low, high, **band_style(colour))]


def _places(line: Sequence[TradeoffPoint]) -> tuple[list[float], list[float]]:
    places = [point.place for point in line if point.place]
    return [x for x, _ in places], [y for _, y in places]


def _draw_reach(axes: Axes, swept: tuple[float, float] | None) -> None:
    """Extend the x axis to the whole sweep, including parts where no trial has values."""
    if swept is not None and swept[0] < swept[1]:
        low, high = swept
        edge = (high - low) * END / (1 - 2 * END)
        axes.set_xlim(low - edge, high + edge)


def _draw_diagonal(axes: Axes, plane: PlotAxes) -> list[Line2D]:
    """Draw the line y = x if it crosses the visible range."""
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
    """Draw the frontier within the algorithms' x range, so that it does not squeeze their lines."""
    left, right = axes.get_xlim()
    within = [point for point in frontier if left <= point[0] <= right]
    if not within:
        return []
    xs, ys = zip(*within, strict=True)
    look: dict[str, Any] = {"color": GREY, "linewidth": 1.2, "zorder": 1.5}
    lines = axes.plot(xs, ys, "--", label="best possible", **look)
    axes.set_xlim(left, right)
    return lines


def _draw_levels(axes: Axes, levels: Sequence[ConstraintLevel], along: Literal["x", "y"]) -> None:
    """Draw and label lines at constraint limits, or none if there are too many."""
    if not 0 < len(levels) <= MANY_LEVELS:
        return
    upright = along == "x"
    line = axes.axvline if upright else axes.axhline
    for level in levels:
        line(level.value, color=GREY, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
    second = axes.secondary_xaxis("top") if upright else axes.secondary_yaxis("right")
    second.spines["top" if upright else "right"].set_visible(False)
    slanted: dict[str, Any] = {"rotation": 45, "ha": "left"} if upright and len(levels) > 1 else {}
    ticks = second.set_xticks if upright else second.set_yticks
    ticks([level.value for level in levels], [level.label for level in levels], **slanted)
    second.tick_params(length=0, pad=1, labelsize=7, labelcolor=GREY)


def _legend(figure: Figure, axes: Axes, handles: Sequence[Line2D], title: str) -> None:
    if len(handles) > TALL:
        legend_below(figure, handles, title)
    elif len(handles) > MAX_LEGEND_ENTRIES:
        figure.set_size_inches(SIZE[0] + 2.2, SIZE[1])
        figure.legend(handles=handles, title=title, loc="outside right upper", alignment="left")
    else:
        axes.legend(handles=handles, title=title, loc="best", alignment="left")


def _describe_point(found: Sequence[TradeoffSeries]) -> str:
    """Explain a point and its interval."""
    counts = [point.y.n for series in found for line in series.lines for point in line]
    least, most = min(counts), max(counts)
    if most == 1:
        return "one seed, no intervals"
    return (
        "mean and 95 % Student-t interval over "
        f"{most if least == most else f'{least} to {most}'} seeds"
    )

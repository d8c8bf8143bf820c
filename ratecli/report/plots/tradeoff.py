"""Trade-off plots: one metric over another, or over a swept name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ratecli.config.report import TradeoffPlot
from ratecli.ledger.view import Ledger
from ratecli.report.plots.figure import (
    DOTTED,
    GREY,
    MAX_COLUMNS,
    PANEL,
    SIZE,
    PlotImage,
    Tooltips,
    describe_count,
    empty_figure,
    label_panel,
    legend_below,
    make_plot_image,
    mark_empty,
    panel_columns,
)
from ratecli.report.plots.lines import (
    EDGE,
    PlotAxes,
    SweepLine,
    collect_lines,
    draw_line,
    legend_handles,
    unnamed_lines_note,
)
from ratecli.report.plots.options import (
    PlotRequest,
    PlotSelection,
    missing_variant_notes,
    panel_selections,
)

REFERENCE: dict[str, Any] = {"color": GREY, "linewidth": 1.1, "marker": "", "zorder": 1.5}
"""The style of the diagonal and of the known frontier."""
LONG_DASHES = (0, (9, 4))
WIDE_PANEL = (4.3, 3.4)
"""Panel size in inches if there are two panels in a row, one for each split."""
MAX_LEVELS = 8
"""More constraint limits on an axis are not drawn."""
MAX_LEGEND_INSIDE, MAX_LEGEND_BESIDE = 6, 16
"""A legend with more entries is placed beside the axes, or below them."""
MANY_PLACES = 60
"""If all lines together have more points, markers are small and intervals faint."""


def plot_axes(ledger: Ledger, plot: PlotRequest[TradeoffPlot], split: str) -> PlotAxes:
    """Return the axes; a name that is both a metric and swept means the metric."""
    x = plot.options.x
    return PlotAxes(x, plot.options.y, split, x not in ledger.metrics and x in ledger.sweep)


def draw_tradeoff(ledger: Ledger, plot: PlotRequest[TradeoffPlot]) -> PlotImage:
    """Draw a trade-off plot, with a panel for each value of `by` and each split."""
    axes, splits = plot_axes(ledger, plot, plot.splits[0]), " and ".join(plot.splits)
    caption = plot.options.title or f"{axes.y} against {axes.x} ({splits})"
    lines = (
        f"A line for each algorithm and variant along {axes.x}"
        if axes.swept
        else "A mark for each algorithm, variant and sweep point, with lines along the sweep"
    )
    limits = "; dotted: limits set by constraints" * any(constraint_levels(ledger, plot).values())
    best = "; dashed: the best that any rule can achieve" * bool(known_frontier(ledger, plot))
    what = f"{axes.y} over {axes.x} on {splits} rows. {lines}{limits}{best}."
    return make_plot_image(plot.name, caption, partial(_figure, ledger, plot), what)


def constraint_levels(
    ledger: Ledger, plot: PlotRequest[TradeoffPlot]
) -> dict[Literal["x", "y"], list[Mapping[str, Any]]]:
    """Return the limits that constraints set on each axis, as stored by the run."""
    stored: Sequence[Mapping[str, Any]] = ledger.meta.get("plots") or ()
    levels = stored[plot.position] if plot.position < len(stored) else {}
    return {"x": levels.get("levels") or [], "y": levels.get("heights") or []}


def known_frontier(ledger: Ledger, plot: PlotRequest[TradeoffPlot]) -> list[tuple[float, float]]:
    """Return the points of the best possible trade-off, if the data set provides it."""
    return (ledger.meta.get("frontier") or {}).get(str(plot.position)) or []


def _figure(ledger: Ledger, plot: PlotRequest[TradeoffPlot], tooltips: Tooltips) -> Figure:
    """Draw all panels.

    Panels have their own axes, as magnitudes may differ. Panels that differ only in the split are
    side by side and share axes.
    """
    selections, splits = panel_selections(ledger, plot.options), plot.splits
    panels = [(plot_axes(ledger, plot, split), each) for each in selections for split in splits]
    single = len(panels) == 1 and not selections[0].at
    columns = len(splits) if len(splits) > 1 else panel_columns(len(panels))
    rows = -(-len(panels) // columns)
    wide = columns < MAX_COLUMNS and not selections[0].at
    width, height = SIZE if single else WIDE_PANEL if wide else PANEL
    title = plot.options.title or ""
    figure = empty_figure((max(width * columns, SIZE[0]), height * rows), "" if single else title)
    lines: list[SweepLine] = []
    handles: list[Line2D] = []
    for position, (names, selection) in enumerate(panels):
        column = position % columns
        like = figure.axes[-1] if len(splits) > 1 and column else None
        axes = figure.add_subplot(rows, columns, position + 1, sharex=like, sharey=like)
        if single:
            axes.set(title=title, xlabel=names.x_label, ylabel=names.y_label)
        else:
            x, y = (names.x, names.y) if len(splits) > 1 else (names.x_label, names.y_label)
            lowest = position + columns >= len(panels)
            label_panel(axes, _panel_title(names, selection, splits), x * lowest, y * (not column))
            axes.locator_params(nbins=7 if wide else 5)
        drawn, entries = _fill(axes, ledger, plot, (names, selection), tooltips)
        lines, handles = lines + drawn, handles + entries
        if not drawn:
            mark_empty(axes)
    if lines:
        notes = [_describe_point(lines), *unnamed_lines_note(lines)]
        notes += missing_variant_notes(ledger, selections[0])
        _add_legend(figure, handles, notes, single=single)
    return figure


def _panel_title(names: PlotAxes, selection: PlotSelection, splits: Sequence[str]) -> str:
    if len(splits) == 1:
        return selection.title
    return f"{selection.title} ({names.split})" if selection.title else names.split


def _fill(
    axes: Axes,
    ledger: Ledger,
    plot: PlotRequest[TradeoffPlot],
    panel: tuple[PlotAxes, PlotSelection],
    tooltips: Tooltips,
) -> tuple[list[SweepLine], list[Line2D]]:
    """Draw one panel; return its lines and legend handles."""
    names, selection = panel
    lines = collect_lines(ledger, names, selection)
    for axis, levels in constraint_levels(ledger, plot).items():
        _draw_levels(axes, [level for level in levels if _in_panel(level, selection)], axis)
    crowded = not names.swept and sum(len(line.points) for line in lines) > MANY_PLACES
    labels = "" if names.swept else names.x_label, names.y_label
    for line in lines:
        draw_line(axes, line, tooltips, labels, band=names.swept, crowded=crowded)
    _extend_to_sweep(axes, ledger, names, selection)
    references = _draw_frontier(axes, known_frontier(ledger, plot)) if lines else []
    if lines and plot.options.diagonal:
        references += _draw_diagonal(axes, names)
    for artist in references:
        tooltips.add_series(str(artist.get_label()), artist)
    return lines, legend_handles(lines) + references


def _in_panel(level: Mapping[str, Any], selection: PlotSelection) -> bool:
    """Return whether a limit applies to a panel: to all, or only to one value of `by`."""
    panel = level.get("panel")
    return panel is None or not selection.at or repr(panel) == repr(selection.at[1])


def swept_range(
    ledger: Ledger, names: PlotAxes, selection: PlotSelection
) -> tuple[float, float] | None:
    """Return the smallest and largest planned value of a swept x for the selected algorithms."""
    values = [
        float(trial.point[names.x])
        for trial in ledger.plan
        if names.swept and names.x in trial.point
        if selection.includes_trial(trial) and trial.label not in selection.lines
    ]
    return (min(values), max(values)) if values else None


def _extend_to_sweep(axes: Axes, ledger: Ledger, names: PlotAxes, selection: PlotSelection) -> None:
    """Extend the x axis to the whole sweep, including parts where no trial has values."""
    low, high = swept_range(ledger, names, selection) or (0.0, 0.0)
    if low < high:
        edge = (high - low) * EDGE / (1 - 2 * EDGE)
        axes.set_xlim(low - edge, high + edge)


def _draw_diagonal(axes: Axes, names: PlotAxes) -> list[Line2D]:
    """Draw the line y = x if it crosses the visible range."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    low, high = max(left, bottom), min(right, top)
    label = f"{names.y} = {names.x}" + ", met exactly" * names.swept
    if low >= high:
        return []
    lines = axes.plot([low, high], [low, high], label=label, **REFERENCE, linestyle=LONG_DASHES)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    return lines


def _draw_frontier(axes: Axes, frontier: Iterable[tuple[float, float]]) -> list[Line2D]:
    """Draw the frontier within the algorithms' x range, so that it does not squeeze their lines."""
    left, right = axes.get_xlim()
    within = [point for point in frontier if left <= point[0] <= right]
    if not within:
        return []
    xs, ys = zip(*within, strict=True)
    lines = axes.plot(xs, ys, label="best possible", **REFERENCE, linestyle="--")
    axes.set_xlim(left, right)
    return lines


def _draw_levels(axes: Axes, levels: Sequence[Mapping[str, Any]], axis: Literal["x", "y"]) -> None:
    """Draw and label lines at constraint limits, or none if there are too many."""
    if not 0 < len(levels) <= MAX_LEVELS:
        return
    values = [float(level["value"]) for level in levels]
    draw = axes.axvline if axis == "x" else axes.axhline
    for value in values:
        draw(value, linewidth=0.7, **DOTTED)
    second = axes.secondary_xaxis("top") if axis == "x" else axes.secondary_yaxis("right")
    second.spines[:].set_visible(False)
    slanted: dict[str, Any] = {}
    if axis == "x" and len(levels) > 1:
        slanted = {"rotation": 45, "ha": "left"}
    ticks = second.set_xticks if axis == "x" else second.set_yticks
    ticks(values, [str(level["label"]) for level in levels], **slanted)
    second.tick_params(length=0, pad=1, labelsize=7, labelcolor=GREY)


def _add_legend(
    figure: Figure, handles: Sequence[Line2D], notes: Sequence[str], *, single: bool
) -> None:
    if not single or len(handles) > MAX_LEGEND_BESIDE:
        legend_below(figure, handles, notes)
        return
    legend: dict[str, Any] = {"handles": handles, "title": "\n".join(notes), "alignment": "left"}
    if len(handles) > MAX_LEGEND_INSIDE:
        figure.set_size_inches(SIZE[0] + 2.2, SIZE[1])
        figure.legend(loc="outside right upper", **legend)
    else:
        figure.axes[0].legend(loc="best", **legend)


def _describe_point(lines: Sequence[SweepLine]) -> str:
    """Explain a point and its interval."""
    counts = [point.y.n for line in lines for point in line.points]
    if max(counts) == 1:
        return "one seed, no intervals"
    return f"mean and 95 % Student-t interval over {describe_count(counts, 'seed')}"

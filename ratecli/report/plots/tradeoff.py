"""Trade-off plots: one metric over another, or over a swept name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ratecli.config.report import TradeoffPlot
from ratecli.ledger.view import Ledger
from ratecli.report.plots import canvas
from ratecli.report.plots.canvas import (
    PlotDescription,
    PlotRequest,
    PlotSelection,
    Tooltips,
    missing_variant_notes,
    panel_selections,
)
from ratecli.report.plots.lines import (
    PlotAxes,
    SweepLine,
    collect_lines,
    draw_line,
    legend_handles,
    unnamed_lines_note,
)

REFERENCE: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.1, "marker": "", "zorder": 1.5}
"""The style of the diagonal and of the known frontier."""
LONG_DASHES = (0, (9, 4))
WIDE_PANEL = (4.3, 3.4)
"""Panel size in inches if there are two panels in a row, one for each split."""
MAX_LEGEND_INSIDE, MAX_LEGEND_BESIDE = 6, 16
"""A legend with more entries is placed beside the axes, or below them."""
MANY_PLACES = 60
"""If all lines together have more points, markers are small and intervals faint."""


def plot_axes(ledger: Ledger, plot: PlotRequest[TradeoffPlot], split: str) -> PlotAxes:
    """Return the axes; a name that is both a metric and swept means the metric."""
    x = plot.options.x
    return PlotAxes(x, plot.options.y, split, x not in ledger.metrics and x in ledger.sweep)


def describe_tradeoff(ledger: Ledger, plot: PlotRequest[TradeoffPlot]) -> PlotDescription:
    axes, splits = plot_axes(ledger, plot, plot.splits[0]), " and ".join(plot.splits)
    lines = (
        f"A line for each algorithm and variant along {axes.x}"
        if axes.swept
        else "A mark for each algorithm, variant and sweep point, with lines along the sweep"
    )
    limits = "; dotted: limits set by constraints" * any(constraint_levels(ledger, plot).values())
    best = "; dashed: the best that any rule can achieve" * bool(known_frontier(ledger, plot))
    what = f"{axes.y} over {axes.x} on {splits} rows. {lines}{limits}{best}."
    return PlotDescription(f"{axes.y} against {axes.x} ({splits})", what)


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


def draw_tradeoff(ledger: Ledger, plot: PlotRequest[TradeoffPlot], tooltips: Tooltips) -> Figure:
    """Draw a panel for each value of `by` and each split.

    Panels have their own axes, as magnitudes may differ. Panels that differ only in the split are
    side by side and share axes.
    """
    selections, splits = panel_selections(ledger, plot.options), plot.splits
    panels = [(plot_axes(ledger, plot, split), each) for each in selections for split in splits]
    single = len(panels) == 1 and not selections[0].at
    columns = len(splits) if len(splits) > 1 else canvas.panel_columns(len(panels))
    rows = -(-len(panels) // columns)
    wide = columns < canvas.MAX_COLUMNS and not selections[0].at
    width, height = canvas.SIZE if single else WIDE_PANEL if wide else canvas.PANEL
    title = plot.options.title or ""
    figure = canvas.empty_figure(
        (max(width * columns, canvas.SIZE[0]), height * rows), "" if single else title
    )
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
            canvas.label_panel(
                axes, _panel_title(names, selection, splits), x * lowest, y * (not column)
            )
            axes.locator_params(nbins=7 if wide else 5)
        drawn, entries = _fill(axes, ledger, plot, (names, selection), tooltips)
        lines, handles = lines + drawn, handles + entries
        if not drawn:
            canvas.mark_empty(axes)
    if lines:
        counts = [point.y.n for line in lines for point in line.points]
        intervals = "mean and 95 % Student-t interval over {}"
        notes = [canvas.describe_intervals(counts, intervals), *unnamed_lines_note(lines)]
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
        own = [level for level in levels if _in_panel(level, selection)]
        canvas.draw_levels(axes, [(float(each["value"]), str(each["label"])) for each in own], axis)
    crowded = not names.swept and sum(len(line.points) for line in lines) > MANY_PLACES
    labels = "" if names.swept else names.x_label, names.y_label
    for line in lines:
        draw_line(axes, line, tooltips, labels, band=names.swept, crowded=crowded)
    canvas.cover_sweep(axes, swept_values(ledger, names, selection))
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


def swept_values(ledger: Ledger, names: PlotAxes, selection: PlotSelection) -> list[float]:
    """Return the planned values of a swept x for the selected algorithms."""
    return [
        float(trial.point[names.x])
        for trial in ledger.plan
        if names.swept and names.x in trial.point
        if selection.includes_trial(trial) and trial.label not in selection.lines
    ]


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


def _add_legend(
    figure: Figure, handles: Sequence[Line2D], notes: Sequence[str], *, single: bool
) -> None:
    if not single or len(handles) > MAX_LEGEND_BESIDE:
        canvas.legend_below(figure, handles, notes)
        return
    legend: dict[str, Any] = {"handles": handles, "title": "\n".join(notes), "alignment": "left"}
    if len(handles) > MAX_LEGEND_INSIDE:
        figure.set_size_inches(canvas.SIZE[0] + 2.2, canvas.SIZE[1])
        figure.legend(loc="outside right upper", **legend)
    else:
        figure.axes[0].legend(loc="best", **legend)

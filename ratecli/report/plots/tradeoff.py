"""Trade-off plots: one metric over another, or over a swept name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ratecli.config.report import TradeoffPlot
from ratecli.ledger.view import Ledger
from ratecli.report.plots.canvas import (
    GREY,
    Canvas,
    PlotRequest,
    PlotSelection,
    cover_sweep,
    describe_intervals,
    draw_levels,
    mark_empty,
    panel_selections,
)
from ratecli.report.plots.lines import (
    PlotAxes,
    SweepLine,
    axis_labels,
    collect_lines,
    cut_intervals,
    describe_cut,
    draw_lines,
    legend_handles,
)

REFERENCE: dict[str, Any] = {"color": GREY, "linewidth": 1.1, "marker": "", "zorder": 1.5}
"""The style of the diagonal and of the known frontier."""
LONG_DASHES = (0, (9, 4))
SIDES: tuple[tuple[Literal["x", "y"], str], ...] = (("x", "levels"), ("y", "heights"))
"""The axes, with the names of their stored limits."""


def plot_axes(ledger: Ledger, plot: PlotRequest[TradeoffPlot], split: str) -> PlotAxes:
    """Return the axes; a name that is both a metric and swept means the metric."""
    x = plot.options.x
    return PlotAxes(x, plot.options.y, split, x not in ledger.metrics and x in ledger.sweep)


def draw_tradeoff(ledger: Ledger, plot: PlotRequest[TradeoffPlot]) -> Canvas:
    """Draw a panel for each value of `by` and each split.

    Panels have their own axes, as magnitudes may differ. Panels that differ only in the split are
    side by side and share axes.
    """
    selections, splits = panel_selections(ledger, plot.options), plot.splits
    several = len(splits) > 1
    x, y, rows = plot.options.x, plot.options.y, " and ".join(splits)
    what = (
        f"{y} over {x} on {rows} rows: a mark for each algorithm, variant and sweep point, with "
        "lines along the sweep. Dotted: limits set by constraints; dashed: references."
    )
    most = len(splits) if several else 3
    panels = len(selections) * len(splits)
    canvas = Canvas(f"{y} against {x} ({rows})", what, plot.options.title, panels, most)
    found: list[SweepLine] = []
    handles: list[Line2D] = []
    cut = 0
    for selection in selections:
        first = None
        for split in splits:
            names = plot_axes(ledger, plot, split)
            labels = axis_labels(ledger, names, "" if several else split)
            title = ", ".join(filter(None, [selection.title, split if several else ""]))
            axes = canvas.panel(title, *labels, sharex=first, sharey=first)
            first = axes if several else None
            lines = collect_lines(ledger, names, selection)
            draw_lines(axes, lines, swept=names.swept)
            limits = _draw_limits(axes, ledger, plot, selection)
            if names.swept:
                trials = [trial for trial in ledger.plan if selection.includes_trial(trial)]
                cover_sweep(axes, [float(t.point[names.x]) for t in trials if names.x in t.point])
            cut += cut_intervals(axes, lines, limits)
            found += lines
            handles += legend_handles(lines)
            if lines:
                handles += _draw_references(axes, ledger, plot, names)
            else:
                mark_empty(axes)
    if found:
        counts = [point.y.n for line in found for point in line.points]
        intervals = "mean and 95 % Student-t interval over {}"
        canvas.add_legend(handles, [describe_intervals(counts, intervals), *describe_cut(cut)])
    return canvas


def _draw_limits(
    axes: Axes, ledger: Ledger, plot: PlotRequest[TradeoffPlot], selection: PlotSelection
) -> list[list[float]]:
    """Draw the limits that constraints set on the axes of a panel, as stored by the run.

    Return those on x and on y.
    """
    stored: Sequence[Mapping[str, Any]] = ledger.meta.get("plots") or ()
    levels = stored[plot.position] if plot.position < len(stored) else {}
    if not ledger.report_entries("plots"):
        levels = {"levels": [{"value": 0.0, "label": "limit"}]}
    drawn = []
    for axis, name in SIDES:
        own = [
            (float(each["value"]), str(each["label"]))
            for each in levels.get(name) or ()
            if not selection.at or each.get("panel") in {None, selection.at[1]}
        ]
        draw_levels(axes, own, axis)
        drawn.append([value for value, _ in own])
    return drawn


def _draw_references(
    axes: Axes, ledger: Ledger, plot: PlotRequest[TradeoffPlot], names: PlotAxes
) -> list[Line2D]:
    """Draw the known frontier and the line y = x, within the range of the algorithms' lines."""
    left, right = axes.get_xlim()
    frontier = (ledger.meta.get("frontier") or {}).get(str(plot.position)) or ()
    within = [point for point in frontier if left <= point[0] <= right]
    lines = []
    if within:
        xs, ys = zip(*within, strict=True)
        lines += axes.plot(xs, ys, label="best possible", **REFERENCE, linestyle="--")
        axes.set_xlim(left, right)
    if plot.options.diagonal:
        bottom, top = axes.get_ylim()
        label = f"{names.y} = {names.x}" + ", met exactly" * names.swept
        ends = [left, right]
        lines += axes.plot(ends, ends, label=label, **REFERENCE, linestyle=LONG_DASHES)
        axes.set(xlim=(left, right), ylim=(bottom, top))
    return lines

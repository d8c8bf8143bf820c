"""Plots of filters: bars of group shares before and after, and heat maps of a proxy's posteriors.

See Figures 3 and 4 of Deng, Diana, Kearns and Roth (2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ratecli.config.report import BaseFilterPlot, GroupSharesPlot, PosteriorsPlot
from ratecli.config.sweep import has_one_of_values
from ratecli.ledger.records import FILTERS_KEY, PlannedTrial
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.groups import IntervalEstimate, estimate_mean, group_by
from ratecli.report.plots import canvas
from ratecli.report.plots.canvas import PlotDescription, PlotRequest, PlotSelection, Tooltips
from ratecli.report.sheet import estimate_cell, format_number, format_point

MARGIN = 0.08
"""Margin in inches on either side, as row labels may be wider than the layout assumes."""


@dataclass(frozen=True)
class FilterEffect:
    """The effect of a filter on the rows of a split in one of K groups.

    See `ratecli.sampling.filter_summary`.

    Attributes
    ----------
    groups, base
        (K,) names of the groups, and their shares of all these rows.
    size, keep
        (L,) for each value of the proxy, its share of the rows and their probability of being kept.
    posterior
        (L, K) shares of the groups among the rows with a value of the proxy, None if there are
        none.
    after
        (K,) shares of the groups among the rows expected to be kept, None if there are none.
    """

    groups: Sequence[str]
    base: Sequence[float]
    size: Sequence[float]
    keep: Sequence[float]
    posterior: Sequence[Sequence[float] | None]
    after: Sequence[float] | None


@dataclass(frozen=True)
class FilterPanel:
    """An algorithm at a sweep point, with a trial for each seed."""

    title: str
    trials: Sequence[PlannedTrial]


def filter_panels(ledger: Ledger, options: BaseFilterPlot) -> list[FilterPanel]:
    """Return the panels in plan order, of other algorithms than filters only if requested."""
    selection = PlotSelection.of(options)
    filters = {trial.label for trial in ledger.plan if _filters(ledger, trial)}
    shown = [
        trial
        for trial in ledger.plan
        if has_one_of_values(trial.point, options.at)
        if (selection.includes(trial.label) if selection.algorithms else trial.label in filters)
    ]
    found = group_by(shown, lambda trial: (trial.label, repr(trial.point)))
    several = len({label for label, _ in found}) > 1
    return [FilterPanel(_title(ledger, each[0], several), each) for each in found.values()]


def _title(ledger: Ledger, trial: PlannedTrial, several: bool) -> str:
    """Return a title that distinguishes the panel: the algorithm and its varying names."""
    points = [other.point for other in ledger.plan if other.label == trial.label]
    varying = {
        name: value
        for name, value in trial.point.items()
        if len({repr(point.get(name)) for point in points}) > 1
    }
    label = trial.label if several or not varying else ""
    return ", ".join(filter(None, [label, format_point(varying)]))


def filter_effect(
    ledger: Ledger, options: BaseFilterPlot, trial: PlannedTrial, split: str
) -> FilterEffect | None:
    """Return a trial's stored filter effect.

    None without results or without the plot's variant or column or the split.
    """
    variants = _filters(ledger, trial)
    named = options.variant if len(variants) > 1 else None  # an only variant always counts
    variant = variants.get(named or next(iter(variants), ""), {})
    columns = variant.get("columns") or {}
    column = columns.get(options.column or next(iter(columns), ""), {})
    stored = column.get("splits", {}).get(split)
    if stored is None:
        return None
    shares = {key: stored[key] for key in ("base", "size", "posterior", "after")}
    return FilterEffect(groups=column["groups"], keep=variant["keep"], **shares)


def group_column(ledger: Ledger, options: BaseFilterPlot) -> str:
    """Return the column of the plotted groups, or "groups" if it is unknown."""
    columns = (
        column
        for trial in ledger.plan
        for variant in _filters(ledger, trial).values()
        for column in variant["columns"]
    )
    return options.column or next(columns, "groups")


def _filters(ledger: Ledger, trial: PlannedTrial) -> Mapping[str, Any]:
    """Return the stored summaries of a trial's filters, by variant."""
    if ledger.status(trial) not in MEASURED_STATUSES:
        return {}
    return ledger.results[trial.key].info.get(FILTERS_KEY) or {}


def _filter_figure(options: BaseFilterPlot, *, empty: bool) -> Figure:
    figure = canvas.empty_figure(canvas.SIZE, options.title)
    figure.set_layout_engine("constrained", w_pad=MARGIN)
    if empty:
        figure.text(0.5, 0.5, canvas.NO_NUMBERS, ha="center")
    return figure


BEFORE = "#bdbdbd"
THICKNESS = 0.38
"""Thickness of a bar; two bars and a gap make 1."""
GROUP_HEIGHT = 0.24
"""Height of a group's two bars in inches."""
SHARES_MARGIN = 0.75
"""Height of a panel's title and x axis in inches."""
LETTER = 0.07
"""Width of a character of a group's name in inches."""
ALL, KEPT, UNIFORM = "all rows", "kept rows", "uniform share"
DASHED: dict[str, Any] = {"color": canvas.GREY, "linewidth": 1.0, "linestyle": "--"}


@dataclass(frozen=True)
class ShareBars:
    """One panel: shares (K,) of groups, as means over seeds, among all rows and among kept rows.

    Without results, there are no groups.
    """

    title: str
    groups: Sequence[str] = ()
    before: Sequence[IntervalEstimate] = ()
    after: Sequence[IntervalEstimate] = ()

    @property
    def largest(self) -> float:
        """The largest share that a bar, an interval or the dashed line reaches."""
        ends = [each.high or each.mean or 0.0 for each in (*self.before, *self.after)]
        return max([1 / len(self.groups), *ends])


def describe_group_shares(ledger: Ledger, plot: PlotRequest[GroupSharesPlot]) -> PlotDescription:
    column, splits = group_column(ledger, plot.options), " and ".join(plot.splits)
    what = (
        "Shares of the groups among all rows and among those that the filter is expected to keep. "
        "The dashed line is the share of each group if all were of the same size."
    )
    return PlotDescription(f"Shares of {column} before and after ({splits})", what)


def share_bars(
    ledger: Ledger, options: GroupSharesPlot, panel: FilterPanel, split: str
) -> ShareBars:
    """Average over the trials with results; the groups are those of the first one."""
    stored = (filter_effect(ledger, options, trial, split) for trial in panel.trials)
    effects = [effect for effect in stored if effect]
    title = f"{panel.title} ({split})" if panel.title else split
    if not effects:
        return ShareBars(title)
    groups = effects[0].groups
    kept = [each.after for each in effects if each.after is not None]
    before = [estimate_mean(each.base[k] for each in effects) for k in range(len(groups))]
    after = [estimate_mean(each[k] for each in kept) for k in range(len(groups))]
    return ShareBars(title, groups, before, after)


def draw_group_shares(
    ledger: Ledger, plot: PlotRequest[GroupSharesPlot], tooltips: Tooltips
) -> Figure:
    """Draw rows of sweep points, each repeated for every split, with equal x limits."""
    panels = filter_panels(ledger, plot.options)
    columns = canvas.panel_columns(len(panels)) or 1
    rows = [
        [share_bars(ledger, plot.options, panel, split) for panel in panels[at : at + columns]]
        for at in range(0, len(panels), columns)
        for split in plot.splits
    ]
    drawn = [bars for row in rows for bars in row if bars.groups]
    figure = _filter_figure(plot.options, empty=not drawn)
    if not drawn:
        return figure
    names = LETTER * max(len(name) for bars in drawn for name in bars.groups)
    width = max(canvas.PANEL[0] * 0.85 * columns + names, canvas.SIZE[0])
    height = SHARES_MARGIN + GROUP_HEIGHT * max(len(bars.groups) for bars in drawn)
    figure.set_size_inches(width, height * len(rows))
    limit = 1.04 * max(bars.largest for bars in drawn)
    for number, row in enumerate(rows):
        for position, bars in enumerate(row):
            axes = figure.add_subplot(len(rows), columns, number * columns + position + 1)
            canvas.label_panel(axes, bars.title, "share" if number == len(rows) - 1 else "")
            if bars.groups:
                named = not position or bars.groups != row[position - 1].groups
                _draw_bars(axes, bars, tooltips, named=named)
                axes.set_xlim(0, limit)
            else:
                axes.set_yticks([])
                canvas.mark_empty(axes)
    entries = [Patch(color=BEFORE, label=ALL), Patch(color=canvas.COLOURS[0], label=KEPT)]
    uniform = Line2D([], [], label=UNIFORM, **DASHED)
    canvas.legend_below(figure, [*entries, uniform], [_describe_bars(drawn)])
    return figure


def _draw_bars(axes: Axes, bars: ShareBars, tooltips: Tooltips, *, named: bool) -> None:
    """Draw one panel: for each group, the bar of all rows above the bar of kept rows."""
    both = ((bars.before, BEFORE, -1, ALL), (bars.after, canvas.COLOURS[0], 1, KEPT))
    for shares, colour, side, label in both:
        for place, (group, share) in enumerate(zip(bars.groups, shares, strict=True)):
            mean, y = share.mean or 0.0, place + side * THICKNESS / 2
            bar = axes.barh(y, mean, height=THICKNESS, color=colour, zorder=2)
            tooltips.add_series(label, bar)
            if share.half:
                style: dict[str, Any] = {"ecolor": "black", "elinewidth": 0.8, "zorder": 3}
                interval = axes.errorbar(mean, y, xerr=share.half, fmt="none", **style)
                tooltips.add_series(label, interval)
            facts = (("group", group), ("share", estimate_cell(share).text), ("n", str(share.n)))
            ends = y - THICKNESS / 2, y + THICKNESS / 2
            tooltips.add_mark(axes, (0.0, mean), ends, facts, label=label)
    line = axes.axvline(1 / len(bars.groups), zorder=2.5, **DASHED)
    tooltips.add_series(UNIFORM, line)
    names = bars.groups if named else [""] * len(bars.groups)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _describe_bars(drawn: Sequence[ShareBars]) -> str:
    counts = [each.n for bars in drawn for each in (*bars.before, *bars.after)]
    return canvas.describe_intervals(counts, "bars: mean over {}, with its 95 % Student-t interval")


COLOUR_MAP = "Blues"
DARK = 0.55
"""Cells with at least this share are dark and have white numbers."""
CELL = (0.4, 0.25)
"""Size of a cell in inches."""
ROW_LABELS = 1.3
"""Width in inches of the row labels beside a panel."""
POSTERIORS_MARGIN = 1.15
"""Height in inches of a panel's title and group names."""
MAX_WIDTH = 11.5
"""Maximum width in inches of a figure with several panels."""
COLOUR_BAR = 0.9
"""Width in inches of the colour bar."""
GAP = 0.35
"""Gap between the cells for all rows and those for the first value, in cell heights."""


def describe_posteriors(ledger: Ledger, plot: PlotRequest[PosteriorsPlot]) -> PlotDescription:
    groups, split, seed = group_column(ledger, plot.options), plot.options.split, plot.options.seed
    if seed is None:
        panels = filter_panels(ledger, plot.options)
        seed = next((panel.trials[0].seed for panel in panels), 0)
    what = (
        "Shares of the groups for each value of the filter's proxy: a row of cells has the share "
        "of every group among the rows with this value. If the proxy disclosed nothing, all rows "
        "of cells would be alike."
    )
    caption = f"Shares of {groups} by the proxy's values ({split}, seed {seed})"
    return PlotDescription(caption, what)


def posterior_table(
    ledger: Ledger, options: PosteriorsPlot, panel: FilterPanel
) -> pd.DataFrame | None:
    """Return shares of groups (columns) for all rows, then for each value of the proxy.

    The label of a value has its share of the rows and its probability of being kept. Shares are
    NaN if no row has the value. Without results of the seed, there is no table.
    """
    seeds = [trial for trial in panel.trials if options.seed in {None, trial.seed}]
    effect = filter_effect(ledger, options, seeds[0], options.split) if seeds else None
    if effect is None:
        return None
    names = [
        f"{k} ({100 * size:.3g} %, {keep:.2g})"
        for k, (size, keep) in enumerate(zip(effect.size, effect.keep, strict=True), 1)
    ]
    unknown = [math.nan] * len(effect.groups)
    rows = [effect.base, *(row or unknown for row in effect.posterior)]
    return pd.DataFrame(rows, index=["all rows", *names], columns=list(effect.groups))


def draw_posteriors(
    ledger: Ledger, plot: PlotRequest[PosteriorsPlot], tooltips: Tooltips
) -> Figure:
    """Draw the heat maps of one seed with cells of equal size, aligned at their tops."""
    panels = filter_panels(ledger, plot.options)
    tables = [posterior_table(ledger, plot.options, panel) for panel in panels]
    shapes = [table.shape for table in tables if table is not None]
    figure = _filter_figure(plot.options, empty=not shapes)
    if not shapes:
        return figure
    most_columns = max(width for _, width in shapes)
    width = ROW_LABELS + most_columns * CELL[0]
    columns = max(1, min(len(panels), canvas.MAX_COLUMNS, int(MAX_WIDTH / width)))
    heights = [
        max(GAP + (2 if table is None else len(table)) for table in tables[start : start + columns])
        for start in range(0, len(panels), columns)
    ]
    size = columns * width + COLOUR_BAR, sum(POSTERIORS_MARGIN + each * CELL[1] for each in heights)
    figure.set_size_inches(max(size[0], canvas.SIZE[0]), size[1])
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    for position, (panel, table) in enumerate(zip(panels, tables, strict=True)):
        row, column = divmod(position, columns)
        axes = figure.add_subplot(grid[row, column])
        axes.grid(visible=False)
        canvas.label_panel(axes, panel.title)
        if table is None:
            axes.set(xticks=[], yticks=[])
            canvas.mark_empty(axes)
        else:
            _draw_cells(axes, table, tooltips)
            axes.set(xlim=(0, most_columns), ylim=(heights[row], 0))
    _add_colour_bar(figure)
    rows, column_name = f"{plot.options.split} rows", group_column(ledger, plot.options)
    explanation = [
        f"cells: share of a {column_name} among the {rows} with this value of the proxy",
        f"in brackets: share of all {rows}, probability of being kept",
    ]
    canvas.legend_below(figure, [], explanation)
    return figure


def _draw_cells(axes: Axes, table: pd.DataFrame, tooltips: Tooltips) -> None:
    """Draw one panel; y grows downwards, one unit per row of cells."""
    tops = [0.0, *(k + GAP for k in range(1, len(table)))]
    edges = np.arange(table.shape[1] + 1)
    style: dict[str, Any] = {"cmap": COLOUR_MAP, "vmin": 0, "vmax": 1, "edgecolors": "white"}
    text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    for (name, shares), top in zip(table.iterrows(), tops, strict=True):
        axes.pcolormesh(edges, [top, top + 1], shares.to_numpy()[None], linewidth=0.8, **style)
        for k, (group, share) in enumerate(shares.items()):
            facts = (("proxy", str(name)), ("group", str(group)), ("share", format_number(share)))
            tooltips.add_mark(axes, (k, k + 1), (top, top + 1), facts)
            colour = canvas.GREY if math.isnan(share) else "white" if share >= DARK else "black"
            label = "-" if math.isnan(share) else f"{share:.2f}"
            axes.text(k + 0.5, top + 0.5, label, color=colour, **text)
    axes.set_yticks([top + 0.5 for top in tops], table.index, fontsize=7)
    axes.xaxis.tick_top()
    axes.set_xticks(edges[:-1] + 0.5, table.columns, fontsize=7, rotation=45, ha="left")
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)


def _add_colour_bar(figure: Figure) -> None:
    scale = ScalarMappable(Normalize(0, 1), COLOUR_MAP)
    bar = figure.colorbar(scale, ax=figure.axes, fraction=0.04, aspect=25, anchor=(0.0, 1.0))
    bar.ax.tick_params(labelsize=8)
    bar.set_label("share", fontsize=8)
    bar.outline.set_visible(False)

"""Heat maps of group shares by value of a filter's proxy.

See Figure 4 of Deng, Diana, Kearns and Roth (2023).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ratecli.config.report import PosteriorsPlot
from ratecli.ledger.view import Ledger
from ratecli.report.plots import canvas
from ratecli.report.plots.canvas import PlotImage, Tooltips
from ratecli.report.plots.filters import (
    MARGIN,
    FilterPanel,
    filter_effect,
    filter_panels,
    group_column,
    missing_summary_note,
)
from ratecli.report.plots.options import PlotRequest
from ratecli.report.sheet import format_number

COLOURS = "Blues"
DARK = 0.55
"""Cells with at least this share are dark and have white numbers."""
CELL = (0.4, 0.25)
"""Size of a cell in inches."""
ROW_LABELS = 1.3
"""Width in inches of the row labels beside a panel."""
PANEL_MARGIN = 1.15
"""Height in inches of a panel's title and group names."""
MAX_WIDTH = 11.5
"""Maximum width in inches of a figure with several panels."""
COLOUR_BAR = 0.9
"""Width in inches of the colour bar."""
GAP = 0.35
"""Gap between the cells for all rows and those for the first value, in cell heights."""
WHAT = (
    "Shares of the groups for each value of the filter's proxy: a row of cells has the share of "
    "every group among the rows with this value. If the proxy disclosed nothing, all rows of cells "
    "would be alike."
)


def draw_posteriors(ledger: Ledger, plot: PlotRequest[PosteriorsPlot]) -> PlotImage:
    """Draw the heat maps of one seed."""
    panels = filter_panels(ledger, plot.options)
    seed = plot.options.seed
    if seed is None:
        seed = next((panel.trials[0].seed for panel in panels), 0)
    groups, split = group_column(ledger, plot.options), plot.options.split
    shares = f"Shares of {groups} by the proxy's values ({split}, seed {seed})"
    caption = plot.options.title or shares
    return canvas.make_plot_image(plot.name, caption, partial(_figure, ledger, plot), WHAT)


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


def _figure(ledger: Ledger, plot: PlotRequest[PosteriorsPlot], tooltips: Tooltips) -> Figure:
    """Draw all panels with cells of equal size, aligned at their tops."""
    panels = filter_panels(ledger, plot.options)
    tables = [posterior_table(ledger, plot.options, panel) for panel in panels]
    shapes = [table.shape for table in tables if table is not None]
    figure = canvas.empty_figure(canvas.SIZE, plot.options.title)
    figure.set_layout_engine("constrained", w_pad=MARGIN)
    notes = missing_summary_note(ledger, panels)
    if not shapes:
        figure.text(0.5, 0.5, canvas.NO_NUMBERS, ha="center")
        canvas.legend_below(figure, [], notes)
        return figure
    most_columns = max(width for _, width in shapes)
    width = ROW_LABELS + most_columns * CELL[0]
    columns = max(1, min(len(panels), canvas.MAX_COLUMNS, int(MAX_WIDTH / width)))
    heights = [
        max(GAP + (2 if table is None else len(table)) for table in tables[start : start + columns])
        for start in range(0, len(panels), columns)
    ]
    size = columns * width + COLOUR_BAR, sum(PANEL_MARGIN + each * CELL[1] for each in heights)
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
    canvas.legend_below(figure, [], explanation + notes)
    return figure


def _draw_cells(axes: Axes, table: pd.DataFrame, tooltips: Tooltips) -> None:
    """Draw one panel; y grows downwards, one unit per row of cells."""
    tops = [0.0, *(k + GAP for k in range(1, len(table)))]
    edges = np.arange(table.shape[1] + 1)
    style: dict[str, Any] = {"cmap": COLOURS, "vmin": 0, "vmax": 1, "edgecolors": "white"}
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
    scale = ScalarMappable(Normalize(0, 1), COLOURS)
    bar = figure.colorbar(scale, ax=figure.axes, fraction=0.04, aspect=25, anchor=(0.0, 1.0))
    bar.ax.tick_params(labelsize=8)
    bar.set_label("share", fontsize=8)
    bar.outline.set_visible(False)

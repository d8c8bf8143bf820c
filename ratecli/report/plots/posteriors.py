"""Heat maps of group shares by value of a filter's proxy.

See Figure 4 of Deng, Diana, Kearns and Roth (2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ratecli.ledger.view import Ledger
from ratecli.report.plots.filters import (
    EDGE,
    FilterEffect,
    FilterPlotOptions,
    filter_panels,
    group_column,
    missing_summary_note,
    read_filter_effect,
    read_filter_plot,
)
from ratecli.report.plots.style import (
    GREY,
    MAX_COLUMNS,
    NO_NUMBERS,
    SIZE,
    PlotImage,
    empty_figure,
    legend_below,
    make_plot_image,
    mark_empty,
)
from ratecli.report.plots.tooltips import Tooltips
from ratecli.report.sheet import format_number

COLOURS = "Blues"
DARK = 0.55
"""Cells with at least this share are dark and have white numbers."""
CELL = (0.4, 0.25)
"""Size in inches of a cell with a number."""
SMALL = (0.22, 0.16)
"""Size in inches of a cell without a number, used with too many columns or rows for numbers."""
MOST = (16, 24)
"""Maximum columns and rows of cells with numbers."""
LABELS = 1.3
"""Width in inches of the row labels beside a panel."""
HEADS = 1.15
"""Height in inches of a panel's title and group names."""
WIDTH = 11.5
"""Maximum width in inches of a figure with several panels."""
BAR = 0.9
"""Width in inches of the colour bar."""
WHAT = (
    "Who is behind the values that the filter's proxy says: a row of cells for each value, with "
    "the share of every group among the rows of which the proxy says it. Were nothing disclosed, "
    "all rows would be alike."
)
GAP = 0.35
"""Gap between the cells for all rows and those for the first value, in cell heights."""


@dataclass(frozen=True)
class PosteriorMap:
    """One panel: cells for all rows of the split, then cells for each value of the proxy.

    Attributes
    ----------
    title
        The panel's title, which identifies the filter.
    names
        Labels of the rows of cells. A value's label has its share of the rows and its probability
        of being kept.
    groups
        (K,) names of the columns.
    cells
        (1 + L, K) shares of the groups; NaN if no row has the value.
    """

    title: str
    names: tuple[str, ...]
    groups: tuple[str, ...]
    cells: tuple[tuple[float, ...], ...]


def read_posteriors(ledger: Ledger, position: int) -> FilterPlotOptions:
    """Read the plot at a position in the experiment file's list of plots."""
    return read_filter_plot(ledger, position, ("train",))


def posterior_maps(ledger: Ledger, plot: FilterPlotOptions) -> list[PosteriorMap | str]:
    """Return the panels; a panel without results is replaced by its title."""
    found: list[PosteriorMap | str] = []
    for panel in filter_panels(ledger, plot):
        seeds = [trial for trial in panel.trials if plot.seed in {None, trial.seed}]
        known = read_filter_effect(ledger, plot, seeds[0], plot.splits[0]) if seeds else None
        found.append(panel.title if known is None else _map(panel.title, known))
    return found


def posteriors_caption(ledger: Ledger, plot: FilterPlotOptions) -> str:
    seed = plot.seed
    if seed is None:
        seed = next((panel.trials[0].seed for panel in filter_panels(ledger, plot)), 0)
    what = f"{group_column(ledger, plot)} by the proxy's values"
    return plot.title or f"Shares of {what} ({plot.splits[0]}, seed {seed})"


def draw_posteriors(ledger: Ledger, plot: FilterPlotOptions) -> PlotImage:
    return make_plot_image(
        plot.name, posteriors_caption(ledger, plot), partial(_figure, ledger, plot), WHAT
    )


def _map(title: str, known: FilterEffect) -> PosteriorMap:
    nothing = (math.nan,) * len(known.groups)
    names = [
        f"{k} ({_percent(size)}, {keep:.2g})"
        for k, (size, keep) in enumerate(zip(known.size, known.keep, strict=True), 1)
    ]
    cells = (known.base, *(nothing if row is None else row for row in known.posterior))
    return PosteriorMap(title, ("all rows", *names), known.groups, cells)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 or share == 0 else f"{100 * share:.1g} %"


def _figure(ledger: Ledger, plot: FilterPlotOptions, told: Tooltips) -> Figure:
    found = posterior_maps(ledger, plot)
    drawn = [each for each in found if isinstance(each, PosteriorMap)]
    figure = empty_figure(SIZE)
    figure.set_layout_engine("constrained", w_pad=EDGE)
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=11)
    if not drawn:
        figure.text(0.5, 0.5, NO_NUMBERS, ha="center")
    else:
        _fill(figure, found, drawn, told)
    notes = missing_summary_note(ledger, filter_panels(ledger, plot))
    legend_below(figure, [], "\n".join([_explained(ledger, plot), *notes] if drawn else notes))
    return figure


def _explained(ledger: Ledger, plot: FilterPlotOptions) -> str:
    rows = f"{plot.splits[0]} rows"
    column = group_column(ledger, plot)
    return (
        f"cells: share of a {column} among the {rows} of which the proxy says the value\n"
        f"in brackets: share of all {rows}, chance of keeping"
    )


def _fill(
    figure: Figure,
    found: Sequence[PosteriorMap | str],
    drawn: Sequence[PosteriorMap],
    told: Tooltips,
) -> None:
    """Draw all panels with cells of equal size, aligned at their tops."""
    across = max(len(each.groups) for each in drawn)
    roomy = across <= MOST[0] and max(len(each.cells) for each in drawn) <= MOST[1]
    cell = CELL if roomy else SMALL
    width = LABELS + across * cell[0]
    wide = max(1, min(len(found), MAX_COLUMNS, int(WIDTH / width)))
    rows = [found[start : start + wide] for start in range(0, len(found), wide)]
    downs = [max(map(_height, row)) for row in rows]
    height = sum(HEADS + down * cell[1] for down in downs)
    figure.set_size_inches(max(wide * width + BAR, SIZE[0]), height)
    grid = figure.add_gridspec(len(rows), wide, height_ratios=downs)
    for position, each in enumerate(found):
        row, column = divmod(position, wide)
        axes = figure.add_subplot(grid[row, column])
        axes.grid(visible=False)
        if isinstance(each, str):
            axes.set_title(each, fontsize=9)
            axes.set_xticks([])
            axes.set_yticks([])
            mark_empty(axes)
        else:
            _draw(axes, each, told, numbers=roomy)
            axes.set_xlim(0, across)
            axes.set_ylim(downs[row], 0)
    _add_bar(figure)


def _write(axes: Axes, place: tuple[float, float], share: float, told: Tooltips) -> None:
    """Write the number in a cell."""
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    if math.isnan(share):
        axes.text(*place, "-", color=GREY, **look)
    else:
        colour = "white" if share >= DARK else "black"
        told.fixed(axes.text(*place, f"{share:.2f}", color=colour, **look))


def _height(shown: PosteriorMap | str) -> float:
    """Return the height of a panel in cells."""
    return 2 + GAP if isinstance(shown, str) else len(shown.cells) + GAP


def _add_bar(figure: Figure) -> None:
    scale = ScalarMappable(Normalize(0, 1), COLOURS)
    bar = figure.colorbar(scale, ax=figure.axes, fraction=0.04, aspect=25, anchor=(0.0, 1.0))
    bar.ax.tick_params(labelsize=8)
    bar.set_label("share", fontsize=8)
    bar.outline.set_visible(False)


def _draw(axes: Axes, shown: PosteriorMap, told: Tooltips, *, numbers: bool) -> None:
    """Draw one panel; y grows downwards, one unit per row of cells."""
    cells = np.array(shown.cells)
    tops = [0.0, *(k + GAP for k in range(1, len(cells)))]
    across = np.arange(cells.shape[1] + 1)
    for name, top, row in zip(shown.names, tops, cells, strict=True):
        mesh = axes.pcolormesh(
            across,
            [top, top + 1],
            row[None],
            cmap=COLOURS,
            vmin=0,
            vmax=1,
            edgecolors="white",
            linewidth=0.8,
        )
        told.fixed(mesh)
        for k, share in enumerate(row.tolist()):
            facts = (("proxy", name), ("group", shown.groups[k]), ("share", format_number(share)))
            told.box(axes, (k, k + 1), (top, top + 1), facts)
            if numbers:
                _write(axes, (k + 0.5, top + 0.5), share, told)
    axes.set_yticks([top + 0.5 for top in tops], shown.names, fontsize=7)
    axes.xaxis.tick_top()
    axes.set_xticks(across[:-1] + 0.5, shown.groups, fontsize=7, rotation=45, ha="left")
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    axes.set_title(shown.title, fontsize=9)

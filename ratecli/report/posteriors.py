"""Heat maps of who the values of a filter's proxy are (Deng, Diana, Kearns, Roth 2023, Figure 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from ratecli.report.drawing import (
    ABREAST,
    GREY,
    NOTHING,
    SIZE,
    Picture,
    empty_figure,
    legend_below,
    picture,
    say_nothing,
)
from ratecli.report.filters import (
    Census,
    FilterPlot,
    census,
    column_of,
    filter_plot,
    panels,
    untold,
)
from ratecli.report.ledger import Ledger

COLOURS = "Blues"
DARK = 0.55
"""From this share on a cell is so dark that its number is white."""
CELL = (0.4, 0.25)
"""Inches of a cell with a number."""
SMALL = (0.22, 0.16)
"""Inches of a cell without: of so many columns or rows that numbers have no room."""
MOST = (16, 24)
"""Columns and rows of cells with numbers."""
LABELS = 1.3
"""Inches beside a panel for what is said of its rows."""
HEADS = 1.15
"""Inches above a panel for its title and the names of groups."""
WIDTH = 11.5
"""Inches of a figure of several panels at most."""
GAP = 0.35
"""Between the row of all rows and the first value, in rows."""


@dataclass(frozen=True)
class Map:
    """One panel: a row of cells for all rows of the split, and one for each value of the proxy.

    Attributes
    ----------
    title
        Which filter.
    names
        Of the rows: of a value with its share of the rows and its chance of being kept.
    groups
        (K,) names of the columns.
    cells
        (1 + L, K) shares of the groups; NaN where the proxy never says a value.
    """

    title: str
    names: tuple[str, ...]
    groups: tuple[str, ...]
    cells: tuple[tuple[float, ...], ...]


def posteriors(ledger: Ledger, position: int) -> FilterPlot:
    """The plot at a position among all that the file asks for."""
    return filter_plot(ledger, position, ("train",))


def maps(ledger: Ledger, plot: FilterPlot) -> list[Map | str]:
    """One for each panel; where the trial gave none, its title."""
    found: list[Map | str] = []
    for panel in panels(ledger, plot):
        seeds = [trial for trial in panel.trials if plot.seed in {None, trial.seed}]
        known = census(ledger, plot, seeds[0], plot.splits[0]) if seeds else None
        found.append(panel.title if known is None else _map(panel.title, known))
    return found


def caption(ledger: Ledger, plot: FilterPlot) -> str:
    seed = plot.seed
    if seed is None:
        seed = next((panel.trials[0].seed for panel in panels(ledger, plot)), 0)
    what = f"{column_of(ledger, plot)} by the proxy's values"
    return plot.title or f"Shares of {what} ({plot.splits[0]}, seed {seed})"


def draw_posteriors(ledger: Ledger, plot: FilterPlot) -> Picture:
    return picture(plot.name, caption(ledger, plot), partial(_figure, ledger, plot))


def _map(title: str, known: Census) -> Map:
    nothing = (math.nan,) * len(known.groups)
    names = [
        f"{k} ({_percent(size)}, {keep:.2g})"
        for k, (size, keep) in enumerate(zip(known.size, known.keep, strict=True), 1)
    ]
    cells = (known.base, *(nothing if row is None else row for row in known.posterior))
    return Map(title, ("all rows", *names), known.groups, cells)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 or share == 0 else f"{100 * share:.1g} %"


def _figure(ledger: Ledger, plot: FilterPlot) -> Figure:
    found = maps(ledger, plot)
    drawn = [each for each in found if isinstance(each, Map)]
    figure = empty_figure(SIZE)
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=11)
    if not drawn:
        figure.text(0.5, 0.5, NOTHING, ha="center")
    else:
        _fill(figure, found, drawn)
    notes = untold(ledger, panels(ledger, plot))
    legend_below(figure, [], "\n".join([_explained(ledger, plot), *notes] if drawn else notes))
    return figure


def _explained(ledger: Ledger, plot: FilterPlot) -> str:
    rows = f"{plot.splits[0]} rows"
    column = column_of(ledger, plot)
    return (
        f"cells: share of a {column} among the {rows} of which the proxy says the value\n"
        f"in brackets: share of all {rows}, chance of keeping"
    )


def _fill(figure: Figure, found: Sequence[Map | str], drawn: Sequence[Map]) -> None:
    """All panels, of cells of one size; shorter ones end above."""
    across = max(len(each.groups) for each in drawn)
    down = max(len(each.cells) for each in drawn)
    roomy = across <= MOST[0] and down <= MOST[1]
    cell = CELL if roomy else SMALL
    panel = LABELS + across * cell[0], HEADS + (down + GAP) * cell[1]
    wide = max(1, min(len(found), ABREAST, int(WIDTH / panel[0])))
    high = -(-len(found) // wide)
    figure.set_size_inches(max(wide * panel[0] + 0.9, SIZE[0]), max(high * panel[1], 2.0))
    meshes, every = [], []
    for position, each in enumerate(found):
        axes = figure.add_subplot(high, wide, position + 1)
        every.append(axes)
        axes.set_title(each if isinstance(each, str) else each.title, fontsize=9)
        axes.grid(visible=False)
        if isinstance(each, str):
            axes.set_xticks([])
            axes.set_yticks([])
            say_nothing(axes)
        else:
            meshes.append(_draw(axes, each, numbers=roomy))
            axes.set_xlim(0, across)
            axes.set_ylim(down + GAP, 0)
    bar = figure.colorbar(meshes[0], ax=every, fraction=0.05, aspect=30, shrink=0.8)
    bar.ax.tick_params(labelsize=8)
    bar.set_label("share of the group", fontsize=8)
    bar.outline.set_visible(False)


def _draw(axes: Axes, shown: Map, *, numbers: bool) -> QuadMesh:
    """One panel; the mesh that its colours are of."""
    cells = np.array(shown.cells)
    tops = [0.0, *(k + GAP for k in range(1, len(cells)))]
    across = np.arange(cells.shape[1] + 1)
    for top, row in zip(tops, cells, strict=True):
        mesh = axes.pcolormesh(
            across, [top, top + 1], row[None], cmap=COLOURS, vmin=0, vmax=1,
            edgecolors="white", linewidth=0.8,
        )  # fmt: skip
        for k, share in enumerate(row if numbers else ()):
            words = "-" if math.isnan(share) else f"{share:.2f}"
            colour = "white" if share >= DARK else GREY if math.isnan(share) else "black"
            axes.text(k + 0.5, top + 0.5, words, ha="center", va="center", fontsize=7, color=colour)
    axes.set_yticks([top + 0.5 for top in tops], shown.names, fontsize=7)
    axes.xaxis.tick_top()
    axes.set_xticks(across[:-1] + 0.5, shown.groups, fontsize=7, rotation=45, ha="left")
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    return mesh

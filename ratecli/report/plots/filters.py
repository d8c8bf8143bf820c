"""Plots of filters: bars of group shares before and after, and heat maps of a proxy's posteriors.

See Figures 3 and 4 of Deng, Diana, Kearns and Roth (2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ratecli.config.report import BaseFilterPlot, GroupSharesPlot, PosteriorsPlot
from ratecli.config.sweep import has_one_of_values
from ratecli.ledger.records import FILTERS_KEY, PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.groups import estimate_mean, group_by
from ratecli.report.plots import canvas as cv
from ratecli.report.sheet import format_point
from ratecli.report.templates import note

FilterPanels = list[tuple[str, list[PlannedTrial]]]
"""Titles of panels, each with a trial for each seed of an algorithm at a sweep point."""
Tables = Sequence[tuple[str, pd.DataFrame | None]]
"""Titles of panels, each with its numbers, if any."""


def filter_panels(ledger: Ledger, options: BaseFilterPlot) -> FilterPanels:
    """Return the panels in plan order, of other algorithms than filters only if requested."""
    selection = cv.PlotSelection.of(options)
    filters = {trial.label for trial in ledger.plan if _filters(ledger, trial)}
    shown = [
        trial
        for trial in ledger.plan
        if has_one_of_values(trial.point, options.at)
        if (selection.includes(trial.label) if selection.algorithms else trial.label in filters)
    ]
    several = len({trial.label for trial in shown}) > 1
    found = []
    for own in group_by(shown, lambda trial: (trial.label, repr(trial.point))).values():
        label, point = own[0].label, format_point(own[0].point)
        title = ", ".join(filter(None, [label if several or not point else "", point]))
        found.append((title, own))
    return found


def filter_effect(
    ledger: Ledger, options: BaseFilterPlot, trial: PlannedTrial, split: str
) -> Mapping[str, Any]:
    """Return a trial's stored filter effect on the rows of a split, in one of K groups.

    It is empty without results or without the plot's variant or column or the split. Otherwise, its
    keys are `groups` (K,) and `base` (K,), the names of the groups and their shares of all rows;
    `size` (L,) and `keep` (L,), for each value of the proxy its share of the rows and their
    probability of being kept; `posterior` (L, K), shares of the groups among the rows with a value,
    None if there are none; and `after` (K,), shares of the groups among the rows expected to be
    kept, None if there are none.
    """
    variants = _filters(ledger, trial)
    named = options.variant if len(variants) > 1 else None  # an only variant always counts
    variant = variants.get(named or next(iter(variants), ""), {})
    columns = variant.get("columns") or {}
    column = columns.get(options.column or next(iter(columns), ""), {})
    stored = column.get("splits", {}).get(split)
    return {**stored, "groups": column["groups"], "keep": variant["keep"]} if stored else {}


def _filters(ledger: Ledger, trial: PlannedTrial) -> Mapping[str, Any]:
    """Return the stored summaries of a trial's filters, by variant."""
    if not ledger.is_measured(trial):
        return {}
    return ledger.results[trial.key].info.get(FILTERS_KEY) or {}


def _panels(
    canvas: cv.Canvas, tables: Tables, x: str = "", *, share: bool = False
) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """Add a panel for each table, which may `share` their x axis; yield those with numbers."""
    for title, table in tables:
        first = next(iter(canvas.figure.axes), None) if share else None
        axes = canvas.panel(title, x, sharex=first)
        if table is not None:
            yield axes, table
        else:
            axes.set_axis_off()
            cv.mark_empty(axes)
    if not tables:
        canvas.figure.text(0.5, 0.5, cv.NO_NUMBERS, ha="center")


BAR_COLOURS = {"all rows": "#bdbdbd", "kept rows": cv.COLOURS[0]}
THICKNESS = 0.38
"""Thickness of a bar; two bars and a gap make 1."""
GROUP_HEIGHT = 0.24
"""Height of a group's two bars in inches."""
SHARES_MARGIN = 0.75
"""Height of a panel's title and x axis in inches."""
UNIFORM = "uniform share"


def share_bars(
    ledger: Ledger, options: GroupSharesPlot, trials: Sequence[PlannedTrial], split: str
) -> pd.DataFrame | None:
    """Return estimates of the shares of groups among all rows and among kept rows (columns).

    They are means over the trials with results, None if there are none; the groups (rows) are those
    of the first one.
    """
    stored = (filter_effect(ledger, options, trial, split) for trial in trials)
    effects = [effect for effect in stored if effect]
    if not effects:
        return None
    groups = effects[0]["groups"]
    sides = zip(BAR_COLOURS, ("base", "after"), strict=True)
    shares = {label: [effect[key] for effect in effects if effect[key]] for label, key in sides}
    estimates = {
        label: [estimate_mean(each[k] for each in side) for k in range(len(groups))]
        for label, side in shares.items()
    }
    return pd.DataFrame(estimates, index=groups)


def draw_group_shares(ledger: Ledger, plot: cv.PlotRequest[GroupSharesPlot]) -> cv.Canvas:
    """Draw a row for each sweep point and a column for each split, with equal x limits."""
    tables = [
        (", ".join(filter(None, [title, split])), share_bars(ledger, plot.options, trials, split))
        for title, trials in filter_panels(ledger, plot.options)
        for split in plot.splits
    ]
    groups = plot.options.column or "groups"
    caption = f"Shares of {groups} before and after ({' and '.join(plot.splits)})"
    canvas = cv.Canvas(plot, caption, note("group_shares"), len(tables), len(plot.splits))
    most = max((len(table) for _, table in tables if table is not None), default=9)
    width, _ = canvas.figure.get_size_inches()
    canvas.figure.set_size_inches(width, canvas.rows * (SHARES_MARGIN + GROUP_HEIGHT * most))
    counts, handles = [], []
    for axes, table in _panels(canvas, tables, "share", share=True):
        _draw_bars(axes, table)
        counts += [share.n for share in table.to_numpy().flat]
        handles += axes.get_legend_handles_labels()[0]
    if counts:
        text = cv.describe_intervals(counts, "bars: mean over {}, with its 95 % Student-t interval")
        canvas.add_legend(handles, [text])
    return canvas


def _draw_bars(axes: Axes, table: pd.DataFrame) -> None:
    """Draw one panel: for each group, the bar of all rows above the bar of kept rows."""
    means, halves = (
        table.map(lambda share, name=name: getattr(share, name) or 0.0) for name in ("mean", "half")
    )
    means.plot.barh(
        ax=axes,
        xerr=halves,
        error_kw={"elinewidth": 0.8},
        color=list(BAR_COLOURS.values()),
        width=2 * THICKNESS,
        legend=False,
        zorder=2,
    )
    style: dict[str, Any] = {"color": cv.GREY, "linewidth": 1.0, "linestyle": "--", "zorder": 2.5}
    axes.axvline(1 / len(table), label=UNIFORM, **style)
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


DARK = 0.55
"""Cells with at least this share are dark and have white numbers."""
CELL = (0.4, 0.25)
"""Size of a cell in inches."""
LABELS = (1.3, 1.15)
"""Width of the row labels beside a panel, and height of its title and group names, in inches."""
MAX_WIDTH = 11.5
"""Maximum width in inches of a figure with several panels."""


def posterior_table(
    ledger: Ledger, options: PosteriorsPlot, trials: Sequence[PlannedTrial]
) -> pd.DataFrame | None:
    """Return shares of groups (columns) for all rows, then for each value of the proxy.

    The label of a value has its share of the rows and its probability of being kept. Shares are
    NaN if no row has the value. Without results of the seed, there is no table.
    """
    seeds = [trial for trial in trials if options.seed in {None, trial.seed}]
    effect = filter_effect(ledger, options, seeds[0], options.split) if seeds else {}
    if not effect:
        return None
    names = [
        f"{k} ({100 * size:.3g} %, {keep:.2g})"
        for k, (size, keep) in enumerate(zip(effect["size"], effect["keep"], strict=True), 1)
    ]
    unknown = [math.nan] * len(effect["groups"])
    rows = [effect["base"], *(row or unknown for row in effect["posterior"])]
    return pd.DataFrame(rows, index=["all rows", *names], columns=list(effect["groups"]))


def draw_posteriors(ledger: Ledger, plot: cv.PlotRequest[PosteriorsPlot]) -> cv.Canvas:
    """Draw the heat maps of one seed with cells of equal size, aligned at their tops."""
    panels = filter_panels(ledger, plot.options)
    tables = [(title, posterior_table(ledger, plot.options, trials)) for title, trials in panels]
    groups, split = plot.options.column or "groups", plot.options.split
    seed = plot.options.seed
    if seed is None:
        seed = next((trials[0].seed for _, trials in panels), 0)
    most_rows, most_columns = np.max(
        [(3, 3), *(table.shape for _, table in tables if table is not None)], axis=0
    )
    width, height = np.add(LABELS, np.multiply(CELL, (most_columns, most_rows)))
    caption = f"Shares of {groups} by the proxy's values ({split}, seed {seed})"
    most = max(1, min(3, int(MAX_WIDTH / width)))
    canvas = cv.Canvas(plot, caption, note("posteriors"), len(tables), most)
    canvas.figure.set_size_inches(
        max(canvas.columns * width, plot.column or cv.PANEL_SIZES[1][0]), canvas.rows * height
    )
    for axes, table in _panels(canvas, tables):
        _draw_cells(axes, table)
        axes.set(xlim=(0, most_columns), ylim=(most_rows, 0))
    explanation = [
        f"cells: shares of {groups} among the {split} rows with this value of the proxy",
        f"in brackets: share of all {split} rows, probability of being kept",
    ]
    canvas.add_legend([], explanation)
    return canvas


def _draw_cells(axes: Axes, table: pd.DataFrame) -> None:
    """Draw one panel; y grows downwards, one unit per row of cells."""
    axes.grid(visible=False)
    axes.pcolormesh(table, cmap="Blues", vmin=0, vmax=1, edgecolors="white", linewidth=0.8)
    axes.axhline(1, color="white", linewidth=3)
    for (row, column), share in np.ndenumerate(table.to_numpy()):
        colour = cv.GREY if math.isnan(share) else "white" if share >= DARK else "black"
        text = "-" if math.isnan(share) else f"{share:.2f}"
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
        axes.text(column + 0.5, row + 0.5, text, color=colour, **style)
    axes.set_yticks(np.arange(len(table)) + 0.5, table.index, fontsize=7)
    axes.xaxis.tick_top()
    slanted: dict[str, Any] = {"fontsize": 7, "rotation": 45, "ha": "left"}
    axes.set_xticks(np.arange(table.shape[1]) + 0.5, table.columns, **slanted)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)

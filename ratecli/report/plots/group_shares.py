"""Bar plots of group shares before and after filtering.

See Figure 3 of Deng, Diana, Kearns and Roth (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ratecli.config.report import GroupSharesPlot
from ratecli.ledger.view import Ledger
from ratecli.report.groups import IntervalEstimate, estimate_mean
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
from ratecli.report.sheet import estimate_cell

BEFORE = "#bdbdbd"
THICKNESS = 0.38
"""Thickness of a bar; two bars and a gap make 1."""
GROUP_HEIGHT = 0.24
"""Height of a group's two bars in inches."""
PANEL_MARGIN = 0.75
"""Height of a panel's title and x axis in inches."""
LETTER = 0.07
"""Width of a character of a group's name in inches."""
ALL, KEPT, UNIFORM = "all rows", "kept rows", "uniform share"
WHAT = (
    "Shares of the groups among all rows and among those that the filter is expected to keep. The "
    "dashed line is the share of each group if all were of the same size."
)
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


def draw_group_shares(ledger: Ledger, plot: PlotRequest[GroupSharesPlot]) -> PlotImage:
    column, splits = group_column(ledger, plot.options), " and ".join(plot.splits)
    caption = plot.options.title or f"Shares of {column} before and after ({splits})"
    return canvas.make_plot_image(plot.name, caption, partial(_figure, ledger, plot), WHAT)


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


def _figure(ledger: Ledger, plot: PlotRequest[GroupSharesPlot], tooltips: Tooltips) -> Figure:
    """Draw rows of sweep points, each repeated for every split, with equal x limits."""
    panels = filter_panels(ledger, plot.options)
    columns = canvas.panel_columns(len(panels)) or 1
    bars_of = partial(share_bars, ledger, plot.options)
    rows = [
        [bars_of(panel, split) for panel in panels[start : start + columns]]
        for start in range(0, len(panels), columns)
        for split in plot.splits
    ]
    drawn = [bars for row in rows for bars in row if bars.groups]
    figure = canvas.empty_figure(canvas.SIZE, plot.options.title)
    figure.set_layout_engine("constrained", w_pad=MARGIN)
    notes = missing_summary_note(ledger, panels)
    if not drawn:
        figure.text(0.5, 0.5, canvas.NO_NUMBERS, ha="center")
        canvas.legend_below(figure, [], notes)
        return figure
    names = LETTER * max(len(name) for bars in drawn for name in bars.groups)
    width = max(canvas.PANEL[0] * 0.85 * columns + names, canvas.SIZE[0])
    height = PANEL_MARGIN + GROUP_HEIGHT * max(len(bars.groups) for bars in drawn)
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
    canvas.legend_below(figure, [*entries, uniform], [_describe_bar(drawn), *notes])
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


def _describe_bar(drawn: Sequence[ShareBars]) -> str:
    """Explain a bar and its interval."""
    counts = [each.n for bars in drawn for each in (*bars.before, *bars.after)]
    if max(counts) == 1:
        return "one seed, no intervals"
    return (
        f"bars: mean over {canvas.describe_count(counts, 'seed')}, with its 95 % Student-t interval"
    )

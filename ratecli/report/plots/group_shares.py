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

from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.estimates import IntervalEstimate, estimate_mean
from ratecli.report.plots.filters import (
    EDGE,
    FilterPlotOptions,
    filter_panels,
    group_column,
    missing_summary_note,
    read_filter_effect,
    read_filter_plot,
)
from ratecli.report.plots.style import (
    COLOURS,
    GREY,
    NO_NUMBERS,
    PANEL,
    SIZE,
    PlotImage,
    empty_figure,
    legend_below,
    make_plot_image,
    mark_empty,
    panel_columns,
)
from ratecli.report.plots.tooltips import Tooltips
from ratecli.report.sheet import estimate_cell

SPLITS = ("train", "test")
BEFORE = "#bdbdbd"
THICK = 0.38
"""Thickness of a bar; two bars and a gap make 1."""
GROUP = 0.24
"""Height of a group's two bars in inches."""
HEADS = 0.75
"""Height of a panel's title and x axis in inches."""
NAMES = 0.07
"""Width of a character of a group's name in inches."""
TICKS = 4
"""Maximum number of ticks along a panel."""
ALL, KEPT, UNIFORM = "all rows", "kept rows", "uniform share"
WHAT = (
    "Shares of the groups among all rows and among those that the filter is expected to keep; the "
    "dashed line is the share of each if all were the same."
)


@dataclass(frozen=True)
class ShareBars:
    """One panel: shares (K,) of groups, as means over seeds, among all rows and among kept rows."""

    title: str
    groups: tuple[str, ...]
    before: tuple[IntervalEstimate, ...]
    after: tuple[IntervalEstimate, ...]

    @property
    def uniform(self) -> float:
        return 1 / len(self.groups)

    @property
    def reach(self) -> float:
        """The largest share that a bar or an interval reaches."""
        ends = [each.high or each.mean or 0.0 for each in (*self.before, *self.after)]
        return max([self.uniform, *ends])


def read_group_shares(ledger: Ledger, position: int) -> FilterPlotOptions:
    """Read the plot at a position in the experiment file's list of plots."""
    return read_filter_plot(ledger, position, SPLITS)


def share_bars(ledger: Ledger, plot: FilterPlotOptions) -> list[list[ShareBars | str]]:
    """Return the panels of each split; a panel without results is replaced by its title."""
    found = filter_panels(ledger, plot)
    return [
        [_bars(ledger, plot, panel.title, panel.trials, split) for panel in found]
        for split in plot.splits
    ]


def group_shares_caption(ledger: Ledger, plot: FilterPlotOptions) -> str:
    splits = " and ".join(plot.splits)
    return plot.title or f"Shares of {group_column(ledger, plot)} before and after ({splits})"


def draw_group_shares(ledger: Ledger, plot: FilterPlotOptions) -> PlotImage:
    return make_plot_image(
        plot.name, group_shares_caption(ledger, plot), partial(_figure, ledger, plot), WHAT
    )


def _bars(
    ledger: Ledger, plot: FilterPlotOptions, title: str, trials: Sequence[PlannedTrial], split: str
) -> ShareBars | str:
    """Average over the trials with results; the groups are those of the first one."""
    told = [each for trial in trials if (each := read_filter_effect(ledger, plot, trial, split))]
    title = f"{title} ({split})" if title else split
    if not told:
        return title
    groups = told[0].groups
    kept = [each.after for each in told if each.after is not None]
    before = tuple(estimate_mean(each.base[k] for each in told) for k in range(len(groups)))
    after = tuple(estimate_mean(each[k] for each in kept) for k in range(len(groups)))
    return ShareBars(title, groups, before, after)


def _figure(ledger: Ledger, plot: FilterPlotOptions, told: Tooltips) -> Figure:
    found = share_bars(ledger, plot)
    drawn = [each for several in found for each in several if isinstance(each, ShareBars)]
    figure = empty_figure(SIZE)
    figure.set_layout_engine("constrained", w_pad=EDGE)
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=11)
    notes = missing_summary_note(ledger, filter_panels(ledger, plot))
    if not drawn:
        figure.text(0.5, 0.5, NO_NUMBERS, ha="center")
        legend_below(figure, [], "\n".join(notes))
        return figure
    _fill(figure, _rows(found), drawn, told)
    legend_below(figure, _entries(), "\n".join([_describe_bar(drawn), *notes]))
    return figure


def _rows(found: Sequence[Sequence[ShareBars | str]]) -> list[list[ShareBars | str]]:
    """Arrange the panels in rows; each row of sweep points is repeated for every split."""
    wide = panel_columns(len(found[0]))
    return [
        list(several[start : start + wide])
        for start in range(0, len(found[0]), wide)
        for several in found
    ]


def _fill(
    figure: Figure,
    rows: Sequence[Sequence[ShareBars | str]],
    drawn: Sequence[ShareBars],
    told: Tooltips,
) -> None:
    """Draw all panels, with equal x limits."""
    wide, down = len(rows[0]), max(len(each.groups) for each in drawn)
    names = NAMES * max(len(name) for each in drawn for name in each.groups)
    width = max(PANEL[0] * 0.85 * wide + names, SIZE[0])
    figure.set_size_inches(width, (HEADS + down * GROUP) * len(rows))
    for number, row in enumerate(rows):
        last = ""
        for position, each in enumerate(row):
            axes = figure.add_subplot(len(rows), wide, number * wide + position + 1)
            if isinstance(each, str):
                axes.set_title(each, fontsize=9)
                axes.set_yticks([])
                mark_empty(axes)
                continue
            _draw(axes, each, told, named=repr(each.groups) != last)
            axes.set_xlim(0, 1.04 * max(every.reach for every in drawn))
            axes.set_xlabel("share" if number == len(rows) - 1 else "", fontsize=9)
            last = repr(each.groups)


def _draw(axes: Axes, shown: ShareBars, told: Tooltips, *, named: bool) -> None:
    """Draw one panel: for each group, the bar of all rows above the bar of kept rows."""
    places = range(len(shown.groups))
    both = ((shown.before, BEFORE, -THICK / 2, ALL), (shown.after, COLOURS[0], THICK / 2, KEPT))
    for several, colour, shift, label in both:
        at = [place + shift for place in places]
        means = [each.mean or 0.0 for each in several]
        told.own(label, axes.barh(at, means, height=THICK, color=colour, zorder=2))
        known = [
            (each.mean, y, each.half) for each, y in zip(several, at, strict=True) if each.half
        ]
        if known:
            middles, ys, halves = zip(*known, strict=True)
            look: dict[str, Any] = {"ecolor": "black", "elinewidth": 0.8, "zorder": 3}
            told.own(label, axes.errorbar(middles, ys, xerr=halves, fmt="none", **look))
        for group, each, mean, y in zip(shown.groups, several, means, at, strict=True):
            facts = (
                ("group", group),
                ("share", estimate_cell(each, each.n).text),
                ("n", str(each.n)),
            )
            told.box(axes, (0.0, mean), (y - THICK / 2, y + THICK / 2), facts, label)
    line = axes.axvline(shown.uniform, color=GREY, linewidth=1.0, linestyle="--", zorder=2.5)
    told.own(UNIFORM, line)
    axes.set_title(shown.title, fontsize=9)
    axes.set_yticks(places, shown.groups if named else [""] * len(shown.groups), fontsize=8)
    axes.set_ylim(len(shown.groups) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=TICKS)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def _entries() -> list[Patch | Line2D]:
    line = Line2D([], [], color=GREY, linewidth=1.0, linestyle="--", label=UNIFORM)
    return [Patch(color=BEFORE, label=ALL), Patch(color=COLOURS[0], label=KEPT), line]


def _describe_bar(drawn: Sequence[ShareBars]) -> str:
    """Explain a bar and its interval."""
    counts = [each.n for shown in drawn for each in (*shown.before, *shown.after)]
    least, most = min(counts), max(counts)
    if most == 1:
        return "one seed, no intervals"
    seeds = most if least == most else f"{least} to {most}"
    return f"bars: mean over {seeds} seeds, with its 95 % Student-t interval"

"""Convergence plots: objective above, worst violation below, a line an algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from ratecli.ledger.view import Ledger
from ratecli.report.plots.convergence import (
    ConvergenceCurve,
    ConvergencePlotOptions,
    CurveBand,
    convergence_curves,
    spans_decades,
)
from ratecli.report.plots.settings import unnamed_lines_note
from ratecli.report.plots.style import (
    GREY,
    PANEL,
    SIZE,
    PlotImage,
    band_style,
    empty_figure,
    legend_below,
    line_style,
    make_plot_image,
    mark_empty,
    panel_columns,
    panel_rows,
    unique_handles,
)
from ratecli.report.plots.tooltips import TooltipFacts, Tooltips
from ratecli.report.sheet import format_number, format_scalar

LABELS = {"objective": "objective (train)", "violation": "worst violation (train)"}
HEIGHT = 0.9
"""Of a panel of which two stand upon each other, to one that stands alone."""


@dataclass(frozen=True)
class AxisScales:
    """Which axes are logarithmic, in all panels alike: the one along, the one of the objective."""

    along: bool
    objective: bool

    @classmethod
    def of(cls, found: Sequence[ConvergenceCurve]) -> AxisScales:
        along = spans_decades(x for course in found for x in course.objective.places.tolist())
        means = [course.objective.ribbon(logarithmic=along).mean for course in found]
        numbers = [y for mean in means for y in mean[np.isfinite(mean)].tolist()]
        return cls(along, spans_decades(numbers) and min(numbers) > 0)

    def put_on(self, axes: Axes, which: str) -> None:
        if self.along:
            axes.set_xscale("log")
            _use_plain_ticks(axes.xaxis)
        if self.objective and which == "objective":
            axes.set_yscale("log")
            _use_plain_ticks(axes.yaxis)


def draw_convergence(ledger: Ledger, plot: ConvergencePlotOptions) -> PlotImage:
    return make_plot_image(
        plot.name, plot.caption, partial(_figure, ledger, plot), describe_lines(ledger, plot)
    )


def describe_lines(ledger: Ledger, plot: ConvergencePlotOptions) -> str:
    """What a line is."""
    lower = " and the worst violation of a constraint" if ledger.constraints else ""
    return (
        f"How the objective{lower} on training rows went on by {plot.x}. A line for each algorithm is "
        "the mean over seeds, its band their range."
    )


def _figure(ledger: Ledger, plot: ConvergencePlotOptions, told: Tooltips) -> Figure:
    parts = plot.parts()
    found = [convergence_curves(ledger, part) for part in parts]
    every = [course for several in found for course in several]
    which = list(LABELS) if ledger.constraints else ["objective"]
    wide, high = panel_columns(len(parts)), panel_rows(len(parts)) * len(which)
    figure = empty_figure((max(PANEL[0] * wide, SIZE[0]), PANEL[1] * HEIGHT * high))
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=11)
    scales, first = AxisScales.of(every), None
    for position, (part, several) in enumerate(zip(parts, found, strict=True)):
        block, across = divmod(position, wide)
        lowest = position + wide >= len(parts)
        for row, name in enumerate(which):
            cell = (block * len(which) + row) * wide + across + 1
            axes = first = figure.add_subplot(high, wide, cell, sharex=first)
            scales.put_on(axes, name)
            tell = partial(
                _add_tooltips, told, axes, (plot.x, LABELS[name]), panel=plot.panel(position)
            )
            _fill(axes, several, name, told, tell, logarithmic=scales.along)
            axes.set_title(part.title if plot.panels and name == which[0] else "", fontsize=9)
            axes.set_xlabel(plot.x if lowest and name == which[-1] else "", fontsize=9)
            axes.set_ylabel(LABELS[name] if across == 0 else "", fontsize=9)
    if every:
        handles = [_handle(course) for course in every if course.setting.told]
        legend_below(figure, unique_handles(handles), "\n".join(_notes(every)))
    return figure


def _fill(
    axes: Axes,
    found: Sequence[ConvergenceCurve],
    which: str,
    told: Tooltips,
    tell: Callable[[ConvergenceCurve, CurveBand], None],
    *,
    logarithmic: bool,
) -> None:
    """One panel; `tell` notes the values of a line."""
    axes.tick_params(labelsize=8)
    for course in found:
        ribbon = getattr(course, which).ribbon(logarithmic=logarithmic)
        shown = _curve_style(course)
        area = axes.fill_between(
            ribbon.places, ribbon.low, ribbon.high, **band_style(shown["color"])
        )
        ends = np.flatnonzero(np.isfinite(ribbon.mean))[-1:].tolist()
        line = axes.plot(ribbon.places, ribbon.mean, markevery=ends, **shown)
        told.own(course.setting.of(course.label), area, *line)
        tell(course, ribbon)
    if not found:
        mark_empty(axes)
    if which == "violation":
        axes.axhline(0.0, color=GREY, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
        if not any((course.violation.numbers > 0).any() for course in found):
            axes.set_yticks([0.0])  # an axis of all is well has no other numbers


def _add_tooltips(
    told: Tooltips,
    axes: Axes,
    names: tuple[str, str],
    course: ConvergenceCurve,
    ribbon: CurveBand,
    *,
    panel: TooltipFacts,
) -> None:
    """The values at every place of a line; `names` are those of x and y, `panel` is what all of it is at."""
    x, y = names
    label = course.setting.of(course.label)
    numbers = (ribbon.places, ribbon.mean, ribbon.low, ribbon.high)
    for place, mean, low, high in zip(*(each.tolist() for each in numbers), strict=True):
        ends = [("least to greatest", f"{format_number(low)} to {format_number(high)}")] * (
            course.seeds > 1
        )
        facts = (
            *panel,
            (x, format_scalar(place)),
            (y, format_number(mean)),
            *ends,
            ("n", str(course.seeds)),
        )
        told.point(axes, (place, mean), label, facts)


def _use_plain_ticks(axis: Axis) -> None:
    """100, not a formula that would have to be typeset; only at the powers of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _curve_style(course: ConvergenceCurve) -> dict[str, Any]:
    return line_style(course.algorithm, shade=course.setting.shade)


def _handle(course: ConvergenceCurve) -> Line2D:
    return Line2D([], [], label=course.setting.of(course.label), **_curve_style(course))


def _notes(every: Sequence[ConvergenceCurve]) -> list[str]:
    """What a line and its band are."""
    counts = [course.seeds for course in every]
    least, most = min(counts), max(counts)
    seeds = "one seed" if most == 1 else f"{most if least == most else f'{least} to {most}'} seeds"
    note = f"mean and range of {seeds}, of neighbouring iterates where there are many"
    return [note, *unnamed_lines_note(course.setting for course in every)]

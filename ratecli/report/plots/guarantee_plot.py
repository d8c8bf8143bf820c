"""Three panels side by side: what safety costs, how often there was a solution, how often one failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ratecli.ledger.view import Ledger
from ratecli.report.estimates import IntervalEstimate
from ratecli.report.plots.guarantee import (
    GuaranteeLine,
    GuaranteePlotOptions,
    allowed_failure_rates,
    guarantee_lines,
    inconclusive_trials,
)
from ratecli.report.plots.series import missing_variants
from ratecli.report.plots.settings import unnamed_lines_note
from ratecli.report.plots.style import (
    GREY,
    PANEL,
    PlotImage,
    band_style,
    empty_figure,
    legend_below,
    line_style,
    make_plot_image,
    mark_empty,
    unique_handles,
)
from ratecli.report.plots.tooltips import TooltipFacts, Tooltips
from ratecli.report.sheet import estimate_cell, format_scalar
from ratecli.report.sweep_axis import EDGE, SweepAxis

LINE = 0.08
"""The share of a panel's height that a line of text takes."""
LEAST = 0.1
"""The failure rate up to which a panel shows at least."""


def draw_guarantee(ledger: Ledger, plot: GuaranteePlotOptions) -> PlotImage:
    return make_plot_image(plot.name, plot.caption, partial(_figure, ledger, plot), plot.what)


def _figure(ledger: Ledger, plot: GuaranteePlotOptions, told: Tooltips) -> Figure:
    parts = plot.parts()
    found = [guarantee_lines(ledger, part) for part in parts]
    every = [line for several in found for line in several]
    wide = len(plot.metrics)
    figure = empty_figure((PANEL[0] * wide, PANEL[1] * len(parts)))
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=11)
    for row, (part, several) in enumerate(zip(parts, found, strict=True)):
        for column, title in enumerate(_titles(plot)):
            axes = figure.add_subplot(len(parts), wide, row * wide + column + 1)
            axes.tick_params(labelsize=8)
            axes.set_title(title if row == 0 else "", fontsize=9)
            axes.set_xlabel(plot.x if row == len(parts) - 1 else "", fontsize=9)
            axes.set_ylabel(part.title if plot.panels and column == 0 else "", fontsize=9)
            _fill(axes, several, column, (plot.x, title), told, panel=plot.panel(row))
            if column == 1:
                axes.set_ylim(-0.04, 1.04)
            if column == 2:
                _limit(axes, several, allowed_failure_rates(ledger, part))
    if every:
        named = [line for line in every if line.setting.told]
        handles = [Line2D([], [], label=line.name, **_guarantee_style(line)) for line in named]
        legend_below(figure, unique_handles(handles), "\n".join(_notes(ledger, plot, found)))
    return figure


def _titles(plot: GuaranteePlotOptions) -> tuple[str, str, str]:
    rule = plot.constraint or "any constraint"
    return f"{plot.y} ({plot.truth})", "solution rate", f"failure rate ({rule}, {plot.truth})"


def _guarantee_style(line: GuaranteeLine) -> dict[str, Any]:
    return line_style(line.algorithm, line.variant, line.setting.shade)


def _fill(
    axes: Axes,
    several: Sequence[GuaranteeLine],
    column: int,
    names: tuple[str, str],
    told: Tooltips,
    *,
    panel: TooltipFacts,
) -> None:
    """One panel: lines with the intervals of their points; `names` are those of x and y, `panel` is what
    all of it is at.
    """
    values = sorted({spot.x for line in several for spot in line.spots if spot.x is not None})
    along = SweepAxis(tuple(values), len(several)) if values else None
    shown = False
    for number, line in enumerate(several):
        for spot in line.spots:
            if spot.x is None and _has_points(spot.shown[column]):
                told.own(line.name, *_draw_flat(axes, line, spot.shown[column]))
                shown = True
        spots = [s for s in line.spots if s.x is not None and _has_points(s.shown[column])]
        if along and spots:
            xs = [along.place(spot.x or 0.0, number) for spot in spots]
            told.own(line.name, *_draw_line(axes, line, xs, [each.shown[column] for each in spots]))
            for x, spot in zip(xs, spots, strict=True):
                found = spot.shown[column]
                value = (names[1], estimate_cell(found, found.n).text)
                facts = (*panel, (names[0], format_scalar(spot.x)), value, ("n", str(found.n)))
                told.point(axes, (x, found.mean or 0.0), line.name, facts)
            shown = True
    if along:
        along.put_on(axes)
    if not shown:
        mark_empty(axes)


def _has_points(found: IntervalEstimate) -> bool:
    return found.mean is not None and math.isfinite(found.mean)


def _draw_line(
    axes: Axes, line: GuaranteeLine, xs: Sequence[float], found: Sequence[IntervalEstimate]
) -> list[Artist | Container]:
    shown = _guarantee_style(line)
    ys = [each.mean or 0.0 for each in found]
    ends = [each.interval or (y, y) for each, y in zip(found, ys, strict=True)]
    below = [y - low for y, (low, _) in zip(ys, ends, strict=True)]
    above = [high - y for y, (_, high) in zip(ys, ends, strict=True)]
    bars: dict[str, Any] = {"fmt": "none", "elinewidth": 0.9, "alpha": 0.6}
    whiskers = axes.errorbar(xs, ys, yerr=(below, above), ecolor=shown["color"], **bars)
    return [whiskers, *axes.plot(xs, ys, **shown)]


def _draw_flat(axes: Axes, line: GuaranteeLine, found: IntervalEstimate) -> list[Artist]:
    """What has no place along the axis goes across it."""
    shown, ends = _guarantee_style(line), {"xmin": EDGE / 2, "xmax": 1 - EDGE / 2}
    parts: list[Artist] = []
    if found.interval:
        low, high = found.interval
        parts.append(axes.axhspan(low, high, **ends, **band_style(shown["color"])))
    return [*parts, axes.axhline(found.mean or 0.0, **ends, **shown)]


def _limit(axes: Axes, several: Sequence[GuaranteeLine], allowed: Mapping[float, str]) -> None:
    """From 0 to the greatest rate that an interval reaches, with lines at those that were allowed."""
    highs = [spot.shown[2].high or 0.0 for line in several for spot in line.spots]
    top = min(1.04, 1.08 * max([LEAST, *highs, *allowed]))
    axes.set_ylim(-0.04 * top, top)
    height = top * 1.04
    places = spread_positions([value / height for value in allowed], LINE)
    for (value, label), place in zip(allowed.items(), places, strict=True):
        axes.axhline(value, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=1)
        words: dict[str, Any] = {"va": "center", "fontsize": 7, "color": GREY}
        axes.text(1.01, place * height, label, transform=axes.get_yaxis_transform(), **words)


def spread_positions(places: Sequence[float], apart: float) -> list[float]:
    """Increasing places in [0, 1], moved as little as need be so that neighbours are `apart`."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + apart) if found else place)
    for position in reversed(range(len(found))):
        most = found[position + 1] - apart if position + 1 < len(found) else 1.0
        found[position] = min(found[position], most)
    return found


def _notes(
    ledger: Ledger, plot: GuaranteePlotOptions, found: Sequence[Sequence[GuaranteeLine]]
) -> list[str]:
    """What a point and its bar are, what counts as a failure, and what is left out."""
    every = [line for several in found for line in several]
    counts = [spot.shown[1].n for line in every for spot in line.spots]
    least, most = min(counts), max(counts)
    trials = f"{most if least == most else f'{least} to {most}'} trials"
    rule = plot.constraint or "a constraint"
    performance = f"{plot.y}: mean over trials with a solution, 95 % Student-t interval"
    rates = f"rates: shares of {trials}, exact 95 % interval (Clopper-Pearson)"
    failure = (
        f"failure: the classifier breaks {rule} on {plot.truth} rows, which stand for the truth"
    )
    notes = [f"{performance}; {rates}", f"{failure}; where no solution was found nothing fails"]
    notes += unnamed_lines_note(line.setting for line in every)
    left = inconclusive_trials(ledger, plot)
    if left:
        listed = ", ".join(f"{status} {count}" for status, count in sorted(left.items()))
        notes.append(f"left out, neither solved nor safe: {listed}")
    unknown = sum(spot.shown[2].nan for line in every for spot in line.spots)
    if unknown:
        notes.append(f"left out of the failure rate, where the rule has no value: {unknown}")
    absent = missing_variants(ledger, plot.choice)
    return [*notes, *(f"no trial gave a variant '{variant}'" for variant in absent)]

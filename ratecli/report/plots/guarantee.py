"""Plots of guarantees: performance, solution rate and failure rate along a swept number."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.estimates import IntervalEstimate
from ratecli.report.file_names import plot_file_name
from ratecli.report.groups import CONCLUSIVE, SeedGroup, seed_groups, select_variant
from ratecli.report.plots.series import (
    SELECT_ALL,
    LineSetting,
    PlotSelection,
    line_settings,
    missing_variants,
    unnamed_lines_note,
)
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
from ratecli.report.plots.tradeoff import panel_values
from ratecli.report.sheet import estimate_cell, format_scalar

GUARANTEE = "guarantee"


@dataclass(frozen=True)
class GuaranteePlotOptions:
    """A guarantee plot of the experiment file; failures are measured on the split `truth`."""

    name: str
    title: str
    x: str
    y: str
    truth: str = "test"
    constraint: str = ""
    choice: PlotSelection = SELECT_ALL
    by: str = ""
    panels: tuple[Any, ...] = ()

    @property
    def caption(self) -> str:
        rates = "solution rate and failure rate"
        return self.title or f"{self.y}, {rates} by {self.x} ({self.truth} rows as the truth)"

    @property
    def what(self) -> str:
        """Describe the three panels."""
        rule = self.constraint or "a constraint"
        return (
            f"By {self.x}: {self.y} on {self.truth} rows; how often a classifier was given; how "
            f"often one was given that breaks {rule} on {self.truth} rows, with the rate that was "
            "allowed dotted."
        )

    @property
    def metrics(self) -> tuple[str, str, str]:
        """Return the metrics of the three panels."""
        failure = f"{FAILURE_RATE}.{self.constraint}" if self.constraint else FAILURE_RATE
        return self.y, SOLUTION_RATE, failure

    def parts(self) -> list[GuaranteePlotOptions]:
        """Return a plot for each value of `by`, or the plot itself without `by`."""
        values = [self.choice.in_panel(self.by, value) for value in self.panels]
        return [replace(self, **each) for each in values] or [self]

    def panel(self, position: int) -> tuple[tuple[str, str], ...]:
        """Return the name and value of `by` in a panel, or () without `by`."""
        return ((self.by, format_scalar(self.panels[position])),) if self.panels else ()

    def takes(self, trial: PlannedTrial) -> bool:
        return self.choice.takes(trial.label) and self.choice.takes_point(trial.point)


@dataclass(frozen=True)
class GuaranteePoint:
    """Estimates for the three panels at x, which is None if the algorithm does not depend on it."""

    x: float | None
    shown: tuple[IntervalEstimate, IntervalEstimate, IntervalEstimate]


@dataclass(frozen=True)
class GuaranteeLine:
    """One variant of one algorithm along x, at one setting of the other swept names."""

    name: str
    algorithm: int
    variant: int
    setting: LineSetting
    spots: tuple[GuaranteePoint, ...]


def read_guarantee(ledger: Ledger, position: int) -> GuaranteePlotOptions:
    """Read the plot at a position in the experiment file's list of plots."""
    every = ledger.asked("plots")
    asked = every[position]
    choice = PlotSelection(*(tuple(asked.get(key) or ()) for key in ("algorithms", "variants")))
    by = asked.get("by") or ""
    return GuaranteePlotOptions(
        name=plot_file_name(every, position),
        title=asked.get("title") or "",
        x=asked["x"],
        y=asked["y"],
        truth=asked.get("truth") or "test",
        constraint=asked.get("constraint") or "",
        choice=choice,
        by=by,
        panels=panel_values(ledger, by, choice),
    )


def guarantee_lines(ledger: Ledger, plot: GuaranteePlotOptions) -> list[GuaranteeLine]:
    """Return a line for each variant and setting of the other swept names, in plan order."""
    own: dict[str, list[SeedGroup]] = {}
    for group in seed_groups(ledger.algorithms):
        own.setdefault(group.label, []).append(group)
    found = []
    for position, (label, several) in enumerate(own.items()):
        # if no trial returned a classifier, the variant has no name
        variants = sorted({group.variant for group in several} - {""}) or [""]
        for number, variant in enumerate(variants):
            if plot.choice.takes(label) and plot.choice.takes_variant(variant, variants):
                name = f"{label} ({variant})" if len(variants) > 1 else label
                found += [
                    GuaranteeLine(setting.of(name), position, number, setting, spots)
                    for setting, spots in _settings(plot, several, variant)
                ]
    return found


def allowed_failure_rates(ledger: Ledger, plot: GuaranteePlotOptions) -> dict[float, str]:
    """Return the allowed failure rates recorded in certificates, with a label for each.

    Constraints that were never tested have no allowed failure rate.
    """
    wanted = [plot.constraint] if plot.constraint else list(ledger.constraints)
    found: dict[float, dict[str, None]] = {}
    for each in collect_certificates(ledger):
        *_, name = each.about
        if name in wanted and plot.takes(each.trial):
            found.setdefault(float(each.record["delta"]), {})[name] = None
    alike = all(len(names) == len(wanted) for names in found.values())
    return {
        value: f"delta {value:g}" if alike else f"delta {value:g}: {', '.join(names)}"
        for value, names in sorted(found.items())
    }


def inconclusive_trials(ledger: Ledger, plot: GuaranteePlotOptions) -> Mapping[str, int]:
    """Count the plotted trials that were inconclusive, by status."""
    statuses = (ledger.status(trial) for trial in ledger.algorithms.plan if plot.takes(trial))
    return Counter(status for status in statuses if status not in CONCLUSIVE)


def _settings(
    plot: GuaranteePlotOptions, several: Sequence[SeedGroup], variant: str
) -> list[tuple[LineSetting, tuple[GuaranteePoint, ...]]]:
    """Return the points along x of one variant, grouped by the setting of the other swept names."""
    points: dict[str, list[SeedGroup]] = {}
    for group in several:
        if plot.choice.takes_point(group.point):
            points.setdefault(repr(group.point), []).append(group)
    found: dict[str, list[GuaranteePoint]] = {}
    others: dict[str, Mapping[str, Any]] = {}
    for here in points.values():
        group = select_variant(here, variant)
        x = group.point.get(plot.x)
        performance, solution, failure = (group.estimate(plot.truth, m) for m in plot.metrics)
        spot = GuaranteePoint(None if x is None else float(x), (performance, solution, failure))
        other = {name: value for name, value in group.point.items() if name != plot.x}
        others[repr(other)] = other
        found.setdefault(repr(other), []).append(spot)
    ordered = [tuple(sorted(spots, key=lambda spot: spot.x or 0.0)) for spots in found.values()]
    return list(zip(line_settings(list(others.values())), ordered, strict=True))


DECADE = 10
"""Use a logarithmic scale if the swept number grows by more than this factor."""
STEP = 0.012
"""Offset between lines with equal x, as a share of the axis, so that none hides another."""
EDGE = 0.05
"""Share of the axis left empty at either end."""
SHORT_LABEL = 6
"""Longest value, in characters, that is used as a tick label of a logarithmic scale."""
ROUNDING = 1e-9
LETTER = 0.034
"""Width of one character of a tick label, as a share of the panel's width."""


@dataclass(frozen=True)
class SweepAxis:
    """The swept x axis: its values in increasing order, and the number of lines that share it."""

    values: tuple[float, ...]
    lines: int

    @property
    def logarithmic(self) -> bool:
        return self.values[0] > 0 and self.values[-1] > DECADE * self.values[0]

    @property
    def _span(self) -> tuple[float, float]:
        """Return the scaled least value, and the scaled distance to the greatest (1 if it is 0)."""
        low, high = self._scaled(self.values[0]), self._scaled(self.values[-1])
        return low, high - low or 1.0

    def place(self, x: float, line: int) -> float:
        """Return the x position of a line's point, offset from those of other lines.

        The offset never reaches the next swept value.
        """
        low, span = self._span
        shares = [(self._scaled(value) - low) / span for value in self.values]
        gap = min((b - a for a, b in itertools.pairwise(shares)), default=1.0)
        step = min(STEP, gap / 2 / self.lines, EDGE / self.lines) * span
        return self._plain(self._scaled(x) + step * (line - (self.lines - 1) / 2))

    def put_on(self, axes: Axes) -> None:
        """Set the scale, limits and tick labels of the x axis."""
        low, span = self._span
        if self.logarithmic:
            axes.set_xscale("log")
        ends = low - EDGE * span, self._scaled(self.values[-1]) + EDGE * span
        axes.set_xlim(*map(self._plain, ends))
        shown = self._labelled()
        axes.set_xticks(shown, [f"{value:g}" for value in shown])
        axes.xaxis.set_minor_locator(NullLocator())

    def _wanted(self) -> tuple[float, ...]:
        """Return the values to label: the swept values, or powers of 10 if those are long."""
        first, last = (math.log10(self.values[k]) if self.logarithmic else 0.0 for k in (0, -1))
        powers = tuple(
            10.0**k for k in range(math.ceil(first - ROUNDING), math.floor(last + ROUNDING) + 1)
        )
        long = any(len(f"{value:g}") > SHORT_LABEL for value in self.values)
        return powers if long and len(powers) > 1 else self.values

    def _labelled(self) -> list[float]:
        """Return the values whose labels fit without overlap, always including the last."""
        span = self._span[1]
        found: list[float] = []
        for value in reversed(self._wanted()):
            letters = max(len(f"{each:g}") for each in (value, *found[-1:])) + 1
            apart = (self._scaled(found[-1]) - self._scaled(value)) / span if found else 1.0
            if apart >= LETTER * letters:
                found.append(value)
        return found[::-1]

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value

    def _plain(self, scaled: float) -> float:
        return math.exp(scaled) if self.logarithmic else scaled


LINE = 0.08
"""Height of a line of text, as a share of the panel's height."""
LEAST = 0.1
"""The failure rate axis extends at least to this value."""


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
    """Draw one panel: lines with intervals at their points.

    `names` are the names of x and y, `panel` is added to every tooltip of the panel.
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
    """Draw an algorithm that does not depend on x as a horizontal line."""
    shown, ends = _guarantee_style(line), {"xmin": EDGE / 2, "xmax": 1 - EDGE / 2}
    parts: list[Artist] = []
    if found.interval:
        low, high = found.interval
        parts.append(axes.axhspan(low, high, **ends, **band_style(shown["color"])))
    return [*parts, axes.axhline(found.mean or 0.0, **ends, **shown)]


def _limit(axes: Axes, several: Sequence[GuaranteeLine], allowed: Mapping[float, str]) -> None:
    """Set y limits from 0 to the highest interval or allowed rate, and mark the allowed rates."""
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
    """Move increasing positions in [0, 1] as little as needed so that neighbours are `apart`."""
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
    """Explain the points, their intervals and failures, and list what is left out."""
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

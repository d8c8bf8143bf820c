"""Plots of guarantees: performance, solution rate and failure rate along a swept number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.report import GuaranteePlot
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.groups import CONCLUSIVE
from ratecli.report.plots.figure import (
    DOTTED,
    GREY,
    PANEL,
    PlotImage,
    Tooltips,
    describe_count,
    empty_figure,
    label_panel,
    legend_below,
    make_plot_image,
    mark_empty,
    use_plain_log_scale,
)
from ratecli.report.plots.lines import (
    LinePoint,
    PlotAxes,
    SweepLine,
    collect_lines,
    draw_line,
    legend_handles,
    unnamed_lines_note,
)
from ratecli.report.plots.options import (
    PlotRequest,
    PlotSelection,
    missing_variant_notes,
    panel_selections,
)

Request = PlotRequest[GuaranteePlot]
PanelLines = tuple[list[SweepLine], list[SweepLine], list[SweepLine]]
"""The lines of the panels of performance, solution rate and failure rate."""
DECADE = 10
"""Use a logarithmic scale if the swept number grows by more than this factor."""
STEP = 0.012
"""Offset between lines with equal x, as a share of the axis, so that none hides another."""
EDGE = 0.05
"""Share of the axis left empty at either end."""
SHORT_LABEL = 6
"""Longest value, in characters, that is used as a tick label."""
LETTER = 0.034
"""Width of one character of a tick label, as a share of the panel's width."""
LABEL_HEIGHT = 0.08
"""Height of a line of text, as a share of the panel's height."""
MIN_TOP = 0.1
"""The failure rate axis extends at least to this value."""


def draw_guarantee(ledger: Ledger, plot: Request) -> PlotImage:
    x, y, truth = plot.options.x, plot.options.y, plot.options.truth
    rates = "solution rate and failure rate"
    caption = plot.options.title or f"{y}, {rates} by {x} ({truth} rows as the truth)"
    what = (
        f"By {x}: {y} on {truth} rows; how often a classifier was returned; and how often one was "
        f"returned that violates {plot.options.constraint or 'a constraint'} on {truth} rows, with "
        "the allowed rate dotted."
    )
    return make_plot_image(plot.name, caption, partial(_figure, ledger, plot), what)


def guarantee_lines(ledger: Ledger, plot: Request, selection: PlotSelection) -> PanelLines:
    """Return a line in each panel for each variant and setting of the other swept names."""
    constraint = plot.options.constraint
    failure = f"{FAILURE_RATE}.{constraint}" if constraint else FAILURE_RATE
    performance, solution, failed = (
        collect_lines(
            ledger,
            PlotAxes(plot.options.x, metric, plot.options.truth, swept=True),
            selection,
            simplify=False,
        )
        for metric in (plot.options.y, SOLUTION_RATE, failure)
    )
    return performance, solution, failed


def allowed_failure_rates(
    ledger: Ledger, plot: Request, selection: PlotSelection
) -> dict[float, str]:
    """Return the allowed failure rates recorded in certificates, with a label for each.

    Constraints that were never tested have no allowed failure rate.
    """
    constraint = plot.options.constraint
    wanted = [constraint] if constraint else list(ledger.constraints)
    found: dict[float, dict[str, None]] = {}
    for each in collect_certificates(ledger):
        if each.constraint in wanted and selection.includes_trial(each.trial):
            found.setdefault(float(each.record["delta"]), {})[each.constraint] = None
    alike = all(len(names) == len(wanted) for names in found.values())
    return {
        value: f"delta {value:g}" if alike else f"delta {value:g}: {', '.join(names)}"
        for value, names in sorted(found.items())
    }


@dataclass(frozen=True)
class SweepAxis:
    """The swept x axis: its values in increasing order, and the number of lines that share it."""

    values: tuple[float, ...]
    lines: int

    @property
    def logarithmic(self) -> bool:
        return self.values[0] > 0 and self.values[-1] > DECADE * self.values[0]

    def position(self, x: float, line: int) -> float:
        """Return the x position of a line's point, offset from those of other lines.

        The offset never reaches the next swept value.
        """
        gap = np.diff([self._share(value) for value in self.values]).min(initial=1.0)
        step = min(STEP, float(gap) / 2 / self.lines, EDGE / self.lines)
        return self._value(self._share(x) + step * (line - (self.lines - 1) / 2))

    def apply(self, axes: Axes) -> None:
        """Set the scale, limits and tick labels of the x axis."""
        if self.logarithmic:
            use_plain_log_scale(axes, "x")
        axes.set_xlim(self._value(-EDGE), self._value(1 + EDGE))
        if all(len(f"{value:g}") <= SHORT_LABEL for value in self.values):
            labelled = self._labelled()
            axes.set_xticks(labelled, [f"{value:g}" for value in labelled])
        axes.set_xticks([], minor=True)

    def _labelled(self) -> list[float]:
        """Return the values whose labels fit without overlap, always including the last."""
        found: list[float] = []
        for value in reversed(self.values):
            letters = max(len(f"{each:g}") for each in (value, *found[-1:])) + 1
            if not found or self._share(found[-1]) - self._share(value) >= LETTER * letters:
                found.append(value)
        return found[::-1]

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = self._scaled(self.values[0]), self._scaled(self.values[-1])
        return low, high if high > low else low + 1

    def _scaled(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value

    def _share(self, value: float) -> float:
        """Return the position of a value between the first (0) and the last (1)."""
        low, high = self._ends
        return (self._scaled(value) - low) / (high - low)

    def _value(self, share: float) -> float:
        low, high = self._ends
        scaled = low + share * (high - low)
        return math.exp(scaled) if self.logarithmic else scaled


def _figure(ledger: Ledger, plot: Request, tooltips: Tooltips) -> Figure:
    selections = panel_selections(ledger, plot.options)
    found = [guarantee_lines(ledger, plot, selection) for selection in selections]
    rule, truth = plot.options.constraint or "any constraint", plot.options.truth
    titles = (f"{plot.options.y} ({truth})", "solution rate", f"failure rate ({rule}, {truth})")
    figure = empty_figure((PANEL[0] * 3, PANEL[1] * len(found)), plot.options.title)
    for row, (selection, panels) in enumerate(zip(selections, found, strict=True)):
        for column, (title, lines) in enumerate(zip(titles, panels, strict=True)):
            axes = figure.add_subplot(len(found), 3, 3 * row + column + 1)
            label_panel(
                axes,
                title if row == 0 else "",
                plot.options.x if row == len(found) - 1 else "",
                selection.title if column == 0 else "",
            )
            _fill(axes, lines, title, tooltips)
            if column == 1:
                axes.set_ylim(-0.04, 1.04)
            if column == 2:
                _mark_allowed(axes, lines, allowed_failure_rates(ledger, plot, selection))
    every = tuple([line for panels in found for line in panels[k]] for k in range(3))
    if every[0]:
        legend_below(figure, legend_handles(every[0]), _notes(ledger, plot, every))
    return figure


def _fill(axes: Axes, lines: Sequence[SweepLine], title: str, tooltips: Tooltips) -> None:
    """Draw one panel: lines side by side, with intervals at their points."""
    values = {p.x.mean for line in lines for p in line.points if p.x.mean is not None}
    along = SweepAxis(tuple(sorted(values)), len(lines)) if values else None
    for number, line in enumerate(lines):
        points = [_shifted(point, along, number) for point in line.points]
        draw_line(axes, replace(line, points=tuple(points)), tooltips, ("", title))
    if along:
        along.apply(axes)
    if not any(point.y.finite for line in lines for point in line.points):
        mark_empty(axes)


def _shifted(point: LinePoint, along: SweepAxis | None, line: int) -> LinePoint:
    if along is None or point.x.mean is None:
        return point
    return replace(point, x=replace(point.x, mean=along.position(point.x.mean, line)))


def _mark_allowed(axes: Axes, lines: Sequence[SweepLine], allowed: Mapping[float, str]) -> None:
    """Set y limits from 0 to the highest interval or allowed rate, and mark the allowed rates."""
    highs = [point.y.high or 0.0 for line in lines for point in line.points]
    top = min(1.04, 1.08 * max([MIN_TOP, *highs, *allowed]))
    axes.set_ylim(-0.04 * top, top)
    height = top * 1.04
    places = spread_positions([value / height for value in allowed], LABEL_HEIGHT)
    for (value, label), place in zip(allowed.items(), places, strict=True):
        axes.axhline(value, linewidth=0.9, **DOTTED)
        beside = axes.get_yaxis_transform()
        axes.text(
            1.01, place * height, label, transform=beside, va="center", fontsize=7, color=GREY
        )


def spread_positions(places: Sequence[float], apart: float) -> list[float]:
    """Move increasing positions in [0, 1] as little as needed so that neighbours are `apart`."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + apart) if found else place)
    for position in reversed(range(len(found))):
        most = found[position + 1] - apart if position + 1 < len(found) else 1.0
        found[position] = min(found[position], most)
    return found


def _notes(ledger: Ledger, plot: Request, lines: Sequence[list[SweepLine]]) -> list[str]:
    """Explain the points, their intervals and failures, and list what is left out."""
    _, solutions, failures = ([p.y for line in each for p in line.points] for each in lines)
    trials = describe_count([each.n for each in solutions], "trial")
    rule = plot.options.constraint or "a constraint"
    failure = f"failure: the classifier violates {rule} on {plot.options.truth} rows"
    notes = [
        f"{plot.options.y}: mean over trials with a solution, 95 % Student-t interval",
        f"rates: shares of {trials}, exact 95 % interval (Clopper-Pearson)",
        f"{failure}, which stand for the truth; without a solution there is no failure",
        *unnamed_lines_note(lines[0]),
    ]
    selection = PlotSelection.of(plot.options)
    statuses = Counter(
        ledger.status(trial)
        for trial in ledger.algorithms.plan
        if selection.includes(trial.label) and ledger.status(trial) not in CONCLUSIVE
    )
    if statuses:
        listed = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
        notes.append(f"not counted, as neither solved nor safe: {listed}")
    if unknown := sum(each.nan for each in failures):
        notes.append(f"not counted in the failure rate, as the constraint is undefined: {unknown}")
    return notes + missing_variant_notes(ledger, selection)

"""Plots of lines along a sweep: trade-offs of two metrics, and guarantees.

The former show one metric over another or over a swept name, the latter performance, solution rate
and failure rate along a swept number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scipy.special import stdtrit

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.report import GuaranteePlot, TradeoffPlot
from ratecli.ledger.records import OBJECTIVE, VIOLATION_PREFIX
from ratecli.ledger.view import Ledger
from ratecli.rates.metrics import goal_names
from ratecli.render import terminal_safe
from ratecli.report import groups as gr
from ratecli.report.certificates import collect_certificates
from ratecli.report.plots import canvas as cv
from ratecli.report.sheet import format_point
from ratecli.report.templates import note

MAX_NAMED_LINES = 8
"""A legend lists up to this many lines of an algorithm; of more it names the first and the last."""
EDGE = 0.045
"""Share of the axis left empty at either end of a flat line, like Matplotlib's margin of data."""
MAX_BARS, MAX_BANDS, FAINT = 8, 4, 0.06
"""Bars of more points, and bands of more lines, are fainter, as they overlap."""
WIDE = 3.0
"""Intervals may be cut off if they are wider than this many typical standard errors."""
LineT = TypeVar("LineT", bound="NamedLine")


@dataclass(frozen=True)
class NamedLine:
    """A line with a label and a place in the palette.

    `at` is a sweep point of the line. `shade` is from 0 (dark) to 1 (light), None for the plain
    colour. `named` is whether the legend lists the line.
    """

    label: str
    algorithm: int
    variant: int = 0
    at: Mapping[str, Any] = field(default_factory=dict)
    shade: float | None = None
    named: bool = True

    @property
    def style(self) -> dict[str, Any]:
        return cv.line_style(self.algorithm, self.variant, self.shade)


def distinguish_lines(lines: Sequence[LineT], along: str | None = None) -> list[LineT]:
    """Add the values that distinguish lines to their labels, and shade them.

    The name `along`, which varies within lines, does not distinguish them.
    """
    last = len(lines) - 1
    if last < 1:
        return list(lines)
    names = dict.fromkeys(name for line in lines for name in line.at if name != along)
    varying = [name for name in names if len({repr(line.at.get(name)) for line in lines}) > 1]
    found = []
    for k, line in enumerate(lines):
        values = format_point({name: line.at[name] for name in varying if name in line.at})
        label = ", ".join(filter(None, [line.label, values]))
        named = last < MAX_NAMED_LINES or k in {0, last}
        found.append(replace(line, label=label, shade=k / last, named=named))
    return found


def legend_handles(lines: Iterable[NamedLine]) -> list[Line2D]:
    return [Line2D([], [], label=line.label, **line.style) for line in lines if line.named]


@dataclass(frozen=True)
class PlotAxes:
    """The axes and split of a plot: two metrics, or a metric over the values of a swept name.

    `title` replaces the name of the vertical axis.
    """

    x: str
    y: str
    split: str
    swept: bool = False
    title: str = ""

    def point(self, group: gr.SeedGroup) -> LinePoint:
        if not self.swept:
            x = group.estimate(self.split, self.x)
        elif (value := group.point.get(self.x)) is None:
            x = gr.NO_ESTIMATE
        else:
            x = gr.IntervalEstimate(float(value), 1)
        return LinePoint(x, group.estimate(self.split, self.y), group.point)


def axis_labels(ledger: Ledger, axes: PlotAxes, split: str) -> tuple[str, str]:
    """Return the labels of x and y: name, rule and split."""
    x, y = (_axis_label(ledger, name, split) for name in (axes.x, axes.y))
    if axes.swept:
        rules = [k for k, v in ledger.constraints.items() if axes.x in goal_names(constraints=[v])]
        x = f"{axes.x}, in the target of {', '.join(rules)}" if rules else axes.x
    return x, y


def _axis_label(ledger: Ledger, name: str, split: str) -> str:
    rule = (ledger.experiment.get("metrics") or {}).get(name, name)
    label = rule if rule.startswith(name) else f"{name}: {rule}"
    if name == OBJECTIVE:
        label = str(ledger.experiment.get(name) or name)
    if name.startswith(VIOLATION_PREFIX):
        label = f"violation of {name.removeprefix(VIOLATION_PREFIX)}"
    return terminal_safe(f"{label} ({split})" if split else label)


@dataclass(frozen=True)
class LinePoint:
    """Two estimates at the sweep point `at`, which is empty if the sweep does not affect them."""

    x: gr.IntervalEstimate
    y: gr.IntervalEstimate
    at: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> tuple[float, float] | None:
        """The position of the point, or None unless both means are finite."""
        if not (self.x.finite and self.y.finite):
            return None
        return self.x.mean or 0.0, self.y.mean or 0.0


@dataclass(frozen=True)
class SweepLine(NamedLine):
    """The points of one variant of one algorithm at one setting of the other swept names.

    A `flat` line is drawn as a horizontal line at its only point, which has a position only if x
    is a metric.
    """

    points: tuple[LinePoint, ...] = ()
    flat: bool = False

    @property
    def style(self) -> dict[str, Any]:
        single = {"linestyle": "none"} if len(self.points) == 1 and not self.flat else {}
        return super().style | single


def collect_lines(
    ledger: Ledger, axes: PlotAxes, selection: cv.PlotSelection, *, simplify: bool = True
) -> list[SweepLine]:
    """Return the lines of all algorithms and variants that a plot shows.

    Their places in the palette do not depend on the results. With `simplify`, points without
    finite values are left out, and what the sweep does not affect becomes one point.
    """
    ledger = ledger.for_metrics([axes.y] if axes.swept else [axes.x, axes.y])
    algorithms = gr.group_by(gr.seed_groups(ledger), lambda group: group.label)
    several = sorted({group.variant for group in gr.seed_groups(ledger) if not group.sole})
    found: list[SweepLine] = []
    for position, (label, groups) in enumerate(algorithms.items()):
        variants = sorted({group.variant for group in groups} - {""}) or [""]
        shown = gr.same_points(group for group in groups if selection.includes_point(group.point))
        for variant in variants:
            if selection.includes(label) and selection.includes_variant(variant, variants):
                owner = f"{label} ({variant})" if len(variants) > 1 else label
                points = [axes.point(gr.select_variant(siblings, variant)) for siblings in shown]
                no_x = axes.swept and not any(point.x.n for point in points)
                flat = no_x or label in selection.lines
                if flat and axes.swept:
                    points = [replace(point, x=gr.NO_ESTIMATE) for point in points]
                place = several.index(variant) if len(variants) > 1 else 0
                line = SweepLine(owner, position, place, flat=flat)
                found += _lines_of(line, points, axes, ledger.sweep, simplify=simplify)
    return found


def _lines_of(
    line: SweepLine,
    points: Sequence[LinePoint],
    axes: PlotAxes,
    sweep: Sequence[str],
    *,
    simplify: bool,
) -> list[SweepLine]:
    """Return a line along one swept name for each setting of the other swept names."""
    if simplify:
        points = [point for point in points if (point.y.finite if line.flat else point.place)]
        if len(points) > 1 and len({(point.x, point.y) for point in points}) == 1:
            points = [replace(points[0], at={})]
    varying = [name for name in sweep if len({repr(point.at.get(name)) for point in points}) > 1]
    along = None if line.flat else axes.x if axes.swept else next(reversed(varying), None)

    def setting(point: LinePoint) -> object:
        if line.flat and simplify:
            return point.x, point.y
        return repr({name: value for name, value in point.at.items() if name != along})

    lines = []
    for curve in gr.group_by(points, setting).values():
        kept = [replace(curve[0], at={})] if line.flat else _ordered(curve, along)
        lines.append(replace(line, at=curve[0].at, points=tuple(kept)))
    return distinguish_lines(lines, along)


def _ordered(points: Sequence[LinePoint], along: str | None) -> list[LinePoint]:
    """Sort by the swept value if it is numeric, otherwise keep the order of the file."""
    values = [point.at.get(along or "") for point in points]
    if not all(isinstance(value, int | float) for value in values):
        return list(points)
    return sorted(points, key=lambda point: float(point.at[along or ""]))


def draw_lines(axes: Axes, lines: Sequence[SweepLine], *, swept: bool) -> None:
    """Draw the finite points of lines with their intervals: bands along a sweep, or bars.

    Intervals of many lines or points are fainter, as they overlap.
    """
    count = sum(len(line.points) for line in lines)
    crowded = len(lines) > MAX_BANDS if swept else count > MAX_BARS
    for line in lines:
        points = [point for point in line.points if point.y.finite and (line.flat or point.place)]
        if not points:
            continue
        colour = line.style["color"]
        bars: dict[str, Any] = {
            "ecolor": colour,
            "elinewidth": 0.8,
            "alpha": 0.3 if crowded else 0.5,
        }
        band = cv.band_style(colour) | ({"alpha": FAINT} if crowded else {})
        ys, y_ends = cv.means_and_ends([point.y for point in points])
        if line.flat:
            _draw_flat(axes, points[0], line.style, band)
        if points[0].place:
            xs, x_ends = cv.means_and_ends([point.x for point in points])
            if swept and len(points) > 1:
                axes.fill_between(xs, *y_ends, **band)
            else:
                x_errors, y_errors = np.abs(x_ends - xs), np.abs(y_ends - ys)
                axes.errorbar(xs, ys, xerr=x_errors, yerr=y_errors, fmt="none", **bars)
            style = line.style | ({"zorder": 3} if len(points) == 1 else {})
            axes.plot(xs, ys, **style)


def _draw_flat(
    axes: Axes, point: LinePoint, style: Mapping[str, Any], band: Mapping[str, Any]
) -> None:
    """Draw a horizontal line with its interval; without a place of its own, its ends are marked."""
    limits: dict[str, Any] = {} if point.place else {"xmin": EDGE, "xmax": 1 - EDGE}
    if point.y.interval:
        low, high = point.y.interval
        axes.axhspan(low, high, **limits, **band)
    marker = {"marker": "none"} if point.place else {}
    axes.axhline(point.y.mean or 0.0, **limits, **{**style, **marker, "zorder": 1.8})


def cut_axis(axes: Axes, axis: Literal["x", "y"], estimates: Iterable[gr.IntervalEstimate]) -> int:
    """Cut huge intervals of few seeds off an axis, and return their number.

    They would hide differences of means: they are wider than the range of all means and than
    `WIDE` typical standard errors. The axis shows means and other intervals.
    """
    known = [each for each in estimates if each.finite]
    means = np.array([each.mean for each in known], dtype=float)
    halves = np.array([each.half or 0.0 for each in known])
    errors = halves / stdtrit([max(each.n - 1, 1) for each in known], (1 + gr.LEVEL) / 2)
    if not halves.any():
        return 0
    huge = halves > max(np.ptp(means), WIDE * np.median(errors[halves > 0]))
    ends = np.concatenate([means, (means - halves)[~huge], (means + halves)[~huge]])
    if huge.any() and np.ptp(ends):
        margin = EDGE * np.ptp(ends)
        axes.set(**{f"{axis}lim": (ends.min() - margin, ends.max() + margin)})
        return int(huge.sum())
    return 0


def cut_intervals(axes: Axes, lines: Iterable[SweepLine]) -> int:
    """Cut huge intervals off both axes; return their number."""
    points = [point for line in lines for point in line.points if point.y.finite]
    cut = cut_axis(axes, "x", [point.x for point in points])
    return cut + cut_axis(axes, "y", [point.y for point in points])


def describe_cut(number: int) -> list[str]:
    """Return a note if intervals are cut off."""
    what = "1 interval is" if number == 1 else f"{number} intervals are"
    return [f"{what} cut off (few seeds make them wide)"] if number else []


REFERENCE: dict[str, Any] = {"color": cv.GREY, "linewidth": 1.1, "marker": "", "zorder": 1.5}
"""The style of the diagonal and of the known frontier."""
LONG_DASHES = (0, (9, 4))
SIDES: tuple[tuple[Literal["x", "y"], str], ...] = (("x", "levels"), ("y", "heights"))
"""The axes, with the names of their stored limits."""


def plot_axes(ledger: Ledger, plot: cv.PlotRequest[TradeoffPlot], split: str) -> PlotAxes:
    """Return the axes; a name that is both a metric and swept means the metric."""
    x = plot.options.x
    return PlotAxes(x, plot.options.y, split, x not in ledger.metrics and x in ledger.sweep)


def draw_tradeoff(ledger: Ledger, plot: cv.PlotRequest[TradeoffPlot]) -> cv.Canvas:
    """Draw a panel for each value of `by` and each split.

    Panels have their own axes, as magnitudes may differ. Panels that differ only in the split are
    side by side and share axes.
    """
    selections, splits = cv.panel_selections(ledger, plot.options), plot.splits
    several = len(splits) > 1
    x, y, rows = plot.options.x, plot.options.y, " and ".join(splits)
    what = note("tradeoff", x=x, y=y, rows=rows)
    most = len(splits) if several else 3
    panels = len(selections) * len(splits)
    canvas = cv.Canvas(plot, f"{y} against {x} ({rows})", what, panels, most)
    found: list[SweepLine] = []
    handles: list[Line2D] = []
    cut = 0
    for selection in selections:
        first = None
        for split in splits:
            names = plot_axes(ledger, plot, split)
            labels = axis_labels(ledger, names, "" if several else split)
            title = ", ".join(filter(None, [selection.title, split if several else ""]))
            axes = canvas.panel(title, *labels, sharex=first, sharey=first)
            first = axes if several else None
            lines = collect_lines(ledger, names, selection)
            draw_lines(axes, lines, swept=names.swept)
            if names.swept:
                points = [each.point for each in ledger.plan if selection.includes_trial(each)]
                cv.cover_sweep(axes, [float(at[names.x]) for at in points if names.x in at])
            cut += cut_intervals(axes, lines)
            _draw_limits(axes, ledger, plot, selection)
            found += lines
            handles += legend_handles(lines)
            if lines:
                handles += _draw_references(axes, ledger, plot, names)
            else:
                cv.mark_empty(axes)
    if found:
        counts = [point.y.n for line in found for point in line.points]
        intervals = "mean and 95 % Student-t interval over {}"
        canvas.add_legend(handles, [cv.describe_intervals(counts, intervals), *describe_cut(cut)])
    return canvas


def _draw_limits(
    axes: Axes, ledger: Ledger, plot: cv.PlotRequest[TradeoffPlot], selection: cv.PlotSelection
) -> None:
    """Draw the limits that constraints set on the axes of a panel, as stored by the run."""
    stored: Sequence[Mapping[str, Any]] = ledger.meta.get("plots") or ()
    levels = stored[plot.position] if plot.position < len(stored) else {}
    if not ledger.report_entries("plots"):
        levels = {"levels": [{"value": 0.0, "label": "limit"}]}
    for axis, name in SIDES:
        own = [
            (float(each["value"]), str(each["label"]))
            for each in levels.get(name) or ()
            if not selection.at or each.get("panel") in {None, selection.at[1]}
        ]
        cv.draw_levels(axes, own, axis)


def _draw_references(
    axes: Axes, ledger: Ledger, plot: cv.PlotRequest[TradeoffPlot], names: PlotAxes
) -> list[Line2D]:
    """Draw the known frontier and the line y = x, within the range of the algorithms' lines."""
    left, right = axes.get_xlim()
    frontier = (ledger.meta.get("frontier") or {}).get(str(plot.position)) or ()
    within = [point for point in frontier if left <= point[0] <= right]
    lines = []
    if within:
        xs, ys = zip(*within, strict=True)
        lines += axes.plot(xs, ys, label="best possible", **REFERENCE, linestyle="--")
        axes.set_xlim(left, right)
    if plot.options.diagonal:
        bottom, top = axes.get_ylim()
        label = f"{names.y} = {names.x}" + ", met exactly" * names.swept
        ends = [left, right]
        lines += axes.plot(ends, ends, label=label, **REFERENCE, linestyle=LONG_DASHES)
        axes.set(xlim=(left, right), ylim=(bottom, top))
    return lines


Request = cv.PlotRequest[GuaranteePlot]
MIN_TOP = 0.1
"""The failure rate axis extends at least to this value."""


def guarantee_axes(plot: Request) -> list[PlotAxes]:
    """Return the axes of the panels of performance, solution rate and failure rate."""
    y, truth, rule = plot.options.y, plot.options.truth, plot.options.constraint
    titles = (
        (y, f"{y} ({truth})"),
        (SOLUTION_RATE, "solution rate"),
        (
            f"{FAILURE_RATE}.{rule}" if rule else FAILURE_RATE,
            f"failure rate ({rule or 'any constraint'}, {truth})",
        ),
    )
    return [PlotAxes(plot.options.x, y, truth, swept=True, title=text) for y, text in titles]


def allowed_failure_rates(
    ledger: Ledger, plot: Request, selection: cv.PlotSelection
) -> list[float]:
    """Return the allowed failure rates recorded in certificates, sorted.

    Constraints that were never tested have no allowed failure rate.
    """
    found = {
        float(each.record["delta"])
        for each in collect_certificates(ledger)
        if plot.options.constraint in {None, each.constraint}
        if selection.includes_trial(each.trial)
    }
    return sorted(found)


def draw_guarantee(ledger: Ledger, plot: Request) -> cv.Canvas:
    """Draw a row of panels for each value of `by`."""
    x, y, truth = plot.options.x, plot.options.y, plot.options.truth
    what = note("guarantee", x=x, y=y, truth=truth, rule=plot.options.constraint or "a constraint")
    caption = f"{y}, solution rate and failure rate by {x} (measured on {truth} rows)"
    selections, columns = cv.panel_selections(ledger, plot.options), guarantee_axes(plot)
    canvas = cv.Canvas(plot, caption, what, 3 * len(selections))
    swept = [float(value) for value in ledger.swept(x)]
    cut = 0
    found: tuple[list[SweepLine], list[SweepLine], list[SweepLine]] = [], [], []
    for selection in selections:
        for names, every in zip(columns, found, strict=True):
            lines = collect_lines(ledger, names, selection, simplify=False)
            first = next(iter(canvas.figure.axes), None)
            axes = canvas.panel(names.title, x, selection.title, sharex=first)
            draw_lines(axes, lines, swept=True)
            cv.cover_sweep(axes, swept)
            if cv.spans_decades(swept) and min(swept) > 0:
                cv.use_plain_log_scale(axes, "x")
            if not any(point.y.finite for line in lines for point in line.points):
                cv.mark_empty(axes)
            if every is found[1]:
                axes.set_ylim(-0.04, 1.04)
            if every is found[2]:
                allowed = allowed_failure_rates(ledger, plot, selection)
                highs = [point.y.high or 0.0 for line in lines for point in line.points]
                top = min(1.04, 1.08 * max([MIN_TOP, *highs]))
                axes.set_ylim(-0.04 * top, top)
                cv.draw_levels(axes, [(value, f"delta {value:g}") for value in allowed], "y")
            every.extend(lines)
            cut += cut_intervals(axes, lines) if every is found[0] else 0
    if found[0]:
        notes = [*_notes(plot, found[1]), *describe_cut(cut)]
        canvas.add_legend(legend_handles(found[0]), notes)
    return canvas


def _notes(plot: Request, solutions: Sequence[SweepLine]) -> list[str]:
    """Explain the points, their intervals and failures, and what is left out."""
    trials = cv.describe_count([point.y.n for line in solutions for point in line.points], "trial")
    rule = plot.options.constraint or "a constraint"
    failure = f"failure: the classifier violates {rule} on {plot.options.truth} rows"
    return [
        f"{plot.options.y}: mean over trials with a solution, 95 % Student-t interval",
        f"rates: shares of {trials}, exact 95 % interval (Clopper-Pearson)",
        f"{failure}; a trial without a solution does not fail",
        "trials that crashed, timed out or diverged are not counted",
    ]

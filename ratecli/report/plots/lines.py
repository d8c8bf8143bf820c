"""Lines of plots along a sweep: which there are, how they are named, and how they are drawn."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy.special import stdtrit

from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.ledger.view import Ledger
from ratecli.rates.metrics import goal_names
from ratecli.render import terminal_safe
from ratecli.report.frame import LEVEL, NO_ESTIMATE, IntervalEstimate
from ratecli.report.groups import SeedGroup, group_by, same_points, seed_groups, select_variant
from ratecli.report.plots.canvas import PlotSelection, band_style, line_style
from ratecli.report.sheet import format_point

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
        return line_style(self.algorithm, self.variant, self.shade)


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

    def point(self, group: SeedGroup) -> LinePoint:
        if not self.swept:
            x = group.estimate(self.split, self.x)
        elif (value := group.point.get(self.x)) is None:
            x = NO_ESTIMATE
        else:
            x = IntervalEstimate(float(value), 1)
        return LinePoint(x, group.estimate(self.split, self.y), group.point)


LABEL_WIDTH = 62


def axis_labels(ledger: Ledger, axes: PlotAxes, split: str) -> tuple[str, str]:
    """Return the labels of x and y: name, rule and split."""
    x, y = (_axis_label(ledger, name, split) for name in (axes.x, axes.y))
    if axes.swept:
        rules = [k for k, v in ledger.constraints.items() if axes.x in goal_names(constraints=[v])]
        x = f"{axes.x}, in the target of {', '.join(rules)}" if rules else axes.x
    return textwrap.fill(x, LABEL_WIDTH), textwrap.fill(y, LABEL_WIDTH - 20)


def _axis_label(ledger: Ledger, name: str, split: str) -> str:
    rule = (ledger.experiment.get("metrics") or {}).get(name, name)
    label = name if rule == name else f"{name}: {rule}"
    if name == "objective":
        label = str(ledger.experiment.get(name) or name)
    if name.startswith(VIOLATION_PREFIX):
        label = f"violation of {name.removeprefix(VIOLATION_PREFIX)}"
    return terminal_safe(f"{label} ({split})" if split else label)


@dataclass(frozen=True)
class LinePoint:
    """Two estimates at the sweep point `at`, which is empty if the sweep does not affect them."""

    x: IntervalEstimate
    y: IntervalEstimate
    at: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> tuple[float, float] | None:
        """The position of the point, or None unless both means are finite."""
        if not (self.x.finite and self.y.finite):
            return None
        return self.x.mean or 0.0, self.y.mean or 0.0

    @property
    def rounded(self) -> tuple[str, ...]:
        """Means and intervals to nine digits, as values without effects may differ slightly."""
        values = (each for axis in (self.x, self.y) for each in (axis.mean, axis.low, axis.high))
        return tuple(f"{round(math.nan if value is None else value, 12):.9g}" for value in values)


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
    ledger: Ledger, axes: PlotAxes, selection: PlotSelection, *, simplify: bool = True
) -> list[SweepLine]:
    """Return the lines of all algorithms and variants that a plot shows.

    Their places in the palette do not depend on the results. With `simplify`, points without
    finite values are left out, and what the sweep does not affect becomes one point or a flat line.
    """
    ledger = ledger.for_metrics([axes.y] if axes.swept else [axes.x, axes.y])
    algorithms = group_by(seed_groups(ledger), lambda group: group.label)
    everything = sorted({group.variant for group in seed_groups(ledger)} - {""}) or [""]
    found: list[SweepLine] = []
    for position, (label, groups) in enumerate(algorithms.items()):
        variants = sorted({group.variant for group in groups} - {""}) or [""]
        shown = same_points(group for group in groups if selection.includes_point(group.point))
        for variant in variants:
            if selection.includes(label) and selection.includes_variant(variant, variants):
                owner = f"{label} ({variant})" if len(variants) > 1 else label
                points = [axes.point(select_variant(siblings, variant)) for siblings in shown]
                flat = label in selection.lines or (
                    axes.swept and (_constant(points, simplify) or not any(p.x.n for p in points))
                )
                if flat and axes.swept:
                    points = [replace(point, x=NO_ESTIMATE) for point in points]
                place = everything.index(variant) if variant else 0
                line = SweepLine(owner, position, place, flat=flat)
                found += _lines_of(line, points, axes, ledger.sweep, simplify=simplify)
    return found


def _constant(points: Sequence[LinePoint], simplify: bool) -> bool:
    """Return whether several points along a sweep have the same value and interval."""
    values = {replace(point, x=NO_ESTIMATE).rounded for point in points if point.y.finite}
    complete = all(point.y.finite for point in points)
    return simplify and complete and len(points) > 1 and len(values) == 1


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
        if len(points) > 1 and len({point.rounded for point in points}) == 1:
            points = [replace(points[0], at={})]
    varying = [name for name in sweep if len({repr(point.at.get(name)) for point in points}) > 1]
    along = None if line.flat else axes.x if axes.swept else next(reversed(varying), None)

    def setting(point: LinePoint) -> object:
        if line.flat and simplify:
            return point.rounded
        return repr({name: value for name, value in point.at.items() if name != along})

    lines = []
    for curve in group_by(points, setting).values():
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
        band = band_style(colour) | ({"alpha": FAINT} if crowded else {})
        ys, y_ends = _means_and_ends([point.y for point in points])
        if line.flat:
            _draw_flat(axes, points[0], line.style, band)
        if points[0].place:
            xs, x_ends = _means_and_ends([point.x for point in points])
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


def cut_axis(
    axes: Axes,
    axis: Literal["x", "y"],
    estimates: Iterable[IntervalEstimate],
    limits: Sequence[float] = (),
) -> int:
    """Cut huge intervals of few seeds off an axis, and return their number.

    They would hide differences of means: they are wider than the range of all means and than
    `WIDE` typical standard errors. The axis shows means, other intervals and the `limits`.
    """
    known = [each for each in estimates if each.finite]
    means = np.array([each.mean for each in known], dtype=float)
    halves = np.array([each.half or 0.0 for each in known])
    errors = halves / stdtrit([max(each.n - 1, 1) for each in known], (1 + LEVEL) / 2)
    if not halves.any():
        return 0
    huge = halves > max(np.ptp(means), WIDE * np.median(errors[halves > 0]))
    ends = np.concatenate([means, (means - halves)[~huge], (means + halves)[~huge], limits])
    if huge.any() and np.ptp(ends):
        margin = EDGE * np.ptp(ends)
        axes.set(**{f"{axis}lim": (ends.min() - margin, ends.max() + margin)})
        return int(huge.sum())
    return 0


def cut_intervals(
    axes: Axes, lines: Iterable[SweepLine], limits: Sequence[Sequence[float]] = ((), ())
) -> int:
    """Cut huge intervals off both axes, which have these `limits`; return their number."""
    points = [point for line in lines for point in line.points if point.y.finite]
    cut = cut_axis(axes, "x", [point.x for point in points], limits[0])
    return cut + cut_axis(axes, "y", [point.y for point in points], limits[1])


def describe_cut(number: int) -> list[str]:
    """Return a note if intervals are cut off."""
    what = "1 interval is" if number == 1 else f"{number} intervals are"
    return [f"{what} cut off (few seeds make them wide)"] if number else []


def _means_and_ends(
    estimates: Sequence[IntervalEstimate],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means (N,) and ends (2, N) of intervals; without an interval both are the mean."""
    means = [each.mean or 0.0 for each in estimates]
    ends = [each.interval or (mean, mean) for each, mean in zip(estimates, means, strict=True)]
    return np.array(means), np.transpose(ends)

"""Convergence plots: objective and worst violation over the iterations recorded in trial traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from ratecli.ledger.records import CONSTRAINT_TOLERANCE
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.file_names import plot_file_name
from ratecli.report.plots.series import (
    SELECT_ALL,
    LineSetting,
    PlotSelection,
    line_settings,
    unnamed_lines_note,
)
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
from ratecli.report.plots.tradeoff import panel_values
from ratecli.report.sheet import format_number, format_scalar

CONVERGENCE = "convergence"
MAX_BINS = 60
"""Maximum number of bins per line. Longer traces are summarized by mean and range per bin."""
Numbers = NDArray[np.float64]
Trace = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ConvergencePlotOptions:
    """A convergence plot of the experiment file; `x` is a key of the traces."""

    name: str
    title: str
    x: str = "iteration"
    choice: PlotSelection = SELECT_ALL
    by: str = ""
    panels: tuple[Any, ...] = ()

    @property
    def caption(self) -> str:
        return self.title or f"Objective and worst violation by {self.x} (train)"

    def panel(self, position: int) -> tuple[tuple[str, str], ...]:
        """Return the name and value of `by` in a panel, or () without `by`."""
        return ((self.by, format_scalar(self.panels[position])),) if self.panels else ()

    def parts(self) -> list[ConvergencePlotOptions]:
        """Split the plot into one plot per panel, or return the plot itself if it has no panels."""
        values = [self.choice.in_panel(self.by, value) for value in self.panels]
        return [replace(self, **each) for each in values] or [self]


@dataclass(frozen=True)
class SeedCurves:
    """Values (S, T) of S seeds at T positions along x (T,); NaN where a value is not finite."""

    places: Numbers
    numbers: Numbers

    def ribbon(self, *, logarithmic: bool) -> CurveBand:
        """Return mean and range over seeds, at each position or, if there are many, in bins."""
        kept = self.places > 0 if logarithmic else np.full(len(self.places), fill_value=True)
        places, numbers = self.places[kept], self.numbers[:, kept]
        if not len(places):
            return CurveBand(places, places, places, places)
        pieces = _bins(places, logarithmic=logarithmic)
        first = np.flatnonzero(np.diff(pieces, prepend=-1))
        last = np.append(first[1:], len(places)) - 1
        with np.errstate(invalid="ignore"):
            told = np.isfinite(numbers)
            total = np.add.reduceat(np.where(told, numbers, 0.0).sum(axis=0), first)
            mean = total / np.add.reduceat(told.sum(axis=0), first)
        low = np.minimum.reduceat(np.where(told, numbers, np.inf).min(axis=0), first)
        high = np.maximum.reduceat(np.where(told, numbers, -np.inf).max(axis=0), first)
        gap = ~np.isfinite(mean)
        return CurveBand(places[last], mean, *(np.where(gap, np.nan, each) for each in (low, high)))


@dataclass(frozen=True)
class CurveBand:
    """Mean, minimum and maximum (P,) of a curve's finite values, at the end of each bin."""

    places: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True)
class ConvergenceCurve:
    """The traces of an algorithm at one sweep point, over `seeds` trials."""

    label: str
    setting: LineSetting
    algorithm: int
    seeds: int
    objective: SeedCurves
    violation: SeedCurves


def read_convergence(ledger: Ledger, position: int) -> ConvergencePlotOptions:
    """Read the plot at a position in the experiment file's list of plots."""
    every = ledger.asked("plots")
    asked = every[position]
    choice, by = PlotSelection(tuple(asked.get("algorithms") or ())), asked.get("by") or ""
    return ConvergencePlotOptions(
        name=plot_file_name(every, position),
        title=asked.get("title") or "",
        x=asked.get("x") or "iteration",
        choice=choice,
        by=by,
        panels=panel_values(ledger, by, choice),
    )


def convergence_curves(ledger: Ledger, plot: ConvergencePlotOptions) -> list[ConvergenceCurve]:
    """Return the curves in plan order, without algorithms that have no trace with this x.

    The filter before training is only included if the plot names it, as its objective differs.
    """
    asked = {trial.label for trial in ledger.stage.plan} & {*plot.choice.algorithms}
    ledger = ledger if asked else ledger.algorithms
    labels = list(dict.fromkeys(trial.label for trial in ledger.plan))
    traces: dict[str, dict[str, list[Trace]]] = {label: {} for label in labels}
    points: dict[str, Mapping[str, Any]] = {}
    for trial in ledger.plan:
        if plot.choice.takes(trial.label) and plot.choice.takes_point(trial.point):
            rows = (
                ledger.results[trial.key].trace if ledger.status(trial) in MEASURED_STATUSES else ()
            )
            told = [row for row in rows if plot.x in row]
            if told:
                points[repr(trial.point)] = trial.point
                traces[trial.label].setdefault(repr(trial.point), []).append(told)
    return [
        ConvergenceCurve(
            label=label,
            setting=setting,
            algorithm=labels.index(label),
            seeds=len(several),
            objective=align_traces(several, plot.x, "objective"),
            violation=_clip_rounding(align_traces(several, plot.x, "violation")),
        )
        for label, at in traces.items()
        for setting, several in zip(
            line_settings([points[key] for key in at]), at.values(), strict=True
        )
    ]


def align_traces(traces: Sequence[Sequence[Mapping[str, Any]]], x: str, y: str) -> SeedCurves:
    """Align the seeds' traces, starting where all of them have values.

    After its end, a trace keeps its last value.
    """
    places = [np.array([float(row[x]) for row in trace]) for trace in traces]
    numbers = [np.array([_finite(row.get(y)) for row in trace]) for trace in traces]
    begun = max(float(each[0]) for each in places)
    grid = np.unique(np.concatenate(places))
    grid = grid[grid >= begun]
    values = [
        each[np.searchsorted(place, grid, side="right") - 1]
        for place, each in zip(places, numbers, strict=True)
    ]
    return SeedCurves(grid, np.stack(values))


def _clip_rounding(violation: SeedCurves) -> SeedCurves:
    """Set violations within the rounding tolerance to 0."""
    return replace(
        violation,
        numbers=np.where(violation.numbers <= CONSTRAINT_TOLERANCE, 0.0, violation.numbers),
    )


def spans_decades(values: Iterable[float]) -> bool:
    """Return whether positive values span a factor of at least 100, as for a log scale."""
    found = [value for value in values if value > 0]
    return bool(found) and max(found) >= 100 * min(found)


def _finite(value: Any) -> float:
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else math.nan


def _bins(places: Numbers, *, logarithmic: bool) -> NDArray[np.intp]:
    """Return the bin (T,) of each position, at most `MAX_BINS` of them."""
    if len(places) <= MAX_BINS:
        return np.arange(len(places))
    scaled = np.log(places) if logarithmic else places
    share = (scaled - scaled[0]) / (scaled[-1] - scaled[0])
    return np.asarray(np.minimum((share * MAX_BINS).astype(np.intp), MAX_BINS - 1))


LABELS = {"objective": "objective (train)", "violation": "worst violation (train)"}
HEIGHT = 0.9
"""Height of a panel when two are stacked, relative to a single panel."""


@dataclass(frozen=True)
class AxisScales:
    """Whether the x axis and the objective's axis are logarithmic, the same for all panels."""

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
    """Describe the lines of the plot."""
    lower = " and the worst violation of a constraint" if ledger.constraints else ""
    return (
        f"How the objective{lower} on training rows went on by {plot.x}. A line for each algorithm "
        "is the mean over seeds, its band their range."
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
    """Draw one panel; `tell` adds the tooltips of a line."""
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
            axes.set_yticks([0.0])  # with no violations, other ticks would be meaningless


def _add_tooltips(
    told: Tooltips,
    axes: Axes,
    names: tuple[str, str],
    course: ConvergenceCurve,
    ribbon: CurveBand,
    *,
    panel: TooltipFacts,
) -> None:
    """Add a tooltip at each point of a line.

    `names` are the names of x and y, `panel` is added to every tooltip of the panel.
    """
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
    """Label powers of ten in plain notation (100, not 10^2), and no minor ticks."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _curve_style(course: ConvergenceCurve) -> dict[str, Any]:
    return line_style(course.algorithm, shade=course.setting.shade)


def _handle(course: ConvergenceCurve) -> Line2D:
    return Line2D([], [], label=course.setting.of(course.label), **_curve_style(course))


def _notes(every: Sequence[ConvergenceCurve]) -> list[str]:
    """Explain a line and its band."""
    counts = [course.seeds for course in every]
    least, most = min(counts), max(counts)
    seeds = "one seed" if most == 1 else f"{most if least == most else f'{least} to {most}'} seeds"
    note = f"mean and range of {seeds}, of neighbouring iterates where there are many"
    return [note, *unnamed_lines_note(course.setting for course in every)]

"""Convergence plots: objective and worst violation over the iterations recorded in trial traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ratecli.config.report import ConvergencePlot
from ratecli.ledger.records import is_violated
from ratecli.ledger.view import Ledger
from ratecli.report.groups import group_by
from ratecli.report.plots import canvas as cv
from ratecli.report.plots.lines import NamedLine, distinguish_lines, legend_handles
from ratecli.report.templates import note

MAX_BINS = 60
"""Maximum number of bins per line. Longer traces are summarized by mean and range per bin."""
MARKS = 6
"""Number of markers on a line with many positions; those of algorithms are not at the same ones."""
LABELS = {"objective": "objective (train)", "violation": "worst violation (train)"}
Trace = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ConvergenceCurve(NamedLine):
    """The traces of an algorithm at one sweep point: a column per seed, by position along x."""

    objective: pd.DataFrame = field(default_factory=pd.DataFrame)
    violation: pd.DataFrame = field(default_factory=pd.DataFrame)


def convergence_curves(
    ledger: Ledger, x: str, selection: cv.PlotSelection
) -> list[ConvergenceCurve]:
    """Return the curves in plan order, without algorithms that have no trace with this x.

    The filter before training is only included if the plot names it, as its objective differs.
    """
    if not {trial.label for trial in ledger.filter_stage.plan} & {*selection.algorithms}:
        ledger = ledger.algorithms
    found = []
    algorithms = group_by(ledger.plan, lambda trial: trial.label)
    for position, (label, trials) in enumerate(algorithms.items()):
        traces = [
            (trial, rows)
            for trial in trials
            if selection.includes_trial(trial) and ledger.is_measured(trial)
            if (rows := [row for row in ledger.results[trial.key].trace if x in row])
        ]
        curves = []
        for seeds in group_by(traces, lambda pair: repr(pair[0].point)).values():
            objective, violation = (align_traces([rows for _, rows in seeds], x, y) for y in LABELS)
            violation = violation.where(violation.map(is_violated), 0.0)
            curve = ConvergenceCurve(label, position, at=seeds[0][0].point)
            curves.append(replace(curve, objective=objective, violation=violation))
        found += distinguish_lines(curves)
    return found


def align_traces(traces: Iterable[Trace], x: str, y: str) -> pd.DataFrame:
    """Align the seeds' traces (columns) by x, starting where all of them have values.

    After its end, a trace keeps its last value. Values that are not finite are NaN.
    """
    values = ({float(row[x]): row.get(y) for row in trace} for trace in traces)
    seeds = [pd.Series(each, dtype=float) for each in values]
    start = max(seed.index[0] for seed in seeds)
    positions = np.unique(np.concatenate([seed.index for seed in seeds]))
    aligned = [seed.reindex(positions[positions >= start], method="ffill") for seed in seeds]
    return pd.concat(aligned, axis=1).replace([np.inf, -np.inf], np.nan)


def curve_band(values: pd.DataFrame, *, logarithmic: bool) -> pd.DataFrame:
    """Return mean, minimum and maximum of the finite values, over seeds.

    If there are many positions, these are over bins, which are indexed by their ends.
    """
    if logarithmic:
        values = values[values.index > 0]
    positions = np.log(values.index) if logarithmic else values.index
    many = len(positions) > MAX_BINS
    bins = pd.cut(positions, MAX_BINS, labels=False) if many else np.arange(len(positions))
    grouped = values.groupby(bins)
    band = pd.DataFrame(
        {
            "mean": grouped.sum().sum(axis=1) / grouped.count().sum(axis=1),
            "low": grouped.min().min(axis=1),
            "high": grouped.max().max(axis=1),
        }
    )
    return band.set_index(values.index.to_series().groupby(bins).last())


def logarithmic_axes(curves: Sequence[ConvergenceCurve]) -> tuple[bool, bool]:
    """Return whether x and the objective have a logarithmic axis, the same for all panels."""
    x = cv.spans_decades(x for curve in curves for x in curve.objective.index)
    means = [curve_band(curve.objective, logarithmic=x)["mean"].dropna() for curve in curves]
    values = [value for mean in means for value in mean]
    return x, cv.spans_decades(values) and min(values) > 0


def draw_convergence(ledger: Ledger, plot: cv.PlotRequest[ConvergencePlot]) -> cv.Canvas:
    """Draw a row of panels for each value of `by`."""
    selections, x = cv.panel_selections(ledger, plot.options), plot.options.x
    panels = [convergence_curves(ledger, x, selection) for selection in selections]
    curves = [curve for panel in panels for curve in panel]
    names = list(LABELS) if ledger.constraints else ["objective"]
    what = note("convergence", x=x)
    caption = f"Objective and worst violation by {x} (train)"
    canvas = cv.Canvas(plot, caption, what, len(panels) * len(names), len(names))
    x_log, objective_log = logarithmic_axes(curves)
    for selection, panel in zip(selections, panels, strict=True):
        for name in names:
            first = next(iter(canvas.figure.axes), None)
            axes = canvas.panel(LABELS[name], x, selection.title, sharex=first)
            if x_log:
                cv.use_plain_log_scale(axes, "x")
            if objective_log and name == "objective":
                cv.use_plain_log_scale(axes, "y")
            for curve in panel:
                _draw_curve(axes, curve, name, logarithmic=x_log)
            if not panel:
                cv.mark_empty(axes)
            if name == "violation":
                axes.axhline(0.0, linewidth=0.7, **cv.DOTTED)
    if curves:
        seeds = cv.describe_count([curve.objective.shape[1] for curve in curves], "seed")
        text = f"mean and range over {seeds}, and over neighbouring iterations where there are many"
        canvas.add_legend(legend_handles(curves), [text])
    return canvas


def _draw_curve(axes: Axes, curve: ConvergenceCurve, name: str, *, logarithmic: bool) -> None:
    """Draw the objective or the violation as a line with its band, and a few markers."""
    band, style = curve_band(getattr(curve, name), logarithmic=logarithmic), curve.style
    axes.fill_between(band.index, band["low"], band["high"], **cv.band_style(style["color"]))
    every = max(1, len(band) // MARKS)
    axes.plot(band.index, band["mean"], markevery=(curve.algorithm % every, every), **style)

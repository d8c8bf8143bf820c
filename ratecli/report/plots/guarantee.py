"""Plots of guarantees: performance, solution rate and failure rate along a swept number."""

from __future__ import annotations

from collections.abc import Sequence

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.report import GuaranteePlot
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.plots.canvas import (
    Canvas,
    PlotRequest,
    PlotSelection,
    cover_sweep,
    describe_count,
    draw_levels,
    mark_empty,
    panel_selections,
    spans_decades,
    use_plain_log_scale,
)
from ratecli.report.plots.lines import (
    PlotAxes,
    SweepLine,
    collect_lines,
    cut_intervals,
    describe_cut,
    draw_lines,
    legend_handles,
)

Request = PlotRequest[GuaranteePlot]
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


def allowed_failure_rates(ledger: Ledger, plot: Request, selection: PlotSelection) -> list[float]:
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


def draw_guarantee(ledger: Ledger, plot: Request) -> Canvas:
    """Draw a row of panels for each value of `by`."""
    x, y, truth = plot.options.x, plot.options.y, plot.options.truth
    what = (
        f"By {x}: {y} on {truth} rows; how often a classifier was returned; and how often one was "
        f"returned that violates {plot.options.constraint or 'a constraint'} on {truth} rows, with "
        "the allowed rate as a dotted line."
    )
    caption = f"{y}, solution rate and failure rate by {x} (measured on {truth} rows)"
    selections, columns = panel_selections(ledger, plot.options), guarantee_axes(plot)
    canvas = Canvas(caption, what, plot.options.title, 3 * len(selections))
    swept = [float(trial.point[x]) for trial in ledger.plan if x in trial.point]
    cut = 0
    found: tuple[list[SweepLine], list[SweepLine], list[SweepLine]] = [], [], []
    for selection in selections:
        for names, every in zip(columns, found, strict=True):
            lines = collect_lines(ledger, names, selection, simplify=False)
            first = next(iter(canvas.figure.axes), None)
            axes = canvas.panel(names.title, x, selection.title, sharex=first)
            draw_lines(axes, lines, swept=True)
            cover_sweep(axes, swept)
            if spans_decades(swept) and min(swept) > 0:
                use_plain_log_scale(axes, "x")
            if not any(point.y.finite for line in lines for point in line.points):
                mark_empty(axes)
            if every is found[1]:
                axes.set_ylim(-0.04, 1.04)
            if every is found[2]:
                allowed = allowed_failure_rates(ledger, plot, selection)
                draw_levels(axes, [(value, f"delta {value:g}") for value in allowed], "y")
                highs = [point.y.high or 0.0 for line in lines for point in line.points]
                top = min(1.04, 1.08 * max([MIN_TOP, *highs, *allowed]))
                axes.set_ylim(-0.04 * top, top)
            every.extend(lines)
            cut += cut_intervals(axes, lines) if every is found[0] else 0
    if found[0]:
        notes = [*_notes(plot, found[1]), *describe_cut(cut)]
        canvas.add_legend(legend_handles(found[0]), notes)
    return canvas


def _notes(plot: Request, solutions: Sequence[SweepLine]) -> list[str]:
    """Explain the points, their intervals and failures, and what is left out."""
    trials = describe_count([point.y.n for line in solutions for point in line.points], "trial")
    rule = plot.options.constraint or "a constraint"
    failure = f"failure: the classifier violates {rule} on {plot.options.truth} rows"
    return [
        f"{plot.options.y}: mean over trials with a solution, 95 % Student-t interval",
        f"rates: shares of {trials}, exact 95 % interval (Clopper-Pearson)",
        f"{failure}; a trial without a solution does not fail",
        "trials that crashed, timed out or diverged are not counted",
    ]

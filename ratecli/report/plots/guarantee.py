"""Plots of guarantees: performance, solution rate and failure rate along a swept number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.report import GuaranteePlot
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.groups import CONCLUSIVE
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
    draw_line,
    legend_handles,
    unnamed_lines_note,
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
    found: tuple[list[SweepLine], list[SweepLine], list[SweepLine]] = [], [], []
    for selection in selections:
        for names, every in zip(columns, found, strict=True):
            lines = collect_lines(ledger, names, selection, simplify=False)
            first = next(iter(canvas.figure.axes), None)
            axes = canvas.panel(names.title, x, selection.title, sharex=first)
            for line in lines:
                draw_line(canvas, axes, line, names)
            cover_sweep(axes, swept)
            if spans_decades(swept) and min(swept) > 0:
                use_plain_log_scale(axes, "x")
            if not any(point.y.finite for line in lines for point in line.points):
                mark_empty(axes)
            if every is found[1]:
                axes.set_ylim(-0.04, 1.04)
            if every is found[2]:
                allowed = allowed_failure_rates(ledger, plot, selection)
                draw_levels(axes, list(allowed.items()), "y")
                highs = [point.y.high or 0.0 for line in lines for point in line.points]
                top = min(1.04, 1.08 * max([MIN_TOP, *highs, *allowed]))
                axes.set_ylim(-0.04 * top, top)
            every.extend(lines)
    if found[0]:
        canvas.add_legend(legend_handles(found[0]), _notes(ledger, plot, *found[:2]))
    return canvas


def _notes(
    ledger: Ledger, plot: Request, lines: Sequence[SweepLine], solutions: Sequence[SweepLine]
) -> list[str]:
    """Explain the points, their intervals and failures, and list what is left out."""
    trials = describe_count([point.y.n for line in solutions for point in line.points], "trial")
    rule = plot.options.constraint or "a constraint"
    failure = f"failure: the classifier violates {rule} on {plot.options.truth} rows"
    notes = [
        f"{plot.options.y}: mean over trials with a solution, 95 % Student-t interval",
        f"rates: shares of {trials}, exact 95 % interval (Clopper-Pearson)",
        f"{failure}; a trial without a solution does not fail",
        *unnamed_lines_note(lines),
    ]
    selection = PlotSelection.of(plot.options)
    statuses = Counter(
        ledger.status(trial)
        for trial in ledger.algorithms.plan
        if selection.includes(trial.label) and ledger.status(trial) not in CONCLUSIVE
    )
    if statuses:
        listed = ", ".join(f"{status} {count}" for status, count in sorted(statuses.items()))
        notes.append(f"not counted, because the outcome is unknown: {listed}")
    return notes

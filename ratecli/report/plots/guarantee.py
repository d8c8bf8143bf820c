"""Plots of guarantees: performance, solution rate and failure rate along a swept number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.report import GuaranteePlot
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.groups import CONCLUSIVE
from ratecli.report.plots import canvas
from ratecli.report.plots.canvas import (
    PlotDescription,
    PlotRequest,
    PlotSelection,
    Tooltips,
    missing_variant_notes,
    panel_selections,
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
PanelLines = tuple[list[SweepLine], list[SweepLine], list[SweepLine]]
"""The lines of the panels of performance, solution rate and failure rate."""
STEP, MAX_SHIFT = 2.0, 6.0
"""Horizontal distance between lines, and the largest total, in points."""
MIN_TOP = 0.1
"""The failure rate axis extends at least to this value."""


def describe_guarantee(_: Ledger, plot: Request) -> PlotDescription:
    x, y, truth = plot.options.x, plot.options.y, plot.options.truth
    what = (
        f"By {x}: {y} on {truth} rows; how often a classifier was returned; and how often one was "
        f"returned that violates {plot.options.constraint or 'a constraint'} on {truth} rows, with "
        "the allowed rate dotted."
    )
    caption = f"{y}, solution rate and failure rate by {x} ({truth} rows as the truth)"
    return PlotDescription(caption, what)


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


def draw_guarantee(ledger: Ledger, plot: Request, tooltips: Tooltips) -> Figure:
    selections = panel_selections(ledger, plot.options)
    found = [guarantee_lines(ledger, plot, selection) for selection in selections]
    rule, truth = plot.options.constraint or "any constraint", plot.options.truth
    titles = (f"{plot.options.y} ({truth})", "solution rate", f"failure rate ({rule}, {truth})")
    figure = canvas.empty_figure(
        (canvas.PANEL[0] * 3, canvas.PANEL[1] * len(found)), plot.options.title
    )
    for row, (selection, panels) in enumerate(zip(selections, found, strict=True)):
        for column, (title, lines) in enumerate(zip(titles, panels, strict=True)):
            cell, like = 3 * row + column + 1, next(iter(figure.axes), None)
            axes = figure.add_subplot(len(found), 3, cell, sharex=like)
            canvas.label_panel(
                axes,
                title if row == 0 else "",
                plot.options.x if row == len(found) - 1 else "",
                selection.title if column == 0 else "",
            )
            _fill(axes, lines, title, tooltips)
            if column == 1:
                axes.set_ylim(-0.04, 1.04)
            if column == 2:
                allowed = allowed_failure_rates(ledger, plot, selection)
                canvas.draw_levels(axes, list(allowed.items()), "y")
                highs = [point.y.high or 0.0 for line in lines for point in line.points]
                top = min(1.04, 1.08 * max([MIN_TOP, *highs, *allowed]))
                axes.set_ylim(-0.04 * top, top)
    every = tuple([line for panels in found for line in panels[k]] for k in range(3))
    if every[0]:
        canvas.legend_below(figure, legend_handles(every[0]), _notes(ledger, plot, every))
    return figure


def _fill(axes: Axes, lines: Sequence[SweepLine], title: str, tooltips: Tooltips) -> None:
    """Draw one panel: lines side by side, so that none hides another, with intervals."""
    step = min(STEP, MAX_SHIFT / max(len(lines), 1))
    for number, line in enumerate(lines):
        shift = step * (number - (len(lines) - 1) / 2)
        draw_line(axes, line, tooltips, ("", title), shift=shift)
    swept = [p.x.mean for line in lines for p in line.points if p.x.mean is not None]
    logarithmic = canvas.spans_decades(swept) and min(swept) > 0
    canvas.cover_sweep(axes, swept, logarithmic=logarithmic)
    if not any(point.y.finite for line in lines for point in line.points):
        canvas.mark_empty(axes)


def _notes(ledger: Ledger, plot: Request, lines: Sequence[list[SweepLine]]) -> list[str]:
    """Explain the points, their intervals and failures, and list what is left out."""
    _, solutions, failures = ([p.y for line in each for p in line.points] for each in lines)
    trials = canvas.describe_count([each.n for each in solutions], "trial")
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

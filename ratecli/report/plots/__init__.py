"""Plots of the report: lines along a sweep, convergence, and effects of filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ratecli.files import unique_file_name
from ratecli.ledger.view import Ledger
from ratecli.report.answer import answer_of, goal_of
from ratecli.report.plots.canvas import Canvas, PlotImage, PlotRequest, draw_image, requested_plots
from ratecli.report.plots.convergence import draw_convergence
from ratecli.report.plots.curves import draw_curves
from ratecli.report.plots.filters import draw_group_shares, draw_posteriors
from ratecli.report.plots.lines import draw_guarantee, draw_tradeoff
from ratecli.report.sheet import format_point

PLOT_KINDS: dict[str, Callable[[Ledger, PlotRequest[Any]], Canvas]] = {
    "tradeoff": draw_tradeoff,
    "convergence": draw_convergence,
    "guarantee": draw_guarantee,
    "posteriors": draw_posteriors,
    "group_shares": draw_group_shares,
}


def draw_plots(ledger: Ledger) -> list[PlotImage]:
    """Draw every plot that the experiment file requests; an empty list of plots gets none."""
    if (ledger.experiment.get("report") or {}).get("plots") == []:
        return []
    plots = requested_plots(ledger)
    return [draw_image(PLOT_KINDS[plot.options.kind], ledger, plot) for plot in plots]


def draw_answer_curves(ledger: Ledger, others: Sequence[PlotImage]) -> list[PlotImage]:
    """Draw the curves by group of the answer's model, if known; its name is not one of others'."""
    answer = answer_of(ledger, goal_of(ledger))
    if answer is None:
        return []
    best, name = answer.best, unique_file_name("curves", [each.name for each in others])
    model = ", ".join(filter(None, [best.name, format_point(answer.task)]))
    trials, variant = best.group.trials, best.group.variant
    return draw_curves(ledger, trials, variant, f"Curves by group: {model}", name)

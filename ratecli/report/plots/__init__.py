"""Plots of the report, one module for each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratecli.ledger.view import Ledger
from ratecli.report.plots.canvas import PlotImage
from ratecli.report.plots.convergence import draw_convergence
from ratecli.report.plots.group_shares import draw_group_shares
from ratecli.report.plots.guarantee import draw_guarantee
from ratecli.report.plots.options import PlotRequest, requested_plots
from ratecli.report.plots.posteriors import draw_posteriors
from ratecli.report.plots.tradeoff import draw_tradeoff

DRAW_BY_KIND: dict[str, Callable[[Ledger, PlotRequest[Any]], PlotImage]] = {
    "tradeoff": draw_tradeoff,
    "convergence": draw_convergence,
    "guarantee": draw_guarantee,
    "posteriors": draw_posteriors,
    "group_shares": draw_group_shares,
}


def draw_plots(ledger: Ledger) -> list[PlotImage]:
    """Draw every plot that the experiment file requests."""
    return [DRAW_BY_KIND[plot.options.kind](ledger, plot) for plot in requested_plots(ledger)]

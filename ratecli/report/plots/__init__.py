"""Plots of the report, one module for each kind; those of filters share one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from ratecli.ledger.view import Ledger
from ratecli.report.plots.canvas import (
    PlotDescription,
    PlotImage,
    PlotRequest,
    Tooltips,
    make_plot_image,
    requested_plots,
)
from ratecli.report.plots.convergence import describe_convergence, draw_convergence
from ratecli.report.plots.filters import (
    describe_group_shares,
    describe_posteriors,
    draw_group_shares,
    draw_posteriors,
)
from ratecli.report.plots.guarantee import describe_guarantee, draw_guarantee
from ratecli.report.plots.tradeoff import describe_tradeoff, draw_tradeoff

Describe = Callable[[Ledger, PlotRequest[Any]], PlotDescription]
Draw = Callable[[Ledger, PlotRequest[Any], Tooltips], Figure]
PLOT_KINDS: dict[str, tuple[Describe, Draw]] = {
    "tradeoff": (describe_tradeoff, draw_tradeoff),
    "convergence": (describe_convergence, draw_convergence),
    "guarantee": (describe_guarantee, draw_guarantee),
    "posteriors": (describe_posteriors, draw_posteriors),
    "group_shares": (describe_group_shares, draw_group_shares),
}


def draw_plots(ledger: Ledger) -> list[PlotImage]:
    """Draw every plot that the experiment file requests."""
    images = []
    for plot in requested_plots(ledger):
        describe, draw = PLOT_KINDS[plot.options.kind]
        caption, what = describe(ledger, plot)
        caption = plot.options.title or caption
        images.append(make_plot_image(plot.name, caption, partial(draw, ledger, plot), what))
    return images

"""Methods of a comparison: their objective against how often their models hold the rule."""

from __future__ import annotations

import math

from matplotlib.lines import Line2D

from ratecli.config.report import BasePlot
from ratecli.config.sweep import CONSTRAINT_AXIS
from ratecli.report.comparison import HELD_SHARE, Comparison
from ratecli.report.groups import group_by
from ratecli.report.plots import canvas as cv
from ratecli.report.sheet import format_point
from ratecli.report.templates import note

SIZES = 4.0, 12.0
"""Marker sizes of the fastest and the slowest method."""


def draw_methods(comparison: Comparison) -> list[cv.PlotImage]:
    """Draw a plot for each combination of what is swept besides the rule, with a panel a rule."""
    images, points = list[cv.PlotImage](), comparison.points
    alike = group_by(points, lambda each: format_point({**points[each], CONSTRAINT_AXIS: None}))
    for number, (title, settings) in enumerate(alike.items(), 1):
        name = f"comparison-{number}"
        request = cv.PlotRequest(BasePlot(title=title, file=name), name)
        images.append(cv.draw_image(methods_canvas, (comparison, settings), request))
    return images


def methods_canvas(
    source: tuple[Comparison, list[str]], plot: cv.PlotRequest[BasePlot]
) -> cv.Canvas:
    """Draw a panel for each setting, with a point for each method that has a model."""
    comparison, settings = source
    what = note("methods_plot", least=f"{HELD_SHARE:.0%}")
    caption = "Error above the best method, and models that hold the rule"
    canvas = cv.Canvas(plot, caption, what, len(settings), most=2)
    tables = {setting: comparison.settings[setting] for setting in settings}
    times = [row.times for table in tables.values() for row in table if row.times > 0]
    slowest = math.log(max([*times, 2.0]))
    handles = {}
    for setting, table in tables.items():
        rule = str(comparison.points[setting][CONSTRAINT_AXIS])
        axes = canvas.panel(rule, "models that hold the rule", "error above the best method")
        axes.axvline(HELD_SHARE, linewidth=0.8, **cv.DOTTED)
        axes.set(xlim=(-0.03, 1.03))
        for row in table:
            if row.held.mean is None or row.excess.mean is None:
                continue
            share = max(math.log(row.times), 0.0) / slowest if row.times > 0 else 0.0
            style = cv.line_style(comparison.methods.index(row.method)) | {"linestyle": ""}
            handles[row.method] = Line2D([], [], label=row.method, **style)
            size = SIZES[0] + share * (SIZES[1] - SIZES[0])
            axes.plot([row.held.mean], [row.excess.mean], **style | {"markersize": size})
        if not axes.lines[1:]:
            cv.mark_empty(axes)
    canvas.add_legend(
        [handles[name] for name in comparison.methods if name in handles],
        [f"means over experiments; the largest marker: {math.exp(slowest):.0f} plain fits"],
    )
    return canvas

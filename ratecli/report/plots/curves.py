"""Curves of a model by group: ROC and calibration, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ratecli.config.report import BasePlot
from ratecli.ledger.records import CURVES_KEY, ROC_STEPS, PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.rates.sample import Floats
from ratecli.report import groups as gr
from ratecli.report.plots import canvas as cv
from ratecli.report.templates import note

PANELS = {
    "ROC": ("false positive rate", "true positive rate"),
    "calibration": ("mean predicted probability", "share of positives"),
}
"""The axes of each curve."""
Trials = Sequence[PlannedTrial]
Curve = tuple[Floats, list[gr.IntervalEstimate]]
"""Positions along x (N,), and estimates there."""


@dataclass(frozen=True)
class GroupCurves:
    """The curves of a model in a group over some seeds, by their names in `PANELS`.

    Calibration has no points if the model returns no probabilities. `area` is that under the ROC,
    and `split` the name of the rows.
    """

    name: str
    split: str
    area: gr.IntervalEstimate
    curves: dict[str, Curve]


def curves_by_group(ledger: Ledger, trials: Trials, variant: str) -> list[GroupCurves]:
    """Return the curves of the variant by group, over the trials that have any."""
    results = (ledger.results.get(trial.key) for trial in trials)
    stored = [each.info.get(CURVES_KEY) or {} for each in results if each]
    own = [each["groups"] for each in stored if each.get("variant") == variant]
    split = next((each.get("split", "test") for each in stored if each), "")
    found, names = [], gr.group_names(ledger, trials[0])
    for group in dict.fromkeys(group for each in own for group in each):
        seeds = [each[group] for each in own if group in each]
        most = max(len(each["calibration"][0]) for each in seeds)
        binned = [each["calibration"] for each in seeds if len(each["calibration"][0]) == most]
        chances, shares, rows = np.array(binned).transpose(1, 0, 2)
        roc = np.array([each["roc"] for each in seeds])
        curves = {
            "ROC": (np.linspace(0, 1, ROC_STEPS + 1), _estimates(roc, seeds[0]["positives"])),
            "calibration": (chances.mean(axis=0), _estimates(shares, rows[0])),
        }
        area = gr.estimate_mean(each["area"] for each in seeds)
        found.append(GroupCurves(names.get(group, group), split, area, curves))
    return found


def _estimates(values: Floats, rows: Floats | float) -> list[gr.IntervalEstimate]:
    """Return the means of shares (S, N) over seeds; of one seed, as shares of rows, () or (N,)."""
    if len(values) == 1:
        return [gr.estimate_share(x * n, n) for x, n in np.broadcast(values[0], rows)]
    places = np.tile(np.arange(values.shape[1]), len(values))
    return gr.as_estimates(gr.mean_estimates(pd.Series(values.ravel()).groupby(places)))


def draw_curves(
    ledger: Ledger, trials: Trials, variant: str, caption: str, file: str = "curves"
) -> list[cv.PlotImage]:
    """Return the image of `curves_by_group`, or nothing if no trial has any.

    The caption ends with the name of their rows.
    """
    found = curves_by_group(ledger, trials, variant)
    if not found:
        return []
    request = cv.PlotRequest(BasePlot(title=f"{caption} ({found[0].split})"), file)
    return [cv.draw_image(curves_canvas, found, request)]


def curves_canvas(groups: Sequence[GroupCurves], plot: cv.PlotRequest[BasePlot]) -> cv.Canvas:
    """Draw a panel of each curve that has points, with a line and a band for each group."""
    shown = [name for name in PANELS if any(len(each.curves[name][0]) for each in groups)]
    what = note("curves", calibrated=len(shown) > 1)
    canvas = cv.Canvas(plot, "", what, len(shown))
    for name, (x, y) in ((name, PANELS[name]) for name in shown):
        axes = canvas.panel(name)
        axes.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.plot([0, 1], [0, 1], color=cv.GREY, linewidth=0.8, linestyle=(0, (9, 4)), zorder=1.5)
        for k, each in enumerate(groups):
            places, estimates = each.curves[name]
            means, ends = cv.means_and_ends(estimates)
            style = cv.line_style(k, k) | {"label": f"{each.name}, area {each.area.mean:.3f}"}
            every = (k % 4, 4) if name == "ROC" else 1
            axes.fill_between(places, *ends.clip(0, 1), **cv.band_style(style["color"]))
            axes.plot(places, means, markevery=every, **style)
    seeds = [each.area.n for each in groups]
    one = "one model, binomial 95 % intervals (Clopper-Pearson)"
    many = f"mean and 95 % Student-t interval over {cv.describe_count(seeds, 'seed')}"
    canvas.add_legend(axes.get_legend_handles_labels()[0], [many if max(seeds) > 1 else one])
    return canvas

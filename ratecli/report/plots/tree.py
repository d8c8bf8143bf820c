"""The tree of a safety test with its intervals, after figure 2 of the Seldonian tutorial."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import TextToPath

from ratecli.ledger.view import Ledger
from ratecli.report.certificates import TrialCertificate, certificate_title, certificates_to_draw
from ratecli.report.plots.style import GREY, PlotImage, make_plot_image
from ratecli.report.plots.tooltips import Tooltips
from ratecli.report.plots.tree_layout import (
    HEAD,
    PAD,
    SMALL,
    TreeBox,
    build_box_tree,
    format_bound,
    layout_boxes,
)

SIZES = {True: 9.0, False: 7.5}
"""Points of the letters of a node's text, and of its numbers."""
PASSED_COLOUR, FAILED_COLOUR = "#0a6b3d", "#b3261e"
FILLS = {"operator": "#eef1f4", "quantity": "#e3eefa", "constant": "#ffffff", "cut": "#ffffff"}
BORDER = 10.0
"""Points around everything."""
MIN_TREE_WIDTH = 370.0
"""Points across that the words above a tree need."""
DESCRIPTION_LINE_LENGTH = 98
"""Of a line of these in that width."""


def draw_trees(ledger: Ledger) -> list[tuple[PlotImage, str]]:
    """The pictures of the tests that are drawn, each with why it was not passed."""
    return [
        (
            _tree(name, certificate_title(ledger, each), each),
            str(each.record.get("explanation") or ""),
        )
        for name, each in certificates_to_draw(ledger)
    ]


def _tree(name: str, caption: str, certificate: TrialCertificate) -> PlotImage:
    return make_plot_image(name, caption, partial(_figure, certificate))


def _figure(certificate: TrialCertificate, _: Tooltips) -> Figure:
    found = layout_boxes(build_box_tree(certificate.record["tree"]), text_width)
    tone = PASSED_COLOUR if certificate.passed else FAILED_COLOUR
    words = _test_description(certificate.record)
    across = max(MIN_TREE_WIDTH, *(box.x + box.width for box in found))
    top = BORDER + HEAD + SMALL * 1.15 * len(words) + PAD
    down = top + max(box.y + box.node.height for box in found)
    figure = Figure(figsize=((across + 2 * BORDER) / 72, (down + BORDER) / 72))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-BORDER, across + BORDER)
    axes.set_ylim(down + BORDER, 0)
    verdict = (
        f"{certificate.record['constraint']} {'passed' if certificate.passed else 'not passed'}"
    )
    axes.text(0, BORDER, verdict, va="top", fontsize=SIZES[True], weight="bold", color=tone)
    for k, line in enumerate(words):
        y = BORDER + HEAD * 1.2 + SMALL * 1.15 * k
        axes.text(0, y, line, va="top", fontsize=SIZES[False], color=GREY)
    shift = (across - max(box.x + box.width for box in found)) / 2
    _draw(axes, found, (shift, top), tone)
    return figure


def _test_description(record: Mapping[str, Any]) -> list[str]:
    """What the test says, of whom, and with which confidence."""
    sign = "≤" if record["passed"] else "not ≤"
    text = (
        f"upper end {format_bound(record['upper'])} {sign} 0; estimate {format_bound(record['estimate'])}; delta "
        f"{record['delta']:.4g}, {'exact' if record['exact'] else 'approximate'}, for the "
        f"{record['classifier']}"
    )
    text += "" if record["classifier"] == "estimate" else " classifier"
    return textwrap.wrap(text, DESCRIPTION_LINE_LENGTH)


def _draw(axes: Axes, found: Sequence[TreeBox], corner: tuple[float, float], tone: str) -> None:
    left, top = corner
    for box in found:
        if box.parent is not None:
            parent = found[box.parent]
            ends = parent.y + parent.node.height + top, box.y + top
            axes.plot([parent.centre + left, box.centre + left], ends, color=GREY, linewidth=0.8)
    for box in found:
        root = box.parent is None
        _draw_box(axes, box, (box.x + left, box.y + top), tone if root else GREY, bold=root)


def _draw_box(
    axes: Axes, box: TreeBox, corner: tuple[float, float], colour: str, *, bold: bool
) -> None:
    (x, y), node = corner, box.node
    radius = 4 if node.kind == "operator" else 0.01
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            box.width,
            node.height,
            boxstyle=f"round,pad=0,rounding_size={radius}",
            facecolor=FILLS[node.kind],
            edgecolor=colour,
            linewidth=1.6 if bold else 0.8,
            linestyle=(0, (2, 2)) if node.kind == "cut" else "-",
        )
    )
    y += PAD
    for texts, step, head in ((node.text, HEAD, True), (node.numbers, SMALL, False)):
        for text in texts:
            words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SIZES[head]}
            axes.text(x + box.width / 2, y + step / 2, text, **words)
            y += step


def text_width(text: str, head: bool) -> float:
    """Of a line in points."""
    font = FontProperties(size=SIZES[head])
    across, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(across)

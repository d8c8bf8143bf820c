"""The tree of a safety test with its intervals, after figure 2 of the Seldonian tutorial."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import TextToPath

from ratecli.files import unique_file_name
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import TrialCertificate, collect_certificates
from ratecli.report.plots.canvas import GREY, PlotImage, Tooltips, make_plot_image, requested_plots
from ratecli.report.sheet import format_number, format_point

MAX_DRAWN = 12
"""Maximum number of trees in a report."""
MAX_LEAVES = 16
"""Maximum number of leaves to draw; the rest is only counted."""
SIGNS = {"-": "\N{MINUS SIGN}", "*": "\N{MULTIPLICATION SIGN}"}
NODE_LINE_LENGTH = 28
"""Maximum line length of a node's text in characters."""
MAX_LINES = 5
"""Maximum number of lines of a node's text."""
TEXT_SIZE, NUMBER_SIZE = 9.0, 7.5
"""Font sizes in points of a node's text, and of its numbers."""
TEXT_LINE, NUMBER_LINE = 11.0, 9.0
"""Line heights in points: of a node's text, and of its numbers."""
PAD = 5.0
"""Padding between a box's border and its text in points."""
ASIDE, BELOW = 12.0, 22.0
"""Spacing in points: between siblings, and between a parent and its children."""
PASSED_COLOUR, FAILED_COLOUR = "#0a6b3d", "#b3261e"
FILLS = {"operator": "#eef1f4", "quantity": "#e3eefa", "constant": "#ffffff", "cut": "#ffffff"}
BORDER = 10.0
"""Margin around the drawing in points."""
MIN_TREE_WIDTH = 370.0
"""Minimum width in points, required by the description above the tree."""
DESCRIPTION_LINE_LENGTH = 98
"""Characters per line of the description at that width."""


@dataclass(frozen=True)
class BoxNode:
    """A node to draw: its text, the numbers below the text, and the kind of box.

    Sizes are in points.
    """

    kind: Literal["operator", "quantity", "constant", "cut"]
    text: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    children: tuple[BoxNode, ...] = ()

    @property
    def leaves(self) -> int:
        return sum(child.leaves for child in self.children) or 1

    @property
    def size(self) -> int:
        """The number of nodes."""
        return 1 + sum(child.size for child in self.children)

    @property
    def levels(self) -> list[list[BoxNode]]:
        """The nodes of each level, from the top."""
        found = [[self]]
        while below := [child for node in found[-1] for child in node.children]:
            found.append(below)
        return found

    @property
    def height(self) -> float:
        return TEXT_LINE * len(self.text) + NUMBER_LINE * len(self.numbers) + 2 * PAD

    @cached_property
    def width(self) -> float:
        widths = [text_width(text, TEXT_SIZE) for text in self.text]
        return max(widths + [text_width(text, NUMBER_SIZE) for text in self.numbers]) + 2 * PAD


@dataclass(frozen=True)
class TreeBox:
    """A node's position: its centre along x, and its top, in points from the tree's top left."""

    node: BoxNode
    centre: float
    top: float
    parent: int | None

    @property
    def left(self) -> float:
        return self.centre - self.node.width / 2


def build_box_tree(record: Mapping[str, Any]) -> BoxNode:
    """Build the tree of a certificate's record, truncated if it is too large."""
    node = shown = _node(record)
    depth = len(node.levels)
    while shown.leaves > MAX_LEAVES and depth > 1:
        depth -= 1
        shown = _limit_depth(node, depth)
    return shown


def _node(record: Mapping[str, Any]) -> BoxNode:
    children = _children(record["children"])
    lines = textwrap.wrap(SIGNS.get(record["text"], record["text"]), NODE_LINE_LENGTH)
    text = tuple(lines if len(lines) <= MAX_LINES else [*lines[: MAX_LINES - 1], "…"]) or ("",)
    low, high = map(float, record["interval"])
    interval = f"[{', '.join(map(format_bound, record['interval']))}]"
    if "estimate" in record:
        return BoxNode("quantity", text, (interval, *_facts(record)), children)
    if not children and low == high:
        return BoxNode("constant", text)
    return BoxNode("operator" if children else "cut", text, (interval,), children)


def _children(records: Sequence[Mapping[str, Any]]) -> tuple[BoxNode, ...]:
    """Return the child nodes; of too many (of a maximum), those with the largest upper ends."""
    if len(records) <= MAX_LEAVES:
        return tuple(map(_node, records))
    ends = np.nan_to_num([-float(each["interval"][1]) for each in records], nan=-math.inf)
    kept = sorted(np.argsort(ends, kind="stable")[: MAX_LEAVES - 1].tolist())
    rest = BoxNode("cut", (f"{len(records) - len(kept)} more", "not drawn"))
    return (*(_node(records[k]) for k in kept), rest)


def format_bound(value: float | str) -> str:
    """Format a recorded bound, with infinities as signs."""
    return format_number(float(value)).replace("inf", "∞")


def _facts(record: Mapping[str, Any]) -> list[str]:
    return [
        f"estimate {format_bound(record['estimate'])}",
        f"rows {' + '.join(f'{count:,}' for count in record['rows'])}",
        *(
            f"delta {delta:.4g} {side}"
            for side, delta in zip(("lower", "upper"), record["delta"], strict=True)
            if delta is not None
        ),
        record["bound"],
    ]


def _limit_depth(node: BoxNode, depth: int) -> BoxNode:
    """Truncate the tree at a depth; truncated nodes show how many nodes are missing."""
    if depth > 1 or not node.children:
        children = tuple(_limit_depth(child, depth - 1) for child in node.children)
        return replace(node, children=children)
    return BoxNode("cut", node.text, (*node.numbers[:1], f"{node.size - 1} below not drawn"))


def layout_boxes(root: BoxNode) -> list[TreeBox]:
    """Lay out the tree and return its boxes, parents before their children.

    Leaves are side by side at equal distances, parents above the middle of their children. Boxes of
    one level are aligned at their tops.
    """
    levels = root.levels
    heights = [max(node.height for node in level) + BELOW for level in levels]
    width = max(node.width for level in levels for node in level)
    centres = itertools.count(width / 2, width + ASIDE)
    found: list[TreeBox] = []

    def place(node: BoxNode, level: int, parent: int | None) -> float:
        own = len(found)
        found.append(TreeBox(node, 0.0, sum(heights[:level]), parent))
        below = [place(child, level + 1, own) for child in node.children] or [next(centres)]
        found[own] = replace(found[own], centre=(below[0] + below[-1]) / 2)
        return found[own].centre

    place(root, 0, None)
    return found


def draw_trees(ledger: Ledger) -> list[tuple[PlotImage, str]]:
    """Draw the selected safety tests; return plots with explanations of failures, if any."""
    found = []
    for name, certificate in certificates_to_draw(ledger):
        caption = _title(ledger, certificate)
        image = make_plot_image(name, caption, partial(_figure, certificate))
        found.append((image, str(certificate.record.get("explanation") or "")))
    return found


def certificates_to_draw(ledger: Ledger) -> list[tuple[str, TrialCertificate]]:
    """Return the tests whose trees are drawn, by file name.

    These are, for each algorithm, variant and constraint, the first tested trial at the last
    tested sweep point. Main variants come first, so that further variants of one algorithm do not
    displace the main variant of another.
    """
    chosen: dict[tuple[str, str, str], TrialCertificate] = {}
    variants: dict[str, dict[str, int]] = {}
    for each in collect_certificates(ledger):
        label, variant, _ = each.about
        ranks = variants.setdefault(label, {})
        ranks.setdefault(variant, len(ranks))
        known = chosen.get(each.about)
        if known is None or repr(known.trial.point) != repr(each.trial.point):
            chosen[each.about] = each
    ordered = sorted(chosen, key=lambda about: variants[about[0]][about[1]])
    taken = {plot.name for plot in requested_plots(ledger)}
    named: dict[str, TrialCertificate] = {}
    for about in ordered[:MAX_DRAWN]:
        wish = "-".join(["certificate", *filter(None, about)])
        named[unique_file_name(wish, taken | named.keys())] = chosen[about]
    return list(named.items())


def omitted_trees_note(ledger: Ledger) -> str:
    """Return a sentence on which trees are drawn and how many are omitted, or "" without tests."""
    total = len({each.about for each in collect_certificates(ledger)})
    omitted = f"; {total - MAX_DRAWN} more are not drawn" * (total > MAX_DRAWN)
    first = "Trees of the first trial at the last tested sweep point"
    return f"{first}{omitted}." if total else ""


def _title(ledger: Ledger, certificate: TrialCertificate) -> str:
    """Return the title of a tree: constraint, algorithm, sweep point and seed."""
    label, variant, constraint = certificate.about
    trial = certificate.trial
    own = (each.about for each in collect_certificates(ledger))
    several = len({variant for other, variant, _ in own if other == label}) > 1
    name = f"{label} ({variant})" if several else label
    place = ", ".join(filter(None, [name, format_point(trial.point), f"seed {trial.seed}"]))
    return f"{constraint}: {place}"


def _figure(certificate: TrialCertificate, _: Tooltips) -> Figure:
    boxes = layout_boxes(build_box_tree(certificate.record["tree"]))
    colour = PASSED_COLOUR if certificate.passed else FAILED_COLOUR
    description = _test_description(certificate.record)
    left = min(box.left for box in boxes)
    right = max(box.left + box.node.width for box in boxes)
    width, line = max(MIN_TREE_WIDTH, right - left), NUMBER_LINE * 1.15
    top = BORDER + TEXT_LINE + line * len(description) + PAD
    height = top + max(box.top + box.node.height for box in boxes)
    figure = Figure(figsize=((width + 2 * BORDER) / 72, (height + BORDER) / 72))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(-BORDER, width + BORDER), ylim=(height + BORDER, 0))
    verdict = f"{certificate.constraint} {'passed' if certificate.passed else 'not passed'}"
    axes.text(0, BORDER, verdict, va="top", fontsize=TEXT_SIZE, weight="bold", color=colour)
    for k, text in enumerate(description):
        y = BORDER + TEXT_LINE * 1.2 + line * k
        axes.text(0, y, text, va="top", fontsize=NUMBER_SIZE, color=GREY)
    _draw_tree(axes, boxes, ((width - right - left) / 2, top), colour)
    return figure


def _test_description(record: Mapping[str, Any]) -> list[str]:
    """Describe the test's result, confidence and classifier, wrapped into lines."""
    sign = "≤" if record["passed"] else "not ≤"
    text = (
        f"upper end {format_bound(record['upper'])} {sign} 0; "
        f"estimate {format_bound(record['estimate'])}; delta {record['delta']:.4g}, "
        f"{'exact' if record['exact'] else 'approximate'}, for the {record['classifier']}"
    )
    text += "" if record["classifier"] == "estimate" else " classifier"
    return textwrap.wrap(text, DESCRIPTION_LINE_LENGTH)


def _draw_tree(
    axes: Axes, boxes: Sequence[TreeBox], corner: tuple[float, float], colour: str
) -> None:
    """Draw the boxes and the lines between them; the root has a bold border in `colour`."""
    left, top = corner
    centred: dict[str, Any] = {"ha": "center", "va": "center"}
    for box in boxes:
        node, x, y = box.node, box.left + left, box.top + top
        if box.parent is not None:
            parent = boxes[box.parent]
            ends = parent.top + parent.node.height + top, y
            axes.plot([parent.centre + left, box.centre + left], ends, color=GREY, linewidth=0.8)
        border = FancyBboxPatch(
            (x, y),
            node.width,
            node.height,
            boxstyle=f"round,pad=0,rounding_size={4 if node.kind == 'operator' else 0.01}",
            facecolor=FILLS[node.kind],
            edgecolor=colour if box.parent is None else GREY,
            linewidth=1.6 if box.parent is None else 0.8,
            linestyle=(0, (2, 2)) if node.kind == "cut" else "-",
        )
        axes.add_patch(border)
        y += PAD
        lines = [(text, TEXT_LINE, TEXT_SIZE) for text in node.text]
        lines += [(text, NUMBER_LINE, NUMBER_SIZE) for text in node.numbers]
        for text, height, size in lines:
            axes.text(box.centre + left, y + height / 2, text, fontsize=size, **centred)
            y += height


def text_width(text: str, size: float) -> float:
    """Return the width of a line in points."""
    font = FontProperties(size=size)
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width)

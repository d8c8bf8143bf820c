"""The tree of a safety test with its intervals, after figure 2 of the Seldonian tutorial."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

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
from ratecli.report.sheet import format_number

NodeKind = Literal["operator", "quantity", "constant", "cut"]
MeasureText = Callable[[str, bool], float]
"""Returns the width of a text in points; the flag is whether it is a node's text or its numbers."""

MAX_LEAVES = 16
"""Maximum number of leaves to draw; the rest is only counted."""
SIGNS = {"-": "\N{MINUS SIGN}", "*": "\N{MULTIPLICATION SIGN}"}
NODE_LINE_LENGTH = 28
"""Maximum line length of a node's text in characters."""
LINES = 5
"""Maximum number of lines of a node's text."""
HEAD, SMALL = 11.0, 9.0
"""Line heights in points: of a node's text, and of its numbers."""
PAD = 5.0
"""Padding between a box's border and its text in points."""
ASIDE, BELOW = 12.0, 22.0
"""Spacing in points: between siblings, and between a parent and its children."""


@dataclass(frozen=True)
class BoxNode:
    """A node to draw: its text, the numbers below the text, and the kind of box."""

    kind: NodeKind
    text: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    children: tuple[BoxNode, ...] = ()

    @property
    def leaves(self) -> int:
        return sum(child.leaves for child in self.children) or 1

    @property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)

    @property
    def height(self) -> float:
        return HEAD * len(self.text) + SMALL * len(self.numbers) + 2 * PAD

    def width(self, measure: MeasureText) -> float:
        texts = [(text, True) for text in self.text] + [(text, False) for text in self.numbers]
        return max(measure(*each) for each in texts) + 2 * PAD


@dataclass(frozen=True)
class TreeBox:
    """A node's position in points from the top left of the tree, x to the right and y downwards."""

    node: BoxNode
    x: float
    y: float
    width: float
    parent: int | None

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


def build_box_tree(record: Mapping[str, Any]) -> BoxNode:
    """Build the tree of a certificate's record, truncated if it is too large."""
    node = _node(record, quantity="estimate" in record)
    if node.leaves > MAX_LEAVES and record["text"] == "max":
        node = _limit_children(node, record)
    depths = range(_depth(node), 0, -1)
    cut = (_limit_depth(node, depth) for depth in depths)
    return next((each for each in cut if each.leaves <= MAX_LEAVES), _limit_depth(node, 1))


def layout_boxes(root: BoxNode, measure: MeasureText) -> list[TreeBox]:
    """Lay out the tree and return its boxes, parents before their children.

    Each subtree has its own strip, wide enough for its root and for its children side by side.
    Boxes of one level are aligned at their tops.
    """
    found: list[TreeBox] = []
    tops = _tops(root)

    def put(node: BoxNode, left: float, level: int, parent: int | None) -> None:
        strip, own = _strip(node, measure), node.width(measure)
        inside = left + (strip - _children_width(node, measure)) / 2
        mine = len(found)
        found.append(TreeBox(node, left + (strip - own) / 2, tops[level], own, parent))
        for child in node.children:
            put(child, inside, level + 1, mine)
            inside += _strip(child, measure) + ASIDE
        below = [box for box in found[mine + 1 :] if box.parent == mine]
        if below:
            middle = (below[0].centre + below[-1].centre) / 2
            x = min(max(middle - own / 2, left), left + strip - own)
            found[mine] = replace(found[mine], x=x)

    put(root, 0.0, 0, None)
    return found


def _strip(node: BoxNode, measure: MeasureText) -> float:
    return max(node.width(measure), _children_width(node, measure))


def _children_width(node: BoxNode, measure: MeasureText) -> float:
    """Return the width of all children side by side."""
    strips = [_strip(child, measure) for child in node.children]
    return sum(strips) + ASIDE * max(len(strips) - 1, 0)


def _tops(root: BoxNode) -> list[float]:
    """Return the y position of each level."""
    heights: list[float] = []
    level: Sequence[BoxNode] = [root]
    while level:
        heights.append(max(node.height for node in level))
        level = [child for node in level for child in node.children]
    return [sum(heights[:k]) + BELOW * k for k in range(len(heights))]


def _node(record: Mapping[str, Any], *, quantity: bool) -> BoxNode:
    children = tuple(_node(child, quantity="estimate" in child) for child in record["children"])
    text = _wrapped(SIGNS.get(record["text"], record["text"]))
    if quantity:
        return BoxNode("quantity", text, (interval(record), *_facts(record)), children)
    low, high = map(float, record["interval"])
    if not children and low == high:
        return BoxNode("constant", text)
    return BoxNode("operator" if children else "cut", text, (interval(record),), children)


def interval(record: Mapping[str, Any]) -> str:
    return f"[{', '.join(map(format_bound, record['interval']))}]"


def format_bound(value: float | str) -> str:
    """Format a recorded bound, with infinities as signs."""
    return format_number(float(value)).replace("inf", "∞")


def _facts(record: Mapping[str, Any]) -> list[str]:
    facts = [f"estimate {format_bound(record['estimate'])}"]
    facts.append(f"rows {' + '.join(f'{count:,}' for count in record['rows'])}")
    for side, delta in zip(("lower", "upper"), record["delta"], strict=True):
        if delta is not None:
            facts.append(f"delta {delta:.4g} {side}")
    return [*facts, record["bound"]]


def _wrapped(text: str) -> tuple[str, ...]:
    lines = textwrap.wrap(text, NODE_LINE_LENGTH) or [text]
    return tuple(lines if len(lines) <= LINES else [*lines[: LINES - 1], "…"])


def _limit_children(node: BoxNode, record: Mapping[str, Any]) -> BoxNode:
    """Keep the children of a maximum with the largest upper ends, as many as fit."""
    ends = [float(child["interval"][1]) for child in record["children"]]
    ranked = sorted(range(len(ends)), key=lambda k: -math.inf if math.isnan(ends[k]) else -ends[k])
    kept: list[int] = []
    for k in ranked:
        room = MAX_LEAVES - 1 - sum(node.children[j].leaves for j in kept)
        if not kept or node.children[k].leaves <= room:
            kept.append(k)
    left = len(ranked) - len(kept)
    rest = [BoxNode("cut", (f"{left} more", "not drawn"))] if left else []
    return replace(node, children=(*(node.children[k] for k in sorted(kept)), *rest))


def _depth(node: BoxNode) -> int:
    return 1 + max(map(_depth, node.children), default=0)


def _limit_depth(node: BoxNode, depth: int) -> BoxNode:
    """Truncate the tree at a depth; truncated nodes show how many nodes are missing."""
    if depth > 1 or not node.children:
        children = tuple(_limit_depth(child, depth - 1) for child in node.children)
        return replace(node, children=children)
    below = f"{node.size - 1} below not drawn"
    return BoxNode("cut", node.text, (*node.numbers[:1], below))


SIZES = {True: 9.0, False: 7.5}
"""Font sizes in points of a node's text, and of its numbers."""
PASSED_COLOUR, FAILED_COLOUR = "#0a6b3d", "#b3261e"
FILLS = {"operator": "#eef1f4", "quantity": "#e3eefa", "constant": "#ffffff", "cut": "#ffffff"}
BORDER = 10.0
"""Margin around the drawing in points."""
MIN_TREE_WIDTH = 370.0
"""Minimum width in points, required by the description above the tree."""
DESCRIPTION_LINE_LENGTH = 98
"""Characters per line of the description at that width."""


def draw_trees(ledger: Ledger) -> list[tuple[PlotImage, str]]:
    """Draw the selected safety tests; return plots with explanations of failures, if any."""
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
    """Describe the test's result, confidence and classifier, wrapped into lines."""
    sign = "≤" if record["passed"] else "not ≤"
    text = (
        f"upper end {format_bound(record['upper'])} {sign} 0; "
        f"estimate {format_bound(record['estimate'])}; delta {record['delta']:.4g}, "
        f"{'exact' if record['exact'] else 'approximate'}, for the {record['classifier']}"
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
    """Return the width of a line in points."""
    font = FontProperties(size=SIZES[head])
    across, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(across)

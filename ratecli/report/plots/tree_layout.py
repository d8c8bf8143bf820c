"""Where the boxes of a safety test's tree stand: no two overlap, and a parent is above its children."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ratecli.report.sheet import format_number

NodeKind = Literal["operator", "quantity", "constant", "cut"]
MeasureText = Callable[[str, bool], float]
"""The width of a line of text in points; true for the text of a node itself, false for its numbers."""

MAX_LEAVES = 16
"""Leaves that are drawn of a tree; what is below is told by number."""
SIGNS = {"-": "\N{MINUS SIGN}", "*": "\N{MULTIPLICATION SIGN}"}
NODE_LINE_LENGTH = 28
"""Of a line of a node's text."""
LINES = 5
"""Of a node's text."""
HEAD, SMALL = 11.0, 9.0
"""Points of a line: a node's text, its numbers."""
PAD = 5.0
"""Points inside a box, between its border and its text."""
ASIDE, BELOW = 12.0, 22.0
"""Points between boxes side by side, and between a parent and its children."""


@dataclass(frozen=True)
class BoxNode:
    """A node as it is shown: its text, the numbers under it, and how its box looks."""

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
    """A node's place in points, x to the right and y downwards from the top left of the tree."""

    node: BoxNode
    x: float
    y: float
    width: float
    parent: int | None

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


def build_box_tree(record: Mapping[str, Any]) -> BoxNode:
    """The tree of a certificate's record, with what is too much left out."""
    node = _node(record, quantity="estimate" in record)
    if node.leaves > MAX_LEAVES and record["text"] == "max":
        node = _limit_children(node, record)
    depths = range(_depth(node), 0, -1)
    cut = (_limit_depth(node, depth) for depth in depths)
    return next((each for each in cut if each.leaves <= MAX_LEAVES), _limit_depth(node, 1))


def layout_boxes(root: BoxNode, measure: MeasureText) -> list[TreeBox]:
    """Every node's box, a parent before its children.

    Each subtree has a strip of its own, as wide as its root or all of its children need; boxes of one
    level have their tops in line.
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
    """The width of all children side by side."""
    strips = [_strip(child, measure) for child in node.children]
    return sum(strips) + ASIDE * max(len(strips) - 1, 0)


def _tops(root: BoxNode) -> list[float]:
    """Where each level begins."""
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
    """A recorded number; infinities as signs, which are short."""
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
    """A maximum with those of its parts whose upper ends are largest, as many as there is room for."""
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
    """The tree to a depth; who loses children says so."""
    if depth > 1 or not node.children:
        children = tuple(_limit_depth(child, depth - 1) for child in node.children)
        return replace(node, children=children)
    below = f"{node.size - 1} below not drawn"
    return BoxNode("cut", node.text, (*node.numbers[:1], below))

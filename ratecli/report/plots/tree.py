"""The tree of a safety test with its intervals, after figure 2 of the Seldonian tutorial."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from ratecli.files import unique_file_name
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import TrialCertificate, collect_certificates
from ratecli.report.groups import group_by
from ratecli.report.plots.canvas import GREY, Canvas, PlotImage, draw_image, requested_plots
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
TEXT_SIZE, LETTER, LINE = 8.0, 5.2, 10.5
"""Font size, and approximate width of a character and height of a line, in points."""
GAP = 24.0
"""Space between the boxes of siblings, and of parents and children, in points."""
PASSED_COLOUR, FAILED_COLOUR = "#0a6b3d", "#b3261e"
FILLS = {"operator": "#eef1f4", "quantity": "#e3eefa", "constant": "#ffffff", "cut": "#ffffff"}
MIN_WIDTH = 390.0
"""Minimum width in points, required by the description above the tree."""
DESCRIPTION_LINE_LENGTH = 98
"""Characters per line of the description at that width."""


@dataclass(frozen=True)
class BoxNode:
    """A node to draw: its lines of text, and the kind of box."""

    kind: Literal["operator", "quantity", "constant", "cut"]
    text: tuple[str, ...]
    children: tuple[BoxNode, ...] = ()

    @property
    def leaves(self) -> int:
        return sum(child.leaves for child in self.children) or 1

    @property
    def levels(self) -> list[list[BoxNode]]:
        """The nodes of each level, from the top."""
        found = [[self]]
        while below := [child for node in found[-1] for child in node.children]:
            found.append(below)
        return found


def build_box_tree(record: Mapping[str, Any]) -> BoxNode:
    """Build the tree of a certificate's record, without its lowest levels if it is too wide."""
    node = shown = _node(record)
    depth = len(node.levels)
    while shown.leaves > MAX_LEAVES and depth > 1:
        depth -= 1
        shown = _limit_depth(node, depth)
    return shown


def _node(record: Mapping[str, Any]) -> BoxNode:
    children = tuple(map(_node, record["children"]))
    sign = SIGNS.get(record["text"], record["text"])
    text = tuple(textwrap.wrap(sign, NODE_LINE_LENGTH, max_lines=MAX_LINES, placeholder="…"))
    low, high = map(float, record["interval"])
    interval = f"[{', '.join(map(format_bound, record['interval']))}]"
    if "estimate" in record:
        return BoxNode("quantity", (*text, interval, *_facts(record)), children)
    if not children and low == high:
        return BoxNode("constant", text)
    return BoxNode("operator" if children else "cut", (*text, interval), children)


def format_bound(value: float | str) -> str:
    """Format a recorded bound, with infinities as signs."""
    return format_number(float(value)).replace("inf", "∞")


def _facts(record: Mapping[str, Any]) -> list[str]:
    return [
        f"estimate {format_bound(record['estimate'])}",
        f"rows {' + '.join(f'{rows:,}' for rows in record['rows'])}",
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
    below = sum(map(len, node.levels)) - 1
    return BoxNode("cut", (*node.text, f"{below} below not drawn"))


def draw_trees(ledger: Ledger) -> list[tuple[PlotImage, str]]:
    """Draw the selected safety tests; return plots with explanations of failures, if any."""
    return [
        (draw_image(name, draw_tree, test), str(test.record.get("explanation") or ""))
        for name, test in certificates_to_draw(ledger)
    ]


def certificates_to_draw(ledger: Ledger) -> list[tuple[str, TrialCertificate]]:
    """Return the tests whose trees are drawn, by file name.

    These are, for each algorithm, variant and constraint, the first tested trial at the last
    tested sweep point.
    """
    named: dict[str, TrialCertificate] = {}
    taken = {plot.name for plot in requested_plots(ledger)}
    tests = group_by(collect_certificates(ledger), lambda each: each.about)
    for about, own in list(tests.items())[:MAX_DRAWN]:
        *_, last = group_by(own, lambda each: repr(each.trial.point)).values()
        wish = "-".join(["certificate", *filter(None, about)])
        named[unique_file_name(wish, taken | named.keys())] = last[0]
    return list(named.items())


def draw_tree(certificate: TrialCertificate) -> Canvas:
    """Draw the tree of a test below a description: leaves side by side, parents above them."""
    label, variant, constraint = certificate.about
    name = f"{label} ({variant})" if variant else label
    point = format_point(certificate.trial.point)
    where = ", ".join(filter(None, [name, point, f"seed {certificate.trial.seed}"]))
    canvas = Canvas(f"{constraint}: {where}")
    root = build_box_tree(certificate.record["tree"])
    colour = PASSED_COLOUR if certificate.passed else FAILED_COLOUR
    texts = [node.text for level in root.levels for node in level]
    width = LETTER * max(len(line) for text in texts for line in text) + GAP
    height = LINE * max(map(len, texts)) + GAP
    description, depth = _test_description(certificate.record), len(root.levels)
    canvas.figure.set_size_inches(
        max(MIN_WIDTH, width * root.leaves) / 72,
        (height * depth + LINE * (2 + len(description))) / 72,
    )
    verdict = f"{constraint} {'passed' if certificate.passed else 'not passed'}"
    title = {"x": 0.01, "ha": "left", "fontsize": 9, "weight": "bold", "color": colour}
    canvas.figure.suptitle(verdict, **title)
    axes = canvas.panel()
    axes.set_title("\n".join(description), fontsize=TEXT_SIZE, color=GREY)
    axes.set_axis_off()
    axes.set(xlim=(-0.5, root.leaves - 0.5), ylim=(depth - 0.5, -0.5))
    leaves = count()

    def draw(node: BoxNode, level: int) -> float:
        """Draw a node and its children; return its x."""
        ends = [draw(child, level + 1) for child in node.children]
        x = (ends[0] + ends[-1]) / 2 if ends else float(next(leaves))
        for end in ends:
            axes.plot([x, end], [level, level + 1], color=GREY, linewidth=0.8, zorder=1)
        box = {
            "boxstyle": "round" if node.kind == "operator" else "square",
            "facecolor": FILLS[node.kind],
            "edgecolor": GREY if level else colour,
            "linewidth": 0.8 if level else 1.6,
            "linestyle": ":" if node.kind == "cut" else "-",
        }
        text = "\n".join(node.text)
        axes.text(x, level, text, fontsize=TEXT_SIZE, ha="center", va="center", bbox=box)
        return x

    draw(root, 0)
    return canvas


def _test_description(record: Mapping[str, Any]) -> list[str]:
    """Describe the test's result, confidence and classifier, wrapped into lines."""
    sign = "≤" if record["passed"] else "not ≤"
    text = (
        f"upper end {format_bound(record['upper'])} {sign} 0; "
        f"estimate {format_bound(record['estimate'])}; delta {record['delta']:.4g}, "
        f"{'exact' if record['exact'] else 'approximate'}; classifier: {record['classifier']}"
    )
    return textwrap.wrap(text, DESCRIPTION_LINE_LENGTH)

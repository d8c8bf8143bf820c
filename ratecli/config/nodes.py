"""What a YAML text is made of, each node with the stretch it stands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ratecli.config.scalars import Plain
from ratecli.config.source import Source


@dataclass(frozen=True)
class Node:
    """A stretch of a source; `size` counts nodes and `height` levels, aliases expanded."""

    source: Source
    start: int
    end: int
    size: int = field(default=1, kw_only=True)
    height: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class ScalarNode(Node):
    """One value; `style` is the quote or block mark it was written with, or empty."""

    value: Plain
    text: str
    style: str


@dataclass(frozen=True)
class ListNode(Node):
    items: tuple[Node, ...]
    flow: bool


@dataclass(frozen=True)
class MapNode(Node):
    entries: dict[str, tuple[ScalarNode, Node]]
    flow: bool


def plain(node: Node) -> Any:
    """The data under a node."""
    if isinstance(node, MapNode):
        return {name: plain(value) for name, (_, value) in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    return node.value

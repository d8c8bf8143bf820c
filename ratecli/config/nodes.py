"""What a YAML text is made of, each node with the stretch it stands on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ratecli.config.scalars import PlainScalar
from ratecli.config.source import SourceText


@dataclass(frozen=True)
class YamlNode:
    """A stretch of a source; `size` counts nodes and `height` levels, aliases expanded."""

    source: SourceText
    start: int
    end: int
    size: int = field(default=1, kw_only=True)
    height: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class ScalarNode(YamlNode):
    """One value; `style` is the quote or block mark it was written with, or empty."""

    value: PlainScalar
    text: str
    style: str


@dataclass(frozen=True)
class ListNode(YamlNode):
    items: tuple[YamlNode, ...]
    flow: bool


@dataclass(frozen=True)
class MapNode(YamlNode):
    entries: dict[str, tuple[ScalarNode, YamlNode]]
    flow: bool


def plain_data(node: YamlNode) -> Any:
    """The data under a node."""
    if isinstance(node, MapNode):
        return {name: plain_data(value) for name, (_, value) in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain_data(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    return node.value

"""A file with its data, and the place of everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ratecli.config.nodes import ListNode, MapNode, Node, ScalarNode, plain
from ratecli.config.offsets import offsets
from ratecli.config.source import Source
from ratecli.config.yaml import compose, read_source
from ratecli.errors import Fault, FaultError, Place, Span

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """The nodes of one file; overrides are nodes that come from another source."""

    path: Path
    text: str
    root: MapNode

    @classmethod
    def read(cls, path: Path) -> Document:
        """The document of a file; FaultError with E001 to E005."""
        return cls._of(path, read_source(path))

    @classmethod
    def of_text(cls, text: str, path: Path = Path("experiment.yaml")) -> Document:
        return cls._of(path, Source(str(path), text))

    @classmethod
    def _of(cls, path: Path, source: Source) -> Document:
        root = compose(source)
        if isinstance(root, MapNode):
            return cls(path, source.text, root)
        empty = isinstance(root, ScalarNode) and root.value is None
        message = "the file is empty" if empty else "the file must hold 'key: value' lines"
        start = min(root.start, source.last)
        place = source.place(start, min(root.end, start + 1))
        raise FaultError(
            Fault("E004", message, "`ratecli init` writes a starter file", place=place)
        )

    @cached_property
    def data(self) -> dict[str, Any]:
        data = plain(self.root)
        assert isinstance(data, dict)
        return data

    def place(
        self, loc: Sequence[str | int], span: Span | None = None, *, key: bool = False
    ) -> Place:
        """Where `loc` stands: its value, with `key` its key; what is missing, at its parent's key.

        `span` counts characters of the value's text and is traced back through quotes and folds.
        """
        name, node, complete = self._find(loc)
        if complete and span is not None and isinstance(node, ScalarNode):
            return _span_place(node, span)
        if name is not None and (key or not complete or not _visible(node)):
            return name.source.place(name.start, name.end)
        if node is self.root:
            first = _head(node)
            return first.source.place(first.start, first.start + 1)
        head = _head(node)
        return head.source.place(head.start, head.end)

    def _find(self, loc: Sequence[str | int]) -> tuple[ScalarNode | None, Node, bool]:
        """The deepest node towards `loc`, the key it stands under, and whether it is `loc`."""
        name: ScalarNode | None = None
        node: Node = self.root
        for step in loc:
            if isinstance(node, MapNode) and step in node.entries:
                name, node = node.entries[str(step)]
            elif isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
                name, node = None, node.items[step]
            else:
                return name, node, False
        return name, node, True


def _visible(node: Node) -> bool:
    """Whether a value stands on its key's line, so that it can be shown itself."""
    if isinstance(node, ScalarNode):
        return node.end > node.start
    return isinstance(node, MapNode | ListNode) and node.flow


def _head(node: Node) -> Node:
    """What to show of a node that has no key of its own: all of it, or its beginning."""
    if isinstance(node, MapNode) and not node.flow and node.entries:
        return next(iter(node.entries.values()))[0]
    if isinstance(node, ListNode) and not node.flow and node.items:
        return _head(node.items[0])
    return node


def _span_place(node: ScalarNode, span: Span) -> Place:
    raw = node.source.text[node.start : node.end]
    found = offsets(raw, node.text, node.style)
    first = max(0, min(span.start, len(found) - 1))
    last = max(first, min(span.end, len(found)) - 1)
    return node.source.place(node.start + found[first][0], node.start + found[last][1])

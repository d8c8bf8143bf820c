"""A YAML document: its data, and the position of everything in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from ratecli.config.yaml import (
    DataNode,
    SourceText,
    map_entries,
    node_range,
    parse_yaml,
    plain_data,
    read_source,
    scalar_value,
    source_of,
)
from ratecli.errors import Diagnostic, FaultError, Loc, SourceLocation, Span

FOLDED_BREAK = re.compile(r"[ \t]*(?:\r\n|[\r\n\x85\u2028\u2029])[ \t]*")
HEX_ESCAPES = {"x": 4, "u": 6, "U": 10}


def character_offsets(raw: str, value: str, style: str) -> list[tuple[int, int]]:
    """Return start and end in `raw` of each character of `value`, and of the end of `value`.

    Both texts are scanned in parallel. If they cannot be matched (unusual folding), all further
    characters map to the position where the scan stopped.
    """
    at = _first_character(raw, style)
    found: list[tuple[int, int]] = []
    for character in value:
        at = _skip_fold(raw, at, character)
        if at >= len(raw):
            break
        found.append((at, at + _written_length(raw, at, style)))
        at = found[-1][1]
    missing = len(value) + 1 - len(found)
    return found + [(min(at, len(raw)), min(at, len(raw)) + 1)] * missing


def _first_character(raw: str, style: str) -> int:
    if style in {"|", ">"}:
        header = FOLDED_BREAK.search(raw)
        return _after_indent(raw, header.end()) if header else len(raw)
    return len(style)


def _after_indent(raw: str, at: int) -> int:
    while at < len(raw) and raw[at] in " \t\r\n":
        at += 1
    return at


def _skip_fold(raw: str, at: int, character: str) -> int:
    """Skip a line break with its indentation, which represents one space; keep other spaces."""
    while (fold := FOLDED_BREAK.match(raw, at)) and character not in " \n":
        at = fold.end()
    return at


def _written_length(raw: str, at: int, style: str) -> int:
    """Return the number of characters of `raw` that represent the character at `at`."""
    if fold := FOLDED_BREAK.match(raw, at):
        return fold.end() - at
    if style == "'" and raw.startswith("''", at):
        return 2
    if style == '"' and raw[at] == "\\":
        return HEX_ESCAPES.get(raw[at + 1 : at + 2], 2)
    return 1


LOCATION_MARK = "\0"
"""Placeholder in messages for the name of the location; no YAML text contains it."""


def describe_location(loc: Loc) -> str:
    """Return what a message calls the value at `loc`."""
    if not loc:
        return "this"
    if isinstance(loc[-1], int):
        outer = f" of '{loc[-2]}'" if len(loc) > 1 else ""
        return f"entry {loc[-1] + 1}{outer}"
    return f"'{loc[-1]}'"


@dataclass(frozen=True)
class Document:
    """The nodes of one file, possibly with overrides, which are nodes of another source."""

    path: Path
    text: str
    root: MappingNode

    @classmethod
    def read(cls, path: Path) -> Document:
        """Return the document of a file; raise E001 to E005."""
        return cls._of(path, read_source(path))

    @classmethod
    def of_text(cls, text: str, path: Path = Path("experiment.yaml")) -> Document:
        return cls._of(path, SourceText(str(path), text))

    @classmethod
    def of_data(
        cls,
        data: Mapping[str, Any],
        path: Path = Path("experiment.yaml"),
        names: Mapping[Loc, str] | None = None,
    ) -> Document:
        """Return a document of Python data, whose texts have places of their own.

        A place is called by the name of the innermost part around it in `names`, or else by its
        keys, as in `datasets.people.path`. Raises E103 for values that a file cannot hold.
        """
        root = data_nodes(data, (), names or {})
        assert isinstance(root, MappingNode)
        return cls(path, "", root)

    @classmethod
    def _of(cls, path: Path, source: SourceText) -> Document:
        root = parse_yaml(source)
        if isinstance(root, MappingNode):
            return cls(path, source.text, root)
        empty = isinstance(root, ScalarNode) and scalar_value(root) is None
        message = "the file is empty" if empty else "the file must consist of 'key: value' lines"
        start = min(node_range(root)[0], source.last)
        hint = "`ratecli init` writes a starter file"
        raise FaultError(source.error("E004", message, hint, start))

    @cached_property
    def data(self) -> dict[str, Any]:
        data = plain_data(self.root)
        assert isinstance(data, dict)
        return data

    def place(self, loc: Loc, span: Span | None = None, *, key: bool = False) -> SourceLocation:
        """Return the position of the value at `loc`, or of its key if `key` is true.

        The position of a missing value is that of its parent's key. `span` selects characters of
        the value's text and is mapped back through quotes and folded lines.
        """
        name, node, complete = self._find(loc)
        if complete and span is not None and isinstance(node, ScalarNode):
            return _span_place(node, span)
        if name is not None and (key or not complete or not _is_on_key_line(node)):
            return _place(name)
        return _place(_excerpt_node(node), 1 if node is self.root else None)

    def placed(self, fault: Diagnostic, *outer: str | int, key: bool = False) -> Diagnostic:
        """Return the diagnostic with its file and line; its own location is inside `outer`.

        If it has no location of its own, `key` is true if it concerns the key at `outer`.
        """
        if fault.place is not None:
            return fault
        fault = fault.under(*outer, key=key)
        message = fault.message.replace(LOCATION_MARK, describe_location(fault.loc))
        return replace(
            fault, message=message, place=self.place(fault.loc, fault.span, key=fault.key)
        )

    @contextmanager
    def placing(self, *outer: str | int, key: bool = False) -> Iterator[None]:
        """Add file and line to errors raised in the block, like `placed`."""
        try:
            yield
        except FaultError as error:
            placed = [self.placed(fault, *outer, key=key) for fault in error.faults]
            raise type(error)(placed) from error.__cause__

    def _find(self, loc: Loc) -> tuple[Node | None, Node, bool]:
        """Return the deepest key and node on the path to `loc`, and whether it is `loc`.

        A scalar stands for everything that a longer form would have inside.
        """
        name: Node | None = None
        node: Node = self.root
        for step in loc:
            if isinstance(node, MappingNode) and step in map_entries(node):
                name, node = map_entries(node)[str(step)]
            elif (
                isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value)
            ):
                name, node = None, node.value[step]
            else:
                return name, node, isinstance(node, ScalarNode) and bool(node.value)
        return name, node, True


def data_nodes(value: Any, loc: Loc, names: Mapping[Loc, str]) -> Node:
    """Return nodes that hold a value found at `loc`, possibly NumPy; see `Document.of_data`."""
    name = next((names[loc[:k]] for k in range(len(loc), 0, -1) if loc[:k] in names), None)
    source = SourceText(name or ".".join(map(str, loc)), "")
    value = fspath(value) if isinstance(value, PathLike) else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        pairs = [
            (DataNode(source.file, str(key)), data_nodes(each, (*loc, str(key)), names))
            for key, each in value.items()
        ]
        return MappingNode("", pairs, source.mark(0), source.mark(0), flow_style=False)
    if isinstance(value, list | tuple):
        items = [data_nodes(each, (*loc, k), names) for k, each in enumerate(value)]
        return SequenceNode("", items, source.mark(0), source.mark(0), flow_style=False)
    if value is not None and not isinstance(value, str | int | float):
        message = f"{source.file}: {value!r} is neither number, text, list nor mapping"
        raise FaultError(Diagnostic("E103", message))
    return DataNode(source.file, value)


def _place(node: Node, width: int | None = None) -> SourceLocation:
    start, end = node_range(node)
    return source_of(node).place(start, end if width is None else start + width)


def _is_on_key_line(node: Node) -> bool:
    """Return whether a value is on the line of its key, so that an excerpt can show it."""
    if isinstance(node, CollectionNode):
        return bool(node.flow_style)
    start, end = node_range(node)
    return start < end


def _excerpt_node(node: Node) -> Node:
    """Return what to show of a node without a key: the node itself, or its beginning."""
    if isinstance(node, CollectionNode) and not node.flow_style and node.value:
        first = node.value[0]
        return first[0] if isinstance(node, MappingNode) else _excerpt_node(first)
    return node


def _span_place(node: ScalarNode, span: Span) -> SourceLocation:
    source, (start, end) = source_of(node), node_range(node)
    found = character_offsets(source.text[start:end], node.value, node.style or "")
    first = max(0, min(span.start, len(found) - 1))
    last = max(first, min(span.end, len(found)) - 1)
    return source.place(start + found[first][0], start + found[last][1])

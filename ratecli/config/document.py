"""A YAML document: its data, the position of everything in it, and `--set path=value`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

STEP_PATTERN = re.compile(r"[^.=\s]+")
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
    overrides: tuple[str, ...] = ()

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
        hint = "`ratecli init` writes a starter file"
        raise FaultError(source.error("E004", message, hint, node_range(root)[0]))

    def with_overrides(self, overrides: Iterable[str]) -> Document:
        """Return the document with all `path=value` applied; raise FaultError with all E107."""
        document, faults = self, list[Diagnostic]()
        for text in overrides:
            try:
                document = _apply_override(document, SourceText("--set", text))
                document = replace(document, overrides=(*document.overrides, text))
            except FaultError as error:
                faults += (replace(fault, code="E107") for fault in error.faults)
        if faults:
            raise FaultError(faults)
        return document

    @cached_property
    def data(self) -> dict[str, Any]:
        data = plain_data(self.root)
        assert isinstance(data, dict)
        return data

    def place(self, loc: Loc, span: Span | None = None, *, key: bool = False) -> SourceLocation:
        """Return the position of the value at `loc`, or of its key if `key` is true.

        A missing value has the position of its parent's key, and a value in the lines below its key
        that of the key. `span` selects characters of a text; a text with escapes is selected whole.
        """
        name, node, complete = self._find(loc)
        start, end = node_range(node)
        source = source_of(node)
        if isinstance(node, ScalarNode) and complete and span is not None:
            return source.place(*_span_range(node, span))
        is_block = isinstance(node, CollectionNode) and not node.flow_style
        if name is not None and (key or not complete or is_block or start == end):
            return source_of(name).place(*node_range(name))
        return source.place(start, end)

    def placed(self, fault: Diagnostic) -> Diagnostic:
        """Return the diagnostic with its file and line, unless it has them already."""
        if fault.place is not None:
            return fault
        message = fault.message.replace(LOCATION_MARK, describe_location(fault.loc))
        place = self.place(fault.loc, fault.span, key=fault.key)
        return replace(fault, message=message, place=place)

    @contextmanager
    def placing(self, *outer: str | int) -> Iterator[None]:
        """Add file and line to errors raised in the block, whose locations are inside `outer`."""
        try:
            yield
        except FaultError as error:
            placed = [self.placed(fault.under(*outer)) for fault in error.faults]
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
    """Return the nodes of a value at `loc`, which may be NumPy's; see `Document.of_data`."""
    name = next((names[loc[:k]] for k in range(len(loc), -1, -1) if loc[:k] in names), None)
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


def _span_range(node: ScalarNode, span: Span) -> tuple[int, int]:
    """Return the offsets of a part of a text, or of the whole text if it has escapes."""
    start, end = node_range(node)
    text = source_of(node).text
    solid = [k for k in range(start, end) if not text[k].isspace()]
    skipped = "".join(text[k] for k in solid).find("".join(node.value.split()))
    if skipped < 0 or not solid:
        return start, end
    before, until = (len("".join(node.value[:k].split())) for k in (span.start, span.end))
    first = min(skipped + before, len(solid) - 1)
    last = max(first, min(skipped + until, len(solid)) - 1)
    return solid[first], solid[last] + 1


def _apply_override(document: Document, source: SourceText) -> Document:
    path, equals, value = source.text.partition("=")
    steps = [source.scalar(*match.span()) for match in STEP_PATTERN.finditer(path)]
    if not equals or ".".join(step.value for step in steps) != path.strip() or not steps:
        message, hint = "an override is written path=value", "as in sweep.kappa=[0.8, 0.9]"
        raise FaultError(source.error("E107", message, hint, 0, len(path)))
    start = len(path) + 1
    new = parse_yaml(source, start) if value.strip() else source.scalar(start, start)
    root = _replaced(document.root, steps, new)
    assert isinstance(root, MappingNode)
    return replace(document, root=root)


def _replaced(node: Node, steps: Sequence[ScalarNode], value: Node) -> Node:
    """Return a copy of the tree with `value` at the end of the path."""
    if not steps:
        return value
    step, *rest = steps
    if isinstance(node, SequenceNode):
        items = {str(k): item for k, item in enumerate(node.value)}
        if step.value not in items:
            message = f"the list has {len(items)} entries, counted from 0"
            raise _step_error(step, message, _entry_hint(node, step.value))
        items[step.value] = _replaced(items[step.value], rest, value)
        return SequenceNode(
            node.tag, list(items.values()), node.start_mark, node.end_mark, node.flow_style
        )
    mark = step.start_mark
    if isinstance(node, ScalarNode) and plain_data(node) is None:
        node = MappingNode("", [], mark, mark, flow_style=False)
    if not isinstance(node, MappingNode):
        raise _step_error(step, "nothing can be set inside a number or text")
    entries = map_entries(node)
    key, old = entries.get(step.value, (step, ScalarNode("", "", mark, mark)))
    entry = (key if rest else step, _replaced(old, rest, value))
    pairs = list((entries | {step.value: entry}).values())
    return MappingNode(node.tag, pairs, node.start_mark, node.end_mark, node.flow_style)


def _entry_hint(entries: SequenceNode, name: str) -> str | None:
    """Return how to set options of the entry with a name, None if there is none."""
    for k, entry in enumerate(entries.value):
        if isinstance(entry, MappingNode) and name in map_entries(entry):
            return f"'{name}' is entry {k}: write {k}.{name} instead of {name}"
        if isinstance(entry, ScalarNode) and entry.value == name:
            return f"'{name}' is entry {k}: set the whole entry, {k}={{{name}: {{OPTION: VALUE}}}}"
    return None


def _step_error(step: ScalarNode, message: str, hint: str | None = None) -> FaultError:
    return FaultError(source_of(step).error("E107", message, hint, *node_range(step)))

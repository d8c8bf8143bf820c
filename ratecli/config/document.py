"""A YAML document: its data, the position of everything in it, and `--set path=value`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import yaml

from ratecli.config.yaml import (
    INVALID_CHARACTERS,
    Node,
    SourceText,
    data_of,
    entries_of,
    make_node,
    parse_yaml,
    range_of,
    read_source,
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
    """The values of one file, possibly with overrides, which are values of another source."""

    path: Path
    text: str
    root: Node
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
        return cls(path, "", _python_node(data, (), names or {}))

    @classmethod
    def _of(cls, path: Path, source: SourceText) -> Document:
        root = parse_yaml(source)
        if isinstance(root, yaml.MappingNode):
            return cls(path, source.text, root)
        message = "the file must consist of 'key: value' lines"
        message = "the file is empty" if data_of(root) is None else message
        hint = "`ratecli init` writes a starter file"
        raise FaultError(source.error("E004", message, hint, range_of(root)[0]))

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

    @property
    def data(self) -> dict[str, Any]:
        return dict(data_of(self.root))

    def place(self, loc: Loc, span: Span | None = None, *, key: bool = False) -> SourceLocation:
        """Return the position of the value at `loc`, or of its key if `key` is true.

        A missing value has the position of its parent's key, and a value in the lines below its key
        that of the key. `span` selects characters of a text; a text with escapes is selected whole.
        """
        name, value, complete = self._find(loc)
        start, end = range_of(value)
        scalar = isinstance(value, yaml.ScalarNode)
        block = not scalar and not value.flow_style
        if span is not None and complete and scalar:
            start, end = _span_range(value, span)
        elif name is not None and (key or not complete or block or start == end):
            value, (start, end) = name, range_of(name)
        source: SourceText = value.source
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
        """Return the deepest key and value on the path to `loc`, and whether it is `loc`.

        A number or text stands for everything that a longer form would have inside.
        """
        name, value = None, self.root
        for step in loc:
            entries, (start, end) = entries_of(value), range_of(value)
            if step not in entries:
                return name, value, isinstance(value, yaml.ScalarNode) and start < end
            name, value = entries[step]
        return name, value, True


def _python_node(data: Any, loc: Loc, names: Mapping[Loc, str]) -> Node:
    """Return a node of Python data at `loc`, which may be NumPy's; see `Document.of_data`."""
    name = next((names[loc[:k]] for k in range(len(loc), -1, -1) if loc[:k] in names), None)
    name = name or ".".join(map(str, loc))
    data = fspath(data) if isinstance(data, PathLike) else data
    data = data.tolist() if hasattr(data, "tolist") else data
    if isinstance(data, Mapping):
        pairs = [(str(key), value) for key, value in data.items()]
        made = [(_text_node(x, name), _python_node(y, (*loc, x), names)) for x, y in pairs]
        return make_node(yaml.MappingNode, made, SourceText(name, ""), 0, 0)
    if isinstance(data, list | tuple):
        inner = [_python_node(each, (*loc, k), names) for k, each in enumerate(data)]
        return make_node(yaml.SequenceNode, inner, SourceText(name, ""), 0, 0)
    if data is not None and not isinstance(data, str | int | float):
        message = f"{name}: {data!r} is neither number, text, list nor mapping"
        raise FaultError(Diagnostic("E103", message))
    return _text_node(data, name)


def _text_node(data: str | float | None, name: str) -> Node:
    """Return a scalar that was not read from a file: its text is a source called `name`."""
    text = data if isinstance(data, str) else repr(data)
    if INVALID_CHARACTERS.search(text):
        message = f"{name}: the text {text!a} contains a code that is not a character"
        raise FaultError(Diagnostic("E005", message))
    return make_node(yaml.ScalarNode, data, SourceText(name, text), 0, len(text))


def _span_range(value: Node, span: Span) -> tuple[int, int]:
    """Return the offsets of a part of a text, or of the whole text if it has escapes."""
    (start, end), words = range_of(value), str(data_of(value))
    text = value.source.text
    solid = [k for k in range(start, end) if not text[k].isspace()]
    skipped = "".join(text[k] for k in solid).find("".join(words.split()))
    if skipped < 0 or not solid:
        return start, end
    before, until = (len("".join(words[:k].split())) for k in (span.start, span.end))
    first = min(skipped + before, len(solid) - 1)
    last = max(first, min(skipped + until, len(solid)) - 1)
    return solid[first], solid[last] + 1


def _apply_override(document: Document, source: SourceText) -> Document:
    path, equals, text = source.text.partition("=")
    found = list(STEP_PATTERN.finditer(path))
    if not equals or ".".join(each.group() for each in found) != path.strip() or not found:
        message, hint = "an override is written path=value", "as in sweep.kappa=[0.8, 0.9]"
        raise FaultError(source.error("E107", message, hint, 0, len(path)))
    steps = [make_node(yaml.ScalarNode, each.group(), source, *each.span()) for each in found]
    start = len(path) + 1
    empty = make_node(yaml.ScalarNode, None, source, start, start)
    new = parse_yaml(source, start) if text.strip() else empty
    return replace(document, root=_replaced(document.root, steps, new))


def _replaced(old: Node, steps: Sequence[Node], new: Node) -> Node:
    """Return a copy of a value with another one at the end of the path."""
    if not steps:
        return new
    step, *rest = steps
    entries, start = entries_of(old), range_of(step)[0]
    empty = make_node(yaml.ScalarNode, None, step.source, start, start)
    name: str | int = step.value
    if isinstance(old, yaml.SequenceNode):
        if name not in {*map(str, entries)}:
            message = f"the list has {len(entries)} entries, counted from 0"
            hint = "write the number of the entry"
            raise FaultError(step.source.error("E107", message, hint, *range_of(step)))
        name = int(name)
    elif isinstance(old, yaml.ScalarNode):
        if data_of(old) is not None:
            message = "nothing can be set inside a number or text"
            raise FaultError(step.source.error("E107", message, None, *range_of(step)))
        old = make_node(yaml.MappingNode, [], step.source, start, start)
    key, inner = entries.get(name, (step, empty))
    entries[name] = (key if rest or key is None else step, _replaced(inner, rest, new))
    changed = copy(old)
    listed = isinstance(old, yaml.SequenceNode)
    changed.value = [value if listed else (key, value) for key, value in entries.values()]
    return changed

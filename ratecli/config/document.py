"""A YAML document: its data, the position of everything in it, and `--set path=value`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from ratecli.config.yaml import (
    INVALID_CHARACTERS,
    Entries,
    SourceText,
    Value,
    parse_yaml,
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
    root: Value
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
        return cls(path, "", _python_value(data, (), names or {}))

    @classmethod
    def _of(cls, path: Path, source: SourceText) -> Document:
        root = parse_yaml(source)
        if isinstance(root.data, dict):
            return cls(path, source.text, root)
        message = "the file must consist of 'key: value' lines"
        message = "the file is empty" if root.data is None else message
        hint = "`ratecli init` writes a starter file"
        raise FaultError(source.error("E004", message, hint, root.start))

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
        return dict(self.root.data)

    def place(self, loc: Loc, span: Span | None = None, *, key: bool = False) -> SourceLocation:
        """Return the position of the value at `loc`, or of its key if `key` is true.

        A missing value has the position of its parent's key, and a value in the lines below its key
        that of the key. `span` selects characters of a text; a text with escapes is selected whole.
        """
        name, value, complete = self._find(loc)
        if span is not None and complete and not isinstance(value.data, dict | list):
            return value.source.place(*_span_range(value, span))
        if name is not None and (key or not complete or value.block or value.start == value.end):
            value = name
        return value.source.place(value.start, value.end)

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

    def _find(self, loc: Loc) -> tuple[Value | None, Value, bool]:
        """Return the deepest key and value on the path to `loc`, and whether it is `loc`.

        A number or text stands for everything that a longer form would have inside.
        """
        name: Value | None = None
        value = self.root
        for step in loc:
            if step not in value.entries:
                short = not isinstance(value.data, dict | list) and value.start < value.end
                return name, value, short
            name, value = value.entries[step]
        return name, value, True


def _python_value(data: Any, loc: Loc, names: Mapping[Loc, str]) -> Value:
    """Return the value of Python data at `loc`, which may be NumPy's; see `Document.of_data`."""
    name = next((names[loc[:k]] for k in range(len(loc), -1, -1) if loc[:k] in names), None)
    name = name or ".".join(map(str, loc))
    data = fspath(data) if isinstance(data, PathLike) else data
    data = data.tolist() if hasattr(data, "tolist") else data
    if isinstance(data, Mapping | list | tuple):
        pairs: Iterable[tuple[str | int, Any]] = enumerate(data)
        if isinstance(data, Mapping):
            pairs = [(str(key), each) for key, each in data.items()]
        entries = {
            key: (
                _text_value(str(key), name) if isinstance(data, Mapping) else None,
                _python_value(each, (*loc, key), names),
            )
            for key, each in pairs
        }
        kind = dict if isinstance(data, Mapping) else list
        return Value.of_entries(kind, entries, (SourceText(name, ""), 0, 0))
    if data is not None and not isinstance(data, str | int | float):
        message = f"{name}: {data!r} is neither number, text, list nor mapping"
        raise FaultError(Diagnostic("E103", message))
    return _text_value(data, name)


def _text_value(data: str | float | None, name: str) -> Value:
    """Return a scalar that was not read from a file: its text is a source called `name`."""
    text = data if isinstance(data, str) else repr(data)
    if INVALID_CHARACTERS.search(text):
        message = f"{name}: the text {text!a} contains a code that is not a character"
        raise FaultError(Diagnostic("E005", message))
    return Value(data, SourceText(name, text), 0, len(text))


def _span_range(value: Value, span: Span) -> tuple[int, int]:
    """Return the offsets of a part of a text, or of the whole text if it has escapes."""
    start, end, words = value.start, value.end, str(value.data)
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
    steps = [Value(m.group(), source, *m.span()) for m in STEP_PATTERN.finditer(path)]
    if not equals or ".".join(step.data for step in steps) != path.strip() or not steps:
        message, hint = "an override is written path=value", "as in sweep.kappa=[0.8, 0.9]"
        raise FaultError(source.error("E107", message, hint, 0, len(path)))
    start = len(path) + 1
    new = parse_yaml(source, start) if text.strip() else Value(None, source, start, start)
    return replace(document, root=_replaced(document.root, steps, new))


def _replaced(old: Value, steps: Sequence[Value], new: Value) -> Value:
    """Return a copy of a value with another one at the end of the path."""
    if not steps:
        return new
    step, *rest = steps
    entries: Entries = old.entries
    name: str | int = step.data
    if isinstance(old.data, list):
        if name not in {*map(str, entries)}:
            message = f"the list has {len(entries)} entries, counted from 0"
            raise FaultError(step.error("E107", message, "write the number of the entry"))
        name = int(name)
    elif old.data is None:
        old = Value({}, step.source, step.start, step.start, block=True)
    elif not isinstance(old.data, dict):
        message = "nothing can be set inside a number or text"
        raise FaultError(step.error("E107", message))
    empty = Value(None, step.source, step.start, step.start)
    key, inner = entries.get(name, (step, empty))
    entry = (key if rest or key is None else step, _replaced(inner, rest, new))
    at = old.source, old.start, old.end
    return Value.of_entries(type(old.data), {**entries, name: entry}, at, block=old.block)

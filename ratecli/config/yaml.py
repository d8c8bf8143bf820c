"""A strict YAML reader: PyYAML's events, with YAML 1.2 scalars, become values with places.

Only text, numbers, true, false, null, lists and mappings with text keys are accepted. Depth and the
number of values, with aliases expanded, are limited while the text is parsed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import yaml
from yaml.reader import Reader

from ratecli.errors import Diagnostic, FaultError, SourceLocation

PlainScalar = str | int | float | bool | None

SCALAR_CONSTANTS: dict[str, PlainScalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
INTEGER_PATTERN = re.compile(r"[-+]?[0-9]{1,999}|0o[0-7]{1,99}|0x[0-9a-fA-F]{1,99}")
"""Longer numbers are floats, since int() rejects thousands of digits."""
FLOAT_PATTERN = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
MAX_INTEGER = 2**63 - 1
MAX_BYTES = 1_000_000
MAX_DEPTH = 50
MAX_NODES = 20_000
INVALID_CHARACTERS = re.compile(r"[\0\ud800-\udfff]")
"""Characters that escapes in double quotes can produce but that cannot be printed or stored."""


def resolve_scalar(text: str) -> PlainScalar:
    """Return the value of an unquoted scalar."""
    if text in SCALAR_CONSTANTS:
        return SCALAR_CONSTANTS[text]
    if INTEGER_PATTERN.fullmatch(text):
        return int(text, 0 if text[:2] in {"0o", "0x"} else 10)
    return float(text) if FLOAT_PATTERN.fullmatch(text) else text


@dataclass(frozen=True)
class SourceText:
    """A file, or the text of one `--set` override; offsets count characters."""

    file: str
    text: str

    @cached_property
    def starts(self) -> list[int]:
        """The offset of the first character of each line."""
        # splitlines and YAML agree on line breaks once control characters are refused
        return [0, *accumulate(len(line) for line in self.text.splitlines(keepends=True))]

    @cached_property
    def lines(self) -> list[str]:
        """The text of each line without its line break."""
        return [*self.text.splitlines(), ""]

    def place(self, start: int, end: int) -> SourceLocation:
        """Return the range from `start` to `end`, cut at the end of its first line; never empty."""
        number = bisect_right(self.starts, start) - 1
        column, excerpt = start - self.starts[number], self.lines[number]
        width = max(1, min(end - start, len(excerpt) - column))
        return SourceLocation(self.file, number + 1, column + 1, width, excerpt)

    def error(
        self, code: str, message: str, hint: str | None, start: int, end: int | None = None
    ) -> Diagnostic:
        place = self.place(start, start + 1 if end is None else end)
        return Diagnostic(code, message, hint, place=place)


@dataclass(frozen=True, eq=False)
class Value:
    """A value of a document, and the characters that it was read from.

    Attributes
    ----------
    data
        The value as plain data.
    source, start, end
        Its text, and the offsets of its start and end there.
    entries
        The key, None for a list, and the value of each entry of a mapping or list.
    block
        Whether it is a mapping or list in lines below its key.
    size, depth
        The number of values in it, with aliases expanded, and how deep they are nested.
    """

    data: Any
    source: SourceText
    start: int
    end: int
    entries: Entries = field(default_factory=dict)
    block: bool = False
    size: int = 1
    depth: int = 0

    @classmethod
    def of_entries(
        cls, kind: type, entries: Entries, at: tuple[SourceText, int, int], *, block: bool = True
    ) -> Value:
        """Return a mapping (`kind` dict) or a list; `at` is its text with start and end."""
        data: Any = {name: value.data for name, (_, value) in entries.items()}
        inner = [value for _, value in entries.values()]
        size = 1 + sum(each.size for each in inner)
        depth = 1 + max((each.depth for each in inner), default=0)
        return cls(data if kind is dict else [*data.values()], *at, entries, block, size, depth)

    def error(self, code: str, message: str, hint: str | None = None) -> Diagnostic:
        return self.source.error(code, message, hint, self.start, self.end)


Entries: TypeAlias = Mapping[str | int, tuple[Value | None, Value]]


def read_source(path: Path) -> SourceText:
    """Return the text of a file; raise E005 if it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        _raise_unreadable(path, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(raw) > MAX_BYTES:
        _raise_unreadable(path, "is larger than 1 MB; an experiment is one page")
    try:
        return SourceText(str(path), raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        _raise_unreadable(path, f"is not UTF-8 text (line {line}); save it as UTF-8")


def _raise_unreadable(path: Path, problem: str) -> NoReturn:
    raise FaultError(Diagnostic("E005", f"'{path}' {problem}")) from None


def parse_yaml(source: SourceText, start: int = 0) -> Value:
    """Return the single document of a source from an offset on; raise E001 to E005."""
    unprintable = Reader.NON_PRINTABLE.search(source.text)
    if unprintable:
        message = f"the file contains the control character {unprintable.group()!a}"
        raise FaultError(source.error("E005", message, "remove it", unprintable.start()))
    try:
        return _Reader(source, start).document()
    except yaml.MarkedYAMLError as error:
        raise FaultError(syntax_diagnostic(source, error)) from None


class _Reader:
    """Makes values of PyYAML's events, and collects violations of the strict rules."""

    def __init__(self, source: SourceText, start: int) -> None:
        self.source = source
        self.events: Any = yaml.parse(" " * start + source.text[start:], yaml.SafeLoader)
        self.anchors: dict[str, Value | None] = {}
        self.faults: list[Diagnostic] = []
        self.count = 0

    def document(self) -> Value:
        """Return the root of the only document; raise FaultError for violations of the rules."""
        next(self.events)
        if isinstance(next(self.events), yaml.StreamEndEvent):
            raise FaultError(self.source.error("E004", "the file is empty", None, 0))
        root = self._value(next(self.events), 0)
        next(self.events)
        following = next(self.events)
        if not isinstance(following, yaml.StreamEndEvent):
            hint = "remove the line '---', or write two files"
            self._note("E004", "a second document begins here", hint, following)
        if self.faults:
            raise FaultError(self.faults)
        return root

    def _value(self, event: Any, depth: int) -> Value:
        """Return the value that begins with an event; raise E003 if it is too large or deep."""
        self.count += 1
        self._check_size(self.count, depth, event)
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        if event.tag is not None:
            hint = "remove it; put text that begins with '!' in quotes"
            self._note("E004", "YAML tags are not allowed", hint, event)
        self.anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            found = self._scalar(event)
        else:
            mapping = isinstance(event, yaml.MappingStartEvent)
            entries = (self._mapping if mapping else self._list)(depth + 1)
            kind, block = dict if mapping else list, not event.flow_style
            at = self.source, event.start_mark.index, self.end
            found = Value.of_entries(kind, entries, at, block=block)
        if depth == 1:
            self._check_size(found.size, found.depth, found)
        self.anchors[event.anchor] = found
        return found

    def _aliased(self, event: Any) -> Value:
        if event.anchor not in self.anchors:
            problem = f"found undefined alias {event.anchor!r}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        start, end = _range(event)
        endless = Value(None, self.source, start, end, size=MAX_NODES + 1)
        return self.anchors[event.anchor] or endless

    def _list(self, depth: int) -> Entries:
        entries: dict[str | int, tuple[Value | None, Value]] = {}
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            entries[len(entries)] = None, self._value(event, depth)
        self.end = _range(event)[1]
        return entries

    def _mapping(self, depth: int) -> Entries:
        entries: dict[str | int, tuple[Value | None, Value]] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key, value = self._value(event, depth), self._value(next(self.events), depth)
            before = entries.get(key.data) if isinstance(key.data, str) else None
            if not isinstance(key.data, str):
                hint = "put it, or the value, in quotes"
                self.faults.append(key.error("E004", "a key must be text", hint))
            elif before is not None and before[0] is not None:
                line = self.source.place(before[0].start, before[0].end).line
                hint = f"the first one is in line {line}; remove one of them"
                self.faults.append(key.error("E002", f"the key '{key.data}' occurs twice", hint))
            else:
                entries[key.data] = key, value
        self.end = _range(event)[1]
        return entries

    def _scalar(self, event: yaml.ScalarEvent) -> Value:
        if INVALID_CHARACTERS.search(event.value):
            hint = "write the character itself, not an escape"
            self._note("E005", "the text contains an escape that is not a character", hint, event)
        data = event.value if event.style else resolve_scalar(event.value)
        if isinstance(data, int) and abs(data) > MAX_INTEGER:
            hint = "write it with an exponent (1e30), or in quotes if it is text"
            self._note("E104", "whole numbers are limited to 64 bits", hint, event)
        return Value(data, self.source, *_range(event))

    def _check_size(self, count: int, depth: int, at: yaml.Event | Value) -> None:
        message = ""
        if count > MAX_NODES:
            message = f"the file contains more than {MAX_NODES} values, counting aliases"
        elif depth > MAX_DEPTH:
            message = f"values are nested more than {MAX_DEPTH} deep, counting aliases"
        if message:
            self._note("E003", message, None, at)
            raise FaultError(self.faults)

    def _note(self, code: str, message: str, hint: str | None, at: yaml.Event | Value) -> None:
        start, end = (at.start, at.end) if isinstance(at, Value) else _range(at)
        self.faults.append(self.source.error(code, message, hint, start, end))


def _range(event: Any) -> tuple[int, int]:
    return event.start_mark.index, event.end_mark.index


QUOTE_HINT = "put the whole value in quotes: 'like this'"
ESCAPE_HINT = "use single quotes, in which a backslash is literal"
COLON_HINT = (
    "write 'key: value' with a space, here and in the line above, and quote a value that contains "
    "': '"
)
PLACE_HINT = (
    "keys of one mapping begin in the same column; put text that contains brackets, quotes or "
    "': ' in quotes"
)
SYNTAX_ADVICE = (
    (r"character '\\t' that", -1, "a tab is not allowed here", "replace tabs by spaces"),
    (r"character '(.)' that", -1, "a value cannot begin with '{0}' unquoted", QUOTE_HINT),
    (r"mapping values are not", -1, "this ':' does not follow a key", COLON_HINT),
    (r"expected ':'", 0, "this line is not 'key: value'", COLON_HINT),
    (r"got '\['", -1, "an unquoted value inside {{ }} or [ ] cannot contain '['", QUOTE_HINT),
    (r"expected ',' or '(.)'", 0, "this bracket is not closed", "add '{0}' or a comma"),
    (r"unexpected end of stream", 0, "this quoted text is not closed", "add the closing quote"),
    (r"unknown escape|escape seq", -1, "this escape is not valid in double quotes", ESCAPE_HINT),
    (r"but found", -1, "this line does not fit the lines above", PLACE_HINT),
    (r"(.*)", -1, "this is not YAML: {0}", QUOTE_HINT),
)
"""Part of PyYAML's message, the index of the mark to report, and a message and help for it."""


def syntax_diagnostic(source: SourceText, error: yaml.MarkedYAMLError) -> Diagnostic:
    """Return an E001 that explains a parser error to the author of the file."""
    marks = [mark for mark in (error.context_mark, error.problem_mark) if mark is not None]
    for pattern, index, message, hint in SYNTAX_ADVICE:
        if match := re.search(pattern, str(error.problem)):
            words = [text.format(*match.groups()) for text in (message, hint)]
            return source.error("E001", words[0], words[1], marks[index].index)
    raise AssertionError(error.problem)

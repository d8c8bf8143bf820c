"""A strict YAML reader: PyYAML's nodes, with YAML 1.2 scalars.

Only text, numbers, true, false, null, lists and mappings with text keys are accepted. Depth and the
number of nodes, with aliases expanded, are limited while the text is parsed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.composer import Composer
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

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

    def mark(self, offset: int) -> SourceMark:
        number = bisect_right(self.starts, offset) - 1
        return SourceMark(self, offset, number, offset - self.starts[number])

    def place(self, start: int, end: int) -> SourceLocation:
        """Return the range from `start` to `end`, cut at the end of its first line; never empty."""
        mark = self.mark(start)
        excerpt = self.lines[mark.line]
        width = max(1, min(end - start, len(excerpt) - mark.column))
        return SourceLocation(self.file, mark.line + 1, mark.column + 1, width, excerpt)

    def scalar(self, start: int, end: int) -> ScalarNode:
        """Return an unquoted scalar made of these characters."""
        return ScalarNode("", self.text[start:end], self.mark(start), self.mark(end))

    def error(
        self, code: str, message: str, hint: str | None, start: int, end: int | None = None
    ) -> Diagnostic:
        place = self.place(start, start + 1 if end is None else end)
        return Diagnostic(code, message, hint, place=place)


class SourceMark(yaml.Mark):
    """An offset in a source."""

    def __init__(self, source: SourceText, index: int, line: int, column: int) -> None:
        super().__init__(source.file, index, line, column, None, 0)
        self.source = source


class DataNode(ScalarNode):
    """A scalar that was not read from a file; its text is its own source, called `name`."""

    def __init__(self, name: str, data: PlainScalar) -> None:
        text = data if isinstance(data, str) else repr(data)
        source = SourceText(name, text)
        super().__init__("", text, source.mark(0), source.mark(len(text)))
        self.data = data


def source_of(node: Node) -> SourceText:
    """Return the source that a node was read from."""
    mark = node.start_mark
    assert isinstance(mark, SourceMark)
    return mark.source


def node_range(node: Node | yaml.Event) -> tuple[int, int]:
    """Return the offsets of the start and the end of a node."""
    assert node.start_mark is not None
    assert node.end_mark is not None
    return node.start_mark.index, node.end_mark.index


def scalar_value(node: ScalarNode) -> PlainScalar:
    if isinstance(node, DataNode):
        return node.data
    return node.value if node.style else resolve_scalar(node.value)


@lru_cache(maxsize=64)
def map_entries(node: MappingNode) -> dict[str, tuple[ScalarNode, Node]]:
    """Return keys and values of a mapping by the text of the key."""
    return {key.value: (key, value) for key, value in node.value}


def child_nodes(node: Node) -> list[Node]:
    """Return the values of a mapping, or the entries of a list."""
    if isinstance(node, MappingNode):
        return [value for _, value in node.value]
    return node.value if isinstance(node, SequenceNode) else []


def plain_data(node: Node) -> Any:
    """Return the data of a node."""
    if isinstance(node, MappingNode):
        return {name: plain_data(value) for name, (_, value) in map_entries(node).items()}
    if isinstance(node, SequenceNode):
        return [plain_data(item) for item in node.value]
    assert isinstance(node, ScalarNode)
    return scalar_value(node)


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


def parse_yaml(source: SourceText, start: int = 0) -> Node:
    """Return the single document of a source from an offset on; raise E001 to E005."""
    unprintable = Reader.NON_PRINTABLE.search(source.text)
    if unprintable:
        message = f"the file contains the control character {unprintable.group()!a}"
        raise FaultError(source.error("E005", message, "remove it", unprintable.start()))
    try:
        return StrictLoader(source, start).document()
    except yaml.MarkedYAMLError as error:
        raise FaultError(syntax_diagnostic(source, error)) from None


class StrictLoader(Reader, Scanner, Parser, Composer, BaseResolver):
    """Composes the nodes of a document and collects violations of the strict rules."""

    def __init__(self, source: SourceText, start: int) -> None:
        self.source = source
        Reader.__init__(self, " " * start + source.text[start:])
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self.faults: list[Diagnostic] = []
        self.depth = 0
        self.nodes = 0

    def get_mark(self) -> SourceMark:
        return SourceMark(self.source, self.index, self.line, self.column)

    def document(self) -> Node:
        """Return the root of the only document; raise FaultError for violations of the rules."""
        self._next_event()
        if self.check_event(yaml.StreamEndEvent):
            raise FaultError(self.source.error("E004", "the file is empty", None, 0))
        root = self.compose_document()
        assert root is not None
        following = self._next_event()
        if not isinstance(following, yaml.StreamEndEvent):
            hint = "remove the line '---', or write two files"
            self._note("E004", "a second document begins here", hint, following)
        self.nodes = 0
        self._check_size(root, 0, root)
        if self.faults:
            raise FaultError(self.faults)
        return root

    def compose_node(self, parent: Node | None, index: Any) -> Node:
        """Compose the next node; raise E003 if there are too many or it is too deep."""
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call]
        self._count_node(self.depth, event)
        if getattr(event, "tag", None) is not None:
            hint = "remove it; put text that begins with '!' in quotes"
            self._note("E004", "YAML tags are not allowed", hint, event)
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)  # YAML allows an anchor to be defined again
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        assert node is not None
        if isinstance(node, MappingNode):
            self._check_mapping(node)
        if isinstance(node, ScalarNode):
            self._check_scalar(node)
        return node

    def _next_event(self) -> yaml.Event:
        event: yaml.Event = self.get_event()  # type: ignore[no-untyped-call]
        return event

    def _check_size(self, node: Node, depth: int, at: Node) -> None:
        """Raise E003, at an entry of the root, if it is too large with its aliases expanded."""
        self._count_node(depth, at)
        for child in child_nodes(node):
            self._check_size(child, depth + 1, at if depth else child)

    def _count_node(self, depth: int, at: yaml.Event | Node) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            message = f"the file contains more than {MAX_NODES} values, counting aliases"
            self._stop("E003", message, None, at)
        if depth > MAX_DEPTH:
            message = f"values are nested more than {MAX_DEPTH} deep, counting aliases"
            self._stop("E003", message, None, at)

    def _check_scalar(self, node: ScalarNode) -> None:
        if INVALID_CHARACTERS.search(node.value):
            hint = "write the character itself, not an escape"
            self._note("E005", "the text contains an escape that is not a character", hint, node)
        value = scalar_value(node)
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            hint = "write it with an exponent (1e30), or in quotes if it is text"
            self._note("E104", "whole numbers are limited to 64 bits", hint, node)

    def _check_mapping(self, node: MappingNode) -> None:
        first: dict[str, Node] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or not isinstance(scalar_value(key), str):
                self._note("E004", "a key must be text", "put it, or the value, in quotes", key)
            elif key.value in first:
                line = first[key.value].start_mark.line + 1
                hint = f"the first one is in line {line}; remove one of them"
                self._note("E002", f"the key '{key.value}' occurs twice", hint, key)
            else:
                first[key.value] = key

    def _note(self, code: str, message: str, hint: str | None, at: yaml.Event | Node) -> None:
        start, end = node_range(at)
        self.faults.append(self.source.error(code, message, hint, start, end))

    def _stop(self, code: str, message: str, hint: str | None, at: yaml.Event | Node) -> NoReturn:
        self._note(code, message, hint, at)
        raise FaultError(self.faults)


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

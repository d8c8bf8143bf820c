"""A strict YAML reader: PyYAML's nodes, with YAML 1.2 scalars.

Only text, numbers, true, false, null, lists and mappings with text keys are accepted. Depth and the
number of values, with aliases expanded, are limited while the text is parsed.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
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
        return [0, *itertools.accumulate(len(line) for line in self.text.splitlines(keepends=True))]

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


Node: TypeAlias = Any
"""A node of PyYAML with the attribute `source`, the text in which it starts and ends."""


def data_of(node: Node) -> Any:
    """Return the value of a node as plain data."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: data_of(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [data_of(each) for each in node.value]
    return node.value if node.style else resolve_scalar(node.value)  # style: its quotes


def entries_of(node: Node) -> dict[str | int, tuple[Node | None, Node]]:
    """Return the key, None for a list, and the value of each entry; none for a scalar."""
    if isinstance(node, yaml.MappingNode):
        return {key.value: (key, value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return {k: (None, value) for k, value in enumerate(node.value)}
    return {}


def make_node(kind: type[yaml.Node], value: Any, source: SourceText, start: int, end: int) -> Node:
    """Return a node that PyYAML has not read; the value of a scalar need not be text."""
    marks = [yaml.Mark(source.file, index, 0, 0, None, 0) for index in (start, end)]
    style: Any = '"' if kind is yaml.ScalarNode else False
    node: Node = kind("", value, *marks, style)  # type: ignore[call-arg]
    node.source = source
    return node


def range_of(at: Any) -> tuple[int, int]:
    """Return the offsets at which a node or event of PyYAML starts and ends."""
    return at.start_mark.index, at.end_mark.index


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
        return _Composer(source, start).document()
    except yaml.MarkedYAMLError as error:
        raise FaultError(syntax_diagnostic(source, error)) from None


class _Composer(yaml.SafeLoader):
    """Composes nodes, each with its `source`, and collects violations of the strict rules."""

    def __init__(self, source: SourceText, start: int) -> None:
        super().__init__(" " * start + source.text[start:])
        self.source, self.faults = source, list[Diagnostic]()
        self.depth, self.count = -1, 0
        self.sizes: dict[int, tuple[int, int]] = {}

    def document(self) -> Node:
        """Return the root of the only document; raise FaultError for violations of the rules."""
        if not self.check_node():
            raise FaultError(self.source.error("E004", "the file is empty", None, 0))
        root = self.get_node()
        self._check(root)
        if self.check_node():
            hint = "remove the line '---', or write two files"
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            self._note("E004", "a second document begins here", hint, event)
        if self.faults:
            raise FaultError(self.faults)
        return root

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        self.depth, self.count = self.depth + 1, self.count + 1
        self._check_size(self.count, self.depth, event)
        if getattr(event, "tag", None) is not None:
            hint = "remove it; put text that begins with '!' in quotes"
            self._note("E004", "YAML tags are not allowed", hint, event)
        node: Any = super().compose_node(parent, index)
        node.source = self.source
        self.depth -= 1
        return node

    def _check(self, node: Node) -> tuple[int, int]:
        """Note violations inside of a node; return its size and depth, with aliases expanded."""
        if id(node) in self.sizes:
            return self.sizes[id(node)]
        self.sizes[id(node)] = MAX_NODES + 1, 0  # for an alias of a value in the value itself
        size, depth = 1, 0
        if isinstance(node, yaml.ScalarNode):
            self._check_scalar(node)
        elif isinstance(node, yaml.MappingNode):
            self._check_keys(node)
        pairs = node.value if isinstance(node, yaml.MappingNode) else [node.value]
        for each in itertools.chain(*pairs) if not isinstance(node, yaml.ScalarNode) else ():
            inner = self._check(each)
            size, depth = size + inner[0], max(depth, 1 + inner[1])
        self._check_size(size, depth, node)
        self.sizes[id(node)] = size, depth
        return size, depth

    def _check_keys(self, node: yaml.MappingNode) -> None:
        first: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or not isinstance(data_of(key), str):
                self._note("E004", "a key must be text", "put it, or the value, in quotes", key)
            elif key.value in first:
                line = self.source.place(*range_of(first[key.value])).line
                hint = f"the first one is in line {line}; remove one of them"
                self._note("E002", f"the key '{key.value}' occurs twice", hint, key)
            else:
                first[key.value] = key

    def _check_scalar(self, node: yaml.ScalarNode) -> None:
        if INVALID_CHARACTERS.search(node.value):
            hint = "write the character itself, not an escape"
            self._note("E005", "the text contains an escape that is not a character", hint, node)
        data = data_of(node)
        if isinstance(data, int) and abs(data) > MAX_INTEGER:
            hint = "write it with an exponent (1e30), or in quotes if it is text"
            self._note("E104", "whole numbers are limited to 64 bits", hint, node)

    def _check_size(self, count: int, depth: int, at: Any) -> None:
        message = ""
        if count > MAX_NODES:
            message = f"the file contains more than {MAX_NODES} values, counting aliases"
        elif depth > MAX_DEPTH:
            message = f"values are nested more than {MAX_DEPTH} deep, counting aliases"
        if message:
            self._note("E003", message, None, at)
            raise FaultError(self.faults)

    def _note(self, code: str, message: str, hint: str | None, at: Any) -> None:
        self.faults.append(self.source.error(code, message, hint, *range_of(at)))


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

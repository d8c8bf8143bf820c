"""The nodes of a YAML text, with their positions in the source."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from os import PathLike, fspath
from typing import Any

from ratecli.errors import Diagnostic, FaultError, Loc, SourceLocation

PlainScalar = str | int | float | bool | None

SCALAR_CONSTANTS: dict[str, PlainScalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}

INTEGER_PATTERN = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT_PATTERN = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
INTEGER_BASES = {"0o": 8, "0x": 16}
MAX_INTEGER = 2**63 - 1


def resolve_scalar(text: str) -> PlainScalar:
    """Return the value of an unquoted scalar; raise OverflowError for integers beyond 64 bits."""
    if text in SCALAR_CONSTANTS:
        return SCALAR_CONSTANTS[text]
    if INTEGER_PATTERN.fullmatch(text):
        return _parse_integer(text)
    if FLOAT_PATTERN.fullmatch(text):
        return float(text)
    return text


def _parse_integer(text: str) -> int:
    base = INTEGER_BASES.get(text[:2], 10)
    digits = text[2:] if base != 10 else text
    # int() rejects thousands of digits, so check the length first
    number = int(digits, base) if len(digits.lstrip("+-0")) <= 64 else MAX_INTEGER + 1
    if abs(number) > MAX_INTEGER:
        raise OverflowError(text)
    return number


@dataclass(frozen=True)
class SourceText:
    """A file, or the text of one `--set` override; offsets count characters."""

    file: str
    text: str

    @cached_property
    def _lines(self) -> list[str]:
        # splitlines and YAML agree on line breaks once control characters are refused
        return [*self.text.splitlines(keepends=True), ""]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) for line in self._lines[:-1])]

    @cached_property
    def _texts(self) -> list[str]:
        # cached, so that thousands of errors on one long line share its text
        return [line.rstrip("\r\n\x85\u2028\u2029") for line in self._lines]

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 0, without its line break."""
        return self._texts[number]

    def offset(self, line: int, column: int) -> int:
        return self._starts[line] + column

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def place(self, start: int, end: int) -> SourceLocation:
        """Return the range from `start` to `end`, cut at the end of its first line; never empty."""
        number = self.line_of(start)
        excerpt, column = self.line(number), start - self._starts[number]
        width = max(1, min(end - start, len(excerpt) - column))
        return SourceLocation(self.file, number + 1, column + 1, width, excerpt)

    @property
    def last(self) -> int:
        """The offset after the last character that is not whitespace."""
        return len(self.text.rstrip())


@dataclass(frozen=True)
class YamlNode:
    """A range of a source; `size` counts nodes and `height` levels, with aliases expanded."""

    source: SourceText
    start: int
    end: int
    size: int = field(default=1, kw_only=True)
    height: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class ScalarNode(YamlNode):
    """A single value; `style` is its quote or block indicator, or empty."""

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
    """Return the data of a node."""
    if isinstance(node, MapNode):
        return {name: plain_data(value) for name, (_, value) in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain_data(item) for item in node.items]
    assert isinstance(node, ScalarNode)
    return node.value


def data_nodes(value: Any, loc: Loc, names: Mapping[Loc, str]) -> YamlNode:
    """Return nodes that hold a value found at `loc`, possibly NumPy; see `Document.of_data`."""
    name = next((names[loc[:k]] for k in range(len(loc), 0, -1) if loc[:k] in names), None)
    name = name or ".".join(map(str, loc))
    value = fspath(value) if isinstance(value, PathLike) else value
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        entries = {
            str(key): (_scalar_node(name, str(key)), data_nodes(each, (*loc, str(key)), names))
            for key, each in value.items()
        }
        return MapNode(SourceText(name, ""), 0, 0, entries, flow=False)
    if isinstance(value, list | tuple):
        items = tuple(data_nodes(each, (*loc, k), names) for k, each in enumerate(value))
        return ListNode(SourceText(name, ""), 0, 0, items, flow=False)
    if value is not None and not isinstance(value, str | int | float):
        message = f"{name}: {value!r} is neither number, text, list nor mapping"
        raise FaultError(Diagnostic("E103", message))
    return _scalar_node(name, value)


def _scalar_node(name: str, value: PlainScalar) -> ScalarNode:
    text = value if isinstance(value, str) else repr(value)
    return ScalarNode(SourceText(name, text), 0, len(text), value, text, "")

"""The tree of a rule as it was written: names are not looked up yet.

Two trees are equal if they say the same; where they stood in the text does not count. `str` of a
tree is its canonical text, and parsing that text gives the tree again.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Literal

from ratecli.errors import Span

NOWHERE = Span(0, 0)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BARE = re.compile(r"[A-Za-z_](?:[\w.+/&-]*\w)?", re.ASCII)
"""A column or value that needs no quotes."""

Comparison = Literal["=", "!=", "<", "<=", ">", ">="]


def quoted(text: str) -> str:
    if BARE.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def as_number(value: str | float) -> float:
    """NaN, which equals nothing, for a word."""
    try:
        return float(value)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Condition:
    """`age >= 30`, `sex = Female`; several values after `=` mean any of them, after `!=` none."""

    column: str
    op: Comparison
    values: tuple[str | float, ...]
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        texts = [quoted(v) if isinstance(v, str) else number(v) for v in self.values]
        right = texts[0] if len(texts) == 1 else "(" + ", ".join(texts) + ")"
        return f"{quoted(self.column)} {self.op} {right}"


@dataclass(frozen=True)
class Member:
    """A bare name in a slice: a group or a data set."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return self.name


SliceItem = Condition | Member


@dataclass(frozen=True)
class Number:
    value: float
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return number(self.value)


@dataclass(frozen=True)
class Name:
    """`tpr`, `kappa`, `recall[d2, women]@validation`, `f_score(2)`, `max_gap(tpr, by=sex)`.

    `by` are the columns, none if there is no `by=`, and `by_spans` their places.
    """

    name: str
    arguments: tuple[Node, ...] | None = None
    by: tuple[str, ...] = ()
    items: tuple[SliceItem, ...] = ()
    split: str | None = None
    span: Span = field(default=NOWHERE, compare=False)
    split_span: Span = field(default=NOWHERE, compare=False)
    by_spans: tuple[Span, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        text = self.name
        if self.arguments is not None:
            inside = [str(argument) for argument in self.arguments]
            if self.by:
                columns = ", ".join(map(quoted, self.by))
                inside.append(f"by={columns}" if len(self.by) == 1 else f"by=({columns})")
            text += "(" + ", ".join(inside) + ")"
        if self.items:
            text += "[" + ", ".join(map(str, self.items)) + "]"
        return text + (f"@{self.split}" if self.split else "")


@dataclass(frozen=True)
class Minus:
    operand: Node
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"-{_wrapped(self.operand, SIGNED)}"


@dataclass(frozen=True)
class Binary:
    op: Literal["+", "-", "*", "/", "**"]
    left: Node
    right: Node
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        level = STRENGTH[self.op]
        if self.op == "**":
            return f"{_wrapped(self.left, level + 1)} ** {_wrapped(self.right, SIGNED)}"
        return f"{_wrapped(self.left, level)} {self.op} {_wrapped(self.right, level + 1)}"


Node = Number | Name | Minus | Binary

STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
SIGNED = 3
"""How strongly a minus in front binds: as in Python, -x ** 2 is -(x ** 2)."""


@dataclass(frozen=True)
class Relation:
    """`a <= b`, `a >= b`, `a <= b <= c`: operands one more than operators."""

    operands: tuple[Node, ...]
    ops: tuple[Literal["<=", ">="], ...]
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        parts = [str(self.operands[0])]
        for op, operand in zip(self.ops, self.operands[1:], strict=True):
            parts += [op, str(operand)]
        return " ".join(parts)


def _strength(node: Node) -> int:
    if isinstance(node, Binary):
        return STRENGTH[node.op]
    return SIGNED if isinstance(node, Minus) else max(STRENGTH.values()) + 1


def _wrapped(node: Node, least: int) -> str:
    return str(node) if _strength(node) >= least else f"({node})"


def moved(node: Node, span: Span) -> Node:
    """The same tree with all of it standing at `span`."""
    match node:
        case Minus():
            return Minus(moved(node.operand, span), span)
        case Binary():
            return Binary(node.op, moved(node.left, span), moved(node.right, span), span)
        case Name(arguments=tuple(arguments)):
            inside = tuple(moved(argument, span) for argument in arguments)
            return replace(node, arguments=inside, span=span)
        case _:
            return replace(node, span=span)

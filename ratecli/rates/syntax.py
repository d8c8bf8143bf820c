"""Syntax trees of rules as written, before names are looked up.

Two trees are equal if they have the same structure; spans are not compared. `str` of a tree returns
its canonical text, and parsing that text gives the same tree.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn, get_args

from ratecli.errors import Diagnostic, FaultError, Span

NO_SPAN = Span(0, 0)
BARE_WORD = re.compile(r"[A-Za-z_](?:[\w.+/&-]*\w)?", re.ASCII)
"""A column or value that needs no quotes."""

SplitName = Literal["train", "validation", "test", "safety"]
SPLITS = get_args(SplitName)
"""The parts of the rows; rows of `safety` are held out of `train` for a safety test."""
Comparison = Literal["=", "!=", "<", "<=", ">", ">="]
COMPARISONS = get_args(Comparison)
Operator = Literal["+", "-", "*", "/", "**"]


def refuse(code: str, message: str, span: Span, help_: str | None = None) -> NoReturn:
    """Raise an error about characters of a rule."""
    raise FaultError(Diagnostic(code, message, help_, span))


def quote(text: str) -> str:
    if BARE_WORD.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def value_text(value: str | float) -> str:
    """Return a value of a column as text; whole numbers have no decimal point."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def parse_number(value: str | float) -> float:
    """Return the number that a value spells, or NaN for a word."""
    try:
        return float(value)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Condition:
    """`age >= 30`, `sex = Female`. Several values mean any of them after `=`, none after `!=`."""

    column: str
    op: Comparison
    values: tuple[str | float, ...]
    span: Span = field(default=NO_SPAN, compare=False)

    def __str__(self) -> str:
        texts = [quote(v) if isinstance(v, str) else value_text(v) for v in self.values]
        right = texts[0] if len(texts) == 1 else "(" + ", ".join(texts) + ")"
        return f"{quote(self.column)} {self.op} {right}"


@dataclass(frozen=True)
class SliceName:
    """A bare name in a slice: a group or a data set."""

    name: str
    span: Span = field(default=NO_SPAN, compare=False)

    def __str__(self) -> str:
        return self.name


SliceItem = Condition | SliceName


@dataclass(frozen=True)
class NumberLiteral:
    value: float
    span: Span = field(default=NO_SPAN, compare=False)

    def __str__(self) -> str:
        return value_text(self.value)


@dataclass(frozen=True)
class NameNode:
    """A metric, function or parameter, such as `recall[women]@test` or `max_gap(tpr, by=sex)`.

    `by` are the columns of `by=`, empty without one, and `by_spans` their spans.
    """

    name: str
    arguments: tuple[SyntaxNode, ...] | None = None
    by: tuple[str, ...] = ()
    items: tuple[SliceItem, ...] = ()
    split: str | None = None
    span: Span = field(default=NO_SPAN, compare=False)
    split_span: Span = field(default=NO_SPAN, compare=False)
    by_spans: tuple[Span, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        text = self.name
        if self.arguments is not None:
            inside = [str(argument) for argument in self.arguments]
            if self.by:
                columns = ", ".join(map(quote, self.by))
                inside.append(f"by={columns}" if len(self.by) == 1 else f"by=({columns})")
            text += "(" + ", ".join(inside) + ")"
        if self.items:
            text += "[" + ", ".join(map(str, self.items)) + "]"
        return text + (f"@{self.split}" if self.split else "")


@dataclass(frozen=True)
class Operation:
    """`a + b`, or `-a` with a single operand."""

    op: Operator
    operands: tuple[SyntaxNode, ...]
    span: Span = field(default=NO_SPAN, compare=False)

    def __str__(self) -> str:
        level = _precedence(self)
        *left, right = self.operands
        if not left:
            return f"-{_parenthesize(right, level)}"
        levels = (level + 1, SIGN_PRECEDENCE) if self.op == "**" else (level, level + 1)
        return f"{_parenthesize(left[0], levels[0])} {self.op} {_parenthesize(right, levels[1])}"


SyntaxNode = NumberLiteral | NameNode | Operation

PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
SIGN_PRECEDENCE = 3
"""How strongly a minus in front binds: as in Python, -x ** 2 is -(x ** 2)."""


@dataclass(frozen=True)
class Relation:
    """`a <= b`, `a >= b`, `a <= b <= c`: operands one more than operators."""

    operands: tuple[SyntaxNode, ...]
    ops: tuple[Literal["<=", ">="], ...]
    span: Span = field(default=NO_SPAN, compare=False)

    def __str__(self) -> str:
        parts = [str(self.operands[0])]
        for op, operand in zip(self.ops, self.operands[1:], strict=True):
            parts += [op, str(operand)]
        return " ".join(parts)


def _precedence(node: SyntaxNode) -> int:
    if isinstance(node, Operation):
        return PRECEDENCE[node.op] if len(node.operands) == 2 else SIGN_PRECEDENCE
    return max(PRECEDENCE.values()) + 1


def _parenthesize(node: SyntaxNode, least: int) -> str:
    return str(node) if _precedence(node) >= least else f"({node})"


def with_span(node: SyntaxNode, span: Span) -> SyntaxNode:
    """Return a tree with the same `span` for all its nodes."""
    match node:
        case Operation(operands=operands):
            return replace(node, operands=tuple(with_span(x, span) for x in operands), span=span)
        case NameNode(arguments=tuple(arguments)):
            inside = tuple(with_span(argument, span) for argument in arguments)
            return replace(node, arguments=inside, span=span)
        case _:
            return replace(node, span=span)

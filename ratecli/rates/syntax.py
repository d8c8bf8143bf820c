"""Syntax trees of rules as written, before names are looked up.

Two trees are equal if they have the same structure; spans are not compared.
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
class Name:
    """A name and its place: a group or data set in a slice, a column after `by=`, or a split."""

    text: str
    span: Span = field(default=NO_SPAN, compare=False)


SliceItem = Condition | Name


@dataclass(frozen=True)
class NumberLiteral:
    value: float
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class NameNode:
    """A metric, function or parameter, such as `recall[women]@test` or `max_gap(tpr, by=sex)`.

    `by` are the columns of `by=`, empty without one.
    """

    name: str
    arguments: tuple[SyntaxNode, ...] | None = None
    by: tuple[Name, ...] = ()
    items: tuple[SliceItem, ...] = ()
    split: Name | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class Operation:
    """`a + b`, or `-a` with a single operand."""

    op: Operator
    operands: tuple[SyntaxNode, ...]
    span: Span = field(default=NO_SPAN, compare=False)


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

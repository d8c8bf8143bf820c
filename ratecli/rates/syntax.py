"""Syntax trees of rules as written, before names are looked up.

Two trees are equal if they have the same structure; spans are not compared.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn, get_args

from ratecli.errors import Diagnostic, FaultError, Span

NO_SPAN = Span(0, 0)
BARE_WORD = re.compile(r"[A-Za-z_](?:[\w.+/&-]*\w)?", re.ASCII)
"""A column or value that needs no quotes."""

_BARE_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
"""A value that is a number and needs no quotes."""

SplitName = Literal["train", "validation", "test", "safety"]
SPLITS = get_args(SplitName)
"""The parts of the rows; rows of `safety` are held out of `train` for a safety test."""
Comparison = Literal["=", "!=", "<", "<=", ">", ">="]
COMPARISONS = get_args(Comparison)
Operator = Literal["+", "-", "*", "/", "**"]
_NEGATED: Mapping[Comparison, Comparison] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?")
"""A day or month (ISO 8601) in a slice: 2024-05-31 or 2024-05."""
MISSING_WORDS = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null"})
"""Words, in lower case, for a missing value in a table."""
PYTHON_NONE = "None"
"""Another such word; `none` is a value."""
KEYWORDS = frozenset({"and", "or", "not", "in"})
"""Words of slices; a column or value with such a name is quoted."""
MAX_CLAUSES = 64
"""Largest number of clauses that one item of a slice may become."""


def refuse(code: str, message: str, span: Span, help_: str | None = None) -> NoReturn:
    """Raise an error about characters of a rule."""
    raise FaultError(Diagnostic(code, message, help_, span))


def has_time(cell: str) -> bool:
    """Whether a cell is a day with a time: 2024-05-31T08:30."""
    return DATE.fullmatch(cell[:10]) is not None and cell[10:11] in {"T", " "}


def is_date(cell: str) -> bool:
    """Whether a cell is a month or a day, perhaps with a time."""
    return DATE.fullmatch(cell) is not None or has_time(cell)


def quote(text: str) -> str:
    if BARE_WORD.fullmatch(text) and text not in KEYWORDS:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def value_text(value: str | float) -> str:
    """Return a value of a column as text; whole numbers have no decimal point."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value.is_integer() and abs(value) <= 2**53 else repr(value)


def _quoted_value(value: str | float) -> str:
    """Return a value of a condition as it is written in a rule, numbers without quotes."""
    text = value_text(value)
    return text if _BARE_NUMBER.fullmatch(text) else quote(text)


def parse_number(value: str | float) -> float:
    """Return the number that a value spells, or NaN if it is a word; `1_000` is a word."""
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        return math.nan
    try:
        return float(value)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Condition:
    """`age >= 30`, `sex = Female`, `applied < 2024-05-31`.

    Several values mean any of them after `=`, none after `!=`, and are written with `in`. Such
    values are texts: 01 and 1 are two values of a column of text, and the same number. The other
    comparisons take a number or a date, with which as much of each cell is compared: 2024-05
    includes all days of May.
    """

    column: str
    op: Comparison
    values: tuple[str | float, ...]
    span: Span = field(default=NO_SPAN, compare=False)

    @property
    def date(self) -> str:
        """The date that cells are compared with, "" if it is a number or for `=` and `!=`."""
        value = self.values[0]
        return value if self.op not in {"=", "!="} and isinstance(value, str) else ""

    def has_date(self, cell: object) -> bool:
        """Return whether a cell is a date as exact as the one it is compared with, maybe a time."""
        if DATE.fullmatch(str(cell)):
            return len(str(cell)) >= len(self.date)
        return has_time(str(cell))

    def __str__(self) -> str:
        texts = [_quoted_value(value) for value in self.values]
        if len(texts) == 1:
            return f"{quote(self.column)} {self.op} {texts[0]}"
        return f"{quote(self.column)} {'in' if self.op == '=' else 'not in'} ({', '.join(texts)})"

    @property
    def atoms(self) -> tuple[Condition, ...]:
        return (self,)

    def negated(self) -> Condition:
        """Return the condition of the other rows that have a value in the column."""
        return replace(self, op=_NEGATED[self.op])


@dataclass(frozen=True)
class AnyOf:
    """`age < 30 or sex = Female`: at least one of several conditions holds."""

    atoms: tuple[Condition, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.atoms))


Clause = Condition | AnyOf
"""A row is in a slice if all its clauses hold."""


@dataclass(frozen=True)
class Name:
    """A name and its place: a group or data set in a slice, a column after `by=`, or a split."""

    text: str
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class Junction:
    """`a and b`, `a or b`, or `not a` with a single item."""

    op: Literal["and", "or", "not"]
    items: tuple[SliceItem, ...]
    span: Span = field(default=NO_SPAN, compare=False)


SliceItem = Condition | Name | Junction


def item_clauses(item: SliceItem, find: Callable[[Name], tuple[Clause, ...]]) -> tuple[Clause, ...]:
    """Return clauses that all hold for exactly the rows of an item of a slice.

    As in SQL, a comparison and its negation are both false where the column is missing. `find`
    returns the clauses of a name. Raises E302 if there would be too many clauses.
    """
    if isinstance(item, Condition):
        return (item,)
    if isinstance(item, Name):
        return find(item)
    parts = [item_clauses(each, find) for each in item.items]
    if item.op == "and":
        return tuple(itertools.chain(*parts))
    if item.op == "or":
        return _any_of(parts, item.span)
    return _any_of([tuple(x.negated() for x in each.atoms) for each in parts[0]], item.span)


def _any_of(parts: Sequence[tuple[Clause, ...]], span: Span) -> tuple[Clause, ...]:
    """Return clauses of the rows for which all clauses of at least one part hold."""
    if math.prod(map(len, parts)) > MAX_CLAUSES:
        refuse("E302", f"this slice has more than {MAX_CLAUSES} conditions", span)
    found = []
    for choice in itertools.product(*parts):
        atoms = {str(atom): atom for clause in choice for atom in clause.atoms}
        ordered = tuple(atoms[text] for text in sorted(atoms))
        found.append(ordered[0] if len(ordered) == 1 else AnyOf(ordered))
    return tuple(found)


@dataclass(frozen=True)
class NumberLiteral:
    value: float
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class NameNode:
    """A metric, function or parameter, such as `recall[women]@test` or `max_gap(tpr, by=sex)`.

    `by` are the columns of `by=`, empty without one; `joint` if their values are combined, as in
    `by=[sex, race]`. `min_rows` is the argument of this name.
    """

    name: str
    arguments: tuple[SyntaxNode, ...] | None = None
    by: tuple[Name, ...] = ()
    joint: bool = False
    min_rows: NumberLiteral | None = None
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


def walk(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """Yield every node of a tree, parents before children."""
    yield node
    match node:
        case Operation(operands=inner) | NameNode(arguments=tuple(inner)):
            for part in inner:
                yield from walk(part)

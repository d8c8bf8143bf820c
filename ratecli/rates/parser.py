"""Parse rules into syntax trees with a Pratt parser, recording the span of every token.

    rule       = sum (("<=" | ">=") sum)*
    sum        = product (("+" | "-") product)*
    product    = signed (("*" | "/") signed)*
    signed     = "-" signed | power
    power      = atom ["**" signed]
    atom       = number ["%"] | "(" sum ")" | name ["(" arguments ")"] ["[" slice "]"] ["@" split]
    arguments  = [sum ("," sum)*] ["," "by" "=" (column | "(" column ("," column)* ")")]
    slice      = item ("," item)*
    item       = name | column ("=" | "!=" | "<" | "<=" | ">" | ">=") (value | "(" value, ... ")")

Nothing is evaluated. Text longer than `MAX_LENGTH` characters, nested deeper than `MAX_DEPTH`
levels or with more than `MAX_OPERATORS` operators is refused, which bounds the recursion of later
passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import NoReturn, TypeVar, cast

from ratecli.errors import Diagnostic, FaultError, Span
from ratecli.rates.syntax import (
    PRECEDENCE,
    BinaryOperation,
    Comparison,
    Condition,
    NameNode,
    Negation,
    NumberLiteral,
    Relation,
    SliceItem,
    SliceName,
    SyntaxNode,
)

T = TypeVar("T")

ColumnSpans = tuple[tuple[str, Span], ...]
"""Column names with their spans."""

MAX_LENGTH = 2000
MAX_DEPTH = 40
MAX_OPERATORS = 100

_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"<=|>=|!=|==|\*\*|\^|[-+*/()\[\],@%=<>]")
_BARE_VALUE = re.compile(r"[^\s,()\[\]\"'=<>!]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"|\'([^\']*)\'')
_COMPARISON = re.compile(r"!=|<=|>=|==|=|<|>")


def parse_constraint(text: str) -> Relation:
    """Parse a constraint such as `tpr[women] >= 0.8 * tpr`.

    Raises
    ------
    FaultError
        E301 (syntax), E302 (too long or too deep), E303 (not a comparison); with spans in `text`.
    """
    tree = _Parser(text).whole()
    if not isinstance(tree, Relation):
        raise_diagnostic(
            "E303",
            f"'{text.strip()}' is a value, a constraint is a comparison",
            tree.span,
            "write it as `value <= bound` or `value >= bound`",
        )
    return tree


def parse_expression(text: str) -> SyntaxNode:
    """Parse an objective or a metric: the same language without comparisons."""
    tree = _Parser(text).whole()
    if isinstance(tree, Relation):
        raise_diagnostic(
            "E303",
            f"'{text.strip()}' is a comparison where a value is wanted",
            tree.span,
            "comparisons stand under `constraints`",
        )
    return tree


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Parse a group: comma-separated conditions, all of which must hold."""
    parser = _Parser(text)
    items = parser.slice_items(until="")
    for item in items:
        if isinstance(item, SliceName):
            raise_diagnostic(
                "E301",
                f"'{item}' is no condition",
                item.span,
                "a group is `column = value`, with <, <=, >, >=, != too; commas mean `and`",
            )
    return cast("tuple[Condition, ...]", items)


def raise_diagnostic(code: str, message: str, span: Span, help_: str | None = None) -> NoReturn:
    raise FaultError(Diagnostic(code, message, help_, span))


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise_diagnostic(
                "E302",
                f"a rule of {len(text)} characters",
                Span(0, len(text)),
                f"at most {MAX_LENGTH} are read",
            )
        self.text = text
        self.at = 0
        self.depth = 0
        self.operators = 0

    # tokens

    def blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def operator(self) -> str:
        """Return the next operator without consuming it, or ""."""
        self.blank()
        found = _OPERATOR.match(self.text, self.at)
        return found[0] if found else ""

    def take(self, operator: str) -> bool:
        if self.operator() != operator:
            return False
        self.at += len(operator)
        return True

    def take_counted(self, operator: str) -> None:
        self.take(operator)
        self.operators += 1
        if self.operators > MAX_OPERATORS:
            raise_diagnostic(
                "E302", f"more than {MAX_OPERATORS} operators", Span(self.at - 1, self.at)
            )

    def expect(self, operator: str, after: str) -> None:
        if not self.take(operator):
            self.unexpected(f"'{operator}' is missing after {after}")

    def match(self, pattern: re.Pattern[str]) -> tuple[str, Span] | None:
        self.blank()
        found = pattern.match(self.text, self.at)
        if not found:
            return None
        self.at = found.end()
        return found[0], Span(*found.span())

    def unexpected(self, message: str) -> NoReturn:
        self.blank()
        if self.at >= len(self.text):
            end = max(len(self.text.rstrip()), 1)
            raise_diagnostic("E301", f"{message}: the rule ends here", Span(end - 1, end))
        word = _BARE_VALUE.match(self.text, self.at)
        token = self.operator() or (word[0] if word else self.text[self.at])
        helps = {
            "^": "write r ** 2 for a power",
            "==": "write two rules, one with <= and one with >=",
            "=": "write <= or >=; `=` only compares a column in a slice",
            "<": "write <=; rates come in steps, strictness means nothing here",
            ">": "write >=; rates come in steps, strictness means nothing here",
        }
        raise_diagnostic(
            "E301",
            f"{message}, found '{token}'",
            Span(self.at, self.at + len(token)),
            helps.get(token),
        )

    # rules

    def whole(self) -> SyntaxNode | Relation:
        tree = self.relation()
        if self.operator() or self.at < len(self.text):
            self.unexpected("an operator or the end is wanted")
        return tree

    def since(self, start: int) -> Span:
        """Return the span from `start` to the end of the last token."""
        return Span(start, len(self.text[: self.at].rstrip()))

    def relation(self) -> SyntaxNode | Relation:
        self.blank()
        start = self.at
        operands, ops = [self.sum()], []
        while (op := self.operator()) in {"<=", ">="}:
            self.take(op)
            ops.append(op)
            operands.append(self.sum())
        if not ops:
            return operands[0]
        if len(set(ops)) > 1:
            raise_diagnostic(
                "E301", "a chain mixes <= and >=", self.since(start), "write two rules"
            )
        return Relation(tuple(operands), tuple(ops), self.since(start))  # type: ignore[arg-type]

    def sum(self, least: int = 1) -> SyntaxNode:
        self.blank()
        start = self.at
        left = self.signed()
        while (level := PRECEDENCE.get(op := self.operator(), 0)) >= least:
            self.take_counted(op)
            right = self.sum(level + 1)
            left = BinaryOperation(op, left, right, self.since(start))  # type: ignore[arg-type]
        return left

    def signed(self) -> SyntaxNode:
        self.blank()
        start = self.at
        if self.take("-"):
            operand = self.deeper(self.signed)
            return Negation(operand, self.since(start))
        return self.power()

    def power(self) -> SyntaxNode:
        start = self.at
        base = self.atom()
        if self.operator() != "**":
            return base
        self.take_counted("**")
        exponent = self.deeper(self.signed)
        return BinaryOperation("**", base, exponent, self.since(start))

    def deeper(self, parse: Callable[[], T]) -> T:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise_diagnostic(
                "E302", f"nested deeper than {MAX_DEPTH} levels", Span(self.at, self.at + 1)
            )
        result = parse()
        self.depth -= 1
        return result

    def atom(self) -> SyntaxNode:
        self.blank()
        start = self.at
        if self.take("("):
            inside = self.deeper(self.sum)
            self.expect(")", "the bracketed part")
            return inside
        if found := self.match(_NUMBER):
            return self.number(*found)
        if found := self.match(_WORD):
            return self.name(found[0], start)
        return self.unexpected("a number, a rate or '(' is wanted")

    def number(self, text: str, span: Span) -> NumberLiteral:
        value = float(text)
        if not math.isfinite(value):
            raise_diagnostic("E301", f"{text} is larger than any number can be", span)
        if self.take("%"):
            return NumberLiteral(value / 100, Span(span.start, self.at))
        return NumberLiteral(value, span)

    def name(self, name: str, start: int) -> NameNode:
        arguments: tuple[SyntaxNode, ...] | None = None
        by: ColumnSpans = ()
        if self.take("("):
            arguments, by = self.deeper(self.arguments)
        items: tuple[SliceItem, ...] = ()
        if self.take("["):
            items = self.slice_items(until="]")
            self.expect("]", "the slice")
        split, split_span = None, Span(start, start)
        if self.take("@"):
            found = self.match(_WORD)
            if not found:
                self.unexpected("the name of a split is wanted after '@'")
            split, split_span = found
        columns, spans = tuple(column for column, _ in by), tuple(span for _, span in by)
        return NameNode(
            name, arguments, columns, items, split, self.since(start), split_span, spans
        )

    def arguments(self) -> tuple[tuple[SyntaxNode, ...], ColumnSpans]:
        values: list[SyntaxNode] = []
        by: ColumnSpans = ()
        if self.take(")"):
            return (), by
        while True:
            before = self.at
            word = self.match(_WORD)
            if word and word[0] == "by" and self.take("="):
                by = self.columns()
                break
            self.at = before
            values.append(self.sum())
            if not self.take(","):
                break
        self.expect(")", "the arguments")
        return tuple(values), by

    def columns(self) -> ColumnSpans:
        if not self.take("("):
            return (self.column("`by=`"),)
        found = [self.column("`by=`")]
        while self.take(","):
            found.append(self.column("`by=`"))
        self.expect(")", "the columns")
        return tuple(found)

    # slices

    def slice_items(self, until: str) -> tuple[SliceItem, ...]:
        items = [self.slice_item()]
        while self.take(","):
            items.append(self.slice_item())
        if not until and self.at < len(self.text):
            self.unexpected("a comma or the end is wanted")
        return tuple(items)

    def slice_item(self) -> SliceItem:
        column, span = self.column("a slice")
        op = self.match(_COMPARISON)
        if op and op[0] == "==":
            raise_diagnostic("E301", "'==' compares nothing here", op[1], "write a single =")
        if not op:
            if not _WORD.fullmatch(column):
                self.unexpected(f"a comparison is wanted after '{column}'")
            return SliceName(column, span)
        values = self.values(op[0])
        return Condition(column, cast("Comparison", op[0]), values, Span(span.start, self.at))

    def values(self, op: str) -> tuple[str | float, ...]:
        if op not in {"=", "!="}:
            self.blank()
            start = self.at
            value = self.value()
            if isinstance(value, str):
                raise_diagnostic(
                    "E301",
                    f"'{op}' compares with a number, not with '{value}'",
                    Span(start, self.at),
                )
            return (value,)
        if not self.take("("):
            return (self.value(),)
        values = [self.value()]
        while self.take(","):
            values.append(self.value())
        self.expect(")", "the values")
        return tuple(values)

    def column(self, what: str) -> tuple[str, Span]:
        self.blank()
        start = self.at
        if text := self.quoted():
            return text, Span(start, self.at)
        found = self.match(_BARE_VALUE)
        if not found or not (found[0][0].isalpha() or found[0][0] == "_"):
            self.at = start
            self.unexpected(f"a name is wanted in {what}")
        return found

    def value(self) -> str | float:
        if (text := self.quoted()) is not None:
            return text
        found = self.match(_BARE_VALUE)
        if not found:
            self.unexpected("a value is wanted")
        bare = found[0]
        try:
            parsed = float(bare)
        except ValueError:
            return bare
        return parsed if math.isfinite(parsed) else bare

    def quoted(self) -> str | None:
        self.blank()
        found = _QUOTED.match(self.text, self.at)
        if not found:
            return None
        self.at = found.end()
        if found[1] is None:
            return found[2]
        return re.sub(r"\\(.)", r"\1", found[1])

"""Parse rules into syntax trees with a Pratt parser, recording the span of every token.

    rule       = sum (("<=" | ">=") sum)*
    sum        = product (("+" | "-") product)*
    product    = signed (("*" | "/") signed)*
    signed     = "-" signed | power
    power      = atom ["**" signed]
    atom       = number ["%"] | "(" sum ")" | name ["(" arguments ")"] ["[" slice "]"] ["@" split]
    arguments  = [sum ("," sum)*] ["," "by" "=" columns ["," "min_rows" "=" number]]
    columns    = column | "(" column ("," column)* ")" | "[" column ("," column)* "]"
    slice      = item ("," item)*
    item       = both ("or" both)*
    both       = single ("and" single)*
    single     = "not" single | "(" item ")" | name | condition
    condition  = column (compared | ["not"] "in") (value | "(" value ("," value)* ")")
    compared   = "=" | "!=" | "<" | "<=" | ">" | ">="

Nothing is evaluated. Text longer than `MAX_LENGTH` characters, nested deeper than `MAX_DEPTH`
levels or with more than `MAX_OPERATORS` operators is refused, which bounds the recursion of later
passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NoReturn, TypeVar, cast

from ratecli.errors import Span
from ratecli.rates.syntax import (
    COMPARISONS,
    DATE,
    KEYWORDS,
    PRECEDENCE,
    Clause,
    Comparison,
    Condition,
    Junction,
    Name,
    NameNode,
    NumberLiteral,
    Operation,
    Operator,
    Relation,
    SliceItem,
    SyntaxNode,
    item_clauses,
    parse_number,
    quote,
    refuse,
)

T = TypeVar("T")

MAX_LENGTH = 2000
MAX_DEPTH = 40
MAX_OPERATORS = 100

_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"<=|>=|!=|==|\*\*|\^|[-+*/()\[\],@%=<>]")
_BARE_VALUE = re.compile(r"[^\s,()\[\]\"'=<>!]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"|\'([^\']*)\'')
_HELPS = {
    "^": "write r ** 2 for a power",
    "==": "write two rules, one with <= and one with >=; in a slice, write a single =",
    "=": "write <= or >=; a slice has brackets: recall[sex = Female]",
    **dict.fromkeys("≤≥≠", "write <= or >=; in a slice, also !="),
    ",": "write decimals with a point: 0.8",
    "<": "write <=; strict comparisons are not supported",
    ">": "write >=; strict comparisons are not supported",
    **dict.fromkeys(("&", "&&"), "write `and`"),
    **dict.fromkeys(("|", "||"), "write `or`"),
    "and": "write two constraints",
    "between": "write both ends: age >= 30 and age < 40",
    "is": "write >= or <=; in a slice, column = value; rows without a value are in no slice, "
    "unless the cell contains a word, such as unknown",
}
"""Help for operators of other languages."""
_SPACES = "put a name or value with spaces in quotes: 'length of stay'"
_FIRST_WORDS = {
    "maximize": "objectives are minimized: write a minus before what should be large",
    "minimize": "objectives are minimized anyway: leave 'minimize' out",
}


def parse_constraint(text: str) -> Relation:
    """Parse a constraint such as `tpr[women] >= 0.8 * tpr`.

    Raises
    ------
    FaultError
        E301 (syntax), E302 (too long or too deep), E303 (not a comparison); with spans in `text`.
    """
    tree = _Parser(text).whole()
    if not isinstance(tree, Relation):
        message = f"'{text.strip()}' is a value, but a constraint must be a comparison"
        refuse("E303", message, tree.span, "write it as `value <= bound` or `value >= bound`")
    return tree


def parse_expression(text: str, place: Span | None = None) -> SyntaxNode:
    """Parse an objective or a metric: the same language without comparisons.

    All nodes have the span `place` if the text is the definition of a name that stands there.
    """
    tree = _Parser(text, place).whole()
    if isinstance(tree, Relation):
        message = f"'{text.strip()}' is a comparison where a value is expected"
        refuse("E303", message, tree.span, "comparisons belong under `constraints`")
    return tree


def parse_conditions(text: str) -> tuple[Clause, ...]:
    """Parse a group: comma-separated conditions, all of which must hold."""
    parser = _Parser(text)
    items = parser.listed(parser.slice_item)
    if parser.at < len(text):
        parser.unexpected("`and`, `or`, a comma or the end is expected", _SPACES)

    def refuse_name(name: Name) -> NoReturn:
        help_ = (
            "a group is `column = value`, with <, <=, >, >=, != too; commas mean `and`; repeat the "
            "conditions of another group instead of its name"
        )
        refuse("E301", f"'{name.text}' is not a condition", name.span, help_)

    return tuple(clause for item in items for clause in item_clauses(item, refuse_name))


class _Parser:
    def __init__(self, text: str, place: Span | None = None) -> None:
        if len(text) > MAX_LENGTH:
            message = f"a rule of {len(text)} characters is longer than {MAX_LENGTH}"
            refuse("E302", message, Span(0, len(text)))
        self.text, self.place = text, place
        self.at = 0
        self.depth = 0
        self.operators = 0

    # tokens

    def start(self) -> int:
        """Skip blanks and return the position of the next token."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at

    def since(self, start: int) -> Span:
        """Return the span from `start` to the end of the last token."""
        return self.place or Span(start, len(self.text[: self.at].rstrip()))

    def operator(self) -> str:
        """Return the next operator without consuming it, or ""."""
        found = _OPERATOR.match(self.text, self.start())
        return found[0] if found else ""

    def take(self, operator: str) -> bool:
        if self.operator() != operator:
            return False
        self.at += len(operator)
        return True

    def take_counted(self, operator: str) -> None:
        """Take an operator and raise E302 if there have been too many."""
        self.take(operator)
        self.operators += 1
        if self.operators > MAX_OPERATORS:
            span = Span(self.at - 1, self.at)
            refuse("E302", f"more than {MAX_OPERATORS} operators", span)

    def take_word(self, word: str, after: str = "") -> bool:
        """Take a word and the operator `after` it, if both are next."""
        before = self.at
        found = self.match(_WORD)
        if found and found[0] == word and (not after or self.take(after)):
            return True
        self.at = before
        return False

    def expect(self, operator: str, after: str, hint: str | None = None) -> None:
        if not self.take(operator):
            self.unexpected(f"'{operator}' is missing after {after}", hint)

    def match(self, pattern: re.Pattern[str]) -> tuple[str, Span] | None:
        found = pattern.match(self.text, self.start())
        if not found:
            return None
        self.at = found.end()
        return found[0], self.since(found.start())

    def unexpected(self, message: str, hint: str | None = None) -> NoReturn:
        if self.start() >= len(self.text):
            end = max(len(self.text.rstrip()), 1)
            refuse("E301", f"{message}: the rule ends here", Span(end - 1, end))
        word = _BARE_VALUE.match(self.text, self.at)
        token = self.operator() or (word[0] if word else self.text[self.at])
        span = Span(self.at, self.at + len(token))
        first = self.text.split(maxsplit=1)[0].lower()
        known = _FIRST_WORDS.get(first) or _HELPS.get(token if token.isascii() else token[0])
        refuse("E301", f"{message}, found '{token}'", span, known or hint)

    # rules

    def whole(self) -> SyntaxNode | Relation:
        tree = self.relation()
        if self.operator() or self.at < len(self.text):
            self.unexpected("an operator or the end is expected")
        return tree

    def relation(self) -> SyntaxNode | Relation:
        start = self.start()
        operands, ops = [self.sum()], []
        while (op := self.operator()) in {"<=", ">="}:
            self.take(op)
            ops.append(op)
            operands.append(self.sum())
        if not ops:
            return operands[0]
        if len(set(ops)) > 1:
            refuse("E301", "a chain mixes <= and >=", self.since(start), "write two rules")
        return Relation(tuple(operands), tuple(ops), self.since(start))  # type: ignore[arg-type]

    def sum(self, least: int = 1) -> SyntaxNode:
        start = self.start()
        left = self.signed()
        while (level := PRECEDENCE.get(op := self.operator(), 0)) >= least:
            self.take_counted(op)
            right = self.sum(level + 1)
            left = Operation(cast("Operator", op), (left, right), self.since(start))
        return left

    def signed(self) -> SyntaxNode:
        start = self.start()
        if self.take("-"):
            operand = self.deeper(self.signed)
            return Operation("-", (operand,), self.since(start))
        base = self.atom()
        if self.operator() != "**":
            return base
        self.take_counted("**")
        exponent = self.deeper(self.signed)
        return Operation("**", (base, exponent), self.since(start))

    def deeper(self, parse: Callable[[], T]) -> T:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            span = Span(self.at, self.at + 1)
            refuse("E302", f"nested deeper than {MAX_DEPTH} levels", span)
        result = parse()
        self.depth -= 1
        return result

    def atom(self) -> SyntaxNode:
        if self.take("("):
            inside = self.deeper(self.sum)
            self.expect(")", "the bracketed part")
            return inside
        if found := self.match(_NUMBER):
            value, span = float(found[0]), found[1]
            if not math.isfinite(value):
                refuse("E301", f"{found[0]} is larger than any number can be", span)
            percent = self.take("%")
            return NumberLiteral(value / 100 if percent else value, self.since(span.start))
        if found := self.match(_WORD):
            return self.name(*found)
        return self.unexpected("a number, a rate or '(' is expected")

    def name(self, name: str, place: Span) -> NameNode:
        node = NameNode(name)
        items: tuple[SliceItem, ...] = ()
        split = None
        if self.take("("):
            node = self.deeper(lambda: self.arguments(node))
        if self.take("["):
            items = self.listed(self.slice_item)
            hint = "write ] before it" if self.operator() in {"<=", ">="} else _SPACES
            self.expect("]", "the slice", hint)
        if self.take("@"):
            found = self.match(_WORD)
            if not found:
                self.unexpected("the name of a split is expected after '@'")
            split = Name(*found)
        return replace(node, items=items, split=split, span=self.since(place.start))

    def arguments(self, node: NameNode) -> NameNode:
        """Return the node with its arguments, the columns of `by=` and `min_rows`."""
        values: list[SyntaxNode] = []
        if self.take(")"):
            return replace(node, arguments=())
        more = True
        while more and not self.take_word("by", "="):
            values.append(self.sum())
            more = self.take(",")
        columns: tuple[Name, ...] = ()
        joint, min_rows = False, None
        if more:
            joint = self.take("[")
            if joint:
                columns = self.listed(lambda: self.column("`by=`"))
                self.expect("]", "the columns")
            else:
                columns = self.one_or_several(lambda: self.column("`by=`"), "the columns")
            if self.take(","):
                if not self.take_word("min_rows", "="):
                    hint = "put several columns in brackets: by=[sex, race]"
                    if self.take_word("bins"):
                        self.at -= len("bins")
                        hint = "cut the column in the file: bins: {age: [30, 50]}"
                    self.unexpected("after the columns, only `min_rows=` is expected", hint)
                found = self.match(_NUMBER)
                if found is None:
                    self.unexpected("a number is expected")
                min_rows = NumberLiteral(float(found[0]), found[1])
                if not min_rows.value.is_integer():  # infinite, too
                    refuse("E301", f"{found[0]} is not a whole number of rows", found[1])
        self.expect(")", "the arguments", _SPACES if columns else None)
        return replace(node, arguments=tuple(values), by=columns, joint=joint, min_rows=min_rows)

    # lists and slices

    def listed(self, parse: Callable[[], T]) -> tuple[T, ...]:
        found = [parse()]
        while self.take(","):
            found.append(parse())
        return tuple(found)

    def one_or_several(self, parse: Callable[[], T], what: str) -> tuple[T, ...]:
        """Parse `x` or `(x, y, ...)`, or the same in square brackets."""
        close = ")" if self.take("(") else "]" if self.take("[") else ""
        if not close:
            return (parse(),)
        found = self.listed(parse)
        self.expect(close, what, _SPACES)
        return found

    def slice_item(self) -> SliceItem:
        return self.junction("or", lambda: self.junction("and", self.single))

    def junction(self, op: Literal["and", "or"], parse: Callable[[], SliceItem]) -> SliceItem:
        start = self.start()
        items = [parse()]
        while self.take_word(op):
            items.append(parse())
        return items[0] if len(items) == 1 else Junction(op, tuple(items), self.since(start))

    def single(self) -> SliceItem:
        start = self.start()
        if self.take_word("not"):
            return Junction("not", (self.deeper(self.single),), self.since(start))
        if self.take("("):
            inside = self.deeper(self.slice_item)
            self.expect(")", "the conditions")
            return inside
        column = self.column("a slice")
        before, negated = self.at, self.take_word("not")
        if self.take_word("in"):
            op = "!=" if negated else "="
        else:
            self.at, op = before, self.operator()
            if op not in COMPARISONS:
                if not _WORD.fullmatch(column.text):
                    self.unexpected(f"a comparison is expected after '{column.text}'", _SPACES)
                return column
            self.take(op)
        values: tuple[str | float, ...]
        if op in {"=", "!="}:
            values = self.one_or_several(self.value, "the values")
        else:
            start, text = self.start(), self.value()
            value = parse_number(text)
            if not math.isfinite(value) and not DATE.fullmatch(text):
                message = f"'{op}' compares with a number or a date, not with '{text}'"
                hint = (
                    f"write a number, as in {quote(column.text)} {op} 30, or a date, as in "
                    "2024-05-31; text is compared with = or !="
                )
                refuse("E301", message, Span(start, self.at), hint)
            values = (value if math.isfinite(value) else text,)
        span = Span(column.span.start, self.at)
        return Condition(column.text, cast("Comparison", op), values, span)

    def column(self, what: str) -> Name:
        start = self.start()
        if text := self.quoted():
            return Name(text, Span(start, self.at))
        found = self.match(_BARE_VALUE)
        named = found is not None and (found[0][0].isalpha() or found[0][0] == "_")
        if not found or not named or found[0] in KEYWORDS:
            self.at = start
            hint = "write the column first, and `and` for both ends: age >= 30 and age < 40"
            starts_with_number = found is not None and math.isfinite(parse_number(found[0]))
            self.unexpected(f"a name is expected in {what}", hint if starts_with_number else None)
        return Name(*found)

    def value(self) -> str:
        if (text := self.quoted()) is not None:
            return text
        found = self.match(_BARE_VALUE)
        if not found:
            self.unexpected("a value is expected")
        return found[0]

    def quoted(self) -> str | None:
        found = _QUOTED.match(self.text, self.start())
        if not found:
            return None
        self.at = found.end()
        return found[2] if found[1] is None else re.sub(r"\\(.)", r"\1", found[1])

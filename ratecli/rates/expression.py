"""Resolved expressions: arithmetic over rates of slices, with every name looked up.

Build expressions with `add`, `multiply`, `divide`, `power` and `apply`. They fold constants, so
that two spellings of the same number give the same tree. `to_text` returns canonical text in
ratecli's own language, with groups written out as conditions, so that renaming a group does not
change stored text. The module also expands the templates and metrics with `by=` (`max_gap`,
`imbalance`, ...).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ratecli.errors import Span
from ratecli.rates import syntax
from ratecli.rates.functions import FUNCTIONS, OPERATIONS, Function
from ratecli.rates.syntax import NO_SPAN, PRECEDENCE, SIGN_PRECEDENCE, Clause, Condition, refuse
from ratecli.rates.table import BALANCE_METRICS, DISCLOSIVITY, RATES, TEMPLATES, Rate


@dataclass(frozen=True)
class Slice:
    """The rows a rate is measured on: rows of these data sets that satisfy all conditions.

    Without `datasets`, rows of all data sets are included.
    """

    datasets: tuple[str, ...] = ()
    conditions: tuple[Clause, ...] = ()

    @classmethod
    def of(cls, datasets: Iterable[str], conditions: Iterable[Clause]) -> Slice:
        """Return the slice with its data sets and conditions sorted and without duplicates."""
        unique = {str(condition): condition for condition in conditions}
        return cls(tuple(sorted(set(datasets))), tuple(unique[text] for text in sorted(unique)))

    @property
    def atoms(self) -> tuple[Condition, ...]:
        """Every comparison with a column in the conditions."""
        return tuple(atom for clause in self.conditions for atom in clause.atoms)

    @property
    def visible(self) -> Slice:
        """The slice without its data sets, which a row's columns do not reveal."""
        return Slice((), self.conditions)

    @property
    def everyone(self) -> Slice:
        """All rows of the same data sets."""
        return Slice(self.datasets)

    def __str__(self) -> str:
        return ", ".join([*self.datasets, *map(str, self.conditions)]) or "all rows"


ALL_ROWS = Slice()


@dataclass(frozen=True)
class Constant:
    value: float
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class Leaf:
    """A rate of a slice. If `split` is None, the rate is measured on the split being evaluated."""

    rate: Rate
    where: Slice = ALL_ROWS
    split: str | None = None
    span: Span = field(default=NO_SPAN, compare=False)

    def __str__(self) -> str:
        return to_text(self)

    @property
    def over(self) -> Slice:
        """The rows to average over: the slice, or all rows of its data sets for a `whole` rate."""
        return self.where.everyone if self.rate.whole else self.where


@dataclass(frozen=True)
class RankingMeasure:
    """A ranking measure of a slice (roc_auc, pr_auc)."""

    name: str
    where: Slice = ALL_ROWS
    split: str | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class Disclosure:
    """`disclosivity(by=...)`: how much the decision on a row reveals about its value of a column.

    Attributes
    ----------
    by
        The columns. The largest disclosivity among them counts.
    columns
        For each column, `joint_rate` of each of its values; these leaves define which rows have
        which value.
    """

    by: tuple[str, ...]
    columns: tuple[tuple[Leaf, ...], ...]
    split: str | None = None
    span: Span = field(default=NO_SPAN, compare=False)

    @property
    def groups(self) -> tuple[Leaf, ...]:
        """The leaves of all columns."""
        return tuple(itertools.chain(*self.columns))

    @property
    def where(self) -> Slice:
        """The rows that the disclosivity is measured on."""
        return self.groups[0].over


@dataclass(frozen=True)
class AlgorithmMetric:
    """`of(algorithm, metric)`: a metric of another algorithm, known once its trial has run.

    `algorithm` is `rates.table.DEPLOYED` for the deployed model, which needs no trial of its own.
    """

    algorithm: str
    metric: Expression
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True)
class Apply:
    """A function applied to expressions.

    `function` is a name in `rates.functions.OPERATIONS`, such as "sum", "product", "quotient",
    "power" and "max".
    """

    function: str
    arguments: tuple[Expression, ...]
    span: Span = field(default=NO_SPAN, compare=False)

    @property
    def operation(self) -> Function:
        return OPERATIONS[self.function]


MeasuredNode = Leaf | RankingMeasure | Disclosure
"""Nodes that are measured directly on rows."""

Expression = Constant | MeasuredNode | AlgorithmMetric | Apply


def add(*summands: Expression, span: Span = NO_SPAN) -> Expression:
    """Return the sum, with nested sums flattened and constants combined into one last term."""
    flat: list[Expression] = []
    constant = 0.0
    for summand in summands:
        for part in terms(summand):
            if isinstance(part, Constant):
                constant += part.value
            else:
                flat.append(part)
    if constant or not flat:
        flat.append(Constant(constant, span))
    return flat[0] if len(flat) == 1 else Apply("sum", tuple(flat), span)


def multiply(left: Expression, right: Expression, span: Span = NO_SPAN) -> Expression:
    """Return the product with a constant factor first, distributed over sums and folded.

    The product of two equal expressions is a power.
    """
    if isinstance(right, Constant) and not isinstance(left, Constant):
        left, right = right, left
    if not isinstance(left, Constant):
        if left == right:
            return power(left, Constant(2.0), span)
        return Apply("product", (left, right), span)
    factor = left.value
    match right:
        case Constant(value):
            return Constant(factor * value, span)
        case Apply("sum", terms):
            return add(*(multiply(left, term, span) for term in terms), span=span)
        case Apply("product", (Constant(value), rest)):
            return multiply(Constant(factor * value), rest, span)
    if factor == 0:
        return Constant(0.0, span)
    return right if factor == 1 else Apply("product", (left, right), span)


def negate(operand: Expression, span: Span | None = None) -> Expression:
    return multiply(Constant(-1.0), operand, span or operand.span)


def subtract(left: Expression, right: Expression, span: Span = NO_SPAN) -> Expression:
    return add(left, negate(right), span=span)


def divide(numerator: Expression, denominator: Expression, span: Span = NO_SPAN) -> Expression:
    """Return the quotient. Raise E311 if the denominator is the constant 0."""
    if not isinstance(denominator, Constant):
        return Apply("quotient", (numerator, denominator), span)
    if denominator.value == 0:
        refuse("E311", "division by zero", denominator.span)
    if isinstance(numerator, Constant):
        return Constant(numerator.value / denominator.value, span)
    return multiply(Constant(1 / denominator.value), numerator, span)


def apply(function: str, arguments: tuple[Expression, ...], span: Span = NO_SPAN) -> Expression:
    """Return a function call. Raise E311 if a constant argument is outside its domain."""
    if function in SIGNS:
        return OPERATORS[SIGNS[function]](*arguments, span=span)
    row = FUNCTIONS[function]
    low, high = row.domain
    for argument in arguments:
        if isinstance(argument, Constant) and not low <= argument.value <= high:
            message = f"{function} of {argument.value:g} is not defined"
            refuse("E311", message, argument.span, f"it is defined from {low:g} to {high:g}")
    values = [argument.value for argument in arguments if isinstance(argument, Constant)]
    if len(values) == len(arguments):
        return Constant(row.value(*values), span)
    return Apply(function, arguments, span)


def power(base: Expression, exponent: Expression, span: Span = NO_SPAN) -> Expression:
    """Return a power. Raise E304 for a non-constant exponent, E311 for an undefined constant."""
    if not isinstance(exponent, Constant):
        help_ = "where x is positive, x ** y is exp(y * log(x))"
        refuse("E304", "an exponent must be a number", exponent.span, help_)
    if exponent.value == 0:
        return Constant(1.0, span)
    if exponent.value == 1:
        return base
    if exponent.value == -1:
        return divide(Constant(1.0), base, span)
    if not isinstance(base, Constant):
        return Apply("power", (base, exponent), span)
    value = FUNCTIONS["power"].value(base.value, exponent.value)
    if not math.isfinite(value):
        message = f"{base.value:g} ** {exponent.value:g} is not defined, or too large"
        refuse("E311", message, span)
    return Constant(value, span)


OPERATORS: Mapping[str, Callable[..., Expression]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "**": power,
}
"""Functions that build and simplify an operation, by its operator in rules."""
SIGNS: Mapping[str, syntax.Operator] = {"sum": "+", "product": "*", "quotient": "/", "power": "**"}
"""Operators of the functions that are written with one."""


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the operands of a node.

    The metric inside `of(...)` is not a child, because another trial measures it. The children of a
    disclosivity are its groups, although its value cannot be computed from theirs.
    """
    match node:
        case Apply(arguments=arguments):
            return arguments
        case Disclosure():
            return node.groups
        case _:
            return ()


def terms(node: Expression) -> tuple[Expression, ...]:
    """Return the terms of a sum, or another node alone."""
    return node.arguments if isinstance(node, Apply) and node.function == "sum" else (node,)


def walk(node: Expression) -> Iterator[Expression]:
    """Yield every node, parents before children."""
    yield node
    for child in children(node):
        yield from walk(child)


def leaves(*nodes: Expression) -> list[Leaf]:
    """Return the distinct rates of some expressions in order of appearance."""
    rates = (part for node in nodes for part in walk(node) if isinstance(part, Leaf))
    return list(dict.fromkeys(rates))


def atoms(node: Expression) -> Iterator[MeasuredNode | AlgorithmMetric]:
    """Yield the nodes whose values determine that of an expression, in order of appearance."""
    if isinstance(node, Apply):
        for child in node.arguments:
            yield from atoms(child)
    elif not isinstance(node, Constant):
        yield node


def measured_nodes(node: Expression) -> Iterator[MeasuredNode]:
    """Yield all measured nodes of an expression; a disclosivity is one, its groups are not."""
    return (part for part in atoms(node) if not isinstance(part, AlgorithmMetric))


def transform(node: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Replace, from the root down, every node for which `change` returns another expression."""
    replaced = change(node)
    if replaced is not None:
        return replaced
    if not isinstance(node, Apply):
        return node
    parts = tuple(transform(child, change) for child in node.arguments)
    return apply(node.function, parts, node.span)


def to_text(node: Expression) -> str:
    """Return canonical text; parsing and resolving it gives the same tree."""
    return _text_and_precedence(node)[0]


def by_text(columns: Sequence[str]) -> str:
    """Return the text of columns after `by=`, such as `sex` or `(sex, race)`."""
    names = ", ".join(map(syntax.quote, columns))
    return names if len(columns) == 1 else f"({names})"


ATOM_PRECEDENCE = max(PRECEDENCE.values()) + 1


def _text_and_precedence(node: Expression) -> tuple[str, int]:
    """Return canonical text, and how strongly its outermost operator binds."""
    match node:
        case Constant(value):
            text = syntax.value_text(abs(value))
            return (text, ATOM_PRECEDENCE) if value >= 0 else (f"-{text}", SIGN_PRECEDENCE)
        case Leaf() | RankingMeasure():
            text = (node.rate.text if isinstance(node, Leaf) else node.name) + _slice_text(node)
        case Disclosure():
            text = f"{DISCLOSIVITY}(by={by_text(node.by)})" + _slice_text(node)
        case AlgorithmMetric():
            text = f"of({node.algorithm}, {to_text(node.metric)})"
        case Apply("product", (Constant(-1.0), right)):
            return f"-{_bracketed(right, SIGN_PRECEDENCE)}", SIGN_PRECEDENCE
        case Apply("sum", (first, *rest)):
            level = PRECEDENCE["+"]
            return _bracketed(first, level) + "".join(map(_term_text, rest)), level
        case Apply(function, arguments) if function in SIGNS:
            level = PRECEDENCE[SIGNS[function]]
            least = (level + 1, SIGN_PRECEDENCE) if function == "power" else (level, level + 1)
            return f" {SIGNS[function]} ".join(map(_bracketed, arguments, least)), level
        case Apply(function, arguments):
            text = f"{function}({', '.join(map(to_text, arguments))})"
    return text, ATOM_PRECEDENCE


def _term_text(term: Expression) -> str:
    sign, size = ("-", negate(term)) if is_negative(term) else ("+", term)
    return f" {sign} {_bracketed(size, PRECEDENCE['+'] + 1)}"


def _bracketed(node: Expression, least: int) -> str:
    text, precedence = _text_and_precedence(node)
    return text if precedence >= least else f"({text})"


def _slice_text(node: MeasuredNode) -> str:
    where = "" if node.where == ALL_ROWS else f"[{node.where}]"
    return where + (f"@{node.split}" if node.split else "")


def is_negative(term: Expression) -> bool:
    """Whether a term is a negative number, or something times one."""
    match term:
        case Constant(value) | Apply("product", (Constant(value), _)):
            return value < 0
        case _:
            return False


JOINT_RATE = RATES["joint_rate"]
POSITIVE_RATE = RATES["positive_rate"]
"""The share of a group is its `joint_rate` divided by the `positive_rate` of all rows."""

VARIADIC_FUNCTIONS = tuple(name for name, row in FUNCTIONS.items() if row.arity is None)
"""Functions that take any number of arguments, or one metric and `by=`: `min(tpr, by=sex)`."""
COLUMN_FUNCTIONS = (*TEMPLATES, *VARIADIC_FUNCTIONS, *BALANCE_METRICS)
"""Everything that takes a `by=` argument."""
SINGLE_COLUMN_TEMPLATES = ("max_gap", "min_ratio")
"""Templates that compare the values of one column."""


def compare_pairs(
    compare: Callable[..., Expression], parts: Sequence[Expression], span: Span
) -> tuple[Expression, ...]:
    """Return the differences or quotients of each part and each other one."""
    return tuple(compare(a, b, span) for a, b in itertools.permutations(parts, 2))


def apply_template(name: str, parts: Sequence[Expression], span: Span) -> Expression:
    """Apply a template or variadic function to a metric's parts, one for each value of a column.

    The largest gap is that between the largest and the smallest part; the smallest ratio is the
    quotient of these two.
    """
    if name in VARIADIC_FUNCTIONS:
        return apply(name, tuple(parts), span)
    if name == "mean":
        return divide(add(*parts, span=span), Constant(float(len(parts)), span), span)
    largest, smallest = (apply(each, tuple(parts), span) for each in ("max", "min"))
    if name == "max_gap":
        return subtract(largest, smallest, span)
    return divide(smallest, largest, span)


def imbalance_expression(columns: Sequence[Sequence[Leaf]], span: Span) -> Expression:
    """Return the Euclidean distance of the shares of each column's K groups from 1/K each.

    A group's share is its part of the rows with a positive decision. With several columns it is
    the distance of the concatenated vectors (Deng, Diana, Kearns, Roth 2023, appendix A.2).
    """
    parts = []
    for groups in columns:
        for group in groups:
            total = Leaf(POSITIVE_RATE, group.over, group.split, span)
            target = Constant(1 / len(groups), span)
            parts.append(subtract(divide(group, total, span), target, span))
    size = Constant(math.sqrt(len(parts)), span)
    return multiply(size, apply("rms", tuple(parts), span), span)

"""Which way a metric gets better, as far as its text tells.

A rate that counts right decisions only (`tpr`, `accuracy`) is better the higher it is, one that counts
wrong ones only (`error`, `fpr`) the lower, and so is an error of estimates. How often a classifier says
yes is neither. What is made of such metrics follows by where it grows and falls; distances (`abs`,
`kl`, `max_gap`, `imbalance`, `disclosivity`) are better the lower.
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce

from ratecli.rates.syntax import BinaryOperation, NameNode, Negation, NumberLiteral, SyntaxNode
from ratecli.rates.table import (
    BALANCE_METRICS,
    COMPOSITES,
    OF,
    RANKINGS,
    RATES,
    Rate,
    canonical_name,
)


class Direction(StrEnum):
    """`FIXED` is what no classifier changes, `EITHER` what nobody says is better high or low."""

    LOW = "low"
    HIGH = "high"
    FIXED = "fixed"
    EITHER = "either"

    def turned(self) -> Direction:
        return {Direction.LOW: Direction.HIGH, Direction.HIGH: Direction.LOW}.get(self, self)

    def and_(self, other: Direction) -> Direction:
        """Of what grows in both."""
        if Direction.FIXED in {self, other}:
            return other if self is Direction.FIXED else self
        return self if self is other else Direction.EITHER


DISTANCE_METRICS = ("abs", "kl", "max_gap", *BALANCE_METRICS)
INCREASING_FUNCTIONS = (
    "max",
    "min",
    "mean",
    "sqrt",
    "log",
    "exp",
    "geo_mean",
    "harmonic_mean",
    "rms",
)
"""Functions that grow in their arguments where these are not negative, as rates are."""
HIGHER_IS_BETTER = frozenset(COMPOSITES) - {"share"}


def direction(node: SyntaxNode) -> Direction:
    """Of a metric as it is written; sweep names in it count as positive numbers."""
    match node:
        case NumberLiteral():
            return Direction.FIXED
        case Negation(operand=operand):
            return direction(operand).turned()
        case BinaryOperation(op="+" | "*", left=left, right=right):
            return _product_direction(node.op, left, right)
        case BinaryOperation(op="-" | "/", left=left, right=right):
            return direction(left).and_(direction(right).turned())
        case BinaryOperation(left=left):  # a power
            return direction(left)
        case NameNode():
            return _metric_direction(node)


def _product_direction(op: str, left: SyntaxNode, right: SyntaxNode) -> Direction:
    found = direction(left).and_(direction(right))
    negative = [_negative(each) for each in (left, right)]
    return found.turned() if op == "*" and any(negative) else found


def _negative(node: SyntaxNode) -> bool:
    return isinstance(node, Negation) and isinstance(node.operand, NumberLiteral)


def _metric_direction(node: NameNode) -> Direction:
    name = canonical_name(node.name)
    if name in DISTANCE_METRICS:
        return Direction.LOW
    if name == "min_ratio" or name in RANKINGS or name in HIGHER_IS_BETTER:
        return Direction.HIGH
    if name in RATES and node.arguments is None:
        return _rate_direction(RATES[name])
    if name in INCREASING_FUNCTIONS:
        found = map(direction, node.arguments or ())
        return reduce(Direction.and_, found, Direction.FIXED)
    if name == OF or (node.arguments is None and name not in COMPOSITES):
        return Direction.FIXED  # another algorithm's number, or a name of the sweep
    return Direction.EITHER


def _rate_direction(rate: Rate) -> Direction:
    if rate.of in {"squared_error", "log_loss"}:
        return Direction.LOW
    if rate.of != "decision":
        return Direction.EITHER
    yes, no = (_counted_labels(mask, rate.among) for mask in (rate.yes, rate.no))
    if yes <= {"+"} and no <= {"-"}:
        return Direction.HIGH
    if yes <= {"-"} and no <= {"+"}:
        return Direction.LOW
    return Direction.FIXED if rate.yes == rate.no else Direction.EITHER


def _counted_labels(mask: str, among: str) -> set[str]:
    """Labels of the rows that are counted; of those without a condition on it, both and none."""
    if mask == "none":
        return set()
    signs = {sign for sign in "+-" if sign in f"{mask}&{among}"}
    return signs or {"+", "-", ""}

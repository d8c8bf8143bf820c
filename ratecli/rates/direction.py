"""Which way a metric gets better, as far as its text tells.

A rate that counts right decisions only (`tpr`, `accuracy`) is better the higher it is, one that counts
wrong ones only (`error`, `fpr`) the lower, and so is an error of estimates. How often a classifier says
yes is neither. What is made of such metrics follows by where it grows and falls; distances (`abs`,
`kl`, `max_gap`, `imbalance`, `disclosivity`) are better the lower.
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce

from ratecli.rates.syntax import Binary, Minus, Name, Node, Number
from ratecli.rates.table import COMPOSITES, OF, RANKINGS, RATES, SPREADS, Rate, canonical


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


DISTANCES = ("abs", "kl", "max_gap", *SPREADS)
GROWING = ("max", "min", "mean", "sqrt", "log", "exp", "geo_mean", "harmonic_mean", "rms")
"""Functions that grow in their arguments where these are not negative, as rates are."""
HIGH_COMPOSITES = frozenset(COMPOSITES) - {"share"}


def direction(node: Node) -> Direction:
    """Of a metric as it is written; sweep names in it count as positive numbers."""
    match node:
        case Number():
            return Direction.FIXED
        case Minus(operand=operand):
            return direction(operand).turned()
        case Binary(op="+" | "*", left=left, right=right):
            return _scaled(node.op, left, right)
        case Binary(op="-" | "/", left=left, right=right):
            return direction(left).and_(direction(right).turned())
        case Binary(left=left):  # a power
            return direction(left)
        case Name():
            return _named(node)


def _scaled(op: str, left: Node, right: Node) -> Direction:
    found = direction(left).and_(direction(right))
    negative = [_negative(each) for each in (left, right)]
    return found.turned() if op == "*" and any(negative) else found


def _negative(node: Node) -> bool:
    return isinstance(node, Minus) and isinstance(node.operand, Number)


def _named(node: Name) -> Direction:
    name = canonical(node.name)
    if name in DISTANCES:
        return Direction.LOW
    if name == "min_ratio" or name in RANKINGS or name in HIGH_COMPOSITES:
        return Direction.HIGH
    if name in RATES and node.arguments is None:
        return _of_rate(RATES[name])
    if name in GROWING:
        found = map(direction, node.arguments or ())
        return reduce(Direction.and_, found, Direction.FIXED)
    if name == OF or (node.arguments is None and name not in COMPOSITES):
        return Direction.FIXED  # another algorithm's number, or a name of the sweep
    return Direction.EITHER


def _of_rate(rate: Rate) -> Direction:
    if rate.of in {"squared_error", "log_loss"}:
        return Direction.LOW
    if rate.of != "decision":
        return Direction.EITHER
    yes, no = (_labels(mask, rate.among) for mask in (rate.yes, rate.no))
    if yes <= {"+"} and no <= {"-"}:
        return Direction.HIGH
    if yes <= {"-"} and no <= {"+"}:
        return Direction.LOW
    return Direction.FIXED if rate.yes == rate.no else Direction.EITHER


def _labels(mask: str, among: str) -> set[str]:
    """Labels of the rows that are counted; of those without a condition on it, both and none."""
    if mask == "none":
        return set()
    signs = {sign for sign in "+-" if sign in f"{mask}&{among}"}
    return signs or {"+", "-", ""}

"""The tree of a safety test with its intervals, as a record that a report draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.certify.trees import BoundedNode, GoalTestPlan
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates import syntax
from ratecli.rates.expression import Expression
from ratecli.rates.functions import POWER
from ratecli.rates.interval import Interval

MAX_RECORDED_TREES = 12
"""How many trees of a maximum are recorded: those whose upper ends are largest."""

TreeRecord = dict[str, Any]


def json_number(value: float) -> float | str:
    """A number that JSON has, else its name."""
    return float(value) if math.isfinite(value) else str(float(value))


@dataclass(frozen=True)
class GoalTreeRecorder:
    """What there is to be drawn of a goal that was tested.

    Attributes
    ----------
    limits
        (B,) the limits found.
    estimates
        Of each quantity, without any confidence.
    rows
        Of each quantity, how many rows each of its parts has.
    bounds
        Of each quantity, the name of the confidence bound.
    """

    tested: GoalTestPlan
    limits: Array
    estimates: Sequence[float]
    rows: Sequence[Sequence[int]]
    bounds: Sequence[str]

    def node(self) -> TreeRecord:
        """The tree, or the largest of several; each node with its interval."""
        ends = self.tested.upper(self.limits)[0].tolist()
        trees = [_TreeRecorder(self, p) for p in range(len(ends))]
        if len(trees) == 1:
            return trees[0].node(self.tested.trees[0])
        order = sorted(range(len(ends)), key=lambda p: -ends[p])
        kept, others = sorted(order[:MAX_RECORDED_TREES]), order[MAX_RECORDED_TREES:]
        children = [trees[p].node(self.tested.trees[p]) for p in kept]
        lows = [trees[p].interval(self.tested.trees[p])[0] for p in range(len(ends))]
        if others:
            inside = max(lows[p] for p in others), max(ends[p] for p in others)
            children.append(_node(f"{len(others)} others, all less", inside))
        return _node("max", (max(lows), max(ends)), *children)


@dataclass(frozen=True)
class _TreeRecorder:
    picture: GoalTreeRecorder
    tree: int

    def interval(self, node: Expression) -> Interval:
        found = self.picture.tested.inclusion(node, self.tree)(self.picture.limits)
        return found.low, found.high

    def node(self, node: Expression) -> TreeRecord:
        place = self.picture.tested.places.get(node)
        if place is not None:
            return self._placed(place)
        inside = self.interval(node)
        match node:
            case ex.Constant(value=value):
                return _node(syntax.number_text(value), inside)
            case ex.Sum(terms=(*first, last)):
                rest = first[0] if len(first) == 1 else ex.Sum(tuple(first))
                if _negative(last):
                    return _node("-", inside, self.node(rest), self._negated(last))
                return _node("+", inside, self.node(rest), self.node(last))
            case ex.Product(left=ex.Constant(value=-1.0), right=right):
                return _node("-", inside, self.node(right))
            case ex.Product():
                return _node("*", inside, *map(self.node, ex.children(node)))
            case ex.Quotient():
                return _node("/", inside, *map(self.node, ex.children(node)))
            case ex.Apply(function=name):
                text = "**" if name == POWER else name
                return _node(text, inside, *map(self.node, ex.children(node)))
            case _:
                return _node(ex.to_text(node), inside)

    def _negated(self, node: Expression) -> TreeRecord:
        place = self.picture.tested.places.get(node)
        if place is None:
            return self.node(ex.negate(node))
        return self._placed(BoundedNode(place.quantity, -place.factor, -place.constant))

    def _placed(self, place: BoundedNode) -> TreeRecord:
        """`factor * quantity + constant`, spelt out as far as it is more than the quantity."""
        size, shift = abs(place.factor), place.constant
        (low, high), _ = self._limits(place.quantity)
        node = self._quantity(place.quantity)
        if size != 1:
            low, high = size * low, size * high
            node = _node("*", (low, high), _constant(size), node)
        if place.factor < 0 and shift > 0:
            return _node("-", (shift - high, shift - low), _constant(shift), node)
        if place.factor < 0:
            low, high = -high, -low
            node = _node("-", (low, high), node)
        if not shift:
            return node
        sign = "-" if shift < 0 else "+"
        return _node(sign, (low + shift, high + shift), node, _constant(abs(shift)))

    def _limits(self, k: int) -> tuple[Interval, list[float | None]]:
        """The ends of a quantity, and the deltas of those that were asked for."""
        ends = list(self.picture.tested.quantities[k].range())
        deltas: list[float | None] = [None, None]
        for limit, asked in zip(self.picture.limits, self.picture.tested.asked, strict=True):
            if (asked.tree, asked.quantity) == (self.tree, k):
                side = 0 if asked.sign < 0 else 1
                ends[side], deltas[side] = float(limit), asked.delta
        return (ends[0], ends[1]), deltas

    def _quantity(self, k: int) -> TreeRecord:
        ends, deltas = self._limits(k)
        picture = self.picture
        return _node(ex.to_text(picture.tested.quantities[k].expression()), ends) | {
            "estimate": json_number(picture.estimates[k]),
            "rows": list(picture.rows[k]),
            "delta": deltas,
            "bound": picture.bounds[k],
        }


def _node(text: str, inside: Interval, *children: TreeRecord) -> TreeRecord:
    return {"text": text, "interval": list(map(json_number, inside)), "children": list(children)}


def _constant(value: float) -> TreeRecord:
    return _node(syntax.number_text(value), (value, value))


def _negative(term: Expression) -> bool:
    match term:
        case ex.Constant(value=value) | ex.Product(left=ex.Constant(value=value)):
            return value < 0
        case _:
            return False

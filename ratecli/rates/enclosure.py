"""Propagate confidence limits up an expression tree, with derivatives of the resulting ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.analysis import NodeFacts, interval, monotonicity_in
from ratecli.rates.expression import Expression
from ratecli.rates.interval import Endpoint, Interval, Operation
from ratecli.rates.sample import Floats

BOTH_SIDES = frozenset({1, -1})


class AffineEnd(NamedTuple):
    """An end of a node bounded as a whole: `factor` times a confidence limit, plus `constant`.

    If `limit`, the index of the confidence limit, is None, the end is the constant.
    """

    constant: float
    limit: int | None = None
    factor: float = 1.0

    def at(self, limits: Sequence[float]) -> float:
        if self.limit is None:
            return self.constant
        return self.factor * limits[self.limit] + self.constant


BoundedEnds = tuple[AffineEnd, AffineEnd]
"""The lower and upper end of a node."""


class _OperationNode(NamedTuple):
    """A node that combines other nodes, given by their indices."""

    operation: Operation
    inside: tuple[int, ...]


@dataclass(frozen=True)
class InclusionFunction:
    """The inclusion function of a tree (Moore 1966): its interval given confidence limits.

    Attributes
    ----------
    nodes
        Each distinct node once, operands before the nodes that use them; the last is the root.
    size
        B, the number of limits.
    """

    nodes: tuple[BoundedEnds | _OperationNode, ...]
    size: int

    @classmethod
    def of(
        cls, node: Expression, known: Callable[[Expression], BoundedEnds | None], size: int
    ) -> InclusionFunction:
        """Build the inclusion function of a root.

        `known` is called for every node, parents first, and returns the ends of a node that is
        bounded as a whole, else None. Other nodes without operands may be anywhere in their range
        (`analysis.interval`).
        """
        nodes, numbers = list[BoundedEnds | _OperationNode](), dict[Expression, int]()

        def number(part: Expression) -> int:
            if part not in numbers:
                made = prepared(part)
                numbers[part] = len(nodes)
                nodes.append(made)
            return numbers[part]

        def prepared(part: Expression) -> BoundedEnds | _OperationNode:
            found = known(part)
            if found is not None:
                return found
            operation = ex.operation(part)
            if operation is None:
                low, high = interval(part)
                return AffineEnd(low), AffineEnd(high)
            return _OperationNode(operation, tuple(map(number, ex.operands(part))))

        number(node)
        return cls(tuple(nodes), size)

    def __call__(self, limits: Floats) -> Enclosure:
        """Evaluate by interval arithmetic; nodes that may be undefined get the whole real line."""
        given, ends = limits.tolist(), list[tuple[Endpoint, Endpoint]]()
        for node in self.nodes:
            if isinstance(node, _OperationNode):
                inside = [(ends[i][0].value, ends[i][1].value) for i in node.inside]
                ends.append(node.operation.certain(inside))
            else:
                low, high = node
                ends.append((Endpoint(low.at(given)), Endpoint(high.at(given))))
        return Enclosure(self, ends)


@dataclass(frozen=True)
class Enclosure:
    """An interval that contains a quantity, and its derivatives in the B confidence limits.

    Attributes
    ----------
    ends
        Lower and upper end of every node of `inclusion`.
    """

    inclusion: InclusionFunction
    ends: Sequence[tuple[Endpoint, Endpoint]]

    @property
    def low(self) -> float:
        return self.ends[-1][0].value

    @property
    def high(self) -> float:
        return self.ends[-1][1].value

    @property
    def high_slopes(self) -> Floats:
        """(B,) derivatives of `high` in the limits; 0 if the end is infinite.

        One-sided derivatives at a kink, such as a maximum of equal numbers. The chain rule is
        applied from the root down, at the points where the ends are attained.
        """
        total = np.zeros(self.inclusion.size)
        waiting = [(len(self.ends) - 1, 1, 1.0)]
        while waiting:
            number, side, weight = waiting.pop()
            node, end = self.inclusion.nodes[number], self.ends[number][(side + 1) // 2]
            if not math.isfinite(end.value):
                continue
            if not isinstance(node, _OperationNode):
                bounded = node[(side + 1) // 2]
                if bounded.limit is not None:
                    total[bounded.limit] += weight * bounded.factor
            elif end.point is not None:
                slopes = node.operation.slopes(*node.operation.near(*end.point.at))
                waiting += [
                    (part, other, weight * slope)
                    for slope, other, part in zip(slopes, end.point.ends, node.inside, strict=True)
                    # slopes are not finite at infinite arguments
                    if other and slope and math.isfinite(slope)
                ]
        return total


def needed_sides(
    node: Expression, known: Callable[[Expression], Hashable | None]
) -> dict[Hashable, frozenset[int]]:
    """Return which ends of which quantities the upper end of a tree may depend on.

    Sides are 1 (upper) and -1 (lower). `known` is called for every node, parents first, and returns
    the name of a node that is bounded as a whole, else None. An increasing node needs the same end
    of its operand, a decreasing one the opposite end, and any other node, or one that may be
    undefined, needs both. This assumes that every quantity is within its range
    (`analysis.interval`), so limits must be clipped to that range.
    """
    signs = monotonicity_in(node, known, _enclosure_facts)
    return {name: frozenset({sign}) if sign else BOTH_SIDES for name, sign in signs.items()}


def _enclosure_facts(node: Expression, inside: Sequence[Interval]) -> NodeFacts:
    """Facts as `InclusionFunction` uses them, ignoring that operands may share parts."""
    operation = ex.operation(node)
    if operation is None:
        return interval(node), ()
    low, high = operation.certain(inside)
    defined = operation.defined(inside)
    return (low.value, high.value), operation.directions(inside) if defined else (0,) * len(inside)

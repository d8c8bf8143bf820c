"""Confidence intervals on the way up a tree: what its ends are, how fast they move, which are needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.analysis import Facts, grows_in, interval
from ratecli.rates.expression import Expression
from ratecli.rates.interval import End, Interval, Operation
from ratecli.rates.sample import Floats

BOTH = frozenset({1, -1})


@dataclass(frozen=True)
class Enclosure:
    """Between which numbers a quantity lies, and how its ends move with B confidence limits.

    Attributes
    ----------
    low, high
        The ends.
    low_slopes, high_slopes
        (B,) derivatives of each in the limits; 0 where an end is infinite. At a kink, such as a maximum
        of equal numbers, those of one side.
    """

    low: float
    high: float
    low_slopes: Floats
    high_slopes: Floats


def enclosure(
    node: Expression, known: Callable[[Expression], Enclosure | None], size: int
) -> Enclosure:
    """Interval arithmetic on a tree; all numbers where a node may have no value, such as a logarithm.

    Parameters
    ----------
    node
        The root.
    known
        Asked for every node, parents first: the ends of one that is bounded as a whole, else None.
        What has no parts and is not known lies anywhere in its range (`analysis.interval`).
    size
        B, the number of limits that slopes are in.
    """
    found = known(node)
    if found is not None:
        return found
    operation = ex.operation(node)
    if operation is None:
        return Enclosure(*interval(node), np.zeros(size), np.zeros(size))
    inside = [enclosure(part, known, size) for part in ex.parts(node)]
    low, high = operation.certain([(part.low, part.high) for part in inside])
    return Enclosure(
        low.value,
        high.value,
        _slopes(operation, low, inside, size),
        _slopes(operation, high, inside, size),
    )


def _slopes(operation: Operation, end: End, inside: Sequence[Enclosure], size: int) -> Floats:
    """(B,) the chain rule at the point where an end is reached."""
    total = np.zeros(size)
    if end.point is None or not math.isfinite(end.value):
        return total
    slopes = operation.slopes(*operation.near(*end.point.at))
    for slope, side, part in zip(slopes, end.point.ends, inside, strict=True):
        if side and slope and math.isfinite(slope):  # not so at an infinite end of the argument
            total += slope * (part.high_slopes if side > 0 else part.low_slopes)
    return total


def sides(
    node: Expression, known: Callable[[Expression], Hashable | None]
) -> dict[Hashable, frozenset[int]]:
    """Which ends of which quantities the upper end of a tree can depend on: 1 upper, -1 lower.

    `known` is asked for every node, parents first: the name of one that is bounded as a whole, else
    None. What grows in a part needs the same end of it, what falls the other, and else both, as does
    what is not defined everywhere. That is judged by the intervals that the tree has while its
    quantities are anywhere in their ranges (`analysis.interval`), so limits must be clipped to these.
    """
    signs = grows_in(node, known, _facts)
    return {name: frozenset({sign}) if sign else BOTH for name, sign in signs.items()}


def _facts(node: Expression, inside: Sequence[Interval]) -> Facts:
    """As `enclosure` has it, which knows nothing of parts that occur twice."""
    operation = ex.operation(node)
    if operation is None:
        return interval(node), ()
    low, high = operation.certain(inside)
    defined = operation.defined(inside)
    return (low.value, high.value), operation.directions(inside) if defined else (0,) * len(inside)

"""The best point of a hull: branch and bound over the levels of fractions."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.hull.forms import Line
from ratecli.solvers.hull.relaxation import Relaxation, Relaxed

EXCESS = 5e-7
"""Up to which a constraint counts as met."""
EXACT = 1e-7
"""Up to which a level counts as that of its fraction: a few such errors make no excess."""
MAX_NODES = 2000
INSIDE = 0.1
"""A box is cut no nearer to its ends than this part of its width."""


@dataclass(frozen=True)
class Best:
    """A point of the hull that meets the constraints.

    Attributes
    ----------
    weights, rates
        (T,) chances, adding up to 1 in each block, and (K,) rates.
    value, bound
        Its objective, and what no other point of the hull that meets the constraints is below.
    prices
        (K,) slopes of the Lagrangian there: a point whose rates cost less improves it.
    multipliers
        (J,) of the constraints.
    touching
        Lines below the curves of the program, for a relaxation over more points.
    """

    weights: Array
    rates: Array
    value: float
    bound: float
    prices: Array
    multipliers: Array
    touching: list[list[Line]]


def best(relaxation: Relaxation, gap: float) -> Best | None:
    """The best point to a gap between value and bound, None where no point meets the constraints.

    Without fractions, or with one that is the objective, the first program is exact. Otherwise boxes of
    levels are halved where level times bottom is farthest from what the program takes it for
    (McCormick 1976). Stops after `MAX_NODES` boxes, and leaves out what is within `EXACT` of its levels and
    yet no point that counts: then the bound, which holds all the same, may be a little more than
    `gap` away.
    """
    first = relaxation.solve(relaxation.boxes)
    if first is None:
        return None
    found: Relaxed | None = None
    upper = left_out = np.inf
    order = itertools.count()
    heap = [(first.value, next(order), relaxation.boxes, first)]
    while heap and heap[0][0] < upper - gap and next(order) < MAX_NODES:
        lower, _, boxes, relaxed = heapq.heappop(heap)
        for candidate in _candidates(relaxation, relaxed):
            value = _value(relaxation, candidate)
            if value < upper:
                found, upper = candidate, value
        parts = _halves(relaxation, boxes, relaxed)
        left_out = left_out if parts else min(left_out, lower)
        for part in parts:
            try:
                inside = relaxation.solve(part)
            except ArithmeticError:  # so narrow that HiGHS cannot tell; it has its own box's bound
                left_out = min(left_out, lower)
                continue
            if inside is not None and inside.value < upper - gap:
                heapq.heappush(heap, (max(inside.value, lower), next(order), part, inside))
            elif inside is not None:
                left_out = min(left_out, inside.value)
    if found is None:
        return None
    return _best(relaxation, found, upper, min([upper, left_out, *(node[0] for node in heap)]))


def _value(relaxation: Relaxation, point: Relaxed) -> float:
    """The objective of a point, infinite where it breaks a constraint or is undefined."""
    program = relaxation.program
    if relaxation.elastic:
        return float(program.excess(point.rates))
    value = float(program.value(program.objective, point.rates))
    broken = program.excess(point.rates) > EXCESS or np.isnan(value)
    return np.inf if broken else value


def _candidates(relaxation: Relaxation, relaxed: Relaxed) -> list[Relaxed]:
    """The relaxation's own point, and the best one at its levels, where the envelope is exact."""
    if not len(relaxed.levels):
        return [relaxed]
    try:
        exact = relaxation.solve(np.stack([relaxed.levels, relaxed.levels], axis=1))
    except ArithmeticError:
        exact = None
    return [relaxed] if exact is None else [relaxed, exact]


def _halves(relaxation: Relaxation, boxes: Array, relaxed: Relaxed) -> list[Array]:
    """The box cut at the level that is farthest from its fraction; nothing where all are exact."""
    apart = np.array([float(f.at(relaxed.rates)) for f in relaxation.fractions]) - relaxed.levels
    apart = np.abs(np.nan_to_num(apart))
    if not (apart > EXACT).any():
        return []
    m = int(np.argmax(apart))
    low, high = boxes[m]
    margin = INSIDE * (high - low)
    cut = float(np.clip(relaxed.levels[m], low + margin, high - margin))
    lower, upper = boxes.copy(), boxes.copy()
    lower[m, 1] = upper[m, 0] = cut
    return [lower, upper]


def _best(relaxation: Relaxation, found: Relaxed, value: float, bound: float) -> Best:
    """With prices from the program that has lines for fractions, which touch them at the point."""
    if relaxation.fractions:
        flat = relaxation.program.expanded(found.rates, objective=relaxation.scaled is None)
        plain = replace(relaxation, program=flat)
        near = plain.solve(plain.boxes)
        found = replace(found, prices=near.prices, multipliers=near.multipliers) if near else found
    return Best(
        found.weights,
        found.rates,
        value,
        bound,
        found.prices,
        found.multipliers,
        relaxation.touching,
    )

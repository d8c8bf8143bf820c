"""The best point of a hull: branch and bound over the levels of its bilinear form."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field, replace

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.hull.forms import LinearTerm
from ratecli.solvers.hull.relaxation import Relaxation, RelaxationOptimum

MAX_EXCESS = 5e-7
"""Up to which a constraint counts as met."""
EXACT_GAP = 1e-12
"""Up to which a relaxation counts as its program at these levels, in units of the objective."""
MAX_NODES = 2000
MAX_POLISH_ROUNDS = 4
"""Programs with lines for fractions that are solved in the end, each at the last one's optimum."""
MIN_IMPROVEMENT = 1e-9
"""What such a program must improve the objective by for another one."""
MIN_CUT_DISTANCE = 0.1
"""A box is cut no nearer to its ends than this part of its width."""


@dataclass(frozen=True)
class HullOptimum:
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
    touching: list[list[LinearTerm]]


def optimize_over_hull(relaxation: Relaxation, gap: float) -> HullOptimum | None:
    """The best point to a gap between value and bound, None where no point meets the constraints.

    Where the relaxation has no levels its first program is exact. Otherwise boxes of levels are cut in
    two at the level that most is off at. An elastic one ends with any point that meets all
    constraints.

    None is certain where every box was shown to be empty. After `MAX_NODES` boxes, or where one was
    left out that could neither be cut nor gave a point, the bound holds all the same but may be more
    than `gap` away; and if no point was found so, one of least violation is looked for with as many
    boxes, and taken if it meets the constraints, before None is said.
    """
    search = _BranchAndBound(relaxation, gap)
    search.run()
    found, value = search.found, search.upper
    if found is None and search.bound < np.inf and not relaxation.elastic:
        nearest = _BranchAndBound(replace(relaxation, elastic=True, touching=[]), gap)
        nearest.run()
        found = nearest.found
        value = np.inf if found is None else _point_value(relaxation, found)
    if found is None or value == np.inf:
        return None
    return _polished_optimum(relaxation, found, value, min(value, search.bound))


@dataclass
class _BranchAndBound:
    """Boxes by their bounds, the best point so far, and the least bound of boxes that were left out."""

    relaxation: Relaxation
    gap: float
    found: RelaxationOptimum | None = None
    upper: float = np.inf
    left_out: float = np.inf
    heap: list[tuple[float, int, Array, RelaxationOptimum]] = field(default_factory=list)
    count: itertools.count[int] = field(default_factory=itertools.count)

    def run(self) -> None:
        """Until the gap is closed; no constraint need be met by more than enough."""
        enough = 0.0 if self.relaxation.elastic else -np.inf
        self._open(self.relaxation.boxes, -np.inf)
        for _ in range(MAX_NODES):
            if not self.heap or self.heap[0][0] >= self.upper - self.gap or self.upper <= enough:
                break
            lower, _, boxes, relaxed = heapq.heappop(self.heap)
            for candidate in _candidate_points(self.relaxation, relaxed):
                value = _point_value(self.relaxation, candidate)
                if value < self.upper:
                    self.found, self.upper = candidate, value
            parts = _split_box(boxes, relaxed)
            self.left_out = self.left_out if parts else min(self.left_out, lower)
            for part in parts:
                self._open(part, lower)

    def _open(self, boxes: Array, lower: float) -> None:
        """Put a box that is part of one with a bound in its place, if it may have a better point."""
        try:
            inside = self.relaxation.solve(boxes)
        except ArithmeticError:  # so narrow that nobody can tell; it has the other box's bound
            self.left_out = min(self.left_out, lower)
            return
        if inside is None:
            return
        bound = max(inside.value, lower)
        if bound < self.upper - self.gap:
            heapq.heappush(self.heap, (bound, next(self.count), boxes, inside))
        else:
            self.left_out = min(self.left_out, bound)

    @property
    def bound(self) -> float:
        return min([self.upper, self.left_out, *(node[0] for node in self.heap)])


def _point_value(relaxation: Relaxation, point: RelaxationOptimum) -> float:
    """The objective of a point, infinite where it breaks a constraint or is undefined."""
    program = relaxation.program
    if relaxation.elastic:
        return float(program.excess(point.rates))
    value = float(program.value(program.objective, point.rates))
    broken = program.excess(point.rates) > MAX_EXCESS or np.isnan(value)
    return np.inf if broken else value


def _candidate_points(
    relaxation: Relaxation, relaxed: RelaxationOptimum
) -> list[RelaxationOptimum]:
    """The relaxation's own point, and the best one at its levels, where it is exact."""
    if relaxation.is_flat:
        return [relaxed]
    try:
        exact = relaxation.solve(np.stack([relaxed.levels, relaxed.levels], axis=1))
    except ArithmeticError:
        exact = None
    return [relaxed] if exact is None else [relaxed, exact]


def _split_box(boxes: Array, relaxed: RelaxationOptimum) -> list[Array]:
    """The box cut at the level that most is off at; nothing where nothing is off."""
    if not len(boxes) or relaxed.off.max() <= EXACT_GAP:
        return []
    p = int(np.argmax(relaxed.off))
    low, high = boxes[p]
    margin = MIN_CUT_DISTANCE * (high - low)
    cut = float(np.clip(relaxed.levels[p], low + margin, high - margin))
    lower, upper = boxes.copy(), boxes.copy()
    lower[p, 1] = upper[p, 0] = cut
    return [lower, upper]


def _polished_optimum(
    relaxation: Relaxation, found: RelaxationOptimum, value: float, bound: float
) -> HullOptimum:
    """With prices from the program that has lines for fractions, which touch them at the point.

    The optimum of that program is taken for the point where it is better, again and again.
    """
    priced, at = relaxation, found
    for _ in range(0 if relaxation.is_flat else MAX_POLISH_ROUNDS):
        near = _linearized_relaxation(relaxation, found.rates)
        try:
            step = near.solve(near.boxes)
        except ArithmeticError:  # the point at hand is as good, only its prices are less sharp
            step = None
        if step is None:
            break
        priced, at = near, step
        better = _point_value(relaxation, step)
        if better >= value - MIN_IMPROVEMENT:
            break
        found, value = step, better
    return HullOptimum(
        found.weights,
        found.rates,
        value,
        min(value, bound),
        priced.prices(at),
        priced.multipliers(at),
        relaxation.touching,
    )


def _linearized_relaxation(relaxation: Relaxation, rates: Array) -> Relaxation:
    """With lines for fractions, and constraints that are met at `rates`."""
    aim = relaxation.bilinear.scaled is None and not relaxation.elastic
    flat = relaxation.program.expanded(rates, objective=aim)
    excess = 0.0 if relaxation.elastic else max(float(flat.excess(rates)), 0.0)
    return replace(relaxation, program=flat.loosened(excess))

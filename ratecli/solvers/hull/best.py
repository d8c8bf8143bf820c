"""The best point of a hull: branch and bound over the levels of its bilinear form."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.hull.forms import RatePoints, RateProgram
from ratecli.solvers.hull.relaxation import Relaxation, RelaxationOptimum, Tangents

MAX_EXCESS = 5e-7
"""Largest excess at which a constraint counts as satisfied."""
EXACT_GAP = 1e-12
"""Largest error, in units of the objective, at which a relaxation counts as exact."""
MAX_NODES = 2000
MAX_POLISH_ROUNDS = 4
"""Maximum number of final programs with linearized fractions, each at the last one's optimum."""
MIN_IMPROVEMENT = 1e-9
"""Improvement of the objective by such a program that justifies another one."""
MIN_CUT_DISTANCE = 0.1
"""Minimum distance of a cut from the ends of a box, relative to its width."""


@dataclass(frozen=True)
class HullOptimum:
    """The best point of the hull, or the one of least violation.

    Attributes
    ----------
    weights, rates
        (T,) chances, with sum 1 in each block, and (K,) rates.
    value, bound
        Its objective, and a lower bound on that of all feasible points of the hull. For a point of
        least violation, its largest constraint and a bound on that.
    prices
        (K,) slopes of the Lagrangian there: a point whose rates cost less improves it.
    multipliers
        (J,) multipliers of the constraints.
    tangents
        Tangents of the program's curves, for a relaxation over more points.
    feasible
        Whether it satisfies the constraints.
    """

    weights: Array
    rates: Array
    value: float
    bound: float
    prices: Array
    multipliers: Array
    tangents: Tangents
    feasible: bool


def optimize_over_hull(
    program: RateProgram, points: RatePoints, gap: float, tangents: Tangents = ()
) -> HullOptimum | None:
    """Return the best point of a hull, up to a gap between value and bound.

    If the relaxation has no levels, its first program is exact. Otherwise boxes of levels are split
    in two at the level with the largest error. After `MAX_NODES` boxes, or if a box was dropped
    that could neither be split nor gave a point, the bound is still valid, but may be further than
    `gap` away.

    If no point was found that satisfies all constraints, a point of least violation is searched
    for. It counts as feasible if it satisfies them after all; None if a constraint is undefined at
    all points.
    """
    relaxation = Relaxation(program, points, tangents=tangents)
    search = _BranchAndBound(relaxation, gap)
    if search.found is not None:
        return _polished_optimum(relaxation, search.found, search.upper, search.bound)
    nearest = _BranchAndBound(Relaxation(program, points, elastic=True), gap)
    if nearest.found is None:
        return None
    value = _point_value(relaxation, nearest.found)
    if value == np.inf:
        return _polished_optimum(nearest.relaxation, nearest.found, nearest.upper, nearest.bound)
    bound = search.bound if search.bound < np.inf else -np.inf
    return _polished_optimum(relaxation, nearest.found, value, bound)


def bound_violation(program: RateProgram, points: RatePoints, gap: float) -> float:
    """Return a proven lower bound on the largest constraint over a hull, up to a gap.

    At most 0 if some point satisfies all constraints, or if nothing is proven. Denominators may be
    0, where ratios have any value.
    """
    search = _BranchAndBound(Relaxation(program, points, elastic=True, floor=0.0), gap)
    return 0.0 if search.found is None else min(search.upper, search.bound)


class _BranchAndBound:
    """Boxes by their bounds, the best point so far, and the lowest bound of dropped boxes."""

    def __init__(self, relaxation: Relaxation, gap: float) -> None:
        """Search until the gap is closed or, if elastic, until all constraints are satisfied."""
        self.relaxation, self.gap, self.count = relaxation, gap, itertools.count()
        self.found: RelaxationOptimum | None = None
        self.upper = self.left_out = np.inf
        self.heap: list[tuple[float, int, Array, RelaxationOptimum]] = []
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
        """Add a part of a box with the bound `lower`, if it may contain a better point."""
        try:
            inside = self.relaxation.solve(boxes)
        except ArithmeticError:  # too narrow to solve: use the parent's bound
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
    """Return the objective of a point, infinite if it violates a constraint or is undefined.

    For elastic relaxations, return its excess.
    """
    program = relaxation.program
    if relaxation.elastic:
        return float(program.excess(point.rates))
    value = float(program.value(program.objective, point.rates))
    broken = program.excess(point.rates) > MAX_EXCESS or np.isnan(value)
    return np.inf if broken else value


def _candidate_points(
    relaxation: Relaxation, relaxed: RelaxationOptimum
) -> list[RelaxationOptimum]:
    """Return the relaxation's point and, if solvable, the exact optimum at the point's levels."""
    if relaxation.is_flat:
        return [relaxed]
    exact = _solve_or_none(relaxation, np.stack([relaxed.levels, relaxed.levels], axis=1))
    return [relaxed] if exact is None else [relaxed, exact]


def _solve_or_none(relaxation: Relaxation, boxes: Array) -> RelaxationOptimum | None:
    try:
        return relaxation.solve(boxes)
    except ArithmeticError:
        return None


def _split_box(boxes: Array, relaxed: RelaxationOptimum) -> list[Array]:
    """Return the two halves of the box, split at the level with the largest error.

    Empty if there is no error.
    """
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
    """Return the optimum with prices from the program with fractions linearized at the point.

    While the optimum of that program is a better point, it replaces the current one.
    """
    priced, at = relaxation, found
    for _ in range(0 if relaxation.is_flat else MAX_POLISH_ROUNDS):
        near = _linearized_relaxation(relaxation, found.rates)
        step = _solve_or_none(near, near.boxes)
        if step is None:  # keep the point; only its prices are less accurate
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
        relaxation.tangents,
        not relaxation.elastic,
    )


def _linearized_relaxation(relaxation: Relaxation, rates: Array) -> Relaxation:
    """Return the relaxation with fractions linearized at `rates`, where constraints hold."""
    aim = relaxation.bilinear.scaled is None and not relaxation.elastic
    flat = relaxation.program.expanded(rates, objective=aim)
    excess = 0.0 if relaxation.elastic else max(float(flat.excess(rates)), 0.0)
    return replace(relaxation, program=flat.loosened(excess))

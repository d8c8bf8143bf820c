"""The best point of a hull: branch and bound over the levels of its bilinear form.

Each box of levels has a linear program that bounds the program from below. In the bilinear form of
a program, levels multiply lines in the rates. With weights q of the points the products are
`sum_j q_j * level_j * line_j`, where each point is taken at its own levels within the box: the hull
of all points at all levels, which is the tightest linear relaxation. It is exact if the box has
width 0. If points of several blocks are added, the mean levels of all blocks are equal.

Curves are bounded from below by tangents (Kelley 1960).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.bilinear import MIN_DENOMINATOR_SHARE, BilinearProgram
from ratecli.solvers.hull.forms import LinearTerm, RatePoints, RateProgram
from ratecli.solvers.hull.linear import LevelLp, LpOptimum

MAX_EXCESS = 5e-7
"""Largest excess at which a constraint counts as satisfied."""
VIOLATION_GAP = 1e-4
"""Accuracy of the lower bound on the violation."""
EXACT_GAP = 1e-12
"""Largest error, in units of the objective, at which a relaxation counts as exact."""
MAX_NODES = 2000
MIN_NODES, FEW_LEVELS = 10, 3
"""A frugal search opens all boxes with few levels, and with many levels at least the minimum."""
MAX_NODES_WITHOUT_POINT = 100
"""Number of boxes without a feasible point after which fractions are linearized to find one. The
levels of relaxed points may all be slightly outside those of feasible points.
"""
MAX_POLISH_ROUNDS = 4
"""Maximum number of final programs with linearized fractions, each at the last one's optimum."""
MAX_HALVINGS = 8
"""Number of points that a frugal search tries on the way to the optimum of such a program."""
MIN_IMPROVEMENT = 1e-9
"""Improvement of the objective by such a program that justifies another one."""
MIN_CUT_DISTANCE = 0.1
"""Minimum distance of a cut from the ends of a box, relative to its width."""
CURVE_TOLERANCE = 1e-8
"""How far a curve may lie above its tangents, in its own units."""
MAX_TANGENT_ROUNDS = 60
MIN_DUAL = 0.1
"""Added to the duals of rows that weight the errors of levels, because a row without a price in a
wide box may be the one that the optimum violates. Values from .03 to .3 need equally few boxes,
1e-6 fifty times as many.
"""

Tangents = Sequence[tuple[int, LinearTerm]]
"""The number of a curve and one of its tangents each."""


@dataclass(frozen=True)
class RelaxationOptimum:
    """The optimum of a relaxation.

    Attributes
    ----------
    value
        Its objective, a lower bound for all points of the hull with levels in the boxes.
    weights, rates
        (T,) chances, with sum 1 in each block, and (K,) rates.
    levels
        (P,) mean levels of the points.
    off
        (P,) error of the relaxation at each level, in units of the objective: 0 if it is exact.
    scale
        The sum of the weights before they were normalized.
    duals
        (m + 1,) minus the scale for the objective, and duals of the rows, times the scale.
    """

    value: float
    weights: Array
    rates: Array
    levels: Array
    off: Array
    scale: float
    duals: Array


class Relaxation:
    """A relaxation that keeps the tangents of curves from one call to the next.

    With `elastic` the objective is the largest constraint. `floor` 0 allows denominators of 0,
    where ratios may have any value, as proofs require.

    The linear program has a column for each point, and for each curve its height above its minimum.
    Its rows are the objective, the line that is 1, equal weights and equal mean levels of blocks,
    the rows of the bilinear program, and the tangents of curves.

    Attributes
    ----------
    bilinear, curves
        The bilinear form of the program, and its convex terms, those of the objective first.
    is_flat
        Whether one linear program is exact except for curves, so that its prices are right.
    """

    def __init__(
        self,
        program: RateProgram,
        columns: RatePoints,
        *,
        elastic: bool = False,
        floor: float = MIN_DENOMINATOR_SHARE,
        tangents: Tangents = (),
    ) -> None:
        self.program, self.columns, self.elastic = program, columns, elastic
        self.bilinear = bilinear = BilinearProgram(program, columns, elastic=elastic, floor=floor)
        forms = (*bilinear.aims, *program.constraints)
        self.curves = [curve for each in forms for curve in each.curves]
        self.is_flat = not any(
            form.shares.any() for form in (forms[1:] if bilinear.scaled else forms)
        )
        middle = columns.middle
        tangents = tangents or [
            (k, line)
            for k, curve in enumerate(self.curves)
            for line in curve.lines or [curve.tangent(middle)]
        ]
        self.tangents = sorted(tangents, key=lambda each: each[0])
        # lower bounds of the curves, each from its first tangent
        first = dict(reversed(self.tangents))
        self._least = np.array([columns.range(first[k])[0] for k in range(len(self.curves))])
        # (K + 1, T) factors of a line's slopes and constant; the first block has the origin
        members = 1.0 * (columns.block == np.arange(columns.blocks)[:, None])
        points = columns.points + np.outer(columns.origin, members[0])
        self._points = np.vstack([points, members[0]])
        # (B - 1, n) membership in each further block minus membership in the first
        self._balance = np.pad(members[1:] - members[0], ((0, 0), (0, len(self.curves))))
        self._equal = 1 + len(self._balance) * (1 + len(bilinear.boxes))
        self._places, self._slopes, times = self._products()
        self._linear = LevelLp(self._rows(), times, self._places, self._equal)

    def _entries(self, line: LinearTerm, curves: Sequence[int], sign: float = 1.0) -> Array:
        """Return the entries (n,) of `line + sign * sum of curves`."""
        heights = np.zeros(len(self.curves))
        for curve in curves:
            line += sign * float(self._least[curve])
            heights[curve] += sign
        return np.append(line.vector @ self._points, heights)

    def _rows(self) -> Array:
        """Return the matrix (m + 1, n) of the linear program, the objective first."""
        bilinear = self.bilinear
        one = bilinear.scaled or self.program.objective.line * 0.0 + 1.0
        objective, *rows = (
            self._entries(row.line, row.curves) for row in (bilinear.objective, *bilinear.rows)
        )
        levels = np.zeros((len(self._balance) * len(bilinear.boxes), len(objective)))
        rows += [self._entries(line, (curve,), -1.0) for curve, line in self.tangents]
        return np.vstack([objective, self._entries(one, ()), self._balance, levels, *rows])

    def _products(self) -> tuple[NDArray[np.int64], Array, Array]:
        """Return the L terms that depend on levels.

        Each is given by its level and row (L, 2), by the slopes and the constant of the line that
        the level multiplies (L, K + 1), and by the entries of that line (L, n).
        """
        terms = [(p, 0, line) for p, line in self.bilinear.objective.times.items()]
        for i, row in enumerate(self.bilinear.rows, 1 + self._equal):
            terms += [(p, i, line) for p, line in row.times.items()]
        products = [(p, i, line.vector, self._entries(line, ())) for p, i, line in terms]
        none, blocks = np.zeros(len(self._points)), len(self._balance)
        products += [
            (p, 2 + (1 + p) * blocks + b, none, row)
            for p in range(len(self.bilinear.boxes))
            for b, row in enumerate(self._balance)
        ]
        products.sort(key=lambda product: product[1])  # rows in order
        width = self._points.shape[1] + len(self.curves)
        return (
            np.array([product[:2] for product in products], dtype=np.int64).reshape(-1, 2),
            np.array([product[2] for product in products]).reshape(-1, len(none)),
            np.array([product[3] for product in products]).reshape(-1, width),
        )

    def solve(self, boxes: Array) -> RelaxationOptimum | None:
        """Return the optimum for levels within boxes (P, 2), None if it is infeasible.

        Raises
        ------
        ArithmeticError
            If a linear program cannot be solved.
        """
        for _ in range(MAX_TANGENT_ROUNDS):
            found = self._linear.solve(boxes)
            if found is None:
                return None
            relaxed = self._relaxed(found)
            if not self._add_tangents(relaxed.rates, found):
                break
        return relaxed

    def point(self, weights: Array) -> RelaxationOptimum:
        """Return a point with these weights of the first points; its prices are the objective's."""
        columns, none = self.columns, np.zeros(len(self.bilinear.boxes))
        weights = np.pad(weights, (0, columns.points.shape[1] - len(weights)))
        rates = columns.points @ weights + columns.origin
        duals = -1.0 * (np.arange(len(self._rows())) == 0)
        return RelaxationOptimum(-np.inf, weights, rates, none, none, 1.0, duals)

    def _relaxed(self, found: LpOptimum) -> RelaxationOptimum:
        count = self.columns.points.shape[1]
        own = found.columns < count
        columns, levels, x = found.columns[own], found.levels[own], found.x[own]
        first = np.where(self.columns.block[columns] == 0, x, 0.0)
        scale = float(first.sum())
        weights = np.bincount(columns, x, count) / scale
        rates = self.columns.points @ weights + self.columns.origin
        mean = first @ levels / scale
        off = self._off(found, mean)
        # the row of a scaled objective has no constant
        constant = self.program.objective.line.constant if self.bilinear.scaled else 0.0
        value, duals = float(found.duals[1]) + constant, found.duals * scale
        return RelaxationOptimum(value, weights, rates, mean, off, scale, duals)

    def _off(self, found: LpOptimum, mean: Array) -> Array:
        """(P,) error at each level, weighted by the duals of the rows."""
        levels, rows = self._places.T
        each = self._linear.times[:, found.columns]
        taken = (each * found.levels.T[levels]) @ found.x
        missed = np.abs(mean[levels] * (each @ found.x) - taken)
        weights = np.abs(found.duals[rows]) + MIN_DUAL
        return np.asarray(np.bincount(levels, missed * weights, len(mean)), dtype=float)

    def prices(self, relaxed: RelaxationOptimum) -> Array:
        """Return (K,) the cost of a unit of each rate: Lagrangian slopes with levels fixed."""
        bilinear, duals, places = self.bilinear, relaxed.duals, self._places
        objective, none = bilinear.objective.line, self.program.objective.line * 0.0
        lines = [bilinear.scaled or none, *[none] * (self._equal - 1)]
        lines += [row.line for row in bilinear.rows] + [line for _, line in self.tangents]
        # tangents may have been added after the last solution
        fixed = duals[1:] @ np.array([line.slopes for line in lines[: len(duals) - 1]])
        taken = duals[places[:, 1]] * relaxed.levels[places[:, 0]]
        return np.asarray(objective.slopes * relaxed.scale - fixed - taken @ self._slopes[:, :-1])

    def multipliers(self, relaxed: RelaxationOptimum) -> Array:
        """Return (J,) multipliers in units of the objective; 0 for constraints in a spread."""
        found = np.zeros(len(self.program.constraints))
        for row, dual in zip(self.bilinear.rows, relaxed.duals[1 + self._equal :], strict=False):
            if row.owner is not None and row.by is not None:
                found[row.owner] = -dual * float(row.by.at(relaxed.rates))
        return found

    def _add_tangents(self, rates: Array, found: LpOptimum) -> bool:
        """Add a tangent to each curve that lies above its height, and return whether any did."""
        count = self.columns.points.shape[1]
        own = (found.columns < count) & (self.columns.block[found.columns % count] == 0)
        rest = found.columns >= count
        sizes = found.x[rest] / found.x[own].sum()
        heights = self._least + np.bincount(found.columns[rest] - count, sizes, len(self.curves))
        tangents = [(k, curve.tangent(rates)) for k, curve in enumerate(self.curves)]
        above = [(k, t) for k, t in tangents if t.at(rates) > heights[k] + CURVE_TOLERANCE]
        if above:
            rows = [self._entries(line, (curve,), -1.0) for curve, line in above]
            fixed = np.vstack([self._linear.fixed, *rows])
            self._linear = LevelLp(fixed, self._linear.times, self._places, self._equal)
            self.tangents = [*self.tangents, *above]
        return bool(above)


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
    first_order_gap
        For a local optimum (`hull.local`), by how much the tangents of the objective would improve
        at another point of the hull. NaN for points with a bound.
    """

    weights: Array
    rates: Array
    value: float
    bound: float
    prices: Array
    multipliers: Array
    tangents: Tangents
    feasible: bool
    first_order_gap: float = np.nan


def optimize_over_hull(
    program: RateProgram,
    points: RatePoints,
    gap: float,
    tangents: Tangents = (),
    *,
    nodes: int = MAX_NODES,
    frugal: bool = False,
    near: Array | None = None,
) -> HullOptimum | None:
    """Return the best point of a hull, up to a gap between value and bound.

    If the relaxation has no levels, its first program is exact. Otherwise boxes of levels are split
    in two at the level with the largest error. After `nodes` boxes, or if a box was dropped that
    could neither be split nor gave a point, the bound is still valid, but may be further than `gap`
    away. The search starts from the weights `near` of the first points, if given. A `frugal` one,
    one of many, opens fewer boxes where they take long and prove little: with many levels, and for
    the least violation if no point satisfies the constraints.

    If no point was found that satisfies all constraints, a point of least violation is searched
    for. It counts as feasible if it satisfies them after all; None if a constraint is undefined at
    all points.
    """
    relaxation = Relaxation(program, points, tangents=tangents)
    if frugal:
        share = min(1.0, FEW_LEVELS / max(len(relaxation.bilinear.boxes), 1)) ** 5
        nodes = max(int(share * nodes), MIN_NODES)
    search = _BranchAndBound(relaxation, gap, nodes, near)
    if search.found is not None:
        halvings = MAX_HALVINGS if frugal else 1
        return _polished_optimum(
            relaxation, search.found, search.upper, search.bound, halvings=halvings
        )
    if frugal and search.bound == np.inf:
        nodes = max(nodes // 10, MIN_NODES)
    nearest = _BranchAndBound(Relaxation(program, points, elastic=True), gap, nodes, near)
    if nearest.found is None:
        return None
    value = _point_value(relaxation, nearest.found)
    if value == np.inf:
        return _polished_optimum(nearest.relaxation, nearest.found, nearest.upper, nearest.bound)
    bound = search.bound if search.bound < np.inf else -np.inf
    return _polished_optimum(relaxation, nearest.found, value, bound, nearest.relaxation)


def min_violation(program: RateProgram, kinds: RowKinds) -> tuple[float, Array | None]:
    """Return a lower bound of the largest constraint under any decisions on the rows.

    Above 0, it proves that no decisions satisfy all constraints. It is at most `VIOLATION_GAP`
    below the least possible value unless that is below 0 or the search ended after `MAX_NODES`
    boxes. Denominators may be 0: ratios have any value there.

    Also return the rates (K,) of the decisions with the smallest violation found, if any.
    """
    relaxation = Relaxation(program, RatePoints.decisions(kinds), elastic=True, floor=0.0)
    search = _BranchAndBound(relaxation, VIOLATION_GAP)
    if search.found is None:
        return 0.0, None
    return min(search.upper, search.bound), search.found.rates


class _BranchAndBound:
    """Boxes by their bounds, the best point so far, and the lowest bound of dropped boxes."""

    def __init__(
        self,
        relaxation: Relaxation,
        gap: float,
        nodes: int = MAX_NODES,
        near: Array | None = None,
    ) -> None:
        """Search until the gap is closed or, if elastic, until all constraints are satisfied.

        At most `nodes` boxes are opened. The first point has the weights `near`, or 0 for points
        beyond them; the second has fractions linearized there.
        """
        self.relaxation, self.gap, self.count = relaxation, gap, itertools.count()
        self.found: RelaxationOptimum | None = None
        self.upper = self.left_out = np.inf
        self.heap: list[tuple[float, int, Array, RelaxationOptimum]] = []
        enough = 0.0 if self.relaxation.elastic else -np.inf
        if near is not None and not relaxation.is_flat:
            known = relaxation.point(near)
            self._take(known, self._linearized_optimum(known.rates))
        self._open(self.relaxation.bilinear.boxes, -np.inf)
        for node in range(nodes):
            if not self.heap or self.heap[0][0] >= self.upper - self.gap or self.upper <= enough:
                break
            lower, _, boxes, relaxed = heapq.heappop(self.heap)
            self._take(*_candidate_points(self.relaxation, relaxed))
            if self.found is None and node >= MAX_NODES_WITHOUT_POINT:
                self._take(self._linearized_optimum(relaxed.rates))
            parts = _split_box(boxes, relaxed)
            self.left_out = self.left_out if parts else min(self.left_out, lower)
            for part in parts:
                self._open(part, lower)

    def _take(self, *points: RelaxationOptimum | None) -> None:
        """Replace the best point by better ones."""
        for point in points:
            if point is not None and (value := _point_value(self.relaxation, point)) < self.upper:
                self.found, self.upper = point, value

    def _linearized_optimum(self, rates: Array) -> RelaxationOptimum | None:
        """Return the optimum with fractions linearized at `rates`, if it can be found."""
        near = _linearized_relaxation(self.relaxation, rates, loosen=False)
        return _solve_or_none(near, near.bilinear.boxes)

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
    relaxation: Relaxation,
    found: RelaxationOptimum,
    value: float,
    bound: float,
    solved: Relaxation | None = None,
    *,
    halvings: int = 1,
) -> HullOptimum:
    """Return the optimum with prices from the program with fractions linearized at the point.

    Up to `halvings` points on the way to the optimum of that program are tried: the optimum first,
    and each further point half as far. The search goes on from the first one that is better.
    `solved` is the relaxation that `found` is an optimum of, by default the same one.
    """
    priced, at = solved or relaxation, found
    fractions = relaxation.program.fractions
    for _ in range(0 if relaxation.is_flat else MAX_POLISH_ROUNDS):
        if not all(np.isfinite(each.at(found.rates)) for each in fractions):
            break  # an objective without a lower bound has no tangent at its minimum
        near = _linearized_relaxation(relaxation, found.rates)
        step = _solve_or_none(near, near.bilinear.boxes)
        if step is None:  # keep the point; only its prices are less accurate
            break
        priced, at = near, step
        steps = (_between(found, step, 0.5**k) for k in range(halvings))
        better = next(
            (x for x in steps if _point_value(relaxation, x) < value - MIN_IMPROVEMENT), None
        )
        if better is None:
            break
        found, value = better, _point_value(relaxation, better)
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


def _between(start: RelaxationOptimum, end: RelaxationOptimum, share: float) -> RelaxationOptimum:
    """Return the point at a share of the way between two points."""
    weights = (1 - share) * start.weights + share * end.weights
    rates = (1 - share) * start.rates + share * end.rates
    return replace(end, weights=weights, rates=rates)


def _linearized_relaxation(
    relaxation: Relaxation, rates: Array, *, loosen: bool = True
) -> Relaxation:
    """Return the relaxation with fractions linearized at `rates`.

    With `loosen`, constraints that `rates` violate must be satisfied only as well as there.
    """
    aim = relaxation.bilinear.scaled is None and not relaxation.elastic
    flat = relaxation.program.expanded(rates, objective=aim)
    excess = max(float(flat.excess(rates)), 0.0) if loosen and not relaxation.elastic else 0.0
    return Relaxation(
        flat.loosened(excess),
        relaxation.columns,
        elastic=relaxation.elastic,
        tangents=relaxation.tangents,
    )

"""A linear program that bounds a program over a hull from below.

In the bilinear form of a program, levels multiply lines in the rates. With weights q of the points
the products are `sum_j q_j * level_j * line_j`, where each point is taken at its own levels within
the box: the hull of all points at all levels, which is the tightest linear relaxation. It is exact
if the box has width 0. If points of several blocks are added, the mean levels of all blocks are
equal.

Curves are bounded from below by tangents (Kelley 1960).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.hull.bilinear import MIN_DENOMINATOR_SHARE, BilinearProgram
from ratecli.solvers.hull.forms import ConvexTerm, LinearTerm, RatePoints, RateProgram
from ratecli.solvers.hull.linear import LevelLp, LpOptimum

CURVE_TOLERANCE = 1e-8
"""How far a curve may lie above its tangents, in its own units."""
MAX_ROUNDS = 60
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


@dataclass
class Relaxation:
    """A relaxation that keeps the tangents of curves from one call to the next.

    With `elastic` the objective is the largest constraint. `floor` 0 allows denominators of 0,
    where ratios may have any value, as proofs require.
    """

    program: RateProgram
    columns: RatePoints
    elastic: bool = False
    floor: float = MIN_DENOMINATOR_SHARE
    tangents: Tangents = ()
    _last: LevelLp | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        middle = self.columns.middle
        tangents = self.tangents or [(k, c.tangent(middle)) for k, c in enumerate(self.curves)]
        self.tangents = sorted(tangents, key=lambda each: each[0])

    @cached_property
    def bilinear(self) -> BilinearProgram:
        """The bilinear form of the program."""
        return BilinearProgram(self.program, self.columns, elastic=self.elastic, floor=self.floor)

    @property
    def boxes(self) -> Array:
        """(P, 2) ranges of the levels that have to be searched."""
        return self.bilinear.boxes

    @cached_property
    def is_flat(self) -> bool:
        """Whether one linear program is exact except for curves, so that its prices are right."""
        aims = () if self.elastic or self.bilinear.scaled else (self.program.objective,)
        return not any(form.shares.any() for form in (*aims, *self.program.constraints))

    @cached_property
    def curves(self) -> tuple[ConvexTerm, ...]:
        """The convex terms, those of the objective first."""
        forms = (*(() if self.elastic else (self.program.objective,)), *self.program.constraints)
        return tuple(curve for each in forms for curve in each.curves)

    def solve(self, boxes: Array) -> RelaxationOptimum | None:
        """Return the optimum for levels within boxes (P, 2), None if it is infeasible.

        Raises
        ------
        ArithmeticError
            If a linear program cannot be solved.
        """
        for _ in range(MAX_ROUNDS):
            found = self._linear.solve(boxes)
            if found is None:
                return None
            relaxed = self._relaxed(found)
            if not self._add_tangents(relaxed.rates, found):
                break
        return relaxed

    # Columns: the points, and for each curve its height above its minimum.
    # Rows: the objective; the line that is 1; equal weights and equal mean levels of blocks; the
    # rows of the program; tangents of curves.

    @cached_property
    def _points(self) -> Array:
        """(K + 1, T) factors of a line's slopes and constant; the first block has the origin."""
        first = (self.columns.block == 0).astype(float)
        return np.vstack([self.columns.points + np.outer(self.columns.origin, first), first])

    @cached_property
    def _least(self) -> Array:
        """Lower bounds of the curves, each from its first tangent."""
        first = dict(reversed(self.tangents))
        return np.array([self.columns.range(first[k])[0] for k in range(len(self.curves))])

    @cached_property
    def _balance(self) -> Array:
        """(B - 1, n) membership in each further block minus membership in the first."""
        members = self.columns.membership()
        return np.pad(members[1:] - members[0], ((0, 0), (0, len(self.curves))))

    @property
    def _equal(self) -> int:
        """Number of rows that are equations."""
        return 1 + len(self._balance) * (1 + len(self.boxes))

    def _entries(self, line: LinearTerm, curves: Sequence[int], sign: float = 1.0) -> Array:
        """Return the entries (n,) of `line + sign * sum of curves`."""
        heights = np.zeros(len(self.curves))
        for curve in curves:
            line += sign * float(self._least[curve])
            heights[curve] += sign
        return np.append(line.vector @ self._points, heights)

    @cached_property
    def _rows(self) -> Array:
        """(m + 1, n) all rows except tangents of curves."""
        bilinear = self.bilinear
        one = bilinear.scaled or self.program.objective.line * 0.0 + 1.0
        objective, *rows = (
            self._entries(row.line, row.curves) for row in (bilinear.objective, *bilinear.rows)
        )
        levels = np.zeros((len(self._balance) * len(self.boxes), len(objective)))
        return np.vstack([objective, self._entries(one, ()), self._balance, levels, *rows])

    @cached_property
    def _products(self) -> tuple[NDArray[np.int64], Array, Array]:
        """Terms that depend on levels.

        (L, 2) level and row of each, (L, K + 1) slopes and constants of its factor, and (L, n) its
        factor in the columns.
        """
        terms = [(p, 0, line) for p, line in self.bilinear.objective.times.items()]
        for i, row in enumerate(self.bilinear.rows, 1 + self._equal):
            terms += [(p, i, line) for p, line in row.times.items()]
        products = [(p, i, line.vector, self._entries(line, ())) for p, i, line in terms]
        none, blocks = np.zeros(len(self._points)), len(self._balance)
        products += [
            (p, 2 + (1 + p) * blocks + b, none, row)
            for p in range(len(self.boxes))
            for b, row in enumerate(self._balance)
        ]
        products.sort(key=lambda product: product[1])  # rows in order
        return (
            np.array([product[:2] for product in products], dtype=np.int64).reshape(-1, 2),
            np.array([product[2] for product in products]).reshape(-1, len(none)),
            np.array([product[3] for product in products]).reshape(-1, self._rows.shape[1]),
        )

    @property
    def _linear(self) -> LevelLp:
        before = self._rows if self._last is None else self._last.fixed
        missing = self.tangents[len(before) - len(self._rows) :]
        if self._last is None or missing:
            places, _, times = self._products
            tangents = [self._entries(line, (curve,), -1.0) for curve, line in missing]
            self._last = LevelLp(np.vstack([before, *tangents]), times, places, self._equal)
        return self._last

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
        places, _, times = self._products
        levels, rows = places.T
        each = times[:, found.columns]
        taken = (each * found.levels.T[levels]) @ found.x
        missed = np.abs(mean[levels] * (each @ found.x) - taken)
        weights = np.abs(found.duals[rows]) + MIN_DUAL
        return np.asarray(np.bincount(levels, missed * weights, len(mean)), dtype=float)

    def prices(self, relaxed: RelaxationOptimum) -> Array:
        """Return (K,) the cost of a unit of each rate: Lagrangian slopes with levels fixed."""
        bilinear, duals = self.bilinear, relaxed.duals
        places, slopes, _ = self._products
        objective, none = bilinear.objective.line, self.program.objective.line * 0.0
        lines = [bilinear.scaled or none, *[none] * (self._equal - 1)]
        lines += [row.line for row in bilinear.rows] + [line for _, line in self.tangents]
        # tangents may have been added after the last solution
        fixed = duals[1:] @ np.array([line.slopes for line in lines[: len(duals) - 1]])
        taken = duals[places[:, 1]] * relaxed.levels[places[:, 0]]
        return np.asarray(objective.slopes * relaxed.scale - fixed - taken @ slopes[:, :-1])

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
        self.tangents = [*self.tangents, *above]
        return bool(above)

"""A linear program that bounds a program over a hull from below.

In the bilinear form of a program, levels multiply lines in the rates. With weights q of the points
the products are `sum_j q_j * level_j * line_j`, where each point is taken at its own levels within
the box: the hull of all points at all levels, which is the tightest linear relaxation. It is exact
if the box has width 0. If points of several blocks are added, the mean levels of all blocks are
equal.

Curves are bounded from below by tangents (Kelley 1960).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.hull.bilinear import MIN_DENOMINATOR_SHARE, BilinearProgram, BilinearRow
from ratecli.solvers.hull.columns import RatePoints
from ratecli.solvers.hull.forms import ConvexTerm, LinearTerm, RateProgram
from ratecli.solvers.hull.linear import LevelLp, LpOptimum

CURVE_TOLERANCE = 1e-8
"""How far a curve may lie above its tangents, in its own units."""
MAX_ROUNDS = 60
MIN_DUAL = 0.1
"""Added to the duals of rows that weight the errors of levels, because a row without a price in a
wide box may be the one that the optimum violates. Values from .03 to .3 need equally few boxes,
1e-6 fifty times as many.
"""


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
        (m,) duals of the rows, times the scale.
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
    touching: list[list[LinearTerm]] = field(default_factory=list)
    _last: LevelLp | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not self.touching:
            middle = self.columns.middle
            self.touching = [[curve.touching(middle)] for curve in self.curves]

    @cached_property
    def bilinear(self) -> BilinearProgram:
        """The bilinear form of the program."""
        return BilinearProgram.of(
            self.program, self.columns, elastic=self.elastic, floor=self.floor
        )

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
            if not self._touch(relaxed.rates, found):
                break
        return relaxed

    # Columns: the points, and for each curve its height above its minimum.
    # Rows: the line that is 1; equal weights and equal mean levels of blocks; the rows of the
    # program; tangents of curves.

    @cached_property
    def _points(self) -> Array:
        """(K + 1, T) factors of a line's slopes and constant; the first block has the origin."""
        first = (self.columns.block == 0).astype(float)
        return np.vstack([self.columns.points + np.outer(self.columns.origin, first), first])

    @cached_property
    def _least(self) -> list[float]:
        """Lower bounds of the curves, each from its first tangent."""
        lines = (each[0] for each in self.touching)
        return [self.columns.range(line.slopes, line.constant)[0] for line in lines]

    @cached_property
    def _balance(self) -> Array:
        """(B - 1, T) membership in each further block minus membership in the first."""
        members = self.columns.membership()
        return np.asarray(members[1:] - members[0])

    @property
    def _equal(self) -> int:
        """Number of rows that are equations."""
        return 1 + len(self._balance) * (1 + len(self.boxes))

    @cached_property
    def _rows(self) -> tuple[Array, Array]:
        """(m, n) all rows except tangents of curves, and (n,) the objective."""
        bilinear, curves = self.bilinear, len(self.curves)
        one = bilinear.scaled or LinearTerm(0.0 * self.columns.origin, 1.0)
        rows = np.stack(
            [self._values(row) for row in (BilinearRow(one), *bilinear.rows, bilinear.objective)]
        )
        levels = np.zeros((len(self._balance) * len(self.boxes), rows.shape[1]))
        balance = np.pad(self._balance, ((0, 0), (0, curves)))
        return np.vstack([rows[:1], balance, levels, rows[1:-1]]), rows[-1]

    def _values(self, row: BilinearRow) -> Array:
        line, heights = row.line, np.zeros(len(self.curves))
        for curve in row.curves:
            line += LinearTerm(0.0 * line.slopes, self._least[curve])
            heights[curve] += 1.0
        return np.append(_slopes_and_constant(line) @ self._points, heights)

    @cached_property
    def _products(self) -> tuple[NDArray[np.int64], Array, Array]:
        """Terms that depend on levels.

        (L, 2) level and row of each, (L, K + 1) slopes and constants of its factor, and (L, n) its
        factor in the columns.
        """
        blocks, count = len(self._balance), len(self.boxes)
        places, slopes, times = [], [], []
        for p in range(count):
            for b in range(blocks):
                places.append((p, 1 + blocks + p * blocks + b))
                slopes.append(np.zeros(len(self._points)))
                times.append(self._balance[b])
        for i, row in enumerate(self.bilinear.rows):
            for p, line in row.times.items():
                places.append((p, self._equal + i))
                slopes.append(_slopes_and_constant(line))
                times.append(_slopes_and_constant(line) @ self._points)
        found = np.array(times).reshape(len(times), self._points.shape[1])
        return (
            np.array(places, dtype=np.int64).reshape(-1, 2),
            np.array(slopes).reshape(-1, len(self._points)),
            np.pad(found, ((0, 0), (0, len(self.curves)))),
        )

    @cached_property
    def _cost_times(self) -> Array:
        found = np.zeros((len(self.boxes), self._points.shape[1] + len(self.curves)))
        for p, line in self.bilinear.objective.times.items():
            found[p, : self._points.shape[1]] = _slopes_and_constant(line) @ self._points
        return found

    @cached_property
    def _held(self) -> list[tuple[LinearTerm, Array]]:
        """Tangents of curves with their rows (n,)."""
        each = enumerate(self.touching)
        return [(line, self._below(curve, line)) for curve, lines in each for line in lines]

    def _below(self, curve: int, line: LinearTerm) -> Array:
        heights = np.zeros(len(self.curves))
        heights[curve] = -1.0
        low = LinearTerm(0.0 * line.slopes, -self._least[curve])
        return np.append(_slopes_and_constant(line + low) @ self._points, heights)

    @property
    def _linear(self) -> LevelLp:
        if self._last is None or len(self._last.fixed) != len(self._rows[0]) + len(self._held):
            fixed, cost = self._rows
            places, _, times = self._products
            rows = np.vstack([fixed, *(row for _, row in self._held)])
            self._last = LevelLp(rows, times, places, cost, self._cost_times, self._equal)
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
        return RelaxationOptimum(
            float(found.duals[0]) + self._constant,
            weights,
            rates,
            mean,
            self._off(found, mean),
            scale,
            found.duals * scale,
        )

    @property
    def _constant(self) -> float:
        """The constant of a scaled objective, which its row does not contain."""
        return self.program.objective.line.constant if self.bilinear.scaled else 0.0

    def _off(self, found: LpOptimum, mean: Array) -> Array:
        """(P,) error at each level, weighted by the duals of the rows."""
        places, _, times = self._products
        levels, rows = places.T
        each = times[:, found.columns]
        taken = (each * found.levels.T[levels]) @ found.x
        missed = np.abs(mean[levels] * (each @ found.x) - taken)
        weights = np.abs(found.duals[rows]) + MIN_DUAL
        return np.asarray(np.bincount(levels, missed * weights, len(mean)), dtype=float)

    @cached_property
    def _slopes(self) -> Array:
        """(m, K) slopes in the rates of all rows except tangents."""
        bilinear = self.bilinear
        one = np.zeros((self._equal, len(self.columns.origin)))
        if bilinear.scaled:
            one[0] = bilinear.scaled.slopes
        rows = [row.line.slopes for row in bilinear.rows]
        return np.vstack([one, *rows])

    def prices(self, relaxed: RelaxationOptimum) -> Array:
        """Return (K,) the cost of a unit of each rate: Lagrangian slopes with levels fixed."""
        places, slopes, _ = self._products
        duals = relaxed.duals
        held = [line.slopes for line, _ in self._held]
        lines = np.vstack([self._slopes, *held])[
            : len(duals)
        ]  # tangents may have been added after the last solution
        costs = self.bilinear.objective.line.slopes * relaxed.scale - duals @ lines
        taken = duals[places[:, 1]] * relaxed.levels[places[:, 0]]
        return np.asarray(costs - taken @ slopes[:, :-1])

    def multipliers(self, relaxed: RelaxationOptimum) -> Array:
        """Return (J,) multipliers in units of the objective; 0 for constraints in a spread."""
        found = np.zeros(len(self.program.constraints))
        for row, dual in zip(self.bilinear.rows, relaxed.duals[self._equal :], strict=False):
            if row.owner is not None and row.by is not None:
                found[row.owner] = -dual * float(row.by.at(relaxed.rates))
        return found

    def _touch(self, rates: Array, found: LpOptimum) -> bool:
        """Add a tangent to each curve that lies above its height, and return whether any did."""
        if not self.curves:
            return False
        count = self.columns.points.shape[1]
        own = (found.columns < count) & (self.columns.block[found.columns % count] == 0)
        rest = found.columns - count
        heights = np.array(self._least)
        np.add.at(heights, rest[rest >= 0], found.x[rest >= 0] / found.x[own].sum())
        above = False
        for number, (curve, height) in enumerate(zip(self.curves, heights, strict=True)):
            line = curve.touching(rates)
            if line.at(rates) > height + CURVE_TOLERANCE:
                self._held.append((line, self._below(number, line)))
                self.touching[number].append(line)
                above = True
        return above


def _slopes_and_constant(line: LinearTerm) -> Array:
    """Return (K + 1,) slopes and constant."""
    return np.append(line.slopes, line.constant)

"""A linear program that bounds a program over a hull from below.

In the bilinear form of a program levels multiply lines in the rates. With weights q of the points the
products are `sum_j q_j * level_j * line_j`, where each point is taken at levels of its own within the
box: the hull of all points at all levels there, which nothing linear is closer to. It is exact where
the box has no width. Where points of several blocks are added, each block's are taken at levels of the
same mean.

Curves are held from below by lines that touch them (Kelley 1960).
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
"""How far a curve may lie above the lines that hold it, in its own units."""
MAX_ROUNDS = 60
MIN_DUAL = 0.1
"""Added to the dual of a row where it is asked how far levels are off: one that costs nothing in a wide box
may be what the optimum breaks. Between .03 and .3 as few boxes do, with 1e-6 fifty times as many.
"""


@dataclass(frozen=True)
class RelaxationOptimum:
    """The optimum of a relaxation.

    Attributes
    ----------
    value
        Its objective: no point of the hull with levels in the boxes has less.
    weights, rates
        (T,) chances, adding up to 1 in each block, and (K,) rates.
    levels
        (P,) means of the levels that points are taken at.
    off
        (P,) how far the program is from what it would be at these levels, in units of the objective:
        0 where it is exact.
    scale
        What the weights added up to before they were divided by it.
    duals
        (m,) of the rows, times the scale.
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
    """Lines that hold the curves are kept from one call to the next.

    With `elastic` the objective is the least amount that no constraint is above. `floor` 0 lets bottoms be
    0, where their ratios count as any number: for proofs.
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
        return BilinearProgram.of(
            self.program, self.columns, elastic=self.elastic, floor=self.floor
        )

    @property
    def boxes(self) -> Array:
        """(P, 2) all levels that need be looked at."""
        return self.bilinear.boxes

    @cached_property
    def is_flat(self) -> bool:
        """Whether its one linear program is exact but for curves, and so its prices are right."""
        aims = () if self.elastic or self.bilinear.scaled else (self.program.objective,)
        return not any(form.shares.any() for form in (*aims, *self.program.constraints))

    @cached_property
    def curves(self) -> tuple[ConvexTerm, ...]:
        """The objective's first."""
        forms = (*(() if self.elastic else (self.program.objective,)), *self.program.constraints)
        return tuple(curve for each in forms for curve in each.curves)

    def solve(self, boxes: Array) -> RelaxationOptimum | None:
        """The optimum for levels within boxes (P, 2), None where there is none.

        Raises
        ------
        ArithmeticError
            Where a linear program cannot be solved.
        """
        for _ in range(MAX_ROUNDS):
            found = self._linear.solve(boxes)
            if found is None:
                return None
            relaxed = self._relaxed(found)
            if not self._touch(relaxed.rates, found):
                break
        return relaxed

    # Columns are the points, and a height above its least of each curve. Rows: what is 1; that blocks
    # have the weight of the first, and its mean levels; the rows of the program; lines below curves.

    @cached_property
    def _points(self) -> Array:
        """(K + 1, T) what slopes and constant of a line are multiplied by: the origin is in the first block."""
        first = (self.columns.block == 0).astype(float)
        return np.vstack([self.columns.points + np.outer(self.columns.origin, first), first])

    @cached_property
    def _least(self) -> list[float]:
        """Of each curve, by the first line below it."""
        lines = (each[0] for each in self.touching)
        return [self.columns.range(line.slopes, line.constant)[0] for line in lines]

    @cached_property
    def _balance(self) -> Array:
        """(B - 1, T) of a block less those of the first."""
        members = self.columns.membership()
        return np.asarray(members[1:] - members[0])

    @property
    def _equal(self) -> int:
        return 1 + len(self._balance) * (1 + len(self.boxes))

    @cached_property
    def _rows(self) -> tuple[Array, Array]:
        """(m, n) of all rows but those of lines below curves, and (n,) the objective."""
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
        """Places (L, 2) of levels in rows, and what they are multiplied by, (L, K + 1) slopes and
        constants, and (L, n) in columns.
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
        """Lines below curves, and their rows (n,)."""
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
        """What is not among the rates of an objective that is scaled."""
        return self.program.objective.line.constant if self.bilinear.scaled else 0.0

    def _off(self, found: LpOptimum, mean: Array) -> Array:
        places, _, times = self._products
        levels, rows = places.T
        each = times[:, found.columns]
        taken = (each * found.levels.T[levels]) @ found.x
        missed = np.abs(mean[levels] * (each @ found.x) - taken)
        weights = np.abs(found.duals[rows]) + MIN_DUAL
        return np.asarray(np.bincount(levels, missed * weights, len(mean)), dtype=float)

    @cached_property
    def _slopes(self) -> Array:
        """(m, K) in the rates, of the rows but those of lines below curves."""
        bilinear = self.bilinear
        one = np.zeros((self._equal, len(self.columns.origin)))
        if bilinear.scaled:
            one[0] = bilinear.scaled.slopes
        rows = [row.line.slopes for row in bilinear.rows]
        return np.vstack([one, *rows])

    def prices(self, relaxed: RelaxationOptimum) -> Array:
        """(K,) what a unit of each rate costs there: the slopes of the Lagrangian, levels held."""
        places, slopes, _ = self._products
        duals = relaxed.duals
        held = [line.slopes for line, _ in self._held]
        lines = np.vstack([self._slopes, *held])[: len(duals)]  # a last line may have come later
        costs = self.bilinear.objective.line.slopes * relaxed.scale - duals @ lines
        taken = duals[places[:, 1]] * relaxed.levels[places[:, 0]]
        return np.asarray(costs - taken @ slopes[:, :-1])

    def multipliers(self, relaxed: RelaxationOptimum) -> Array:
        """(J,) of the constraints, in units of the objective; 0 of those that are in a spread."""
        found = np.zeros(len(self.program.constraints))
        for row, dual in zip(self.bilinear.rows, relaxed.duals[self._equal :], strict=False):
            if row.owner is not None and row.by is not None:
                found[row.owner] = -dual * float(row.by.at(relaxed.rates))
        return found

    def _touch(self, rates: Array, found: LpOptimum) -> bool:
        """Add a line to each curve that lies above its height; whether any did."""
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
    """(K + 1,) slopes and constant."""
    return np.append(line.slopes, line.constant)

"""A linear program that bounds a program over a hull from below.

Its variables are the weights q of the points, a scale s, a level for each fraction, a height for each
curve, and a slack. Curves are held from below by lines that touch them. Of a fraction, `top = level *
bottom` is replaced by what that implies where levels and bottoms lie in a box: the envelope of the
product (McCormick 1976), which is exact where the box has no width.

An objective that is one fraction needs no level: weights are scaled until its bottom is 1, and its
top is minimized (Charnes and Cooper 1962).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, linprog

from ratecli.models.base import Array
from ratecli.solvers.hull.columns import Columns
from ratecli.solvers.hull.forms import Curve, Form, Fraction, Line, Program

TOLERANCE = 1e-8
"""How far a curve may lie above the lines that hold it, in its own units."""
EXACT = 1e-9
"""Up to which HiGHS meets rows."""
MAX_ROUNDS = 60
FLOOR = 1e-3
"""Of the largest value that a bottom has, the least that is allowed: a point where a bottom is nearly 0,
and its ratio undefined or anything at all, is never taken."""
STEEPEST = 1e6
"""Fractions beyond this are taken for it: their bottom is as good as 0."""
INFEASIBLE = 2
"""What HiGHS calls it in SciPy."""


@dataclass(frozen=True)
class Relaxed:
    """The optimum of a relaxation.

    Attributes
    ----------
    value
        Its objective: no point of the hull with levels in the boxes has less.
    weights, rates
        (T,) chances, adding up to 1 in each block, and (K,) rates.
    levels
        (M,) of the fractions.
    prices
        (K,) what a unit of each rate costs there: the slopes of the Lagrangian in the rates.
    multipliers
        (J,) of the constraints, in units of the objective.
    """

    value: float
    weights: Array
    rates: Array
    levels: Array
    prices: Array
    multipliers: Array


@dataclass(frozen=True)
class _Row:
    """A row of the program `coefficients @ x <= bound`, and its slopes (K,) in the rates."""

    coefficients: Array
    bound: float
    slopes: Array


@dataclass
class Relaxation:
    """Lines that hold the curves are kept from one call to the next.

    With `elastic` the objective is the least amount by which all constraints can be met. `floor` 0 lets
    bottoms be 0, where their ratios count as any number: for proofs.
    """

    program: Program
    columns: Columns
    elastic: bool = False
    floor: float = FLOOR
    touching: list[list[Line]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.touching:
            middle = self.columns.middle
            self.touching = [[curve.touching(middle)] for curve in self.curves]

    @cached_property
    def objective(self) -> Form:
        nothing = Form(Line(0.0 * self.columns.origin, 0.0), np.zeros(len(self.fractions)))
        return nothing if self.elastic else self.program.objective

    @property
    def fractions(self) -> tuple[Fraction, ...]:
        return self.program.fractions

    @cached_property
    def scaled(self) -> Fraction | None:
        """The fraction whose bottom is scaled to 1: the objective's, where it has nothing else and no
        constraint has fractions beside rates, for levels are not scaled.
        """
        (own,) = np.nonzero(self.objective.shares)
        alone = all(c.is_fractions or not c.shares.any() for c in self.program.constraints)
        fits = self.objective.is_fractions and len(own) == 1 and alone
        return self.fractions[own[0]] if fits else None

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """The objective's first."""
        forms = (self.objective, *self.program.constraints)
        return tuple(curve for each in forms for curve in each.curves)

    @cached_property
    def bottoms(self) -> Array:
        """(M, 2) least and largest value of each fraction's bottom, scaled as weights are."""
        found = [self._range(f.bottom) for f in self.fractions]
        return np.array(found).reshape(len(found), 2)

    @cached_property
    def boxes(self) -> Array:
        """(M, 2) levels within which every fraction lies over the hull."""
        found = [_values(fraction, self.columns) for fraction in self.fractions]
        return np.array(found).reshape(len(found), 2)

    def solve(self, boxes: Array) -> Relaxed | None:
        """The optimum for levels within boxes (M, 2), None where there is none.

        Raises
        ------
        ArithmeticError
            Where HiGHS gives up.
        """
        for _ in range(MAX_ROUNDS):
            rows = [*self._constraints, *self._floors, *self._levels(boxes), *self._heights()]
            found = self._solved(rows, boxes)
            if found.status == INFEASIBLE:
                return None
            if found.status != 0:
                raise ArithmeticError(f"a linear program was not solved: {found.message}")
            relaxed = self._relaxed(found, rows)
            if not self._touch(relaxed, found.x):
                break
        return relaxed

    # Variables, in this order: weights, scale, levels, heights, slack.

    @cached_property
    def _starts(self) -> dict[str, int]:
        sizes = {
            "weights": self.columns.points.shape[1],
            "scale": 1,
            "levels": len(self.fractions),
            "heights": len(self.curves),
            "slack": 1,
            "end": 0,
        }
        ends = np.cumsum([0, *sizes.values()])
        return dict(zip(sizes, ends.tolist(), strict=False))

    def _row(self, line: Line, bound: float = 0.0, **others: Mapping[int, float]) -> _Row:
        """A line in the rates, times the scale, plus multiples of other variables by their number."""
        starts = self._starts
        x = np.zeros(starts["end"])
        x[: starts["scale"]] = line.slopes @ self.columns.points
        x[starts["scale"]] = line.slopes @ self.columns.origin + line.constant
        for name, multiples in others.items():
            for number, multiple in multiples.items():
                x[starts[name] + number] = multiple
        return _Row(x, bound, line.slopes)

    @cached_property
    def _objective(self) -> _Row:
        if self.scaled:
            share = float(self.objective.shares.sum())
            return self._row(self.scaled.top * share)
        return self._row(
            self.objective.line,
            levels=dict(enumerate(self.objective.shares)),
            heights=dict.fromkeys(range(len(self.objective.curves)), 1.0),
            slack={0: float(self.elastic)},
        )

    @cached_property
    def _unscaled(self) -> NDArray[np.bool_]:
        """(J,) the constraints of fractions alone where weights are scaled: levels are not."""
        scaled = self.scaled is not None
        return np.array([scaled and c.is_fractions for c in self.program.constraints], dtype=bool)

    @cached_property
    def _constraints(self) -> list[_Row]:
        rows = []
        height = len(self.objective.curves)
        for each, unscaled in zip(self.program.constraints, self._unscaled, strict=True):
            heights = range(height, height := height + len(each.curves))
            line, bound = (each.line * 0.0, -each.line.constant) if unscaled else (each.line, 0.0)
            others = {"heights": dict.fromkeys(heights, 1.0), "slack": {0: -1.0}}
            rows.append(self._row(line, bound, levels=dict(enumerate(each.shares)), **others))
        return rows

    @cached_property
    def _floors(self) -> list[_Row]:
        """No bottom is nearly 0: there a fraction is not defined, and near it anything."""
        rows = []
        for fraction in self.fractions:
            line = fraction.bottom
            _, most = self.columns.range(line.slopes, line.constant)
            rows.append(self._row(line * -1.0 + Line(0.0 * line.slopes, self.floor * most)))
        return rows

    def _levels(self, boxes: Array) -> list[_Row]:
        """Top within the envelope of level times bottom."""
        rows = []
        for m, (fraction, (low, high), (least, most)) in enumerate(
            zip(self.fractions, boxes, self.bottoms, strict=True)
        ):
            corners = ((high, least, 1), (low, most, 1), (low, least, -1), (high, most, -1))
            for level, bottom, sign in corners:
                line = (fraction.top + fraction.bottom * -level) * sign
                rows.append(self._row(line, -sign * level * bottom, levels={m: -sign * bottom}))
        return rows

    def _heights(self) -> list[_Row]:
        return [
            self._row(line, heights={c: -1.0})
            for c, lines in enumerate(self.touching)
            for line in lines
        ]

    def _solved(self, rows: Sequence[_Row], boxes: Array) -> OptimizeResult:
        starts = self._starts
        equal, right = self._equations
        solve = partial(
            linprog,
            self._objective.coefficients,
            A_ub=np.array([row.coefficients for row in rows]).reshape(-1, starts["end"]),
            b_ub=np.array([row.bound for row in rows]),
            A_eq=np.array([row.coefficients for row in equal]),
            b_eq=right,
            bounds=[
                *[(0, None)] * starts["scale"],
                (0, None) if self.scaled else (1, 1),
                *boxes.tolist(),
                *[(None, None)] * len(self.curves),
                (None, None) if self.elastic else (0, 0),
            ],
        )
        exact = {"primal_feasibility_tolerance": EXACT, "dual_feasibility_tolerance": EXACT}
        found = solve(method="highs", options=exact)
        if found.status in {0, INFEASIBLE}:
            return found
        # of boxes that are narrow and just infeasible the simplex method may not know what to say
        return solve(method="highs-ipm", options={**exact, "presolve": False})

    @cached_property
    def _equations(self) -> tuple[list[_Row], list[float]]:
        """Weights of a block add up to the scale; the bottom that is scaled is 1."""
        rows = []
        for members in self.columns.membership():
            row = self._row(Line(0.0 * self.columns.origin, 0.0), scale={0: -1.0})
            row.coefficients[: len(members)] = members
            rows.append(row)
        if self.scaled is None:
            return rows, [0.0] * len(rows)
        return [*rows, self._row(self.scaled.bottom)], [0.0] * len(rows) + [1.0]

    def _relaxed(self, found: OptimizeResult, rows: Sequence[_Row]) -> Relaxed:
        starts, x = self._starts, found.x
        scale = float(x[starts["scale"]])
        weights = np.maximum(x[: starts["scale"]], 0.0) / scale
        equal, _ = self._equations
        prices = self._objective.slopes.copy()
        for row, multiplier in zip(rows, found.ineqlin.marginals, strict=True):
            prices -= multiplier * row.slopes
        for row, multiplier in zip(equal, found.eqlin.marginals, strict=True):
            prices -= multiplier * row.slopes
        constant = self.objective.line.constant if self.scaled else 0.0  # the others are in it
        count = len(self.program.constraints)
        return Relaxed(
            float(found.fun) + constant,
            weights,
            self.columns.points @ weights + self.columns.origin,
            x[starts["levels"] : starts["heights"]],
            prices * scale,
            -found.ineqlin.marginals[:count] * np.where(self._unscaled, 1.0, scale),
        )

    def _touch(self, relaxed: Relaxed, x: Array) -> bool:
        """Add a line to each curve that lies above its height; whether any did."""
        starts = self._starts
        heights = x[starts["heights"] : starts["slack"]] / x[starts["scale"]]
        above = False
        for curve, height, lines in zip(self.curves, heights, self.touching, strict=True):
            line = curve.touching(relaxed.rates)
            if line.at(relaxed.rates) > height + TOLERANCE:
                lines.append(line)
                above = True
        return above

    def _range(self, line: Line) -> tuple[float, float]:
        """Least and largest value of a line over the scaled hull."""
        if not self.scaled:
            return self.columns.range(line.slopes, line.constant)
        ends = [self._least(line), self._least(line * -1.0)]
        return ends[0], -ends[1]

    def _least(self, line: Line) -> float:
        equal, right = self._equations
        found = linprog(
            self._row(line).coefficients,
            A_eq=np.array([row.coefficients for row in equal]),
            b_eq=right,
            bounds=[(0, None)] * (self._starts["scale"] + 1)
            + [(0, 0)] * (self._starts["end"] - self._starts["scale"] - 1),
        )
        return float(found.fun) if found.status == 0 else -np.inf


def _values(fraction: Fraction, columns: Columns) -> tuple[float, float]:
    """Least and largest value of a fraction over the hull.

    Of one block's points the fraction of a mixture lies between theirs; of several its top and bottom
    are bounded each.
    """
    low, high = fraction.range
    if columns.blocks == 1:
        each = fraction.at(columns.points + columns.origin[:, None])
    else:
        lines = (fraction.top, fraction.bottom)
        top, bottom = (np.array(columns.range(line.slopes, line.constant)) for line in lines)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.divide.outer(top, bottom).ravel()
    each = each[~np.isnan(each)]
    return max(low, float(each.min()), -STEEPEST), min(high, float(each.max()), STEEPEST)

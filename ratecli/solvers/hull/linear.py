"""Linear programs with few rows and many columns at variable levels.

A column may be used at any levels in a box, even at several; its entries are affine in the levels.
Only corners of the box matter, and the cheapest corner of a column is found without enumeration.

They are solved by the revised simplex method with an explicit inverse. The column of least reduced
cost enters, and ties in the ratio test are broken by the lexicographic order (Dantzig, Orden and
Wolfe 1955), because the right side is the first unit vector and nearly all vertices are degenerate.
Results are verified; HiGHS takes over if the verification fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ratecli.models.base import Array

TOLERANCE = 1e-9
"""Tolerance for rows, whose entries are about 1, and for reduced costs."""
LARGE_DUAL = 1e6
"""If duals exceed this, the tolerance for reduced costs grows with their rounding errors."""
MIN_PIVOT = 1e-9
"""A row only leaves if its entry in the entering column is larger."""
MIN_ARTIFICIAL_PIVOT = 1e-7
"""The same if an artificial column leaves."""
RATIO_TIE = 1e-13
"""Ratios whose cross products differ by no more than this are tied."""
REFRESH_INTERVAL = 60
"""Number of pivots after which the inverse is recomputed."""
DUALITY_TOLERANCE = 1e-8
"""Largest difference of primal and dual value, relative to 1 plus the value."""
MAX_HIGHS_COLUMNS = 200_000
"""Maximum number of columns passed to HiGHS, which needs one per column and corner of the box."""
HIGHS_INFEASIBLE = 2
MAX_INTERPRETED_ROWS = 8
"""Programs with more rows, or with levels, are solved by compiled code."""


class SimplexTable(NamedTuple):
    """The costs of a program with P levels and N columns, followed by its m rows.

    Attributes
    ----------
    fixed
        (m + 1, N) the part of the columns that does not depend on levels: those of the program,
        then the slacks of inequalities, then an artificial column for each equation.
    places, times
        (L, 2) pairs of level and row, and (L, N) what a unit of the level adds to the row in each
        column.
    low, high
        (P,) ranges of the levels.
    equal
        Number of rows that are equations. Row 1 equals 1, other equations 0, the rest is at most 0.
    """

    fixed: Array
    places: NDArray[np.int64]
    times: Array
    low: Array
    high: Array
    equal: int


class SimplexBasis(NamedTuple):
    """A basis of m columns: their indices, levels (m, P), and costs and entries (m + 1, m).

    `inverse` is the inverse (m, m) of the entries. Its first column holds the values of the
    columns.
    """

    head: NDArray[np.int64]
    levels: Array
    matrix: Array
    inverse: Array


# Assignments to slices, also by `x[i] -= y`, `hstack` and `where` would take seconds to compile.


def run_simplex(table: SimplexTable, basis: SimplexBasis) -> bool:
    """Pivot until a fresh inverse gives no negative reduced cost; return whether that succeeded."""
    m = len(basis.inverse)
    candidates = table.fixed.shape[1] - table.equal
    pivots = 0
    for _ in range(200 + 50 * m):
        if pivots == REFRESH_INTERVAL:
            if not refresh_inverse(basis):
                return False
            pivots = 0
        duals = basis_duals(basis)
        reduced = np.zeros(table.fixed.shape[1])
        slopes = np.zeros((len(table.low), len(reduced)))
        for i in range(m + 1):
            if duals[i] != 0.0:
                reduced -= duals[i] * table.fixed[i]
        for k in range(len(table.places)):
            p, i = table.places[k]
            slope = slopes[p]
            slope -= duals[i] * table.times[k]
        for p in range(len(table.low)):
            reduced += np.minimum(table.low[p] * slopes[p], table.high[p] * slopes[p])
        j = np.argmin(reduced[:candidates])
        if reduced[j] >= -TOLERANCE * max(1.0, np.abs(duals).max() / LARGE_DUAL):
            if pivots == 0:
                return True
            pivots = REFRESH_INTERVAL
            continue
        levels = table.low.copy()
        for p in range(len(levels)):
            if slopes[p, j] <= 0:
                levels[p] = table.high[p]
        column = table.fixed[:, j].copy()
        for k in range(len(table.places)):
            p, i = table.places[k]
            column[i] += levels[p] * table.times[k, j]
        direction = np.zeros(m)
        for i in range(m):
            for k in range(m):
                direction[i] += basis.inverse[i, k] * column[1 + k]
        r = leaving_row(basis, direction, candidates)
        if r < 0:
            return False
        basis.head[r] = j
        for p in range(len(levels)):
            basis.levels[r, p] = levels[p]
        for i in range(m + 1):
            basis.matrix[i, r] = column[i]
        pivot_row = basis.inverse[r]
        pivot_row /= direction[r]
        for i in range(m):
            for k in range(m if i != r else 0):
                basis.inverse[i, k] -= direction[i] * basis.inverse[r, k]
        pivots += 1
    return False


def basis_duals(basis: SimplexBasis) -> Array:
    """Return the duals (m + 1,) of the rows; that of the costs is -1."""
    duals = np.zeros(len(basis.matrix))
    duals[0] = -1.0
    rows = duals[1:]
    for i in range(len(basis.inverse)):
        if basis.matrix[0, i] != 0.0:
            rows += basis.matrix[0, i] * basis.inverse[i]
    return duals


def refresh_inverse(basis: SimplexBasis) -> bool:
    """Recompute the inverse by elimination; return whether the matrix is invertible."""
    m = len(basis.inverse)
    both = np.zeros((m, 2 * m))
    for i in range(m):
        both[i, m + i] = 1.0
        for k in range(m):
            both[i, k] = basis.matrix[1 + i, k]
    for c in range(m):
        r = c + np.argmax(np.abs(both[c:, c]))
        if both[r, c] == 0.0:
            return False
        pivot = both[r] / both[r, c]
        for k in range(2 * m):
            both[r, k] = both[c, k]
            both[c, k] = pivot[k]
        for i in range(m):
            share = both[i, c]
            if i != c and share != 0.0:
                for k in range(2 * m):
                    both[i, k] -= share * pivot[k]
    for i in range(m):
        for k in range(m):
            basis.inverse[i, k] = both[i, m + k]
    return True


def leaving_row(basis: SimplexBasis, direction: Array, artificial: int) -> int:
    """Return the row of the lexicographically least ratio inverse / direction, -1 if none.

    Artificial columns, from `artificial` on, that have reached 0 stay at 0.
    """
    inverse = basis.inverse
    m, best = len(direction), -1
    for i in range(m):
        at_zero = basis.head[i] >= artificial and inverse[i, 0] <= TOLERANCE
        if at_zero and abs(direction[i]) > MIN_ARTIFICIAL_PIVOT:
            return i
        if direction[i] <= MIN_PIVOT:
            continue
        difference, k = -1.0 if best < 0 else 0.0, 0
        while abs(difference) <= RATIO_TIE and k < m:
            difference = inverse[i, k] * direction[best] - inverse[best, k] * direction[i]
            k += 1
        if difference < 0:
            best = i
    return best


Pivoting = Callable[[SimplexTable, SimplexBasis], bool]


@cache
def compiled_simplex() -> Pivoting:
    """Return `run_simplex` compiled: many times as fast, but loading numba takes 0.4 s."""
    import numba

    scope: dict[str, Any] = dict(globals())
    for function in (basis_duals, refresh_inverse, leaving_row, run_simplex):
        own = FunctionType(function.__code__, scope, function.__name__)
        own.__module__ = __name__
        scope[function.__name__] = numba.njit(cache=True)(own)
    found: Pivoting = scope["run_simplex"]
    return found


@dataclass(frozen=True)
class LpOptimum:
    """An optimal solution.

    Attributes
    ----------
    columns, levels, x
        (K,) nonzero columns, the levels (K, P) at which they are taken, and (K,) their values.
    duals
        (m + 1,) -1 for the costs, and duals of the rows; the first of these is the optimal value.
    """

    columns: NDArray[np.int64]
    levels: Array
    x: Array
    duals: Array


class LevelLp:
    """Minimize row 0 over x >= 0, with rows equal to 1 (row 1), equal to 0, or at most 0.

    Each column is taken at levels anywhere in a box, possibly at several. Its entry in row i is
    `fixed[i, j]` plus `levels[p] * times[l, j]` for each l whose `places[l]` is (p, i).

    Attributes
    ----------
    fixed, times
        (m + 1, n) and (L, n).
    places
        (L, 2).
    equal
        Number of rows that are equations, which follow the costs.
    """

    def __init__(self, fixed: Array, times: Array, places: NDArray[np.int64], equal: int) -> None:
        self.fixed, self.times, self.places, self.equal = fixed, times, places, equal
        # the rows are divided by scales (m + 1,); the costs are not scaled
        scales, m = np.abs(fixed).max(axis=1), len(fixed) - 1
        np.maximum.at(scales, places[:, 1], np.abs(times).max(axis=1))
        scales[0] = 1.0
        self._scales = np.where(scales > 0, scales, 1.0)
        # scaled rows with slacks and artificial columns, and scaled terms of levels
        units = np.roll(np.eye(m + 1, m, -1), -equal, axis=1)
        self._fixed = np.hstack([fixed / self._scales[:, None], units])
        self._times = np.pad(times / self._scales[places[:, 1], None], ((0, 0), (0, m)))

    def solve(self, boxes: Array) -> LpOptimum | None:
        """Return an optimum for levels in boxes (P, 2), None if the program is infeasible.

        Raises
        ------
        ArithmeticError
            If HiGHS is needed and cannot solve it either.
        """
        fixed, times = self._fixed, self._times
        m, count = len(fixed) - 1, self.fixed.shape[1]
        low, high = np.ascontiguousarray(boxes.T)
        table = SimplexTable(fixed, self.places, times, low, high, self.equal)
        artificial, rows = np.arange(count + m) >= count + m - self.equal, self.places[:, 1] > 0
        phase_one = table._replace(
            fixed=np.vstack([artificial, fixed[1:]]), places=self.places[rows], times=times[rows]
        )
        head = np.roll(np.arange(count, count + m), self.equal)
        basis = SimplexBasis(head, np.zeros((m, len(low))), phase_one.fixed[:, head], np.eye(m))
        # affine goals take few pivots in small programs; others take hundreds of programs
        pivot = compiled_simplex() if len(low) or m > MAX_INTERPRETED_ROWS else run_simplex
        finished = pivot(phase_one, basis)
        if finished and self._infeasibility(basis) > TOLERANCE:
            return None
        basis.matrix[0] = fixed[0, head]
        for (p, _), extra in zip(self.places[~rows], times[~rows], strict=True):
            basis.matrix[0] += basis.levels[:, p] * extra[head]
        if not (finished and pivot(table, basis) and self._is_verified(basis)):
            return self._by_highs(boxes)
        regular, scales = head < count, self._scales
        x = np.maximum(basis.inverse[regular, 0], 0.0) / scales[1]
        return LpOptimum(head[regular], basis.levels[regular], x, basis_duals(basis) / scales)

    def _infeasibility(self, basis: SimplexBasis) -> float:
        """Return the total violation of the equations."""
        artificial = basis.head >= sum(self.fixed.shape) - 1 - self.equal
        return float(np.abs(basis.inverse[artificial, 0]).sum())

    def _is_verified(self, basis: SimplexBasis) -> bool:
        """Whether the basis satisfies its rows and its cost agrees with the duals, when scaled.

        That no column has a negative reduced cost was checked by the simplex method.
        """
        x, value = basis.inverse[:, 0], float(basis_duals(basis)[1])
        residuals = basis.matrix @ x - np.append(value, np.eye(len(x))[0])
        worst = max(float(np.abs(residuals[1:]).max()), -float(x.min()), self._infeasibility(basis))
        return worst <= 2 * TOLERANCE and abs(residuals[0]) <= DUALITY_TOLERANCE * (1 + abs(value))

    def _by_highs(self, boxes: Array) -> LpOptimum | None:
        count = self.fixed.shape[1]
        if 2 ** len(boxes) * count > MAX_HIGHS_COLUMNS:
            raise ArithmeticError("a linear program with many levels was not solved")
        corners = np.array(list(itertools.product(*boxes)))
        table = np.tile(self.fixed[:, None], (1, len(corners), 1))
        for (p, i), each in zip(self.places, self.times, strict=True):
            table[i] += corners[:, p, None] * each
        cost, *rows = table.reshape(len(table), -1)
        equal, right_side = self.equal, np.eye(len(rows))[0]
        inequalities = rows[equal:] or None, right_side[equal:]
        names = ("primal_feasibility_tolerance", "dual_feasibility_tolerance")
        options = dict.fromkeys(names, TOLERANCE)
        result = linprog(cost, *inequalities, rows[:equal], right_side[:equal], options=options)
        if result.status == HIGHS_INFEASIBLE:
            return None
        if result.status != 0:
            raise ArithmeticError(f"a linear program was not solved: {result.message}")
        (nonzero,) = np.nonzero(result.x > 0)
        duals = np.concatenate([[-1.0], result.eqlin.marginals, result.ineqlin.marginals])
        return LpOptimum(nonzero % count, corners[nonzero // count], result.x[nonzero], duals)

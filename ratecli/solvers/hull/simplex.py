"""Linear programs with few rows and many columns, by the revised simplex method.

The column of least reduced cost enters. The right side is the first unit vector and nearly all
vertices are degenerate, so it is perturbed for the ratio test (Charnes 1952). Results are verified
with the right side as it is; HiGHS takes over if the verification fails. HiGHS itself takes
milliseconds for a program that this method solves in a fraction of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
PERTURBATION, GOLDEN_RATIO = 1e-10, 0.618033988749895
"""Size of the changes of the right side that break ties of ratios, and what spreads them."""
REFRESH_INTERVAL = 60
"""Number of pivots after which the inverse is recomputed."""
DUALITY_TOLERANCE = 1e-8
"""Largest difference of primal and dual value, relative to 1 plus the value."""
HIGHS_INFEASIBLE = 2


@dataclass(frozen=True)
class LpOptimum:
    """An optimal solution.

    Attributes
    ----------
    x
        (n,) values of the columns, at most m of them positive.
    duals
        (m,) duals of the rows; the first of these is the optimal value.
    """

    x: Array
    duals: Array


class PricedMixture(NamedTuple):
    """The best mixture of points: weights (S,), excess (E,), multipliers (m,) and the value."""

    weights: Array
    excess: Array
    multipliers: Array
    value: float


def best_mixture(points: Array, excess: Array) -> PricedMixture:
    """Return the mixture of points (1 + m, S) with the smallest first row plus price of excess.

    The other rows of the mixture must be at most 0, after `excess` (1 + m, E) is added: each of its
    columns is an amount at least 0 with its price in the first row, which lowers rows that the
    mixture violates. So there is always a solution.
    """
    count, none = points.shape[1], np.zeros(excess.shape[1])
    table = np.hstack([points, excess])
    table = np.insert(table, 1, np.append(np.ones(count), none), axis=0)
    found = solve_linear_program(table, 1)
    assert found is not None
    weights = np.maximum(found.x[:count], 0.0)
    multipliers = np.maximum(-found.duals[1:], 0.0)
    weights = weights / weights.sum()
    return PricedMixture(weights, found.x[count:], multipliers, float(found.duals[0]))


def solve_linear_program(table: Array, equal: int) -> LpOptimum | None:
    """Minimize row 0 of a table (m + 1, n) over x (n,) >= 0; None if that is infeasible.

    Row 1 equals 1, the other ones of the first `equal` rows after the costs equal 0, and the rest
    is at most 0.

    Raises
    ------
    ArithmeticError
        If HiGHS is needed and cannot solve the program either.
    """
    m, count = len(table) - 1, table.shape[1]
    sizes = np.abs(table[1:]).max(axis=1)
    scales = np.where(sizes > 0, sizes, 1.0)
    # slacks of inequalities, then an artificial column for each equation
    rows = np.hstack([table[1:] / scales[:, None], np.roll(np.eye(m), -equal, axis=1)])
    costs = np.append(table[0], np.zeros(m))
    artificial = np.arange(count + m) >= count + m - equal
    basis = _Basis(rows, np.roll(np.arange(count, count + m), equal), artificial)
    finished = basis.minimize(1.0 * artificial)
    if finished and basis.infeasibility > TOLERANCE:
        return None
    if not (finished and basis.minimize(costs) and basis.is_verified(costs)):
        return _solve_by_highs(table, equal)
    x = np.zeros(count + m)
    x[basis.head] = np.maximum(basis.inverse[:, 0], 0.0) / scales[0]
    return LpOptimum(x[:count], basis.duals(costs) / scales)


class _Basis:
    """A basis of m of N columns.

    Attributes
    ----------
    rows
        (m, N) entries; only the first row has a nonzero right side, which is 1.
    head
        (m,) indices of the columns of the basis.
    artificial
        (N,) whether a column is artificial; these come last, and never enter again.
    inverse
        (m, m) inverse of the entries. Its first column holds the values of the columns.
    right_side
        (m,) the perturbed right side.
    """

    def __init__(self, rows: Array, head: NDArray[np.intp], artificial: NDArray[np.bool_]) -> None:
        self.rows, self.head, self.artificial = rows, head, artificial
        self.inverse: Array = np.eye(len(head))
        spread = 1 + GOLDEN_RATIO * np.arange(len(head)) % 1
        self.right_side = np.eye(len(head))[0] + PERTURBATION * spread

    def duals(self, costs: Array) -> Array:
        """Return the duals (m,) of the rows at costs (N,)."""
        return np.asarray(costs[self.head] @ self.inverse)

    @property
    def infeasibility(self) -> float:
        """The total violation of the equations."""
        return float(np.abs(self.inverse[self.artificial[self.head], 0]).sum())

    def minimize(self, costs: Array) -> bool:
        """Pivot until a fresh inverse gives no negative reduced cost; return whether it did."""
        m, candidates, pivots = len(self.head), int((~self.artificial).sum()), 0
        for _ in range(200 + 50 * m):
            duals = self.duals(costs)
            reduced = (costs - duals @ self.rows)[:candidates]
            j = int(np.argmin(reduced))
            optimal = reduced[j] >= -TOLERANCE * max(1.0, np.abs(duals).max() / LARGE_DUAL)
            if optimal and pivots == 0:
                return True
            if optimal or pivots == REFRESH_INTERVAL:
                try:
                    self.inverse = np.asarray(np.linalg.inv(self.rows[:, self.head]))
                except np.linalg.LinAlgError:
                    return False
                pivots = 0
                continue
            direction = self.inverse @ self.rows[:, j]
            r = self._leaving(direction)
            if r is None:
                return False
            self.head[r] = j
            pivot = self.inverse[r] / direction[r]
            self.inverse -= np.outer(direction, pivot)
            self.inverse[r] = pivot
            pivots += 1
        return False

    def _leaving(self, direction: Array) -> int | None:
        """Return the row of the least ratio of the right side to the direction, if any.

        Artificial columns that have reached 0 stay at 0.
        """
        at_zero = self.artificial[self.head] & (self.inverse[:, 0] <= TOLERANCE)
        stuck = np.flatnonzero(at_zero & (np.abs(direction) > MIN_ARTIFICIAL_PIVOT))
        if len(stuck):
            return int(stuck[0])
        left = direction > MIN_PIVOT
        values = self.inverse @ self.right_side
        ratios = np.divide(values, direction, out=np.full(len(values), np.inf), where=left)
        return int(np.argmin(ratios)) if left.any() else None

    def is_verified(self, costs: Array) -> bool:
        """Whether the basis satisfies its rows and its cost agrees with the duals.

        That no column has a negative reduced cost was checked by the simplex method.
        """
        x, value = self.inverse[:, 0], float(self.duals(costs)[0])
        residuals = self.rows[:, self.head] @ x - np.eye(len(x))[0]
        worst = max(float(np.abs(residuals).max()), -float(x.min()), self.infeasibility)
        off = abs(float(costs[self.head] @ x) - value)
        return worst <= 2 * TOLERANCE and off <= DUALITY_TOLERANCE * (1 + abs(value))


def _solve_by_highs(table: Array, equal: int) -> LpOptimum | None:
    """Solve the program of `solve_linear_program` by HiGHS."""
    cost, *rows = table
    right_side = np.eye(len(rows))[0]
    inequalities = rows[equal:] or None, right_side[equal:]
    names = ("primal_feasibility_tolerance", "dual_feasibility_tolerance")
    options = dict.fromkeys(names, TOLERANCE)
    found = linprog(cost, *inequalities, rows[:equal], right_side[:equal], options=options)
    if found.status == HIGHS_INFEASIBLE:
        return None
    if found.status != 0:
        raise ArithmeticError(f"a linear program was not solved: {found.message}")
    return LpOptimum(found.x, np.concatenate([found.eqlin.marginals, found.ineqlin.marginals]))

"""Linear programs over columns with levels in boxes.

They are solved by `simplex`, whose results are verified, and by HiGHS if the verification fails.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ratecli.models.base import Array
from ratecli.solvers.hull.simplex import (
    TOLERANCE,
    SimplexBasis,
    SimplexRows,
    initial_basis,
    run_simplex,
)

DUALITY_TOLERANCE = 1e-8
"""Largest difference of primal and dual value, relative to 1 plus the value."""
MAX_HIGHS_COLUMNS = 200_000
"""Maximum number of columns passed to HiGHS, which needs one per column and corner of the box."""
HIGHS_INFEASIBLE = 2


@dataclass(frozen=True)
class LpOptimum:
    """An optimum.

    Attributes
    ----------
    columns, levels, x
        (N,) nonzero columns, the levels (N, P) at which they are taken, and (N,) their values.
    duals
        (m,) duals of the rows; the first one is the optimal value.
    """

    columns: NDArray[np.int64]
    levels: Array
    x: Array
    duals: Array


@dataclass(frozen=True)
class LevelLp:
    """Minimize `cost @ x` over x >= 0, with rows equal to 1 (the first), equal to 0, or at most 0.

    Each column is taken at levels anywhere in a box, possibly at several. Its entry in row i is
    `fixed[i, j]` plus `levels[p] * times[l, j]` for each l whose `places[l]` is (p, i).

    Attributes
    ----------
    fixed, times
        (m, n) and (L, n).
    places
        (L, 2).
    cost, cost_times
        (n,) costs, and (P, n) costs per unit of each level.
    equal
        Number of rows that are equations, which come first.
    """

    fixed: Array
    times: Array
    places: NDArray[np.int64]
    cost: Array
    cost_times: Array
    equal: int

    @cached_property
    def _sizes(self) -> Array:
        """(m,) scales of the rows, by which they are divided."""
        found = np.abs(self.fixed).max(axis=1)
        np.maximum.at(found, self.places[:, 1], np.abs(self.times).max(axis=1))
        return np.where(found > 0, found, 1.0)

    @cached_property
    def _scaled(self) -> tuple[Array, Array]:
        sizes = self._sizes
        return self.fixed / sizes[:, None], self.times / sizes[self.places[:, 1], None]

    def solve(self, boxes: Array) -> LpOptimum | None:
        """Return an optimum for levels in boxes (P, 2), None if it is infeasible.

        Raises
        ------
        ArithmeticError
            If HiGHS does not find out either.
        """
        fixed, times = self._scaled
        rows = SimplexRows(fixed, self.places, times, boxes, self.equal)
        basis = initial_basis(rows)
        if not self._descended(rows, basis, missing=1.0):
            return self._by_highs(boxes)
        if self._missed(basis) > TOLERANCE:
            return None
        if not self._descended(rows, basis, missing=0.0) or not self._is_sure(basis):
            return self._by_highs(boxes)
        own = basis.head < len(self.cost)
        x, sizes = np.maximum(basis.x[own], 0.0), self._sizes
        return LpOptimum(basis.head[own], basis.levels[own], x / sizes[0], basis.duals / sizes)

    def _descended(self, rows: SimplexRows, basis: SimplexBasis, *, missing: float) -> bool:
        """Run the simplex method: phase one if `missing` is positive, else phase two."""
        cost, cost_times = self._nothing if missing else (self.cost, self.cost_times)
        m, n = rows.fixed.shape
        reduced, slopes, spare = np.empty(n), np.empty(cost_times.shape), np.empty((2 + m, m))
        return bool(run_simplex(rows, cost, cost_times, missing, basis, reduced, slopes, spare))

    @cached_property
    def _nothing(self) -> tuple[Array, Array]:
        return 0.0 * self.cost, 0.0 * self.cost_times

    def _missed(self, basis: SimplexBasis) -> float:
        """Return the total violation of the equations."""
        return float(np.abs(basis.x[basis.head >= sum(self.fixed.shape)]).sum())

    def _is_sure(self, basis: SimplexBasis) -> bool:
        """Whether the basis satisfies its rows and its cost agrees with the duals, when scaled.

        That no column has a negative reduced cost was checked by the simplex method.
        """
        x, own = basis.x, basis.head < len(self.cost)
        columns, levels = basis.head[own], basis.levels[own]
        off = basis.matrix @ x
        off[0] -= 1.0
        costs = self.cost[columns] + (self.cost_times[:, columns].T * levels).sum(axis=1)
        apart = abs(float(costs @ x[own]) - float(basis.duals[0]))
        met = max(float(np.abs(off).max()), -float(x.min()), self._missed(basis)) <= 2 * TOLERANCE
        return met and apart <= DUALITY_TOLERANCE * (1 + abs(float(basis.duals[0])))

    def _by_highs(self, boxes: Array) -> LpOptimum | None:
        count = len(self.cost)
        if 2 ** len(boxes) * count > MAX_HIGHS_COLUMNS:
            raise ArithmeticError("a linear program with many levels was not solved")
        corners = np.array(list(itertools.product(*boxes)))
        each = []
        for corner in corners:
            rows = self.fixed.copy()
            np.add.at(rows, self.places[:, 1], corner[self.places[:, 0], None] * self.times)
            each.append(np.vstack([rows, self.cost + corner @ self.cost_times]))
        rows, cost = np.hstack(each)[:-1], np.hstack(each)[-1]
        exact = {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
        right = np.eye(len(rows))[0]
        for method, options in (("highs", exact), ("highs-ipm", {**exact, "presolve": False})):
            found = linprog(
                cost,
                A_ub=rows[self.equal :],
                b_ub=right[self.equal :],
                A_eq=rows[: self.equal],
                b_eq=right[: self.equal],
                method=method,
                options=options,
            )
            if found.status == HIGHS_INFEASIBLE:
                return None
            if found.status == 0:
                (some,) = np.nonzero(found.x > 0)
                duals = np.concatenate([found.eqlin.marginals, found.ineqlin.marginals])
                return LpOptimum(some % count, corners[some // count], found.x[some], duals)
        raise ArithmeticError(f"a linear program was not solved: {found.message}")

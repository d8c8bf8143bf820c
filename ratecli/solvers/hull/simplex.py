"""A compiled simplex method for programs with few rows and many columns at variable levels.

A column is taken at any levels in a box, possibly at several; its entries are affine in the levels.
Only corners of the box matter, and the cheapest corner of a column is found without enumeration.

This is the revised simplex method with an explicit inverse. The column of least reduced cost
enters, and ties in the ratio test are broken by the lexicographic order (Dantzig, Orden and Wolfe
1955), because the right side is the first unit vector and nearly all vertices are degenerate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

Array = Any
"""An array of floats or integers; functions are compiled for the types they are called with."""

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


class SimplexRows(NamedTuple):
    """The m rows of a program with n columns and P levels.

    Attributes
    ----------
    fixed
        (m, n) the part of the columns that does not depend on levels.
    places, times
        (L, 2) pairs of level and row, and (L, n) what a unit of the level adds to the row in each
        column.
    boxes
        (P, 2) ranges of the levels.
    equal
        Number of rows that are equations. The first row equals 1, other equations 0, the rest is at
        most 0.
    """

    fixed: Array
    places: Array
    times: Array
    boxes: Array
    equal: int


class SimplexBasis(NamedTuple):
    """A basis of m columns.

    Attributes
    ----------
    head
        (m,) the columns: from n on slacks of the rows, from n + m on artificial columns of
        equations.
    levels
        (m, P) levels at which they are taken.
    matrix, inverse
        (m, m) their entries, and the inverse.
    x
        (m,) their values.
    duals
        (m,) duals of the rows.
    """

    head: Array
    levels: Array
    matrix: Array
    inverse: Array
    x: Array
    duals: Array


def initial_basis(rows: SimplexRows) -> SimplexBasis:
    """Return the basis of artificial columns for equations and slacks for the other rows."""
    m, n = rows.fixed.shape
    first = np.zeros(m)
    first[0] = 1.0
    head = np.arange(n, n + m)
    head[: rows.equal] += m
    return SimplexBasis(
        head, np.zeros((m, len(rows.boxes))), np.eye(m), np.eye(m), first, np.zeros(m)
    )


@numba.njit(cache=True)
def run_simplex(
    rows: SimplexRows,
    cost: Array,
    cost_times: Array,
    missing: float,
    basis: SimplexBasis,
    reduced: Array,
    slopes: Array,
    spare: Array,
) -> bool:
    """Pivot until no reduced cost is negative by a fresh inverse; return whether that was reached.

    Parameters
    ----------
    cost, cost_times
        (n,) and (P, n): a column at levels costs `cost + levels @ cost_times`.
    missing
        Cost per unit of an artificial column.
    reduced, slopes, spare
        (n,), (P, n) and (2 + m, m) work arrays.
    """
    m, n = rows.fixed.shape
    column, moved = spare[0], spare[1]
    pivots = 0
    for _ in range(200 + 50 * m):
        if pivots == REFRESH_INTERVAL:
            if not refactorize_basis(basis, spare[2:]):
                return False
            pivots = 0
        compute_duals(cost, cost_times, missing, n, basis)
        j = entering_column(rows, cost, cost_times, basis.duals, reduced, slopes)
        if j < 0 and pivots == 0:
            return True
        if j < 0:
            pivots = REFRESH_INTERVAL
            continue
        fill_column(rows, j, slopes, column)
        for i in range(m):
            moved[i] = 0.0
            for k in range(m):
                moved[i] += basis.inverse[i, k] * column[k]
        r = leaving_row(basis, moved, n + m)
        if r < 0:
            return False
        pivot_basis(basis, r, moved, column)
        basis.head[r] = j
        for p in range(len(rows.boxes)):
            basis.levels[r, p] = (
                rows.boxes[p, 1] if prefers_higher_level(slopes, p, j) else rows.boxes[p, 0]
            )
        pivots += 1
    return False


@numba.njit(cache=True)
def prefers_higher_level(slopes: Array, p: int, j: int) -> bool:
    """Whether column j is cheaper at a higher level p."""
    return bool(j < slopes.shape[1] and slopes[p, j] <= 0)


@numba.njit(cache=True)
def compute_duals(
    cost: Array, cost_times: Array, missing: float, n: int, basis: SimplexBasis
) -> None:
    """Update the duals of the basis."""
    m = len(basis.head)
    for k in range(m):
        basis.duals[k] = 0.0
    for i in range(m):
        j = basis.head[i]
        each = missing if j >= n + m else 0.0
        if j < n:
            each = cost[j]
            for p in range(len(cost_times)):
                each += cost_times[p, j] * basis.levels[i, p]
        if each != 0.0:
            for k in range(m):
                basis.duals[k] += each * basis.inverse[i, k]


@numba.njit(cache=True)
def entering_column(
    rows: SimplexRows, cost: Array, cost_times: Array, duals: Array, reduced: Array, slopes: Array
) -> int:
    """Return the column of least reduced cost at its best levels, -1 if none is negative.

    Numbers from n on are slacks. Stores in `slopes` (P, n) the reduced cost per unit of each level.
    """
    m, n = rows.fixed.shape
    for j in range(n):
        reduced[j] = cost[j]
    for i in range(m):
        if duals[i] != 0.0:
            for j in range(n):
                reduced[j] -= duals[i] * rows.fixed[i, j]
    for p in range(len(rows.boxes)):
        for j in range(n):
            slopes[p, j] = cost_times[p, j]
    for k in range(len(rows.places)):
        p, dual = rows.places[k, 0], duals[rows.places[k, 1]]
        if dual != 0.0:
            for j in range(n):
                slopes[p, j] -= dual * rows.times[k, j]
    for p in range(len(rows.boxes)):
        low, high = rows.boxes[p, 0], rows.boxes[p, 1]
        for j in range(n):
            reduced[j] += min(low * slopes[p, j], high * slopes[p, j])
    largest = LARGE_DUAL
    for i in range(m):
        largest = max(largest, abs(duals[i]))
    best, least = -1, -TOLERANCE * largest / LARGE_DUAL
    for j in range(n):
        if reduced[j] < least:
            best, least = j, reduced[j]
    for i in range(rows.equal, m):
        if -duals[i] < least:
            best, least = n + i, -duals[i]
    return best


@numba.njit(cache=True)
def fill_column(rows: SimplexRows, j: int, slopes: Array, column: Array) -> None:
    """Store the entries (m,) of a column at its best levels."""
    m, n = rows.fixed.shape
    for i in range(m):
        column[i] = rows.fixed[i, j] if j < n else (1.0 if i == j - n else 0.0)
    if j < n:
        for k in range(len(rows.places)):
            p = rows.places[k, 0]
            level = rows.boxes[p, 1] if prefers_higher_level(slopes, p, j) else rows.boxes[p, 0]
            column[rows.places[k, 1]] += level * rows.times[k, j]


@numba.njit(cache=True)
def leaving_row(basis: SimplexBasis, moved: Array, missing: int) -> int:
    """Return the row of the lexicographically least ratio (x, inverse) / moved, -1 if none.

    Artificial columns, from `missing` on, that have reached 0 stay at 0.
    """
    x, inverse = basis.x, basis.inverse
    m, found = len(x), -1
    for i in range(m):
        if basis.head[i] >= missing and x[i] <= TOLERANCE and abs(moved[i]) > MIN_ARTIFICIAL_PIVOT:
            return i
        if moved[i] <= MIN_PIVOT:
            continue
        if found < 0:
            found = i
            continue
        apart = x[i] * moved[found] - x[found] * moved[i]
        k = 0
        while abs(apart) <= RATIO_TIE and k < m:
            apart = inverse[i, k] * moved[found] - inverse[found, k] * moved[i]
            k += 1
        if apart < 0:
            found = i
    return found


@numba.njit(cache=True)
def pivot_basis(basis: SimplexBasis, r: int, moved: Array, column: Array) -> None:
    """Replace member r of the basis by the column."""
    x, inverse = basis.x, basis.inverse
    m = len(x)
    for k in range(m):
        basis.matrix[k, r] = column[k]
        inverse[r, k] /= moved[r]
    x[r] = max(x[r], 0.0) / moved[r]
    for i in range(m):
        if i != r:
            for k in range(m):
                inverse[i, k] -= moved[i] * inverse[r, k]
            x[i] -= moved[i] * x[r]


@numba.njit(cache=True)
def refactorize_basis(basis: SimplexBasis, left: Array) -> bool:
    """Recompute inverse and values by elimination; return whether the matrix is invertible."""
    inverse = basis.inverse
    m = len(inverse)
    for i in range(m):
        for k in range(m):
            left[i, k] = basis.matrix[i, k]
            inverse[i, k] = 1.0 if i == k else 0.0
    for c in range(m):
        r = c
        for i in range(c + 1, m):
            if abs(left[i, c]) > abs(left[r, c]):
                r = i
        scale = left[r, c]
        if scale == 0.0:
            return False
        for k in range(m):
            one, other = left[r, k] / scale, inverse[r, k] / scale
            left[r, k], inverse[r, k] = left[c, k], inverse[c, k]
            left[c, k], inverse[c, k] = one, other
        for i in range(m):
            each = left[i, c]
            if i != c and each != 0.0:
                for k in range(m):
                    left[i, k] -= each * left[c, k]
                    inverse[i, k] -= each * inverse[c, k]
    for i in range(m):
        basis.x[i] = inverse[i, 0]
    return True

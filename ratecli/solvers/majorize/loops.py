"""Compiled loops over the rows of a convex problem: proximal step, hinges, X' r and X' D X.

Each makes one pass over the rows, where NumPy makes one for every operation. `starts`, `columns`
and `values` are the compressed rows of a sparse X (n, d).
"""

from __future__ import annotations

from typing import Any

import numba

from ratecli.models.linear import RAMP_CORNER


@numba.njit(inline="always")
def _larger(a: float, b: float) -> float:
    """Compiled without a branch, in contrast to `max`."""
    return a if a > b else b


@numba.njit(inline="always")
def _smaller(a: float, b: float) -> float:
    return a if a < b else b


@numba.njit(cache=True)
def move_to_hinges(
    u: Any,
    kind: Any,
    up: Any,
    down: Any,
    sigma: float,
    slopes: Any,
    state: Any,
    sums: Any,
    counts: Any,
) -> float:
    """Find the point y (n,) nearest to u under hinges of weights `up` on +y and `down` on -y.

    Rows of one `kind` (n,) have the same weights; those are (K,). Each row moves towards its hinges
    by their slope over sigma, and stops at a corner. Sets the slopes sigma (u - y) and `state`: 4
    times the kind, plus 2 if the hinge on +y changes with y, plus 1 if that on -y does. Adds the
    two hinges at y to `sums` (K, 2) and the number of rows of each state to `counts` (4 K,), and
    returns the sum of squared slopes.
    """
    squares, inverse, corner = 0.0, 1 / sigma, RAMP_CORNER * sigma
    for i in range(len(u)):
        k = kind[i]
        most, least = up[k], -down[k]
        middle = most + least
        low, high = sigma * u[i] + corner, sigma * u[i] - corner - middle
        # rounding may lift the sum above `up`
        first = _smaller(_larger(low, least), middle)
        slope = _smaller(first + _smaller(_larger(high, 0.0), -least), most)
        y = u[i] - slope * inverse
        between = (low >= middle) & (high <= 0)
        slopes[i] = slope
        s = 4 * k + 2 * (between | (high >= -least)) + (between | (low <= least))
        state[i] = s
        counts[s] += 1
        sums[k, 0] += _larger(RAMP_CORNER + y, 0.0)
        sums[k, 1] += _larger(RAMP_CORNER - y, 0.0)
        squares += slope * slope
    return squares


@numba.njit(cache=True)
def add_hinges(z: Any, kind: Any, sums: Any) -> None:
    """Add the hinges on +z and on -z (n,) to the sums (K, 2) of each kind of rows."""
    for i in range(len(z)):
        sums[kind[i], 0] += _larger(RAMP_CORNER + z[i], 0.0)
        sums[kind[i], 1] += _larger(RAMP_CORNER - z[i], 0.0)


@numba.njit(cache=True)
def conjugate_of_hinges(slopes: Any, kind: Any, up: Any, down: Any) -> float:
    """Return the sum over rows of the conjugate of `up` hinge(z) + `down` hinge(-z) at a slope."""
    total = 0.0
    for i in range(len(slopes)):
        middle = RAMP_CORNER * slopes[i]
        total += _larger(-middle - down[kind[i]], middle - up[kind[i]])
    return total


@numba.njit(cache=True)
def add_rows(starts: Any, columns: Any, values: Any, chosen: Any, factors: Any, found: Any) -> None:
    """Add factors (k, c) times the c chosen rows to `found` (k, d). Zeros are skipped."""
    for i in range(len(chosen)):
        begin, end = starts[chosen[i]], starts[chosen[i] + 1]
        for j in range(len(factors)):
            factor = factors[j, i]
            if factor != 0:
                for k in range(begin, end):
                    found[j, columns[k]] += values[k] * factor


@numba.njit(cache=True)
def add_squares_of_rows(
    starts: Any, columns: Any, values: Any, chosen: Any, biased: bool, found: Any
) -> None:
    """Add the lower triangle of the sum of outer squares of the `chosen` rows to `found`.

    `found` is (width, width); with a bias, each row ends in a 1. Columns of a row are ascending.
    """
    last = len(found) - 1
    for i in chosen:
        for k in range(starts[i], starts[i + 1]):
            value, row = values[k], found[columns[k]]
            row[columns[k]] += value * value
            for other in range(starts[i], k):
                row[columns[other]] += value * values[other]
            if biased:
                found[last, columns[k]] += value
        if biased:
            found[last, last] += 1.0

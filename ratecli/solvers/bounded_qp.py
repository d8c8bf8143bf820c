"""Convex quadratic programs of a few variables within bounds."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array

RIDGE = 1e-12
"""Curvature added to all directions, relative to the mean, because some may have none."""
MAX_CHANGES = 10
"""Maximum number of active-set changes per variable."""
SLOPE_TOLERANCE = 1e-12
"""Slope, relative to the largest at 0, below which a bound stays active."""


def minimize_quadratic(
    curvature: Array,
    slope: Array,
    bounds: tuple[Array, Array],
    start: Array,
    *,
    fixed_sum: bool = False,
) -> Array:
    """Minimize `x' curvature x / 2 - slope @ x` over x (m,) within bounds, from a feasible start.

    With `fixed_sum`, x keeps the sum of the start. Active-set method: take Newton's step up to the
    first bound in its way, and keep that bound active until its slope points inside. Along
    directions without curvature the function is linear and has its minimum on a bound.
    """
    (low, high), size = bounds, len(slope)
    ridged = curvature.copy()
    ridged[np.diag_indices(size)] += RIDGE * (float(np.trace(curvature)) / size or 1.0)
    x, free = start, np.ones(size, dtype=bool)
    for _ in range(MAX_CHANGES * size):
        move = np.zeros(size)
        move[free] = _newton_step(ridged[np.ix_(free, free)], (slope - ridged @ x)[free], fixed_sum)
        ends = np.where(move > 0, high, low)
        shares = np.divide(ends - x, move, out=np.full(size, np.inf), where=move != 0)
        share = float(shares.min())
        if share < 1:
            x, stopped = x + share * move, shares <= share
            x[stopped], free = ends[stopped], free & ~stopped
            continue
        x = x + move
        falls = slope - ridged @ x
        if fixed_sum:
            falls -= falls[free].mean() if free.any() else np.median(falls)
        inside = np.where(x >= high, -falls, falls) * ~free
        if inside.max() <= SLOPE_TOLERANCE * np.abs(slope).max():
            break
        free[np.argmax(inside)] = True
    return x


def _newton_step(curvature: Array, slope: Array, fixed_sum: bool) -> Array:
    if not fixed_sum or not len(slope):
        return np.asarray(np.linalg.solve(curvature, slope), dtype=float)
    # the common part of the slopes is irrelevant and may hide their differences by rounding
    scale, right = np.abs(curvature).max(), np.append(slope - slope.mean(), 0.0)
    ones = np.ones((len(slope), 1))
    system = np.block([[curvature / scale, ones], [ones.T, np.zeros((1, 1))]])
    return np.asarray(np.linalg.solve(system, right / scale)[:-1], dtype=float)

"""Maximization of a concave quadratic function over a box of a few dimensions."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array

BOX_RIDGE = 1e-12
"""Curvature added to all directions, relative to the mean, because some may have none."""
BOX_PASSES = 4
"""Maximum number of active-set changes per dimension."""
BOX_SLOPE_TOLERANCE = 1e-12
"""Relative slope below which a bound stays active."""


def maximize_in_box(gradient: Array, curvature: Array, low: Array, high: Array) -> Array:
    """Maximize `gradient s - s' curvature s / 2` over s, (m,), from low <= 0 to high >= 0.

    Active-set method: take Newton's step up to the first bound in its way, and keep that bound
    active until its slope points inside. Constraints on all pairs of groups are linearly dependent;
    along such dependencies the function is linear and has its maximum on a bound.
    """
    size = len(gradient)
    ridged = curvature.copy()
    ridged[np.diag_indices(size)] += BOX_RIDGE * (float(np.trace(curvature)) / size or 1.0)
    step, free = np.zeros(size), np.ones(size, dtype=bool)
    for _ in range(BOX_PASSES * size):
        slope = gradient - ridged @ step
        move = np.zeros(size)
        move[free] = np.linalg.solve(ridged[np.ix_(free, free)], slope[free])
        ends = np.where(move > 0, high, low)
        parts = np.divide(ends - step, move, out=np.full(size, np.inf), where=move != 0)
        part = float(parts.min())
        if part < 1:
            step, stopped = step + part * move, parts <= part
            step[stopped], free = ends[stopped], free & ~stopped
            continue
        step = step + move
        slope = gradient - ridged @ step
        inside = np.where(step >= high, -slope, slope) * ~free
        if inside.max() <= BOX_SLOPE_TOLERANCE * np.abs(gradient).max():
            break
        free[np.argmax(inside)] = True
    return step

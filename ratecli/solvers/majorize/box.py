"""The highest point of a concave quadratic in a box of a few dimensions."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array

BOX_RIDGE = 1e-12
"""Curvature given to directions without any, relative to the mean."""
BOX_PASSES = 4
"""Most changes of the active set, in dimensions."""
BOX_SLOPE_TOLERANCE = 1e-12
"""Relative slope below which a bound is not left again."""


def maximize_in_box(gradient: Array, curvature: Array, low: Array, high: Array) -> Array:
    """Maximize `gradient s - s' curvature s / 2` over s, (m,), from low <= 0 to high >= 0.

    By active sets: Newton's step up to the first bound in its way, which is kept until its slope
    points inside. Constraints on every pair of groups depend on each other; along what they have in
    common the quadratic is straight, and its highest point on a bound.
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

"""Minimization of a convex quadratic function on a simplex of a few dimensions."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array

SIMPLEX_RIDGE = 1e-12
"""Curvature added to all directions, relative to the mean, so that none has curvature 0."""
SIMPLEX_PASSES = 10
"""Maximum number of changes of the support, per dimension."""
SIMPLEX_SLOPE_TOLERANCE = 1e-10
"""Slope, relative to the largest, below which a corner is not added."""


def minimize_on_simplex(curvature: Array, slope: Array, total: float) -> Array:
    """Minimize `s' curvature s / 2 - slope s` over s >= 0 (m,) that sums to `total` > 0.

    This is an active-set method: move to the minimum on the face of the current corners. If a
    component becomes negative on the way, stop there and drop its corner; otherwise add the corner
    with the most negative slope.
    """
    size = len(slope)
    ridged = curvature + SIMPLEX_RIDGE * (float(np.trace(curvature)) / size or 1.0) * np.eye(size)
    costs = total * np.diag(ridged) / 2 - slope
    used = np.zeros(size, dtype=bool)
    used[int(np.argmin(costs))] = True
    found = np.where(used, total, 0.0)
    for _ in range(SIMPLEX_PASSES * size):
        aim = _minimize_on_face(ridged, slope, used, total)
        if (aim[used] > 0).all():
            found = aim
            gradient = ridged @ found - slope
            level = float(gradient[used].max())
            ahead = np.where(used, 0.0, gradient - level)
            if ahead.min() >= -SIMPLEX_SLOPE_TOLERANCE * max(float(np.abs(gradient).max()), 1e-300):
                break
            used[int(np.argmin(ahead))] = True
            continue
        falls = used & (aim <= 0)
        if not falls.any():  # not finite
            break
        parts = found[falls] / np.maximum(found[falls] - aim[falls], 1e-300)
        part = float(parts.min())
        found = found + part * (aim - found)
        gone = int(np.flatnonzero(falls)[np.argmin(parts)])
        found[gone], used[gone] = 0.0, False
    return np.maximum(found, 0.0)


def _minimize_on_face(curvature: Array, slope: Array, used: Array, total: float) -> Array:
    """Return the minimum on the affine hull of the current corners."""
    chosen = np.flatnonzero(used)
    count = len(chosen)
    if count == 1:
        return np.where(used, total, 0.0)
    system = np.ones((count + 1, count + 1))
    system[:count, :count], system[count, count] = curvature[np.ix_(chosen, chosen)], 0.0
    scale = max(float(np.abs(system[:count, :count]).max()), 1e-300)
    system[:count, :count] /= scale
    # the common part of the slopes is irrelevant and may hide their differences by rounding
    right = np.append((slope[chosen] - slope[chosen].mean()) / scale, total)
    aim = np.zeros(len(slope))
    aim[chosen] = np.linalg.lstsq(system, right)[0][:count]
    return aim

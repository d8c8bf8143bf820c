"""The least value of a convex quadratic on a simplex of a few dimensions."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array

SIMPLEX_RIDGE = 1e-12
"""Curvature given to directions without any, relative to the mean."""
SIMPLEX_PASSES = 10
"""Most changes of the support, in dimensions."""
SIMPLEX_SLOPE_TOLERANCE = 1e-10
"""Slope, relative to the largest, below which a corner is not taken in."""


def minimize_on_simplex(curvature: Array, slope: Array, total: float) -> Array:
    """Minimize `s' curvature s / 2 - slope s` over s >= 0 (m,) that sums to `total` > 0.

    By active sets: the least value on the corners in use, or as far towards it as all parts stay at
    least 0, where a corner is given up; then the corner that slopes down most is taken in.
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
        if not falls.any():  # no numbers
            break
        parts = found[falls] / np.maximum(found[falls] - aim[falls], 1e-300)
        part = float(parts.min())
        found = found + part * (aim - found)
        gone = int(np.flatnonzero(falls)[np.argmin(parts)])
        found[gone], used[gone] = 0.0, False
    return np.maximum(found, 0.0)


def _minimize_on_face(curvature: Array, slope: Array, used: Array, total: float) -> Array:
    """The least value on the plane of the corners in use."""
    chosen = np.flatnonzero(used)
    count = len(chosen)
    if count == 1:
        return np.where(used, total, 0.0)
    system = np.ones((count + 1, count + 1))
    system[:count, :count], system[count, count] = curvature[np.ix_(chosen, chosen)], 0.0
    scale = max(float(np.abs(system[:count, :count]).max()), 1e-300)
    system[:count, :count] /= scale
    # what all slopes have in common decides nothing, and may drown what sets them apart
    right = np.append((slope[chosen] - slope[chosen].mean()) / scale, total)
    aim = np.zeros(len(slope))
    aim[chosen] = np.linalg.lstsq(system, right)[0][:count]
    return aim

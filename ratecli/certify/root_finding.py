"""Where a function that grows becomes positive, from the safe side."""

from __future__ import annotations

from collections.abc import Callable

from scipy import optimize

MAX_BRACKET = 100.0
"""Values are cut here, so that one infinite end does not slow the search."""


def find_root_above(
    value: Callable[[float], float], low: float, high: float, tolerance: float
) -> float:
    """Return a point at which the value is at least 0, mostly the first to within the tolerance.

    Every point that is returned has been tried, but for `high`, which the caller must know to do:
    a bound made by this search is as sound as one trial, whatever the function is.
    """

    def cut(point: float) -> float:
        return min(max(value(point), -MAX_BRACKET), MAX_BRACKET)

    if high <= low or cut(low) >= 0:
        return min(low, high)
    if cut(high) < 0:
        return high
    root: float = optimize.brentq(cut, low, high, xtol=tolerance / 2)
    while root < high and cut(root) < 0:
        root, tolerance = root + tolerance / 2, 2 * tolerance
    return min(root, high)

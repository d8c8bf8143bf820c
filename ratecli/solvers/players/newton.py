"""Least points of smooth convex functions over a box, for many lanes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array

ValuesAndSlopes = Callable[[Array], tuple[Array, Array]]
"""Values (m, B) and slopes (n, m, B) of points (n, m, B)."""

DIFFERENCE_STEP = 1e-6
"""How far apart points are whose slopes tell the curvature; a kink counts as curved within it."""
CURVATURE_RIDGE = 1e-10
"""Share of the curvature that is added to it, so that there is always some."""
ARMIJO_SHARE = 1e-4
"""Share of the decrease that slopes promise, which a step must bring."""
ROUNDING = 1e-15
REST_TOLERANCE = 1e-13
"""A lane is at rest where slopes promise no more within the box, relative to its value."""
OPTIMALITY_TOLERANCE = 1e-10
"""And is known to be the least within this."""
BOX_EDGE_DISTANCE = 1e-4
"""Arguments so close to an end of the box, and pulled there, go there."""
MAX_BOX_STEPS, MAX_HALVINGS = 40, 25
BISECTION_STEPS = 50


class _Expansion(NamedTuple):
    """Values (B,), slopes (n, B) and curvatures (n, n, B)."""

    values: Array
    slopes: Array
    curved: Array

    @property
    def size(self) -> Array:
        """(B,) what errors of values are relative to."""
        return np.asarray(1 + np.abs(self.values))


def minimize_in_unit_box(loss: ValuesAndSlopes, start: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Points (n, B) at which each lane of a convex loss is least in [0, 1]^n: Newton's method, projected.

    And which (B,) are known to be, by their slopes: not those at a kink.

    Curvatures are differences of slopes. Arguments at an end of the box that slopes hold there stay
    (Bertsekas 1982); a step that overshoots is halved.
    """
    x = np.clip(start, 0.0, 1.0)
    here = _expand_loss(loss, x)
    left = _max_linear_decrease(x, here.slopes)
    done = left <= REST_TOLERANCE * here.size
    for _ in range(MAX_BOX_STEPS):
        if done.all():
            break
        tried, ahead, good = _line_search(loss, x, here, done)
        after = _max_linear_decrease(tried, ahead.slopes)
        lower = ahead.values < here.values - ROUNDING * here.size
        better = good & (lower | (after < left / 2))
        x, left = np.where(better, tried, x), np.where(better, after, left)
        pairs = zip(ahead, here, strict=True)
        here = _Expansion(*(np.where(better, new, old) for new, old in pairs))
        done = ~better | (left <= REST_TOLERANCE * here.size)
    return x, left <= OPTIMALITY_TOLERANCE * here.size


def _line_search(
    loss: ValuesAndSlopes, x: Array, here: _Expansion, done: NDArray[np.bool_]
) -> tuple[Array, _Expansion, NDArray[np.bool_]]:
    """Points after a step, halved until it brings enough; which lanes are done or got that."""
    step, share = _newton_step(x, here.slopes, here.curved), np.ones(x.shape[1])
    for _ in range(MAX_HALVINGS):
        tried = np.clip(x - share * step, 0.0, 1.0)
        ahead = _expand_loss(loss, tried)
        promised = (here.slopes * (x - tried)).sum(axis=0)
        enough = ahead.values <= here.values - ARMIJO_SHARE * promised + ROUNDING * here.size
        good = done | ((promised > 0) & enough)
        if good.all():
            break
        share = np.where(good, share, share / 2)
    return tried, ahead, good


def _max_linear_decrease(x: Array, slope: Array) -> Array:
    """(B,) the most that a line would fall within the box: a bound on how far the least is below."""
    return np.asarray((slope * np.where(slope > 0, x, x - 1)).sum(axis=0))


def _expand_loss(loss: ValuesAndSlopes, x: Array) -> _Expansion:
    n = len(x)
    inward = np.where(x < 0.5, DIFFERENCE_STEP, -DIFFERENCE_STEP)
    steps = np.concatenate([np.zeros((n, 1, 1)), np.eye(n)[:, :, None]], axis=1) * inward[:, None]
    values, slopes = loss(x[:, None] + steps)
    rise = (slopes[:, 1:] - slopes[:, :1]) / inward
    return _Expansion(values[0], slopes[:, 0], 0.5 * (rise + rise.swapaxes(0, 1)))


def _newton_step(x: Array, slope: Array, curved: Array) -> Array:
    """(n, B) what to subtract, not yet within the box."""
    low, high = (x <= BOX_EDGE_DISTANCE) & (slope > 0), (x >= 1 - BOX_EDGE_DISTANCE) & (slope < 0)
    held = low | high
    n = len(x)
    free = np.where(held[:, None] | held[None], 0.0, curved)
    trace = np.trace(np.maximum(free, 0.0))
    least = CURVATURE_RIDGE * trace + np.finfo(float).tiny ** 0.5
    diagonal = np.where(held, 1.0, least)
    system = free + np.eye(n)[:, :, None] * diagonal
    right = np.where(low, x, np.where(high, x - 1, slope))  # the end itself is where they go
    found = np.linalg.solve(system.transpose(2, 0, 1), right.T[:, :, None])[:, :, 0].T
    return np.asarray(found / np.maximum(np.abs(found).max(axis=0), 1.0))


def bisect_slopes(slopes: Callable[[Array], Array], lanes: int) -> Array:
    """(1, B) where slopes (1, B) of functions of one number turn from below 0 to above, in [0, 1]."""
    low, high = np.zeros((1, lanes)), np.ones((1, lanes))
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        falls = slopes(middle) < 0
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return (low + high) / 2

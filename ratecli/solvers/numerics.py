"""Steps of gradient methods, and quadratic programs of a few variables, which solvers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array

Gradient = NDArray[np.floating]
StepRule = Literal["adam", "sgd"]

ADAM_EPSILON = 1e-8
"""Added to the denominator of Adam's steps."""


@dataclass
class Stepper:
    """Steps against gradients of any shape.

    `sgd` is the gradient times the rate; `adam` is that of Kingma and Ba 2015, algorithm 1, with
    bias correction. Moments have the precision of the first gradient. In single precision their
    relative error is 1e-7, as that of the gradients is, and squares of gradients below 1e-22
    vanish, so that only `ADAM_EPSILON` limits the step.

    Attributes
    ----------
    rate
        The step size: a number, or an array that is broadcast over the gradients. It may be changed
        between steps.
    decays
        Decay rates of Adam's running means of gradients and of their squares.
    taken
        The number of steps so far.
    """

    rule: StepRule
    rate: float | Gradient
    decays: tuple[float, float] = (0.9, 0.999)
    taken: int = 0
    _moments: Gradient | None = None

    def step(self, slopes: Gradient) -> Gradient:
        """Return the step to subtract."""
        self.taken += 1
        if self.rule == "sgd":
            return np.asarray(self.rate * slopes)
        if self._moments is None:
            self._moments = np.zeros((2, slopes.size), slopes.dtype)
        rates = np.broadcast_to(self.rate, slopes.shape).ravel()
        step = np.empty(slopes.size, slopes.dtype)
        scales = tuple(1 / (1 - decay**self.taken) for decay in self.decays)
        _compiled_adam()(slopes.ravel(), rates, self._moments, self.decays, scales, step)
        return step.reshape(slopes.shape)


def _adam(  # noqa: PLR0917  (compiled functions take arrays)
    slopes: Gradient,
    rates: Gradient,
    moments: Gradient,
    decays: tuple[float, float],
    scales: tuple[float, float],
    step: Gradient,
) -> None:
    """Compute a step (n,) in double precision; update the moments (2, n) in place."""
    for k in range(slopes.size):
        mean = decays[0] * moments[0, k] + (1 - decays[0]) * slopes[k]
        square = decays[1] * moments[1, k] + (1 - decays[1]) * slopes[k] * slopes[k]
        moments[0, k], moments[1, k] = mean, square
        step[k] = rates[k] * (scales[0] * mean) / (np.sqrt(scales[1] * square) + ADAM_EPSILON)


@cache
def _compiled_adam() -> Callable[..., None]:
    import numba  # takes 0.2 s, and few solvers take such steps

    # without a test for division by 0, four times as fast
    compiled: Callable[..., None] = numba.njit(cache=True, error_model="numpy")(_adam)
    return compiled


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

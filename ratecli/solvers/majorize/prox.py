"""The point nearest to given scores under the hinges and the constraints together.

    minimize over y   F(y) + sigma/2 |y - u|^2

F is the objective of Problem 3 plus `price` per unit of constraint excess. At given multipliers v
the rows are independent and each has a closed-form solution. The best v, a handful of numbers,
maximizes a concave, piecewise quadratic function and is found by Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.linear import HALF
from ratecli.solvers.majorize.convex import ConvexProblem
from ratecli.solvers.numerics.quadratic import minimize_quadratic

Mask = NDArray[np.bool_]

MAX_PROX_STEPS = 30
PROX_ARMIJO = 1e-4
MIN_PROX_STEP = 1e-4


@dataclass(frozen=True)
class ProxPoint:
    """The point nearest to u (n,) at multipliers v (m,).

    Attributes
    ----------
    y, slopes
        (n,) the point, and sigma (u - y): a slope of the Lagrangian's hinges at y.
    corner
        (n,) rows that stay at a corner of their hinge (-1/2 or 1/2) under small changes of u.
    tilt
        (m, n) slopes of the constraints at y, 0 for those rows.
    values
        (m + 1,) objective without the regularizer and constraint values at y, margins added.
    value
        The dual function of the multipliers.
    """

    v: Array
    y: Array
    slopes: Array
    corner: Mask
    tilt: Array
    values: Array
    value: float


@dataclass(frozen=True)
class ProximalOperator:
    """The operator of a convex problem with constraints at most `-margin` (m,).

    `tolerance` is the accuracy of the constraints' values.
    """

    problem: ConvexProblem
    sigma: float
    margin: Array
    price: float
    tolerance: float

    def at(self, u: Array, v: Array) -> ProxPoint:
        """Return the nearest point at fixed multipliers.

        Each row moves towards its hinges by their slope over sigma, and stops at a corner.
        """
        up, down = self.problem.bounds(v)
        middle = up - down
        scaled = self.sigma * u
        low, high = scaled + HALF * self.sigma, scaled - (HALF * self.sigma + middle)
        # minimum and maximum are twice as fast as clip; rounding may lift the sum above `up`
        first = np.minimum(np.maximum(low, -down), middle)
        slopes = np.minimum(first + np.minimum(np.maximum(high, 0.0), down), up)
        y = u - slopes / self.sigma
        above, between, below = high >= down, (low >= middle) & (high <= 0), low <= -down
        tilt = self.problem.up[1:] * (above | between) - self.problem.down[1:] * (below | between)
        values = self.problem.at(y)
        values[1:] += self.margin
        value = float(values[0] + v @ values[1:]) + float(slopes @ slopes) / (2 * self.sigma)
        return ProxPoint(v, y, slopes, ~(above | between | below), tilt, values, value)

    def nearest(self, u: Array, v: Array, most: float = np.inf) -> ProxPoint:
        """Return the nearest point at the best multipliers, searched from v on.

        The search ends early at multipliers whose value exceeds `most`.
        """
        here = self.at(u, v)
        for _ in range(MAX_PROX_STEPS if len(v) else 0):
            if here.value > most:
                break
            gradient = here.values[1:]
            free = np.flatnonzero(self._free(here.v, gradient))
            if not len(free) or np.abs(gradient[free]).max() <= self.tolerance:
                break
            following = self._step(u, here, free)
            if following is None:
                break
            here = following
        return here

    def _free(self, v: Array, gradient: Array) -> Mask:
        return np.asarray(((v > 0) | (gradient > 0)) & ((v < self.price) | (gradient < 0)))

    def _step(self, u: Array, here: ProxPoint, free: NDArray[np.intp]) -> ProxPoint | None:
        """Take Newton's step in the free multipliers, at most doubling them; halve it if needed."""
        gradient = here.values[1:]
        curvature = here.tilt[free] @ here.tilt[free].T / self.sigma
        most = 2 * np.maximum(here.v, self._unit)
        low, high = np.maximum(-here.v, -most), np.minimum(self.price - here.v, most)
        step = np.zeros(len(here.v))
        bounds, none = (low[free], high[free]), np.zeros(len(free))
        step[free] = minimize_quadratic(curvature, gradient[free], bounds, none)
        length = 1.0
        while length >= MIN_PROX_STEP:
            v = np.clip(here.v + length * step, 0.0, self.price)
            reached = self.at(u, v)
            if reached.value >= here.value + PROX_ARMIJO * float(gradient @ (v - here.v)):
                return None if np.array_equal(v, here.v) else reached
            length /= 2
        return None

    @cached_property
    def _unit(self) -> Array:
        """Multipliers at which a constraint weighs as much as the objective.

        A constant constraint counts as 1.
        """
        weights = (self.problem.up + self.problem.down).sum(axis=1)
        return np.asarray((weights[0] or 1.0) / np.where(weights[1:] > 0, weights[1:], 1.0))

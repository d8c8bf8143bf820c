"""Steps of gradient methods: plain ones and those of Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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

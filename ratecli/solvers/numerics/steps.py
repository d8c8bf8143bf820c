"""Steps of gradient methods."""

from __future__ import annotations

from dataclasses import dataclass
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
        The step size: a number, or an array that is broadcast over the gradients.
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
            self._moments = np.zeros((2, *slopes.shape), slopes.dtype)
        moments, current = self._moments.astype(float), np.asarray(slopes, dtype=float)
        (mean, square), (keep, keep_square) = moments, self.decays
        mean *= keep
        mean += (1 - keep) * current
        square *= keep_square
        square += (1 - keep_square) * current * current
        self._moments[:] = moments
        mean *= 1 / (1 - keep**self.taken)
        square *= 1 / (1 - keep_square**self.taken)
        step = self.rate * mean
        step /= np.sqrt(square, out=square) + ADAM_EPSILON
        return np.asarray(step, dtype=slopes.dtype)

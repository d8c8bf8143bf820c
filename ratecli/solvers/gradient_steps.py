"""Steps of gradient methods: plain ones and those of Adam."""

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
    _moments: tuple[Gradient, Gradient] | None = None

    def step(self, slopes: Gradient) -> Gradient:
        """Return the step to subtract, computed in double precision."""
        self.taken += 1
        if self.rule == "sgd":
            return np.asarray(self.rate * slopes)
        dtype, slopes, (first, second) = slopes.dtype, slopes.astype(float), self.decays
        moments = self._moments or (np.zeros(slopes.shape), np.zeros(slopes.shape))
        mean = first * moments[0].astype(float) + (1 - first) * slopes
        square = second * moments[1].astype(float) + (1 - second) * slopes * slopes
        self._moments = mean.astype(dtype), square.astype(dtype)
        size = np.sqrt(1 / (1 - second**self.taken) * square) + ADAM_EPSILON
        step = self.rate * (1 / (1 - first**self.taken) * mean) / size
        return np.asarray(step, dtype)

"""Step rules of players that descend or ascend, for all lanes at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.players.kernel import adam_step

GradientSteps = NDArray[np.floating]

StepRule = Literal["adam", "sgd"]

ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8
"""Decay rates of the moments, and the epsilon in the denominator (Kingma and Ba 2015)."""


@dataclass
class Stepper:
    """Steps against gradients of shape (..., n, B), with rates (..., 1, B) or (B,) for the lanes.

    `sgd` is the plain gradient times the rate; `adam` is Kingma and Ba's, with bias correction.
    Moments have the precision of the first gradient. In single precision their relative error is
    1e-7, as that of the gradients is, and squares of gradients below 1e-22 vanish, so that only
    `ADAM_EPSILON` limits the step.
    """

    rule: StepRule
    rates: GradientSteps
    taken: int = 0
    _moments: GradientSteps | None = None

    def step(self, slopes: GradientSteps) -> GradientSteps:
        """Return the step to subtract."""
        self.taken += 1
        if self.rule == "sgd":
            return np.asarray(self.rates * slopes)
        *many, n, lanes = slopes.shape
        blocks = slopes.reshape(math.prod(many), n, lanes)
        rates = self.rates.reshape(-1, 1, lanes)
        if self._moments is None:
            self._moments = np.zeros((2, *blocks.shape), slopes.dtype)
        found = np.empty_like(blocks)
        corrections = (1 - ADAM_BETA1**self.taken, 1 - ADAM_BETA2**self.taken)
        first, second = self._moments
        adam_step(
            blocks, rates, first, second, (ADAM_BETA1, ADAM_BETA2), corrections, ADAM_EPSILON, found
        )
        return found.reshape(slopes.shape)


def project_onto_simplex_cap(points: Array, radius: float) -> Array:
    """Project the columns of points (n, B) onto `{x >= 0, sum of x <= radius}` (vector 9.9)."""
    kept = np.maximum(points, 0.0)
    if radius == np.inf:
        return kept
    far = kept.sum(axis=0) > radius
    if not far.any():
        return kept
    ranked = -np.sort(-kept[:, far], axis=0)
    excess = (np.cumsum(ranked, axis=0) - radius) / np.arange(1, len(kept) + 1)[:, None]
    last = (ranked > excess).sum(axis=0) - 1
    kept[:, far] = np.maximum(kept[:, far] - excess[last, np.arange(len(last))], 0.0)
    return kept

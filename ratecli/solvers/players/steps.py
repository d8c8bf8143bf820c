"""Step rules of players that descend or ascend, for all lanes at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.players.kernel import adam

Steps = NDArray[np.floating]

Rule = Literal["adam", "sgd"]

FIRST, SECOND, GUARD = 0.9, 0.999, 1e-8
"""Decays of the moments, and what keeps the step finite (Kingma and Ba 2015)."""


@dataclass
class Stepper:
    """Steps against gradients of shape (..., n, B), with rates (..., 1, B) or (B,) for the lanes.

    `sgd` is the plain gradient times the rate, `adam` is Kingma and Ba's with bias correction. Moments
    are kept in the precision of the first gradient: of single precision they are off by 1e-7 of
    themselves, as the gradients are, and squares of gradients below 1e-22 vanish, where GUARD alone
    sets the size of a step.
    """

    rule: Rule
    rates: Steps
    taken: int = 0
    _moments: Steps | None = None

    def step(self, slopes: Steps) -> Steps:
        """What to subtract."""
        self.taken += 1
        if self.rule == "sgd":
            return np.asarray(self.rates * slopes)
        *many, n, lanes = slopes.shape
        blocks = slopes.reshape(math.prod(many), n, lanes)
        rates = self.rates.reshape(-1, 1, lanes)
        if self._moments is None:
            self._moments = np.zeros((2, *blocks.shape), slopes.dtype)
        found = np.empty_like(blocks)
        corrections = (1 - FIRST**self.taken, 1 - SECOND**self.taken)
        first, second = self._moments
        adam(blocks, rates, first, second, (FIRST, SECOND), corrections, GUARD, found)
        return found.reshape(slopes.shape)


def onto_simplex_cap(points: Array, radius: float) -> Array:
    """The nearest points of `{x >= 0, sum of x <= radius}` to the columns of (n, B) points (vector 9.9)."""
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

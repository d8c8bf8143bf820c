"""Step rules of players that descend or ascend, for all lanes at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array

Rule = Literal["adam", "sgd"]

FIRST, SECOND, GUARD = 0.9, 0.999, 1e-8
"""Decays of the moments, and what keeps the step finite (Kingma and Ba 2015)."""


@dataclass
class Stepper:
    """Steps against gradients of shape (..., B), with a rate for each of B lanes.

    `sgd` is the plain gradient times the rate, `adam` is Kingma and Ba's with bias correction.
    """

    rule: Rule
    rates: Array
    taken: int = 0
    _first: NDArray[np.floating] = field(default_factory=lambda: np.zeros(()))
    _second: NDArray[np.floating] = field(default_factory=lambda: np.zeros(()))

    def step(self, slopes: NDArray[np.floating]) -> NDArray[np.floating]:
        """What to subtract."""
        self.taken += 1
        if self.rule == "sgd":
            return self.rates * slopes
        self._first = FIRST * self._first + (1 - FIRST) * slopes
        self._second = SECOND * self._second + (1 - SECOND) * slopes**2
        mean = self._first / (1 - FIRST**self.taken)
        size = np.sqrt(self._second / (1 - SECOND**self.taken))
        return np.asarray(self.rates * mean / (size + GUARD))


def onto_simplex_cap(points: Array, radius: float) -> Array:
    """The nearest points of `{x >= 0, sum of x <= radius}` to the columns of (n, B) points (vector 9.9)."""
    kept = np.maximum(points, 0.0)
    far = kept.sum(axis=0) > radius
    if not far.any():
        return kept
    ranked = -np.sort(-kept[:, far], axis=0)
    excess = (np.cumsum(ranked, axis=0) - radius) / np.arange(1, len(kept) + 1)[:, None]
    last = (ranked > excess).sum(axis=0) - 1
    kept[:, far] = np.maximum(kept[:, far] - excess[last, np.arange(len(last))], 0.0)
    return kept

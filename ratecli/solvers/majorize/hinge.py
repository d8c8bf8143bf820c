"""The weighted, two-sided hinge problem inside every majorization step, and its dual.

    minimize  lambda/2 |w|^2 + sum_i up_i max(0, 1/2 + z_i) + down_i max(0, 1/2 - z_i),   z = X w

Any slopes g with -down <= g <= up are a dual point: w(g) = -X'g / lambda, and the value

    -lambda/2 |w(g)|^2 - sum_i max(-g_i/2 - down_i, g_i/2 - up_i)

bounds the minimum from below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array, Features
from ratecli.models.ramp import HALF, hinge


@dataclass(frozen=True)
class HingeProblem:
    """Weights `up` on +z and `down` on -z, both (n,) and at least 0; `l2` > 0."""

    X: Features
    up: Array
    down: Array
    l2: float

    def primal(self, z: Array, w: Array) -> float:
        """The objective at w, shape (d,), with scores z = Xw, shape (n,)."""
        return float(self.up @ hinge(z) + self.down @ hinge(-z) + self.l2 / 2 * (w @ w))

    def dual(self, slopes: Array, pull: Array) -> float:
        """The lower bound that slopes (n,) give; `pull` is X' slopes, shape (d,)."""
        conjugate = np.maximum(-HALF * slopes - self.down, HALF * slopes - self.up)
        return float(-(pull @ pull) / (2 * self.l2) - conjugate.sum())

"""Gradient descent on the weights and ascent on the multipliers, as in the tutorial of the toolkit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.seldonian.selection import Point, Selection, Track

MOMENTUM, MEMORY = 0.9, 0.95
"""Decay of the running means of slopes and of their squares (the toolkit's)."""
TINY = 1e-8


@dataclass
class Adam:
    """Steps of about `rate` in every coordinate (Kingma, Ba 2015, algorithm 1).

    Running means begin at 0 and are corrected for that in each step anew, not in place: under constant
    slopes each step has the length `rate`, from the first on.
    """

    rate: float
    count: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(1))
    square: Array = field(default_factory=lambda: np.zeros(1))

    def step(self, slopes: Array) -> Array:
        """What to add to the coordinates."""
        self.count += 1
        self.mean = MOMENTUM * self.mean + (1 - MOMENTUM) * slopes
        self.square = MEMORY * self.square + (1 - MEMORY) * slopes**2
        mean = self.mean / (1 - MOMENTUM**self.count)
        square = self.square / (1 - MEMORY**self.count)
        return -self.rate * mean / (np.sqrt(square) + TINY)


@dataclass(frozen=True)
class Lagrangian:
    """The saddle point of `objective + multipliers . ends`; the best iterate that passes is kept.

    Multipliers rise by `rate` times the ends, and stay at least 0. An end that is infinite has no
    slope and counts as 1. An iterate that is no number ends the search; what was found before stays.
    """

    selection: Selection
    track: Track
    rate: float
    multiplier: float

    def run(self, start: Point, steps: int) -> tuple[Point, Array]:
        """The last point, and the multipliers (P,) of the ends there."""
        point, adam = start, Adam(self.rate)
        multipliers = np.full(len(start.upper), self.multiplier)
        for _ in range(steps):
            slopes = self.selection.gradient(point)
            slopes = slopes + self.selection.jacobian(point).T @ multipliers
            if not np.isfinite(slopes).all():
                break
            rise = np.where(np.isfinite(point.upper), point.upper, np.sign(point.upper))
            multipliers = np.maximum(multipliers + self.rate * rise, 0.0)
            point = self.selection.at(point.v + adam.step(slopes))
            self.track.step(point)
        return point, multipliers

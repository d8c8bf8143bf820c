"""Gradient descent on the weights and ascent on the multipliers, as the tutorial of the toolkit has it.

There multipliers rise by a small part of their ends, so that a thousand steps do not get them near to
what they should be, and both players circle around the saddle point. Here both take Adam's steps,
multipliers are felt with what their ends are about to add to them, which damps the circles (the
augmented Lagrangian), and steps get shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.seldonian.selection import CandidatePoint, CandidateSelection, CandidateTracker

ADAM_MEAN_DECAY, ADAM_SQUARE_DECAY = 0.9, 0.95
"""Decay of the running means of slopes and of their squares (the toolkit's)."""
ADAM_TINY = 1e-8
MULTIPLIER_DAMPING = 3.0
"""What an end adds at once to its multiplier, in multiples of itself."""
LAGRANGIAN_MARGIN = 1e-6
"""How far below 0 ends are asked to be: what circles around the edge must be within."""


@dataclass
class AdamStepper:
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
        self.mean = ADAM_MEAN_DECAY * self.mean + (1 - ADAM_MEAN_DECAY) * slopes
        self.square = ADAM_SQUARE_DECAY * self.square + (1 - ADAM_SQUARE_DECAY) * slopes**2
        mean = self.mean / (1 - ADAM_MEAN_DECAY**self.count)
        square = self.square / (1 - ADAM_SQUARE_DECAY**self.count)
        return -self.rate * mean / (np.sqrt(square) + ADAM_TINY)


@dataclass(frozen=True)
class LagrangianOptimizer:
    """The saddle point of `objective + multipliers . ends`; the best iterate that passes is kept.

    Multipliers stay at least 0. An end that is infinite has no slope and counts as 1. An iterate that is
    no number ends the search; what was found before stays.
    """

    selection: CandidateSelection
    track: CandidateTracker
    rate: float
    multiplier: float

    def run(self, start: CandidatePoint, steps: int) -> tuple[CandidatePoint, Array]:
        """The last point, and the multipliers (P,) that were felt at the best one."""
        point, ends = start, self._ends(start)
        descent, ascent = AdamStepper(self.rate), AdamStepper(self.rate)
        multipliers = np.full(len(ends), self.multiplier)
        of_best = felt = self._felt(multipliers, ends)
        for k in range(steps):
            slopes = self.selection.gradient(point) + self.selection.jacobian(point).T @ felt
            if not np.isfinite(slopes).all():
                break
            descent.rate = ascent.rate = self.rate * (1 - k / steps)
            multipliers = np.maximum(multipliers + ascent.step(-ends), 0.0)
            point = self.selection.at(point.v + descent.step(slopes))
            ends = self._ends(point)
            self.track.step(point)
            felt = self._felt(multipliers, ends)
            if point is self.track.best:
                of_best = felt
        return point, of_best

    @staticmethod
    def _felt(multipliers: Array, ends: Array) -> Array:
        return np.maximum(multipliers + MULTIPLIER_DAMPING * ends, 0.0)

    @staticmethod
    def _ends(point: CandidatePoint) -> Array:
        return np.where(
            np.isfinite(point.upper), point.upper + LAGRANGIAN_MARGIN, np.sign(point.upper)
        )

"""What betting is expected to reach, from the moments of samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.safety.bets import PRIOR_VARIANCE, stake_size
from ratecli.solvers.safety.samples import Predicted, Sizes

Numbers = NDArray[np.inexact]
NODES = 32
TINY = 1e-30
"""Complex step: derivatives of analytic functions to the last digit, as nothing is subtracted."""
LEAST_MEAN = 1e-9
TOLERANCE = 1e-12


def expected_excess(sizes: Sizes, sums: Array, deviations: Array, delta: float) -> Predicted:
    """Return the width D of the bound above the sum of means (P,), with its slopes.

    D is where the expected logarithm of the wealth is ln(1/delta), for values that are 0 or one larger
    number and have the moments given (0/1 decisions are that). The bets are those for the expected
    running variances. Slopes are those of an implicit function.
    """
    widths = sizes.widths
    means, spreads = np.maximum((sums - sizes.lows) / widths, LEAST_MEAN), deviations / widths
    goal, room = math.log(1 / delta), float(widths @ (1 - means))
    game = _game(means, spreads, sizes, delta)
    if not room > 0 or game.growth(room) < goal:  # no wealth rules out even the largest sum
        return Predicted(room, -np.ones(means.size), np.zeros(means.size))
    errors = (widths * spreads) ** 2 / sizes.rows
    excess, rise, step = min(math.sqrt(2 * goal * float(errors.sum())), room / 2), 0.0, math.inf
    while abs(step) > TOLERANCE * room:  # the growth is concave: steps from below do not go too far
        grown, rise = game.climb(excess)
        step = max((goal - grown) / rise, -excess)
        excess += step
    steps, still = TINY * 1j * np.eye(means.size), np.zeros((means.size, means.size))
    moved = _game(
        means + np.vstack([steps, still]), spreads + np.vstack([still, steps]), sizes, delta
    )
    by_mean, by_deviation = moved.growth(excess).imag.reshape(2, -1) / TINY / -(rise * widths)
    return Predicted(excess, by_mean, by_deviation)


@dataclass(frozen=True)
class _Game:
    """(..., P, T) stakes at T times, and (..., P, 1) distributions: 0, or `jump` with a `chance`."""

    stakes: Numbers
    means: Numbers
    jump: Numbers
    chance: Numbers
    shares: Array
    plays: Array

    def growth(self, excess: float) -> Numbers:
        """Return the expected logarithm of the wealth where the sum of means is D above the true one.

        Of all means with that sum the wealth is taken where each is above the true one in proportion
        to its squared standard error at equal variances. An analytic function, concave in D.
        """
        return self._grown(*self._outcomes(excess))

    def climb(self, excess: float) -> tuple[float, float]:
        """Return the growth and its derivative, of one distribution."""
        wins, losses = self._outcomes(excess)
        rises = (1 - self.chance) / wins + self.chance / losses
        rise = (self.plays * self.stakes * self.shares * rises).sum()
        return float(self._grown(wins, losses)), float(rise)

    def _outcomes(self, excess: float) -> tuple[Numbers, Numbers]:
        tested = self.means + excess * self.shares
        return 1 + self.stakes * tested, 1 + self.stakes * (tested - self.jump)

    def _grown(self, wins: Numbers, losses: Numbers) -> Numbers:
        logs = np.log(wins) + self.chance * np.log(losses / wins)
        return np.asarray((logs * self.plays).sum(axis=(-2, -1)))


def _game(means: Numbers, deviations: Numbers, sizes: Sizes, delta: float) -> _Game:
    """The game of (..., P) means and deviations, as shares of the ranges."""
    rows, widths = sizes.rows, sizes.widths
    largest = means * (1 - means)
    variances = np.where(deviations.real**2 < largest.real, deviations**2, largest)[..., None]
    times, spans = _nodes(float(rows.max()))
    seen = variances + (PRIOR_VARIANCE - variances) / (times * rows[:, None] + 1)
    ratios = widths / rows
    stakes = stake_size((widths * ratios) @ seen, ratios.max(), delta)[..., None, :]
    jump = means[..., None] + variances / means[..., None]
    return _Game(
        stakes * (ratios / ratios.max())[:, None],
        means[..., None],
        jump,
        means[..., None] / jump,
        (ratios / (widths @ ratios))[:, None],
        rows[:, None] * spans,
    )


@lru_cache
def _nodes(rows: float) -> tuple[Array, Array]:
    """Return times in (0, 1), close together where little has been seen, and the spans around them."""
    edges = np.concatenate(([0.0], np.geomspace(1 / rows, 1.0, NODES)))
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)

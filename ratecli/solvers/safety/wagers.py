"""What betting is expected to reach, from the moments of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.safety.bets import PRIOR_VARIANCE, stake_size
from ratecli.solvers.safety.crossing import crossing
from ratecli.solvers.safety.samples import Moments, Predicted

Numbers = NDArray[np.inexact]
NODES = 32
TINY = 1e-30
"""Complex step: derivatives of analytic functions to the last digit, as nothing is subtracted."""
LEAST_MEAN = 1e-9
TOLERANCE = 1e-12


def expected_excess(moments: Sequence[Moments], delta: float) -> Predicted:
    """Return the width D of the bound above the sum of means, with its slopes.

    D is where the expected logarithm of the wealth is ln(1/delta), for values that are 0 or one larger
    number and have the moments given (0/1 decisions are that). The bets are those for the expected
    running variances. Slopes are those of an implicit function.
    """
    lows, highs = np.array([part.range for part in moments]).T
    widths, rows = highs - lows, np.array([float(part.rows) for part in moments])
    means = np.maximum((np.array([part.mean for part in moments]) - lows) / widths, LEAST_MEAN)
    deviations = np.array([part.deviation for part in moments]) / widths
    goal, room = math.log(1 / delta), float(widths @ (1 - means))
    sizes = _Sizes(rows, widths, delta)
    still = sizes.game(means, deviations)
    excess = crossing(lambda d: still.growth(d).real - goal, 0.0, room, TOLERANCE * room)
    if excess >= room:  # no wealth rules out even the largest sum
        return Predicted(room, -np.ones(rows.size), np.zeros(rows.size))
    rise = still.growth(excess + TINY * 1j).imag
    steps = TINY * 1j * np.eye(rows.size)
    by_mean = [sizes.game(means + step, deviations).growth(excess).imag for step in steps]
    by_deviation = [sizes.game(means, deviations + step).growth(excess).imag for step in steps]
    scale = -1 / (rise * widths)
    return Predicted(excess, scale * by_mean, scale * by_deviation)


@dataclass(frozen=True)
class _Game:
    """(P, T) stakes at T times, and (P, 1) distributions: 0, or `jump` with a probability `chance`."""

    stakes: Numbers
    means: Numbers
    jump: Numbers
    chance: Numbers
    shares: Array
    plays: Array

    def growth(self, excess: complex) -> complex:
        """Return the expected logarithm of the wealth where the sum of means is D above the true one.

        Of all means with that sum the wealth is taken where each is above the true one in proportion
        to its squared standard error at equal variances. An analytic function.
        """
        tested = self.means + excess * self.shares
        wins, losses = 1 + self.stakes * tested, 1 + self.stakes * (tested - self.jump)
        logs = np.log(wins) + self.chance * np.log(losses / wins)
        return complex((logs * self.plays).sum())


@dataclass(frozen=True)
class _Sizes:
    rows: Array
    widths: Array
    delta: float

    def game(self, means: Numbers, deviations: Numbers) -> _Game:
        largest = means * (1 - means)
        variances = np.where(deviations.real**2 < largest.real, deviations**2, largest)[:, None]
        times, spans = _nodes(self.rows.max())
        seen = variances + (PRIOR_VARIANCE - variances) / (times * self.rows[:, None] + 1)
        ratios = self.widths / self.rows
        stakes = stake_size((self.widths * ratios) @ seen, ratios.max(), self.delta)
        means = means[:, None]
        jump = means + variances / means
        return _Game(
            stakes * (ratios / ratios.max())[:, None],
            means,
            jump,
            means / jump,
            (ratios / (self.widths @ ratios))[:, None],
            self.rows[:, None] * spans,
        )


def _nodes(rows: float) -> tuple[Array, Array]:
    """Return times in (0, 1), close together where little has been seen, and the spans around them."""
    edges = np.concatenate(([0.0], np.geomspace(1 / rows, 1.0, NODES)))
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)

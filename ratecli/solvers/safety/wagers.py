"""What betting is expected to reach, from the moments of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.safety.bets import PRIOR_VARIANCE, stake_size
from ratecli.solvers.safety.crossing import crossing
from ratecli.solvers.safety.samples import Moments, Predicted

Numbers = NDArray[np.inexact]
NODES = 48
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
    widths = highs - lows
    means = np.maximum((np.array([part.mean for part in moments]) - lows) / widths, LEAST_MEAN)
    deviations = np.array([part.deviation for part in moments]) / widths
    rows = np.array([float(part.rows) for part in moments])
    goal, size = math.log(1 / delta), len(moments)

    def growth(excess: complex, by_mean: Numbers, by_deviation: Numbers) -> complex:
        return _growth(
            excess,
            means + by_mean,
            deviations + by_deviation,
            rows=rows,
            widths=widths,
            delta=delta,
        )

    still, room = np.zeros(size), float(widths @ (1 - means))
    excess = crossing(lambda d: growth(d, still, still).real - goal, 0.0, room, TOLERANCE * room)
    rise = growth(excess + TINY * 1j, still, still).imag
    steps = TINY * 1j * np.eye(size)
    by_mean = -np.array([growth(excess, step, still).imag for step in steps]) / rise
    by_deviation = -np.array([growth(excess, still, step).imag for step in steps]) / rise
    return Predicted(excess, by_mean / widths, by_deviation / widths)


def _growth(
    excess: complex,
    means: Numbers,
    deviations: Numbers,
    *,
    rows: Array,
    widths: Array,
    delta: float,
) -> complex:
    """Return the expected logarithm of the wealth where the sum of means is D above the true one.

    Of all means with that sum the wealth is taken where each is above the true one in proportion to
    its squared standard error at the same variance. An analytic function of all arguments.
    """
    largest = means * (1 - means)
    variances = np.where(deviations.real**2 < largest.real, deviations**2, largest)
    times, spans = _nodes(rows.max())
    seen = variances[:, None] + (PRIOR_VARIANCE - variances[:, None]) / (times * rows[:, None] + 1)
    ratios = widths / rows
    stakes = stake_size((widths * ratios) @ seen, ratios.max(), delta) * (
        ratios[:, None] / ratios.max()
    )
    tested = (means + excess * ratios / (widths @ ratios))[:, None]
    jump = ((means**2 + variances) / means)[:, None]
    chance = means[:, None] / jump
    logs = chance * np.log(1 + stakes * (tested - jump)) + (1 - chance) * np.log(
        1 + stakes * tested
    )
    return complex((logs @ spans) @ rows)


def _nodes(rows: float) -> tuple[Array, Array]:
    """Return times in (0, 1), close together where little has been seen, and the spans around them."""
    edges = np.concatenate(([0.0], np.geomspace(1 / rows, 1.0, NODES)))
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)

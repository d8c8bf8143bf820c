"""Predict the bound that betting is expected to reach, from the moments of samples."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numba
import numpy as np

from ratecli.certify.bets import PRIOR_VARIANCE
from ratecli.certify.bound import PredictedBound, SampleSizes
from ratecli.models.base import Array

NODES = 32
COMPLEX_STEP = 1e-30
"""Complex-step differentiation: exact to the last digit for analytic functions, no subtraction."""
MIN_MEAN = 1e-9
TOLERANCE, STEPS = 1e-12, 100


def expected_excess(
    sizes: SampleSizes, sums: Array, deviations: Array, delta: float
) -> PredictedBound:
    """Return the expected excess D of the bound over the sum of means, with its (P,) slopes.

    D is where the expected logarithm of the wealth is ln(1/delta), for values that are either 0 or
    one larger number and have the given moments (true of 0/1 decisions). The bets are those for the
    expected running variances. The slopes are found by implicit differentiation.
    """
    widths, rows = sizes.widths, sizes.rows
    means, spreads = np.maximum((sums - sizes.lows) / widths, MIN_MEAN), deviations / widths
    goal, room = math.log(1 / delta), float(widths @ (1 - means))
    game = (rows, widths, *_nodes(float(rows.max())), goal)
    if not room > 0 or _growth(means, spreads, *game, room)[0] < goal:
        # no wealth rules out any mean
        return PredictedBound(room, -np.ones(means.size), np.zeros(means.size))
    errors = (widths * spreads) ** 2 / rows
    excess, rise = min(math.sqrt(2 * goal * float(errors.sum())), room / 2), 0.0
    for k in range(STEPS):
        grown, rise = _growth(means, spreads, *game, excess)
        step = max((goal - grown) / rise, -excess)
        # The growth is concave: every step but the first is upward, until only rounding is left.
        if k and step <= TOLERANCE * room:
            break
        excess += step
    moved = np.concatenate([means, spreads]) + COMPLEX_STEP * 1j * np.eye(2 * means.size)
    by = [_growth(each[: means.size], each[means.size :], *game, excess)[0].imag for each in moved]
    by_mean, by_deviation = np.reshape(by, (2, -1)) / COMPLEX_STEP / -(rise * widths)
    return PredictedBound(excess, by_mean, by_deviation)


@numba.njit(cache=True)
def _growth(  # noqa: PLR0917  compiled code takes arrays and numbers
    means: Any, spreads: Any, rows: Any, widths: Any, times: Any, spans: Any, goal: Any, excess: Any
) -> Any:
    """Return the expected log wealth where the sum of means is D above the true one.

    Also return its derivative in D. `means` and `spreads` (P,) are shares of the ranges. The
    excess D is distributed over the means in proportion to their squared standard errors at equal
    variances. The function is analytic, and concave in D. Stakes are those of `bets.stake_size` at
    T times.
    """
    ratios = widths / rows
    most, share = ratios.max(), 1 / (widths * ratios).sum()
    variances = np.empty_like(means)
    for p in range(means.size):
        largest = means[p] * (1 - means[p])
        squared = spreads[p] ** 2
        variances[p] = squared if squared.real < largest.real else largest
    grown, rise = 0 * means[0], 0 * means[0]
    for t in range(times.size):
        error = 0 * means[0]
        for p in range(means.size):
            seen = variances[p] + (PRIOR_VARIANCE - variances[p]) / (times[t] * rows[p] + 1)
            error += widths[p] * ratios[p] * seen
        best = most * np.sqrt(2 * goal / error)
        odds = best + best**2 / 3
        stake_of_most = odds / (1 + odds) / most
        for p in range(means.size):
            stake, own = stake_of_most * ratios[p], ratios[p] * share
            jump = means[p] + variances[p] / means[p]
            chance, tested = means[p] / jump, means[p] + excess * own
            win, loss = 1 + stake * tested, 1 + stake * (tested - jump)
            plays = rows[p] * spans[t]
            grown += plays * (np.log(win) + chance * np.log(loss / win))
            rise += plays * stake * own * ((1 - chance) / win + chance / loss)
    return grown, rise


@lru_cache
def _nodes(rows: float) -> tuple[Array, Array]:
    """Return times in (0, 1), denser near 0 where few rows are seen, and the spans around them."""
    edges = np.concatenate(([0.0], np.geomspace(1 / rows, 1.0, NODES)))
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)

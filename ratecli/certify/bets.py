"""Stakes for betting against a mean, chosen for each row from the rows before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array

PRIOR_VARIANCE = 0.25
"""Counts as one row before the first: the largest possible variance in [0, 1]."""


def compute_stakes(values: Sequence[Array], weights: Array, delta: float) -> list[Array]:
    """Return a stake in [0, 1) for each row: a row x multiplies the wealth by 1 + stake (m - x).

    The samples are played in parallel: row j of n is played at time (j + 1/2) / n, and a stake
    depends only on rows of earlier times. Stakes aim at the best bet for a sum of weighted means
    whose variances are the running ones; see `stake_size`.
    """
    rows = [column.size for column in values]
    ratios = weights / np.array(rows)
    variances = [_running_variance(column) for column in values]
    return [
        ratio
        / ratios.max()
        * stake_size(_sum_variances(variances, weights, rows, n), ratios.max(), delta)
        for ratio, n in zip(ratios, rows, strict=True)
    ]


def stake_size(variance: NDArray[np.inexact], ratio: float, delta: float) -> NDArray[np.inexact]:
    """Return the largest stake among the samples, given the variance of the weighted sum of means.

    The stake a = ratio sqrt(2 ln(1/delta) / variance) is optimal to second order (Waudby-Smith and
    Ramdas 2024, equation 26; ratio is w / n). By the Poisson distribution, x / (1 + x) with x = a +
    a^2 / 3 is optimal for rare events and any a; for small a both agree. It stays below 1, so that
    no row can make the wealth zero.
    """
    best = ratio * np.sqrt(2 * math.log(1 / delta) / variance)
    odds = best + best**2 / 3
    return np.asarray(odds / (1 + odds))


def _running_variance(values: Array) -> Array:
    """Return (n + 1,) variance estimates, where estimate j uses the first j rows."""
    counts = np.arange(1, values.size + 1)
    means = (0.5 + np.cumsum(values)) / (counts + 1)
    squares = PRIOR_VARIANCE + np.cumsum((values - means) ** 2)
    return np.concatenate(([PRIOR_VARIANCE], squares / (counts + 1)))


def _sum_variances(
    variances: Sequence[Array], weights: Array, rows: Sequence[int], n: int
) -> Array:
    """Return (n,) estimated variances of the sum of means before each row of a sample of n rows."""
    total = np.zeros(n)
    twice = 2 * np.arange(n) + 1
    for seen, weight, size in zip(variances, weights, rows, strict=True):
        # number of j' with (j' + 1/2) / size < (j + 1/2) / n, in integers so that ties are exact
        earlier = -((n - twice * size) // (2 * n))
        total += weight**2 / size * seen[earlier]
    return total

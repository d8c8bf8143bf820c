"""Exact bounds on rates of decisions, from counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ratecli.certify.binomial_limits import clopper_pearson_upper
from ratecli.certify.bound import Bound, scale_to_unit
from ratecli.certify.samples import BoundedSample, PredictedBound, SampleSizes
from ratecli.certify.two_binomials import pair_limit
from ratecli.models.base import Array

SLOPE_STEP = 1e-4
"""Of the difference of a limit in the (fractional) count, relative to the root of the rows."""


class ClopperPearson(Bound):
    """Limits of Clopper and Pearson (1934) for one rate, and of `pair_limit` for the sum of two.

    Of three rates or more, delta is divided over pairs: rates are sorted by width / sqrt(rows), which
    their largest standard errors are in proportion to, neighbours are bounded together, and shares are
    in proportion to the errors of the pairs. This looks at sizes alone.

    Measurements that are not at an end of their range (the probabilities of a randomized classifier)
    are decided first: each row is 1 with the probability that its place in the range says, drawn once.
    The mean stays the same, so the bound is exact for it, and for the randomized classifier.
    """

    name: ClassVar[str] = "clopper_pearson"
    exact: ClassVar[bool] = True
    means: ClassVar[str] = (
        "from counts of decisions; those of a randomized classifier are drawn once"
    )

    def _above(
        self, samples: Sequence[BoundedSample], delta: float, rng: np.random.Generator
    ) -> float:
        widths = np.array([sample.range[1] - sample.range[0] for sample in samples])
        rows = np.array([float(sample.values.size) for sample in samples])
        counts = np.array([_count(sample, rng) for sample in samples])
        total = math.fsum(sample.range[0] for sample in samples)
        for pair, share in _mean_pairs(widths, rows):
            if pair.size == 1:
                total += float(
                    widths[pair] @ clopper_pearson_upper(counts[pair], rows[pair], share * delta)
                )
            else:
                total += pair_limit(counts[pair], rows[pair], widths[pair], share * delta)
        return total

    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        """Predict the limit of a pair by what orders its outcomes (Zou and Donner 2008)."""
        rows, widths = sizes.rows, sizes.widths
        rates = (means - sizes.lows) / widths
        slopes = np.ones(rates.size)
        value = float(means.sum())
        for pair, share in _mean_pairs(widths, rows):
            limits, rises = _limits(rates[pair], rows[pair], share * delta)
            above = widths[pair] * (limits - rates[pair])
            if (size := float(np.hypot.reduce(above))) > 0:
                value += size
                slopes[pair] += above / size * (rises - 1)
        return PredictedBound(value, slopes, np.zeros_like(deviations))


def _mean_pairs(widths: Array, rows: Array) -> list[tuple[NDArray[np.intp], float]]:
    """Return the places of means that are bounded together, and the share of delta they have."""
    errors = widths / np.sqrt(rows)
    order = np.argsort(-errors, kind="stable")
    pairs = [order[i : i + 2] for i in range(0, order.size, 2)]
    sizes = np.array([np.hypot.reduce(errors[pair]) for pair in pairs])
    return list(zip(pairs, (sizes / sizes.sum()).tolist(), strict=True))


def _limits(rates: Array, rows: Array, delta: float) -> tuple[Array, Array]:
    """Return upper limits of rates and their slopes, by the difference of two limits near by."""
    step, counts = SLOPE_STEP * np.sqrt(rows), rates * rows
    above, below = np.minimum(counts + step, rows), np.maximum(counts - step, 0)
    limits, highs, lows = clopper_pearson_upper(np.stack([counts, above, below]), rows, delta)
    return limits, (highs - lows) * rows / (above - below)


def _count(sample: BoundedSample, rng: np.random.Generator) -> float:
    _, values = scale_to_unit(sample)
    if np.isin(values, (0.0, 1.0)).all():
        return float(values.sum())
    return float((rng.random(values.size) < values).sum())

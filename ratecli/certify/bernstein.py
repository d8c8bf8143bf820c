"""The empirical Bernstein bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ratecli.certify.bound import Bound, BoundedSample, PredictedBound, SampleSizes, split_delta
from ratecli.models.base import Array


class EmpiricalBernstein(Bound):
    """Mean plus `s sqrt(2 ln(2/delta) / n) + 7 (b - a) ln(2/delta) / (3 (n - 1))`.

    Theorem 4 of Maurer and Pontil (2009); s^2 has n - 1 in its denominator. Several means are
    bounded separately, each at most by the end of its range, with delta divided by `split_delta`.
    """

    name: ClassVar[str] = "empirical_bernstein"
    exact: ClassVar[bool] = True
    means: ClassVar[str] = "from the variance and the range of the measurements"
    least_rows: ClassVar[int] = 2

    def _above(
        self,
        samples: Sequence[BoundedSample],
        delta: float,
        rng: np.random.Generator,  # noqa: ARG002  nothing is random
    ) -> float:
        rows = np.array([float(sample.values.size) for sample in samples])
        ranges = np.array([sample.range for sample in samples])
        slopes, rests = _terms(ranges[:, 1] - ranges[:, 0], rows, delta)
        means = np.array([sample.values.mean() for sample in samples])
        deviations = np.array([sample.values.std(ddof=1) for sample in samples])
        return float(np.minimum(means + slopes * deviations + rests, ranges[:, 1]).sum())

    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        slopes, rests = _terms(sizes.widths, sizes.rows, delta)
        limits = means + slopes * deviations + rests
        inside = (limits < sizes.highs).astype(float)
        value = float(np.minimum(limits, sizes.highs).sum())
        return PredictedBound(value, inside, inside * slopes)


def _terms(widths: Array, rows: Array, delta: float) -> tuple[Array, Array]:
    """Return the factors of the deviations, and the terms that do not depend on them."""
    logs = np.log(2 / (delta * split_delta(widths, rows)))
    return np.sqrt(2 * logs / rows), 7 * widths * logs / (3 * (rows - 1))

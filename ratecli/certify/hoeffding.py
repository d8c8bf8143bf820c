"""Hoeffding's bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ratecli.certify.bound import Bound, BoundedSample, PredictedBound, SampleSizes
from ratecli.models.base import Array


class Hoeffding(Bound):
    """Mean plus `sqrt(ln(1/delta)/2 sum_i (b_i - a_i)^2 / n_i)` (Hoeffding 1963, Theorem 2).

    The theorem covers sums of independent variables with any ranges, so delta need not be divided
    among several means.
    """

    name: ClassVar[str] = "hoeffding"
    exact: ClassVar[bool] = True
    means: ClassVar[str] = "from the range of the measurements alone"

    def _above(
        self,
        samples: Sequence[BoundedSample],
        delta: float,
        rng: np.random.Generator,  # noqa: ARG002  nothing is random
    ) -> float:
        mean = sum(float(sample.values.mean()) for sample in samples)
        squares = ((s.range[1] - s.range[0]) ** 2 / s.values.size for s in samples)
        return mean + math.sqrt(math.log(1 / delta) / 2 * sum(squares))

    def expected(
        self, sizes: SampleSizes, means: Array, deviations: Array, delta: float
    ) -> PredictedBound:
        half = math.sqrt(math.log(1 / delta) / 2 * float((sizes.widths**2 / sizes.rows).sum()))
        return PredictedBound(
            float(means.sum()) + half, np.ones(means.size), np.zeros_like(deviations)
        )

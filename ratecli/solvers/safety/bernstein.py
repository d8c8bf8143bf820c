"""The empirical Bernstein bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.safety.bound import Bound, shares
from ratecli.solvers.safety.samples import Measured, Moments, Predicted


class EmpiricalBernstein(Bound):
    """Mean plus `s sqrt(2 ln(2/delta) / n) + 7 (b - a) ln(2/delta) / (3 (n - 1))`.

    Theorem 4 of Maurer and Pontil (2009), s^2 with n - 1 in its denominator. Several means are bounded
    one by one, each at most by the end of its range: delta is divided as `shares` says.
    """

    name: ClassVar[str] = "empirical_bernstein"
    exact: ClassVar[bool] = True
    means: ClassVar[str] = "from the variance and the range of the measurements"
    least_rows: ClassVar[int] = 2

    def _above(
        self,
        samples: Sequence[Measured],
        delta: float,
        rng: np.random.Generator,  # noqa: ARG002  nothing is drawn
    ) -> float:
        rows = np.array([float(sample.values.size) for sample in samples])
        ranges = np.array([sample.range for sample in samples])
        slopes, rests = _terms(ranges, rows, delta)
        means = np.array([sample.values.mean() for sample in samples])
        deviations = np.array([sample.values.std(ddof=1) for sample in samples])
        return float(np.minimum(means + slopes * deviations + rests, ranges[:, 1]).sum())

    def _expected(self, moments: Sequence[Moments], delta: float) -> Predicted:
        rows = np.array([float(part.rows) for part in moments])
        ranges = np.array([part.range for part in moments])
        slopes, rests = _terms(ranges, rows, delta)
        means = np.array([part.mean for part in moments])
        limits = means + slopes * np.array([part.deviation for part in moments]) + rests
        inside = (limits < ranges[:, 1]).astype(float)
        value = float(np.minimum(limits, ranges[:, 1]).sum())
        return Predicted(value, inside, inside * slopes)


def _terms(ranges: Array, rows: Array, delta: float) -> tuple[Array, Array]:
    """Return what the deviations are multiplied by, and what does not depend on them."""
    widths = ranges[:, 1] - ranges[:, 0]
    logs = np.log(2 / (delta * shares(widths, rows)))
    return np.sqrt(2 * logs / rows), 7 * widths * logs / (3 * (rows - 1))

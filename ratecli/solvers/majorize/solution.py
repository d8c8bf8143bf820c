"""How far to go with Problem 3, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.majorize.convex import ConvexProblem

FEASIBILITY_TOLERANCE = 1e-8
"""A constraint value (rate units) that counts as at most 0. A rule about a ratio is missed by that over
its denominator: with 1e-6 as what a kept promise may miss, by rates down to a hundredth.
"""

MIN_GAP_SCALE = 0.01
"""Part of the objective's range below which a value is not what a gap is relative to."""

COMPROMISE_GAP = 0.05
"""Relative accuracy of a best compromise, when no point meets the constraints."""


def constraint_excess(values: Array) -> Array:
    """By how much constraint values miss 0, up to rounding."""
    return np.where(values > FEASIBILITY_TOLERANCE, values, 0.0)


@dataclass(frozen=True)
class StoppingRule:
    """Where to stop.

    Attributes
    ----------
    gap
        Relative: of the objective's value, or of a hundredth of its range where that is more.
    ceiling
        Largest multiplier.
    hopeless
        An objective that no point worth having has: a lower bound above it ends the search.
    absolute
        A gap in the objective's units that is good enough in any case.
    """

    gap: float
    ceiling: float
    hopeless: float
    absolute: float = 0.0

    def tolerance(self, lower: float, spread: float) -> float:
        """The gap in the objective's units, once a lower bound is known."""
        size = abs(lower) if np.isfinite(lower) else 0.0
        return max(self.absolute, self.gap * max(size, MIN_GAP_SCALE * (spread or 1.0)))


@dataclass(frozen=True)
class ConvexSolution:
    """A solution of Problem 3.

    Attributes
    ----------
    w, value
        The best point and its objective, regularizer included.
    multipliers
        (m,) those of the lower bound.
    excess
        (m,) by how much the point misses each constraint, all 0 if it is feasible.
    lower
        Best dual value seen.
    gap
        The objective, with excess at the price paid for it, less `lower` (rate units).
    work
        Newton steps, or weighted SVMs of a cutting plane.
    converged
        Whether the gap is as small as was asked, and certain (for LIBLINEAR: as its tolerance is).
    """

    w: Array
    value: float
    multipliers: Array
    excess: Array
    lower: float
    gap: float
    work: int
    converged: bool

    @property
    def feasible(self) -> bool:
        return not self.excess.any()


class ConvexMethod(Protocol):
    """Solves convex problems, one after another on the same rows."""

    def solve(
        self, problem: ConvexProblem, anchor: Array, before: ConvexSolution | None = None
    ) -> ConvexSolution:
        """Minimize; no worse than `anchor`, weights worth having. `before` solved one like it."""
        ...

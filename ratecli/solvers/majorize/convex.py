"""Problem 3 of Goh et al. 2016: every ramp rate replaced by its convex bound at an anchor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ratecli.models.base import Array
from ratecli.models.linear import HALF, hinge, ramp
from ratecli.solvers.majorize.rows import FeatureRows


@dataclass(frozen=True)
class RampProblem:
    """Problem 2: objective and constraints as positive combinations of ramp rates.

    Attributes
    ----------
    rows
        n rows.
    up, down
        (m + 1, n), at least 0: what a yes of each row adds to the objective (row 0) and to the
        constraints, and what it takes away. Both are positive where merged rows differ.
    constants
        (m + 1,): values when all decisions are no. Constraints are to be at most 0.
    l2
        Weight of |w|^2 / 2 in rate units (lambda of the paper).
    """

    rows: FeatureRows
    up: Array
    down: Array
    constants: Array
    l2: float

    @classmethod
    def of(cls, rows: FeatureRows, coefficients: Array, constants: Array, l2: float) -> RampProblem:
        """From `coefficients @ p + constants` in the decisions p, coefficients (m + 1, n)."""
        up, down = np.maximum(coefficients, 0), np.maximum(-coefficients, 0)
        return cls(rows, up, down, constants, l2)

    @cached_property
    def coefficients(self) -> Array:
        return self.up - self.down

    @cached_property
    def penalties(self) -> Array:
        return self.rows.penalties(self.l2)

    @cached_property
    def spread(self) -> float:
        """By how much decisions can change the objective."""
        return float((self.up[0] + self.down[0]).sum())

    def regularizer(self, w: Array) -> float:
        return float(self.penalties @ (w * w)) / 2

    def values(self, w: Array) -> Array:
        """(m + 1,) ramp objective plus regularizer, and constraint values."""
        values = self.coefficients @ ramp(self.rows.scores(w)) + self.constants
        values[0] += self.regularizer(w)
        return values

    def beyond(self, times: float) -> float:
        """An objective that exceeds the largest of any decisions by `times` its whole range."""
        worst = float(np.maximum(self.coefficients[0], 0).sum() + self.constants[0])
        return worst + times * (self.spread or 1.0)


@dataclass(frozen=True)
class ConvexProblem:
    """A bound of a `RampProblem`: hinges with weights `up` on +z and `down` on -z, both (m + 1, n)
    and at least 0, and constants `flat`, (m + 1,).
    """

    ramp: RampProblem
    up: Array
    down: Array
    flat: Array

    @classmethod
    def tight_at(cls, ramp: RampProblem, anchor: Array, ties: float = 0.0) -> ConvexProblem:
        """The bound that is tight at the scores `anchor`, shape (n,).

        A term `a p` with a > 0 is a times the positive bound; with a < 0 it is |a| (1 - p) - |a|,
        and |a| times the negative bound. A bound is a hinge where the anchor lies on its slope (a
        tie does), else 1. On a corner both are bounds: with `ties`, a score as near as that to one
        gets the 1, which is less tight there by as much.
        """
        up, down = ramp.up, ramp.down
        up_sloped, down_sloped = anchor <= HALF - ties, -anchor <= HALF - ties
        saturated = up[:, ~up_sloped].sum(axis=1) + down[:, ~down_sloped].sum(axis=1)
        flat = ramp.constants + saturated - down.sum(axis=1)
        return cls(ramp, up * up_sloped, down * down_sloped, flat)

    @property
    def constraints(self) -> int:
        return len(self.flat) - 1

    def at(self, z: Array) -> Array:
        """(m + 1,) objective without the regularizer, and constraint values, at scores z (n,)."""
        return np.asarray(self.up @ hinge(z) + self.down @ hinge(-z) + self.flat)

    def values(self, w: Array) -> Array:
        """(m + 1,) objective with the regularizer, and constraint values, at weights w."""
        values = self.at(self.ramp.rows.scores(w))
        values[0] += self.ramp.regularizer(w)
        return values

    def bounds(self, multipliers: Array) -> tuple[Array, Array]:
        """(n,) largest slope of the Lagrangian in each score, and the negative of the least."""
        mix = np.concatenate([[1.0], multipliers])
        return mix @ self.up, mix @ self.down

    def lagrangian(self, multipliers: Array) -> ConvexProblem:
        """The Lagrangian at multipliers (m,): one weighted SVM, no constraint (appendix F)."""
        up, down = self.bounds(multipliers)
        flat = self.flat[:1] + multipliers @ self.flat[1:]
        return ConvexProblem(self.ramp, up[None, :], down[None, :], flat)

    def dual(self, multipliers: Array, slopes: Array, pull: Array | None = None) -> float:
        """The lower bound of the least value that multipliers (m,) >= 0 and slopes (n,) give.

        The slopes must lie within `bounds`, and add up to 0 if the bias is not regularized. With
        `pull`, X' slopes, the bound is -|pull|^2 / (2 l2) less the conjugate of the hinges.
        """
        up, down = self.bounds(multipliers)
        conjugate = np.maximum(-HALF * slopes - down, HALF * slopes - up).sum()
        pull = self.ramp.rows.pull(slopes) if pull is None else pull
        l2 = self.ramp.penalties
        moved = float((pull[l2 > 0] ** 2 / l2[l2 > 0]).sum()) / 2
        return float(self.flat[0] + multipliers @ self.flat[1:] - conjugate) - moved


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

"""Problem 3 of Goh et al. 2016, with every ramp rate replaced by a convex bound at an anchor.

Also contains Problem 2, and the stopping rule and solution that solvers of Problem 3 share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.models.linear import RAMP_CORNER, ramp
from ratecli.solvers.design_matrix import DesignMatrix, equal_columns
from ratecli.solvers.majorize.loops import add_hinges, conjugate_of_hinges


@dataclass(frozen=True)
class RampProblem:
    """Problem 2: objective and constraints as positive combinations of ramp rates.

    Attributes
    ----------
    rows
        n rows.
    kind
        (n,) the kind of each row, 0 to K - 1.
    up, down
        (m + 1, K), at least 0: how much a positive decision for a row of each kind increases or
        decreases the objective (row 0) and the constraints. Both are positive where merged rows
        differ.
    constants
        (m + 1,) values if all decisions are negative. Constraints must be at most 0.
    l2
        Weight of |w|^2 / 2 in rate units (lambda of the paper).
    """

    rows: DesignMatrix
    kind: NDArray[np.intp]
    up: Array
    down: Array
    constants: Array
    l2: float

    @classmethod
    def of(
        cls, rows: DesignMatrix, coefficients: Array, constants: Array, l2: float
    ) -> RampProblem:
        """Return the problem with `coefficients @ p + constants`, coefficients (m + 1, n)."""
        return cls.by_kind(rows, one_sided(coefficients), constants, l2)

    @classmethod
    def by_kind(cls, rows: DesignMatrix, costs: Array, constants: Array, l2: float) -> RampProblem:
        """Return the problem with `up`, then `down`, given by row as costs (2 m + 2, n)."""
        kind, first = equal_columns(costs)
        up, down = np.split(costs[:, first], 2)
        return cls(rows, kind, up, down, constants, l2)

    @cached_property
    def counts(self) -> Array:
        """(K,) number of rows of each kind."""
        return np.bincount(self.kind, minlength=self.up.shape[1]).astype(float)

    @cached_property
    def coefficients(self) -> Array:
        """(m + 1, K) net effect of a positive decision for a row of each kind."""
        return self.up - self.down

    @cached_property
    def penalties(self) -> Array:
        """(width,) curvature of the regularizer in each weight."""
        return self.rows.penalties(self.l2)

    @cached_property
    def spread(self) -> float:
        """The range of the objective over all decisions."""
        return float((self.up[0] + self.down[0]) @ self.counts)

    def regularizer(self, w: Array) -> float:
        return float(self.penalties @ (w * w)) / 2

    def values(self, w: Array) -> Array:
        """Return (m + 1,) the ramp objective plus regularizer, and the constraint values."""
        positive = np.bincount(self.kind, ramp(self.rows.scores(w)), len(self.counts))
        values = self.coefficients @ positive + self.constants
        values[0] += self.regularizer(w)
        return values

    def beyond(self, times: float) -> float:
        """Return the largest objective of any decisions plus `times` the objective's range."""
        worst = float(np.maximum(self.coefficients[0], 0) @ self.counts + self.constants[0])
        return worst + times * (self.spread or 1.0)


def one_sided(coefficients: Array) -> Array:
    """Return (2 k, n) the positive parts of coefficients (k, n), then the negative ones."""
    return np.concatenate([np.maximum(coefficients, 0), np.maximum(-coefficients, 0)])


@dataclass(frozen=True)
class ConvexProblem:
    """A convex bound of a `RampProblem`, made of hinges and constants.

    Hinges of a row of each `kind` (n,) have weights `up` on +z and `down` on -z, both (m + 1, K)
    and at least 0; the constants `flat` are (m + 1,).
    """

    ramp: RampProblem
    kind: NDArray[np.intp]
    up: Array
    down: Array
    flat: Array

    @classmethod
    def tight_at(cls, ramp: RampProblem, anchor: Array, ties: float = 0.0) -> ConvexProblem:
        """Return the bound that is tight at the scores `anchor`, shape (n,).

        A term `a p` with a > 0 is a times the positive bound; with a < 0 it is |a| (1 - p) - |a|,
        which uses |a| times the negative bound. A bound is a hinge if the anchor lies on the
        hinge's slope, or at its corner, else the constant 1. At a corner both are bounds: anchors
        within `ties` of it get the constant 1, which is less tight there by at most `ties`.
        """
        corner = RAMP_CORNER - ties
        state = 4 * ramp.kind + 2 * (anchor <= corner) + (-anchor <= corner)
        counts = np.bincount(state, minlength=4 * len(ramp.counts))
        flat_up, sloped_down = counts.reshape(-1, 4)[:, :2], counts.reshape(-1, 4)[:, 1::2]
        flat = ramp.constants + ramp.up @ flat_up.sum(axis=1) - ramp.down @ sloped_down.sum(axis=1)
        used = np.flatnonzero(counts)
        (old, code), number = np.divmod(used, 4), np.cumsum(counts > 0) - 1
        up, down = ramp.up[:, old] * (code >= 2), ramp.down[:, old] * (code % 2)
        return cls(ramp, number[state], up, down, flat)

    @property
    def constraints(self) -> int:
        """m, the number of constraints."""
        return len(self.flat) - 1

    def at(self, z: Array) -> Array:
        """Return (m + 1,) objective without regularizer, and constraint values, at scores (n,)."""
        sums = np.zeros((self.up.shape[1], 2))
        add_hinges(z, self.kind, sums)
        return self.of_hinges(sums)

    def of_hinges(self, sums: Array) -> Array:
        """Return what `at` does, given the sums (K, 2) of the hinges of each kind on +z and -z."""
        return np.asarray(self.up @ sums[:, 0] + self.down @ sums[:, 1] + self.flat)

    def values(self, w: Array) -> Array:
        """Return (m + 1,) objective with regularizer, and constraint values, at weights w."""
        values = self.at(self.ramp.rows.scores(w))
        values[0] += self.ramp.regularizer(w)
        return values

    def bounds(self, multipliers: Array) -> tuple[Array, Array]:
        """Return (n,) the largest slope of the Lagrangian in each score, and minus the smallest."""
        up, down = self.bounds_by_kind(multipliers)
        return up[self.kind], down[self.kind]

    def bounds_by_kind(self, multipliers: Array) -> tuple[Array, Array]:
        """Return (K,) the bounds of each kind of rows."""
        mix = np.concatenate([[1.0], multipliers])
        return mix @ self.up, mix @ self.down

    @cached_property
    def tilts(self) -> Array:
        """(m + 1, 4 K) slopes of objective and constraints in the scores, by state of the row.

        The state is 4 times the kind, plus 2 if the hinge on +z changes with z, plus 1 if that on
        -z does.
        """
        up, down = self.up[:, :, None], self.down[:, :, None]
        tilts = up * np.array([0.0, 0.0, 1.0, 1.0]) - down * np.array([0.0, 1.0, 0.0, 1.0])
        return np.reshape(tilts, (len(tilts), 4 * tilts.shape[1]))

    @cached_property
    def weights(self) -> Array:
        """(m + 1,) sum of the weights of all hinges."""
        counts = np.bincount(self.kind, minlength=self.up.shape[1])
        return np.asarray((self.up + self.down) @ counts)

    def lagrangian(self, multipliers: Array) -> ConvexProblem:
        """Return the Lagrangian at multipliers (m,): one weighted SVM (appendix F)."""
        up, down = self.bounds_by_kind(multipliers)
        flat = self.flat[:1] + multipliers @ self.flat[1:]
        return ConvexProblem(self.ramp, self.kind, up[None, :], down[None, :], flat)

    def dual(self, multipliers: Array, slopes: Array, pull: Array) -> float:
        """Return the lower bound of the optimum given by multipliers (m,) >= 0 and slopes (n,).

        The slopes must lie within `bounds`, and sum to 0 if the bias is not regularized. The bound
        is -|pull|^2 / (2 l2) minus the conjugate of the hinges, where `pull` is X' slopes.
        """
        conjugate = conjugate_of_hinges(slopes, self.kind, *self.bounds_by_kind(multipliers))
        l2 = self.ramp.penalties
        moved = float((pull[l2 > 0] ** 2 / l2[l2 > 0]).sum()) / 2
        return float(self.flat[0] + multipliers @ self.flat[1:] - conjugate) - moved


FEASIBILITY_TOLERANCE = 1e-8
"""Largest constraint value (rate units) that counts as at most 0. A constraint on a ratio is
violated by this amount divided by the denominator: at most 1e-6, the tolerance of the violation
check, for rates down to 0.01.
"""

MIN_GAP_SCALE = 0.01
"""Relative gaps refer to at least this part of the objective's range."""

COMPROMISE_GAP = 0.05
"""Relative accuracy of the best compromise if no point satisfies the constraints."""


def constraint_excess(values: Array) -> Array:
    """Return by how much constraint values exceed 0, up to rounding."""
    return np.where(values > FEASIBILITY_TOLERANCE, values, 0.0)


@dataclass(frozen=True)
class StoppingRule:
    """When to stop.

    Attributes
    ----------
    gap
        Gap relative to the objective's value, or to a hundredth of its range if that is larger.
    ceiling
        Largest multiplier.
    hopeless
        Objective that every useful point is below; a lower bound above it ends the search.
    absolute
        Gap in the objective's units that is always small enough.
    progress
        Gap, as a part of the improvement over a feasible starting point, that is small enough.
    """

    gap: float
    ceiling: float = np.inf
    hopeless: float = np.inf
    absolute: float = 0.0
    progress: float = 0.0

    def tolerance(self, lower: float, spread: float) -> float:
        """Return the gap in the objective's units, given a lower bound."""
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
        (m,) multipliers of the lower bound.
    excess
        (m,) by how much the point violates each constraint, all 0 if it is feasible.
    lower
        Best dual value found.
    gap
        The objective, plus the price of its excess, minus `lower` (rate units).
    work
        Number of Newton steps, or of weighted SVMs in a cutting plane method.
    converged
        Whether the requested gap is reached and certified (for LIBLINEAR: up to its tolerance).
    state
        What the method needs to start a similar problem from here.
    """

    w: Array
    value: float
    multipliers: Array
    excess: Array
    lower: float
    gap: float
    work: int
    converged: bool
    state: Any = None

    @property
    def feasible(self) -> bool:
        """Whether the point satisfies all constraints."""
        return not self.excess.any()

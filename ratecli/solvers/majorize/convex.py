"""Problem 3 of Goh et al. 2016: every ramp rate replaced by its convex bound at an anchor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ratecli.models.base import Array
from ratecli.models.ramp import HALF, hinge, ramp
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

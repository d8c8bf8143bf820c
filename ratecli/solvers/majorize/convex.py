"""Problem 3 of Goh et al. 2016: every ramp rate replaced by its convex bound at an anchor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array, Features
from ratecli.models.ramp import HALF, hinge, ramp
from ratecli.solvers.majorize.hinge import HingeProblem


@dataclass(frozen=True)
class RampProblem:
    """Problem 2: objective and constraints affine in the decisions p = sigma(Xw).

    Attributes
    ----------
    X
        (n, d) features, a bias column included if there is one.
    coefficients, constants
        (m + 1, n) and (m + 1,): row 0 the objective, the others at most 0.
    l2
        Weight of |w|^2 / 2 in rate units (lambda of the paper).
    """

    X: Features
    coefficients: Array
    constants: Array
    l2: float

    def values(self, w: Array) -> Array:
        """(m + 1,) ramp objective plus regularizer, and constraint values."""
        values = self.coefficients @ ramp(np.asarray(self.X @ w)) + self.constants
        values[0] += self.l2 / 2 * (w @ w)
        return values

    def beyond(self, times: float) -> float:
        """An objective that exceeds the largest of any decisions by `times` its whole range."""
        spread = float(np.abs(self.coefficients[0]).sum()) or 1.0
        worst = float(np.maximum(self.coefficients[0], 0).sum() + self.constants[0])
        return worst + times * spread


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
    def tight_at(cls, ramp: RampProblem, anchor: Array) -> ConvexProblem:
        """The bound that is tight at the scores `anchor`, shape (n,).

        A term `a p` with a > 0 is a times the positive bound; with a < 0 it is |a| (1 - p) - |a|,
        and |a| times the negative bound. A bound is a hinge where the anchor lies on its slope (a
        tie does), else 1.
        """
        up, down = np.maximum(ramp.coefficients, 0), np.maximum(-ramp.coefficients, 0)
        up_sloped, down_sloped = anchor <= HALF, -anchor <= HALF
        saturated = up[:, ~up_sloped].sum(axis=1) + down[:, ~down_sloped].sum(axis=1)
        flat = ramp.constants + saturated - down.sum(axis=1)
        return cls(ramp, up * up_sloped, down * down_sloped, flat)

    def values(self, W: Array) -> Array:
        """(m + 1, S) objective with regularizer and constraint values at the columns of W (d, S)."""
        return np.stack([self._value(w) for w in W.T], axis=1)

    def _value(self, w: Array) -> Array:
        scores = np.asarray(self.ramp.X @ w)
        values = self.up @ hinge(scores) + self.down @ hinge(-scores) + self.flat
        values[0] += self.ramp.l2 / 2 * (w @ w)
        return np.asarray(values)

    def lagrangian(self, multipliers: Array) -> tuple[HingeProblem, float]:
        """The Lagrangian in w at multipliers (m,): one weighted SVM and a constant (appendix F.1)."""
        mix = np.concatenate([[1.0], multipliers])
        svm = HingeProblem(self.ramp.X, mix @ self.up, mix @ self.down, self.ramp.l2)
        return svm, float(mix @ self.flat)

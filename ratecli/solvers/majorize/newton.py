"""The smooth problem of the method of multipliers, in the weights alone, and Newton's step on it.

    minimize over w   regularizer(w) + (distance of X w + shift from hinges and constraints)

It is piecewise quadratic. Only rows on a corner of their hinge enter its Hessian, hundreds of tens of
thousands, and each constraint that binds as one row more (second-order sparsity: Li, Sun, Toh
2018). So a step costs two products with X and a small Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from ratecli.models.base import Array
from ratecli.solvers.majorize.convex import RampProblem
from ratecli.solvers.majorize.prox import Mask, ProximalOperator, ProxPoint
from ratecli.solvers.majorize.rows import MAX_DENSE_ENTRIES, FeatureRows

CG_COST = 4000
"""What conjugate gradients cost for each stored entry, in multiplications of dense matrices: about a
hundred steps of two products, an entry as dear as twenty multiplications.
"""
CHEAP_PRODUCTS = 1e8
"""Multiplications that are done at once."""
UNPENALIZED_CURVATURE = 1e-6
"""Curvature given to weights without a penalty, in mean penalties: no row may be on a corner."""
CG_TOLERANCE = 0.01
"""Relative residual of conjugate gradients: more costs more of them than it saves Newton steps."""
MAX_CG_ITERATIONS = 500


def solve_newton_system(
    ramp: RampProblem, chosen: NDArray[np.intp], extra: Array, sigma: float, right: Array
) -> Array:
    """(diag(penalties) + sigma (A' A + E' E))^-1 right.

    A are the `chosen` rows of the problem; E is `extra`, (k, width), a row for each constraint.
    """
    rows, penalties = ramp.rows, ramp.penalties
    diagonal = np.maximum(penalties, UNPENALIZED_CURVATURE * float(penalties.max()))
    count, width = len(chosen) + len(extra), len(right)
    small, large = sorted((count, width))
    stored = rows.X.size * len(chosen) / max(len(rows), 1)
    if small * small * (large + small / 3) > CG_COST * (stored + extra.size) + CHEAP_PRODUCTS:
        return _solve_by_conjugate_gradients(rows.some(chosen), extra, sigma, diagonal, right)
    if width <= count:
        blocks = np.array_split(chosen, 1 + len(chosen) * width // MAX_DENSE_ENTRIES)
        squared = sum((A.T @ A for A in map(rows.dense, blocks)), extra.T @ extra)
        return _solve_in_weights(sigma * squared, diagonal, right)
    return _solve_in_rows(np.vstack([rows.dense(chosen), extra]), sigma, diagonal, right)


def _solve_in_weights(matrix: Array, diagonal: Array, right: Array) -> Array:
    matrix[np.diag_indices(len(right))] += diagonal
    return np.asarray(linalg.solve(matrix, right, assume_a="pos"))


def _solve_in_rows(rows: Array, sigma: float, diagonal: Array, right: Array) -> Array:
    """Woodbury: (D + s A'A)^-1 = D^-1 - D^-1 A' (I/s + A D^-1 A')^-1 A D^-1."""
    scaled = rows / diagonal
    matrix = scaled @ rows.T
    matrix[np.diag_indices(len(rows))] += 1 / sigma
    inner = linalg.solve(matrix, scaled @ right, assume_a="pos") if len(rows) else np.zeros(0)
    return np.asarray(right / diagonal - scaled.T @ inner)


def _solve_by_conjugate_gradients(
    rows: FeatureRows, extra: Array, sigma: float, diagonal: Array, right: Array
) -> Array:
    """Conjugate gradients with the diagonal as preconditioner; nothing is formed."""
    scale = diagonal + sigma * (rows.squares() + (extra**2).sum(axis=0))

    def product(p: Array) -> Array:
        return np.asarray(
            diagonal * p + sigma * (rows.pull(rows.scores(p)) + extra.T @ (extra @ p))
        )

    shape = (len(right), len(right))
    found, _ = cg(
        LinearOperator(shape, matvec=product), right, rtol=CG_TOLERANCE, maxiter=MAX_CG_ITERATIONS,
        M=LinearOperator(shape, matvec=lambda p: p / scale),
    )
    return np.asarray(found)


NEWTON_ARMIJO = 1e-4
MIN_NEWTON_STEP = 1e-12
"""With a tiny penalty and few rows on corners Newton's step is that much too long."""
MIN_STEP_FACTOR, MAX_STEP_FACTOR = 0.1, 0.6
"""What part of a step may remain when it is cut back."""
NEWTON_RIDGE = 1e-12


@dataclass(frozen=True)
class EnvelopePoint:
    """Weights w, scores z = X w, what is nearest to z + shift, and the energy with its gradient.

    `binding` (m,) marks the constraints whose multipliers follow the scores; `pull` (width,) is X'
    times the slopes.
    """

    w: Array
    z: Array
    near: ProxPoint
    binding: Mask
    pull: Array
    energy: float
    gradient: Array


@dataclass(frozen=True)
class MoreauEnvelope:
    prox: ProximalOperator
    shift: Array

    @property
    def ramp(self) -> RampProblem:
        return self.prox.problem.ramp

    def at(self, w: Array, z: Array, near: ProxPoint) -> EnvelopePoint:
        binding = (near.v > 0) & (near.v < self.prox.price) & near.tilt.any(axis=1)
        pull, energy = self.ramp.rows.pull(near.slopes), self.ramp.regularizer(w) + near.value
        return EnvelopePoint(w, z, near, binding, pull, energy, self.ramp.penalties * w + pull)

    def enter(self, w: Array, v: Array) -> EnvelopePoint:
        """At weights w, the multipliers searched from v on."""
        z = self.ramp.rows.scores(w)
        return self.at(w, z, self.prox.nearest(z + self.shift, v))

    def step(self, here: EnvelopePoint) -> EnvelopePoint | None:
        """Newton's step, cut back to where a parabola falls lowest until the energy falls enough; None
        if it does not.
        """
        p = -self._newton(here)
        along, slope = self.ramp.rows.scores(p), float(here.gradient @ p)
        length = self._longest(here.w, p)
        follow = self._multipliers(here, along)
        shortest = MIN_NEWTON_STEP * length
        while length >= shortest:
            w, z = here.w + length * p, here.z + length * along
            v = np.clip(here.near.v + length * follow, 0.0, self.prox.price)
            fixed = self.ramp.regularizer(w) - here.energy
            near = self.prox.nearest(z + self.shift, v, NEWTON_ARMIJO * length * slope - fixed)
            rise = near.value + fixed
            if rise <= NEWTON_ARMIJO * length * slope:
                return self.at(w, z, near)
            lowest = -slope * length / (2 * (rise - slope * length))
            length *= min(max(lowest, MIN_STEP_FACTOR), MAX_STEP_FACTOR)
        return None

    def _longest(self, w: Array, p: Array) -> float:
        """1, or less where a weight without a penalty would more than double: with no row on a
        corner the energy is straight along it, and Newton's step without end.
        """
        free = self.ramp.penalties == 0
        far = float((np.abs(p[free]) / (1 + np.abs(w[free]))).max(initial=0.0))
        return 1.0 / max(far, 1.0)

    def _newton(self, here: EnvelopePoint) -> Array:
        """The Hessian is `penalties + sigma X' (corner rows + projection on the tilts) X`: along the
        constraints that bind, rows off the corners may move only at a cost.
        """
        ramp, tilt = self.ramp, here.near.tilt[here.binding]
        extra = np.zeros((0, ramp.rows.width))
        if len(tilt):
            root = np.linalg.cholesky(_gram_matrix(tilt))
            extra = np.linalg.solve(root, ramp.rows.pull(tilt.T).T)
        corner = np.flatnonzero(here.near.corner)
        return solve_newton_system(ramp, corner, extra, self.prox.sigma, here.gradient)

    def _multipliers(self, here: EnvelopePoint, along: Array) -> Array:
        """(m,) by how much the multipliers change, to first order, when the scores move `along`."""
        change = np.zeros(len(here.binding))
        if here.binding.any():
            tilt = here.near.tilt[here.binding]
            right = self.prox.sigma * (tilt @ along)
            change[here.binding] = np.linalg.solve(_gram_matrix(tilt), right)
        return change


def _gram_matrix(tilt: Array) -> Array:
    gram = tilt @ tilt.T
    gram[np.diag_indices(len(gram))] *= 1 + NEWTON_RIDGE
    return np.asarray(gram)

"""The smooth problem of the method of multipliers in the weights alone, and Newton's method for it.

    minimize over w   regularizer(w) + (distance of X w + shift from hinges and constraints)

It is piecewise quadratic. Only rows at a corner of their hinge enter its Hessian, hundreds out of
tens of thousands, and each binding constraint adds one row (second-order sparsity: Li, Sun, Toh
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
"""Cost of conjugate gradients per stored entry, in multiplications of dense matrices: about a
hundred iterations of two products, where an entry costs as much as twenty multiplications.
"""
CHEAP_PRODUCTS = 1e8
"""Number of multiplications whose cost is negligible."""
UNPENALIZED_CURVATURE = 1e-6
"""Curvature of unpenalized weights, in mean penalties, because there may be no row at a corner."""
CG_TOLERANCE = 0.01
"""Relative residual of conjugate gradients; smaller ones cost more than they save."""
MAX_CG_ITERATIONS = 500


def solve_newton_system(
    ramp: RampProblem, chosen: NDArray[np.intp], extra: Array, sigma: float, right: Array
) -> Array:
    """Return (diag(penalties) + sigma (A' A + E' E))^-1 right.

    A contains the `chosen` rows of the problem; E is `extra`, (k, width), one row per constraint.
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
    """Solve by Woodbury: (D + s A'A)^-1 = D^-1 - D^-1 A' (I/s + A D^-1 A')^-1 A D^-1."""
    scaled = rows / diagonal
    matrix = scaled @ rows.T
    matrix[np.diag_indices(len(rows))] += 1 / sigma
    inner = linalg.solve(matrix, scaled @ right, assume_a="pos") if len(rows) else np.zeros(0)
    return np.asarray(right / diagonal - scaled.T @ inner)


def _solve_by_conjugate_gradients(
    rows: FeatureRows, extra: Array, sigma: float, diagonal: Array, right: Array
) -> Array:
    """Solve by conjugate gradients with a diagonal preconditioner, without forming a matrix."""
    scale = diagonal + sigma * (rows.squares() + (extra**2).sum(axis=0))

    def product(p: Array) -> Array:
        return np.asarray(
            diagonal * p + sigma * (rows.pull(rows.scores(p)) + extra.T @ (extra @ p))
        )

    shape = (len(right), len(right))
    found, _ = cg(
        LinearOperator(shape, matvec=product),
        right,
        rtol=CG_TOLERANCE,
        maxiter=MAX_CG_ITERATIONS,
        M=LinearOperator(shape, matvec=lambda p: p / scale),
    )
    return np.asarray(found)


NEWTON_ARMIJO = 1e-4
MIN_NEWTON_STEP = 1e-12
"""Newton's step can be too long by this factor if penalty and number of corners are tiny."""
MIN_STEP_FACTOR, MAX_STEP_FACTOR = 0.1, 0.6
"""Bounds on the factor by which a step is shortened."""
NEWTON_RIDGE = 1e-12


@dataclass(frozen=True)
class EnvelopePoint:
    """Weights w, scores z = X w, the point nearest to z + shift, and the energy with its gradient.

    `binding` (m,) marks the constraints whose multipliers depend on the scores; `pull` (width,) is
    X' times the slopes.
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
    """The smooth objective for one proximal operator and shift."""

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
        """Return the point at weights w, searching the multipliers from v on."""
        z = self.ramp.rows.scores(w)
        return self.at(w, z, self.prox.nearest(z + self.shift, v))

    def step(self, here: EnvelopePoint) -> EnvelopePoint | None:
        """Take Newton's step, shortened until the energy decreases enough; None if it does not.

        Each time the step is shortened to the minimum of a parabola.
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
        """Return 1, or less if an unpenalized weight would more than double.

        Without rows at corners the energy is linear in such a weight and Newton's step unbounded.
        """
        free = self.ramp.penalties == 0
        far = float((np.abs(p[free]) / (1 + np.abs(w[free]))).max(initial=0.0))
        return 1.0 / max(far, 1.0)

    def _newton(self, here: EnvelopePoint) -> Array:
        """Return the Hessian's inverse times the gradient.

        The Hessian is `penalties + sigma X' (corner rows + projection on the tilts) X`: along
        binding constraints, rows off the corners can move, but only at a cost.
        """
        ramp, tilt = self.ramp, here.near.tilt[here.binding]
        extra = np.zeros((0, ramp.rows.width))
        if len(tilt):
            root = np.linalg.cholesky(_gram_matrix(tilt))
            extra = np.linalg.solve(root, ramp.rows.pull(tilt.T).T)
        corner = np.flatnonzero(here.near.corner)
        return solve_newton_system(ramp, corner, extra, self.prox.sigma, here.gradient)

    def _multipliers(self, here: EnvelopePoint, along: Array) -> Array:
        """Return (m,) the first-order change of the multipliers when the scores move by `along`."""
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

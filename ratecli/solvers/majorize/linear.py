"""The linear system of a Newton step, solved on its smallest side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from ratecli.models.base import Array
from ratecli.solvers.majorize.convex import RampProblem
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
    )  # fmt: skip
    return np.asarray(found)

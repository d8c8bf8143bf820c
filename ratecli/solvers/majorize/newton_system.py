"""The linear system of a Newton step: by weights, by rows, or by conjugate gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from ratecli.models.base import Array
from ratecli.solvers.design_matrix import MAX_DENSE_ENTRIES, DesignMatrix
from ratecli.solvers.majorize.convex import RampProblem
from ratecli.solvers.majorize.loops import add_squares_of_rows

CG_COST = 4000
"""Cost of conjugate gradients per stored entry, in multiplications of dense matrices: about a
hundred iterations of two products, where an entry costs as much as twenty multiplications.
"""
SPARSE_COST = 20
"""Cost of adding a product to a sparse place, in multiplications of dense matrices."""
CHEAP_PRODUCTS = 1e8
"""Number of multiplications whose cost is negligible."""
UNPENALIZED_CURVATURE = 1e-6
"""Curvature of unpenalized weights, as a share of the largest penalty: the system is then regular
even if no row is at a corner.
"""
CG_TOLERANCE = 0.1
"""Relative residual of conjugate gradients; a smaller one costs more than it saves."""
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
    stored = rows.X.size * len(chosen) / max(len(rows), 1)
    sparsely = SPARSE_COST * stored * stored / max(len(chosen), 1)
    in_weights = min(sparsely, count * width**2) + width**3 / 3
    in_rows = count**2 * (width + count / 3)
    if min(in_weights, in_rows) > CG_COST * (stored + extra.size) + CHEAP_PRODUCTS:
        part = rows.some(chosen)  # in single precision, as the step need not be exact
        part = replace(part, X=part.X.astype(np.float32))
        return _solve_by_conjugate_gradients(part, extra, sigma, diagonal, right)
    if in_rows < in_weights:
        return _solve_in_rows(np.vstack([rows.dense(chosen), extra]), sigma, diagonal, right)
    matrix = sigma * (_sum_of_squares(rows, chosen, sparsely < count * width**2) + extra.T @ extra)
    matrix[np.diag_indices(width)] += diagonal
    return np.asarray(linalg.cho_solve(linalg.cho_factor(matrix, lower=True), right))


def _sum_of_squares(rows: DesignMatrix, chosen: NDArray[np.intp], sparsely: bool) -> Array:
    """Return the lower triangle (width, width) of the sum of outer squares of the chosen rows."""
    if sparsely and not isinstance(rows.X, np.ndarray):
        found = np.zeros((rows.width, rows.width))
        add_squares_of_rows(*rows.compressed, chosen, rows.biased, found)
        return found
    blocks = np.array_split(chosen, 1 + len(chosen) * rows.width // MAX_DENSE_ENTRIES)
    return np.asarray(sum(A.T @ A for A in map(rows.dense, blocks)))


def _solve_in_rows(rows: Array, sigma: float, diagonal: Array, right: Array) -> Array:
    """Solve by Woodbury: (D + s A'A)^-1 = D^-1 - D^-1 A' (I/s + A D^-1 A')^-1 A D^-1."""
    scaled = rows / diagonal
    matrix = scaled @ rows.T
    matrix[np.diag_indices(len(rows))] += 1 / sigma
    inner = linalg.solve(matrix, scaled @ right, assume_a="pos") if len(rows) else np.zeros(0)
    return np.asarray(right / diagonal - scaled.T @ inner)


def _solve_by_conjugate_gradients(
    rows: DesignMatrix, extra: Array, sigma: float, diagonal: Array, right: Array
) -> Array:
    """Solve by conjugate gradients with a diagonal preconditioner, without forming a matrix."""
    squares = rows.squares(np.ones(len(rows), dtype=rows.X.dtype))
    scale = diagonal + sigma * (squares + (extra**2).sum(axis=0))

    def product(p: Array) -> Array:
        pulled = rows.pull(rows.scores(p.astype(rows.X.dtype)))
        return np.asarray(diagonal * p + sigma * (pulled + extra.T @ (extra @ p)))

    shape = (len(right), len(right))
    matrix, inverse = (LinearOperator(shape, matvec=f) for f in (product, lambda p: p / scale))
    return np.asarray(cg(matrix, right, rtol=CG_TOLERANCE, maxiter=MAX_CG_ITERATIONS, M=inverse)[0])

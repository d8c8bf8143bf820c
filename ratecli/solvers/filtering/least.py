"""Least squares over a polyhedron: the small quadratic programs behind sampling weights and splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array

QP_TOLERANCE = 1e-11
"""Of the interior point method, relative and absolute: gap and infeasibility."""
QP_ZERO = 1e-9
"""Below this, relative to the largest, a part of a solution is what an interior point leaves of none."""
ACCEPTED_QP_STATUSES = ("Solved", "AlmostSolved", "InsufficientProgress")
"""What the method says of solutions that are as good as double precision lets them be."""


@dataclass(frozen=True)
class LeastSquaresOptimum:
    """The x of least `|P x - b|^2 / 2` with `x >= 0`, `C x <= 0` and, unless e is None, `e @ x = 1`.

    Attributes
    ----------
    x
        (T,).
    residual
        (D,) `P x - b`.
    prices
        (M,) multipliers of the limits, at least 0.
    level
        Multiplier of the equality: a new column (p, c, e) would be of use where
        `residual @ p + prices @ c + level * e` is negative.
    """

    x: Array
    residual: Array
    prices: Array
    level: float

    @property
    def distance(self) -> float:
        """`|P x - b|`."""
        return float(np.linalg.norm(self.residual))


def solve_least_squares_qp(P: Array, b: Array, C: Array, e: Array | None) -> LeastSquaresOptimum:
    """Of (D, T), (D,), (M, T) and (T,); by an interior point method (Clarabel: Goulart, Chen 2024)."""
    import clarabel  # noqa: PLC0415  slow to import, and for filters only

    (D, T), M = P.shape, len(C)
    size = np.maximum(np.abs(np.vstack([P, C])).max(axis=0, initial=0.0), QP_ZERO)
    equal = np.zeros((0, T)) if e is None else e[None] / size
    parts = [
        np.hstack([P / size, -np.eye(D)]),
        np.hstack([equal, np.zeros((len(equal), D))]),
        np.hstack([C / size, np.zeros((M, D))]),
        np.hstack([-np.eye(T), np.zeros((T, D))]),
    ]
    right = np.concatenate([b, np.ones(len(equal)), np.zeros(M + T)])
    squares = sparse.csc_matrix(np.diag(np.append(np.zeros(T), np.ones(D))))
    cones = [clarabel.ZeroConeT(D + len(equal)), clarabel.NonnegativeConeT(M + T)]
    rows = sparse.csc_matrix(np.vstack(parts))
    solved = clarabel.DefaultSolver(
        squares, np.zeros(T + D), rows, right, cones, _clarabel_settings(clarabel)
    ).solve()
    if str(solved.status) not in ACCEPTED_QP_STATUSES:
        raise FaultError(Diagnostic("E501", f"a quadratic program ended as {solved.status}"))
    scaled, duals = np.asarray(solved.x)[:T], np.asarray(solved.z)
    x = np.where(scaled > QP_ZERO * scaled.max(), scaled, 0.0) / size
    level = float(duals[D]) if len(equal) else 0.0
    return LeastSquaresOptimum(x, P @ x - b, np.maximum(duals[D + len(equal) :][:M], 0.0), level)


def _clarabel_settings(clarabel: Any) -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = QP_TOLERANCE
    return settings

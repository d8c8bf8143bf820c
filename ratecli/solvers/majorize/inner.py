"""The two ways to minimize a Lagrangian, in the shape that the cutting plane calls."""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.liblinear import Fit, fit_hinge
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.cutting_plane import Minimize
from ratecli.solvers.majorize.hinge import HingeProblem
from ratecli.solvers.majorize.newton import HingeSolution, minimize

SVM_TOLERANCE = 1e-3
SVM_ITERATIONS = 20_000
RELATIVE = 1e-6
"""Where the Lagrangian is large, this part of it is accuracy enough."""


def newton(gap: float) -> Minimize:
    """Semismooth Newton to a certified gap; each call starts where the last one on these rows ended."""
    rows: RampProblem | None = None
    last: HingeSolution | None = None

    def least(problem: ConvexProblem, multipliers: Array) -> Fit:
        nonlocal rows, last
        if problem.ramp is not rows:
            rows, last = problem.ramp, None
        svm, constant = problem.lagrangian(multipliers)
        wanted = max(gap, RELATIVE * float((svm.up + svm.down).sum()))
        last = minimize(svm, wanted, last)
        return Fit(last.w, last.gap <= wanted, last.dual + constant)

    return least


def liblinear(
    seed: int, tolerance: float = SVM_TOLERANCE, iterations: int = SVM_ITERATIONS
) -> Minimize:
    """LIBLINEAR from a cold start; it keeps its dual point to itself, so nothing is certified."""

    def least(problem: ConvexProblem, multipliers: Array) -> Fit:
        svm, _ = problem.lagrangian(multipliers)
        return by_liblinear(svm, seed, tolerance, iterations)

    return least


def by_liblinear(svm: HingeProblem, seed: int, tolerance: float, iterations: int) -> Fit:
    """In rate units a row costs `c max(0, 1/2 - y z)`; with weights twice as large that is
    `c / 2 max(0, 1 - y z)`, and LIBLINEAR's C of the row is `2 c / lambda`.
    """
    rows_up, rows_down = np.flatnonzero(svm.up), np.flatnonzero(svm.down)
    rows = np.concatenate([rows_up, rows_down])
    if not len(rows):
        return Fit(np.zeros(svm.X.shape[1]), converged=True)
    costs = np.concatenate([svm.up[rows_up], svm.down[rows_down]])
    signs = np.repeat([-1.0, 1.0], [len(rows_up), len(rows_down)])
    fit = fit_hinge(
        svm.X[rows], signs, costs * 2 / svm.l2, seed=seed, tolerance=tolerance,
        iterations=iterations,
    )  # fmt: skip
    return Fit(fit.weights / 2, fit.converged)

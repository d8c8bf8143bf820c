"""What minimizes a Lagrangian inside Algorithm 2 (SVMOptimizer, appendix F): one weighted SVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.liblinear import add_ones_column, fit_hinge
from ratecli.solvers.majorize.augmented import AugmentedLagrangian, CertifiedSolution
from ratecli.solvers.majorize.convex import ConvexProblem
from ratecli.solvers.majorize.solution import StoppingRule

LIBLINEAR_TOLERANCE = 1e-3
MAX_LIBLINEAR_PASSES = 20_000


@dataclass(frozen=True)
class LagrangianMinimum:
    """Weights (d,), a lower bound of the least value (None if none is known), and whether the
    accuracy was reached.
    """

    w: Array
    lower: float | None
    converged: bool


SvmOptimizer = Callable[[ConvexProblem, Array, float], LagrangianMinimum]
"""(problem without constraints, weights to start from, accuracy in the objective's units) -> fit."""


def newton_svm() -> SvmOptimizer:
    """To a certified gap; each call starts where the last one on as many rows ended."""
    last: CertifiedSolution | None = None

    def least(problem: ConvexProblem, start: Array, accuracy: float) -> LagrangianMinimum:
        nonlocal last
        if last is not None and len(last.slopes) != len(problem.ramp.rows):
            last = None
        goal = StoppingRule(gap=0.0, ceiling=np.inf, hopeless=np.inf, absolute=accuracy)
        last = AugmentedLagrangian(goal).solve(problem, start, last)
        return LagrangianMinimum(last.w, last.lower, last.converged)

    return least


def liblinear_svm(
    seed: int, tolerance: float = LIBLINEAR_TOLERANCE, passes: int = MAX_LIBLINEAR_PASSES
) -> SvmOptimizer:
    """LIBLINEAR from a cold start, as in the paper; it keeps its dual point to itself, so nothing is
    certified.

    In rate units a row costs `c max(0, 1/2 - y z)`; with weights twice as large that is
    `c / 2 max(0, 1 - y z)`, and LIBLINEAR's C of the row is `2 c / lambda`.
    """

    def least(problem: ConvexProblem, _: Array, __: float) -> LagrangianMinimum:
        ramp, up, down = problem.ramp, problem.up[0], problem.down[0]
        pushed, pulled = np.flatnonzero(up), np.flatnonzero(down)
        chosen = np.concatenate([pushed, pulled])
        if not len(chosen):
            return LagrangianMinimum(np.zeros(ramp.rows.width), None, converged=True)
        costs = np.concatenate([up[pushed], down[pulled]])
        signs = np.repeat([-1.0, 1.0], [len(pushed), len(pulled)])
        X = ramp.rows.X[chosen]
        found = fit_hinge(
            add_ones_column(X) if ramp.rows.biased else X, signs, costs * 2 / ramp.l2,
            seed=seed, tolerance=tolerance, iterations=passes,
        )  # fmt: skip
        return LagrangianMinimum(found.weights / 2, None, found.converged)

    return least

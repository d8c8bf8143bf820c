"""What minimizes a Lagrangian inside Algorithm 2 (SVMOptimizer, appendix F): one weighted SVM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.liblinear import fit_hinge, with_ones
from ratecli.solvers.majorize.augmented import Augmented, Certified
from ratecli.solvers.majorize.convex import ConvexProblem
from ratecli.solvers.majorize.solution import Goal

TOLERANCE = 1e-3
PASSES = 20_000


@dataclass(frozen=True)
class Fit:
    """Weights (d,), a lower bound of the least value (None if none is known), and whether the
    accuracy was reached.
    """

    w: Array
    lower: float | None
    converged: bool


SVM = Callable[[ConvexProblem, Array, float], Fit]
"""(problem without constraints, weights to start from, accuracy in the objective's units) -> fit."""


def newton() -> SVM:
    """To a certified gap; each call starts where the last one on as many rows ended."""
    last: Certified | None = None

    def least(problem: ConvexProblem, start: Array, accuracy: float) -> Fit:
        nonlocal last
        if last is not None and len(last.slopes) != len(problem.ramp.rows):
            last = None
        goal = Goal(gap=0.0, ceiling=np.inf, hopeless=np.inf, absolute=accuracy)
        last = Augmented(goal).solve(problem, start, last)
        return Fit(last.w, last.lower, last.converged)

    return least


def liblinear(seed: int, tolerance: float = TOLERANCE, passes: int = PASSES) -> SVM:
    """LIBLINEAR from a cold start, as in the paper; it keeps its dual point to itself, so nothing is
    certified.

    In rate units a row costs `c max(0, 1/2 - y z)`; with weights twice as large that is
    `c / 2 max(0, 1 - y z)`, and LIBLINEAR's C of the row is `2 c / lambda`.
    """

    def least(problem: ConvexProblem, _: Array, __: float) -> Fit:
        ramp, up, down = problem.ramp, problem.up[0], problem.down[0]
        pushed, pulled = np.flatnonzero(up), np.flatnonzero(down)
        chosen = np.concatenate([pushed, pulled])
        if not len(chosen):
            return Fit(np.zeros(ramp.rows.width), None, converged=True)
        costs = np.concatenate([up[pushed], down[pulled]])
        signs = np.repeat([-1.0, 1.0], [len(pushed), len(pulled)])
        X = ramp.rows.X[chosen]
        found = fit_hinge(
            with_ones(X) if ramp.rows.biased else X, signs, costs * 2 / ramp.l2,
            seed=seed, tolerance=tolerance, iterations=passes,
        )  # fmt: skip
        return Fit(found.weights / 2, None, found.converged)

    return least

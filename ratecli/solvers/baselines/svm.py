"""The plain linear SVM to a certified gap."""

from __future__ import annotations

import numpy as np

from ratecli.solvers.majorize.augmented import Augmented
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.rows import Rows
from ratecli.solvers.majorize.solution import ConvexSolution, Goal
from ratecli.solvers.problem import Problem

GAP = 1e-5
"""Relative to the mean hinge loss."""


def plain_svm(problem: Problem) -> ConvexSolution:
    """Least mean hinge loss plus `l2 / 2 |w|^2` on labelled rows, a regularized bias last.

    In rate units: the scores, and so w, are half those of a margin of 1. Raises E306 without labels.
    """
    error, constant = problem.error()
    ramp = RampProblem.of(Rows(problem.X), error, constant, 2 * problem.l2)
    convex = ConvexProblem.tight_at(ramp, np.zeros(len(ramp.rows)))
    goal = Goal(GAP, ceiling=np.inf, hopeless=np.inf)
    return Augmented(goal).solve(convex, np.zeros(ramp.rows.width))

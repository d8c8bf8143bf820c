"""The plain classifier: what the labels alone would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ratecli.models.linear import Logistic, Threshold
from ratecli.solvers.base import Progress, Role, Solution, Solver
from ratecli.solvers.liblinear import fit_hinge, fit_logistic, with_ones
from ratecli.solvers.problem import Problem

TOLERANCE = 1e-4
MAX_ITERATIONS = 20_000


@dataclass(frozen=True)
class Unconstrained(Solver):
    """Least error on the labelled training rows, whatever the objective and the constraints are.

    Attributes
    ----------
    loss
        `hinge` (linear SVM) or `logistic`; both with a regularized bias, by LIBLINEAR.
    """

    loss: Literal["hinge", "logistic"] = "hinge"

    version: ClassVar[int] = 1
    role: ClassVar[Role] = "ignores"

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        signs, weights = problem.labels()
        labelled = np.flatnonzero(signs)
        fit = (fit_hinge if self.loss == "hinge" else fit_logistic)(
            with_ones(problem.X[labelled]),
            signs[labelled],
            weights[labelled] / problem.l2,
            seed=int(rng.integers(2**31)),
            tolerance=TOLERANCE,
            iterations=MAX_ITERATIONS,
        )
        progress(f"{self.loss} loss fitted")
        model = Threshold if self.loss == "hinge" else Logistic
        classifier = model(fit.weights[:-1], float(fit.weights[-1]))
        if fit.converged:
            return Solution({"deterministic": classifier})
        reason = f"LIBLINEAR stopped after {MAX_ITERATIONS} passes over the rows"
        return Solution({"deterministic": classifier}, "iteration_limit", reason)

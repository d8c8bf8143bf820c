"""The plain classifier: what the labels alone would give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ratecli.solvers.base import Progress, Role, Solution, Solver
from ratecli.solvers.baselines.plain import plain_fit
from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class Unconstrained(Solver):
    """Least error on the labelled training rows, whatever the objective and the constraints are.

    Attributes
    ----------
    loss
        `hinge` (a linear SVM, to a certified gap) or `logistic` (by LIBLINEAR); the bias is
        regularized.
    """

    loss: Literal["hinge", "logistic"] = "hinge"

    version: ClassVar[int] = 2
    role: ClassVar[Role] = "ignores"

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        classifier, reason = plain_fit(problem, self.loss, rng)
        progress(f"{self.loss} loss fitted")
        return Solution(
            {"deterministic": classifier}, "iteration_limit" if reason else "solved", reason
        )

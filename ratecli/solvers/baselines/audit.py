"""The model in use, looked at as any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ratecli.solvers.base import Progress, Role, Solution, Solver
from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class Audit(Solver):
    """The deployed model itself, as it is: measured beside the others and, with a safety test, certified.

    Nothing is fitted. What a stored model was trained on nobody knows: a certificate holds if these were
    not the rows of the test.
    """

    role: ClassVar[Role] = "ignores"
    needs_deployed: ClassVar[bool] = True

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        """Raises ValueError where the problem has no deployed model: files without one are refused."""
        if problem.deployed is None:
            raise ValueError("there is no deployed model to audit")
        return Solution({"deployed": problem.deployed})

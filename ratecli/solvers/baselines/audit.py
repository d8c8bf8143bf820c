"""The `audit` algorithm, which evaluates the deployed model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ratecli.solvers.base import Progress, Role, Solution, Solver

if TYPE_CHECKING:
    from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class Audit(Solver):
    """Returns the deployed model unchanged, to compare it with others and to certify it.

    Nothing is fitted. The rows that a stored model was trained on are not known: a certificate is
    valid only if they do not include the rows of the safety test.
    """

    role: ClassVar[Role] = "ignores"
    needs_deployed: ClassVar[bool] = True

    def solve(
        self,
        problem: Problem,
        rng: np.random.Generator,  # noqa: ARG002
        progress: Progress,  # noqa: ARG002
    ) -> Solution:
        """Return the deployed model.

        Raises
        ------
        ValueError
            If the problem has no deployed model. Files without one are rejected before a run.
        """
        if problem.deployed is None:
            raise ValueError("there is no deployed model to audit")
        return Solution({"deployed": problem.deployed})

"""The `unconstrained` algorithm: a plain model fitted to the labels alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ratecli.solvers.base import Progress, Role, Solution, Solver

if TYPE_CHECKING:
    from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class Unconstrained(Solver):
    """Minimizes plain error on the labelled training rows, whatever the goals are.

    Attributes
    ----------
    loss
        `hinge` (a linear SVM with a certified gap) or `logistic` (by LIBLINEAR), both with a
        regularized bias, and both fitted by passes of Newton's method if rows are streamed; for
        numeric labels `squared` (exact ridge regression with an unregularized bias).
    """

    loss: Literal["hinge", "logistic", "squared"] = "hinge"

    version: ClassVar[int] = 3
    role: ClassVar[Role] = "ignores"
    numbers: ClassVar[Mapping[str, Any] | None] = {"loss": "squared"}
    streams: ClassVar[Mapping[str, Any] | None] = {}

    @property
    def takes_classes(self) -> bool:
        return self.loss != "squared"

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.solvers.baselines.plain import fit_plain_classifier, fit_plain_estimate

        if self.loss == "squared":
            return Solution({"estimate": fit_plain_estimate(problem)})
        classifier, reason = fit_plain_classifier(problem, self.loss, rng)
        progress(f"{self.loss} loss fitted")
        return Solution(
            {"deterministic": classifier}, "iteration_limit" if reason else "solved", reason
        )

"""The solver `least_squares`: the smallest squared error under constraints on errors of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Progress, Solution, Solver

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np

    from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class LeastSquares(Solver):
    """The linear model of least squared error under constraints on errors of groups.

    Constraints bound sums of `mse` and `mean_error`, such as `mse[sex = a] <= 3` (bounded group
    loss: Agarwal, Dudik, Wu 2019) and `max_gap(mean_error, by=sex) <= 0.05`. No `mse` may be
    subtracted: a difference of two is not convex. The objective contains an `mse`. The penalty is
    `l2 / 2 |w|^2`, bias excluded.

    The problem is a convex quadratic program with quadratic constraints. It is solved by an
    interior point method; the trace contains the duality gap, which is certified by the
    multipliers. If no linear model satisfies the constraints, the status is `infeasible`, and the
    result is the model with the smallest violation. Estimates are clipped to the range of the
    label, which never increases a squared error; constraints on mean errors are then tightened
    until they hold.
    """

    numbers: ClassVar[Mapping[str, Any] | None] = {}
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.QUADRATIC})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.QUADRATIC})

    @property
    def takes_classes(self) -> bool:
        return False

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        from ratecli.solvers.regression.linear import solve_linear

        if problem.label_range is None:
            message = "'least_squares' needs labels that are numbers"
            raise FaultError(Diagnostic("E308", message, "set target: number in the data set"))
        return solve_linear(problem, progress)

"""The `zafar` algorithm: an SVM whose mean scores may differ little between groups (figure 2)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.analysis import Goal as Rule
from ratecli.rates.analysis import Shape, affine_pieces
from ratecli.solvers.base import Progress, Role, Solution, Solver

if TYPE_CHECKING:
    from ratecli.models.base import Array, Features
    from ratecli.rates.matrix import RateMatrix
    from ratecli.solvers.majorize.convex import ConvexProblem, ConvexSolution
    from ratecli.solvers.problem import Problem

ZAFAR_GAP = 5e-7
"""Duality gap in rate units, in which w = 0 has a hinge loss of 1/2."""
MAX_MULTIPLIER = 1e4
CONTRAST_LENGTH = 100.0
"""Length to which the rows of means are scaled. One such row carries the weight of a constraint,
while other rows have weight 1 / n. Made longer and correspondingly lighter, it is like other rows
to the SVM, which is then solved 20 times as fast (measured on a9a).
"""


@dataclass(frozen=True)
class Zafar(Solver):
    """A linear SVM with bounded covariance (Zafar et al. 2015; Goh et al. 2016, equation 8).

    Minimizes the mean hinge loss plus `l2 / 2 |w|^2`, like `unconstrained`, subject to <w, x> being
    at most `covariance` for each constraint. Here x is the mean of the rows for which the
    constraint demands fewer positive decisions, minus the mean of those for which it demands more.
    For `positive_rate[men] <= t * positive_rate[women]` that is the mean over men minus the mean
    over women for every t: the limits of the constraints have no effect, nor has the objective. The
    bound is one-sided, as in Goh et al.; the original is two-sided, with a logistic loss.

    Attributes
    ----------
    covariance
        Largest difference of mean scores (c), in units of the SVM's scores, whose margin is 1.
        Useful values range from 0 to the difference of the plain SVM.
    """

    covariance: Annotated[float, Ge(0)] = 0.0

    version: ClassVar[int] = 2
    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = frozenset(Shape)
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def obstacle(self, goal: Rule, rates: RateMatrix) -> Diagnostic | None:
        return _one_sided_diagnostic(goal, rates)

    def solve(
        self,
        problem: Problem,
        rng: np.random.Generator,  # noqa: ARG002  deterministic
        progress: Progress,
    ) -> Solution:
        from ratecli.models.linear import Threshold

        begun = time.perf_counter()
        names, means = group_contrasts(problem)
        found = solve_bounded_problem(bounded_covariance_problem(problem, means, self.covariance))
        progress("hinge loss fitted")
        w = 2 * found.w  # from scores with margin 1/2 to scores with margin 1
        reached = means @ w
        classifier = Threshold(w[:-1], float(w[-1]))
        row = {
            "iteration": 1,
            "objective": 2 * found.value,
            "violation": problem.violation(classifier),
            "covariance": float(reached.max()) if names else 0.0,
            "gap": 2 * found.gap,
            "work": found.work,
            "seconds": time.perf_counter() - begun,
        }
        multipliers = dict.fromkeys(names, 0.0)
        for name, value in zip(names, found.multipliers, strict=True):
            multipliers[name] += float(value)
        status, reason = _final_status(found)
        return Solution({"deterministic": classifier}, status, reason, multipliers, (row,))


def group_contrasts(problem: Problem) -> tuple[list[str], Array]:
    """Return the constraint name of each piece, and its difference of means (m, d + 1), bias last.

    A row is weighted by its coefficient in the constraint; the bias cancels.

    Raises
    ------
    FaultError
        E308 for a constraint that pushes no row up, or none down. Most of them are rejected before
        a run (`Zafar.obstacle`), except those that depend on another trial.
    """
    found = [
        fault
        for goal in problem.constraints
        if (fault := _one_sided_diagnostic(goal, problem.rates))
    ]
    if found:
        raise FaultError(found)
    pieces = [(goal, form) for goal in problem.constraints for form in affine_pieces(goal)]
    coefficients, _ = problem.rows([form for _, form in pieces])
    down, up = np.maximum(coefficients, 0), np.maximum(-coefficients, 0)
    weights = down / down.sum(axis=1, keepdims=True) - up / up.sum(axis=1, keepdims=True)
    means = np.asarray(weights @ problem.X)
    return [goal.name for goal, _ in pieces], np.hstack([means, np.zeros((len(means), 1))])


def _one_sided_diagnostic(goal: Rule, rates: RateMatrix) -> Diagnostic | None:
    """Return an E308 diagnostic if a piece of the constraint pushes no row down, or no row up."""
    from ratecli.solvers.problem import combine_affine_forms

    for row in combine_affine_forms(rates, affine_pieces(goal))[0]:
        for way, pushed in (("down", row > 0), ("up", row < 0)):
            if not pushed.any():
                message = (
                    f"'{goal.name}' pushes no row {way}: zafar compares the rows that a rule "
                    "pushes down with those that it pushes up"
                )
                hint = "write a rule that holds one group's rate against another's"
                return Diagnostic("E308", message, hint)
    return None


def bounded_covariance_problem(problem: Problem, means: Array, covariance: float) -> ConvexProblem:
    """Return the SVM with <w, x> at most `covariance` for the rows x of `means`, using hinges.

    The problem is in rate units, in which w is half as large and the bound is c / 2. Each x becomes
    an additional row, with scores z = s <w, x>. As c / 2 is above -1 / (2 s), <w, x> is at most c /
    2 if and only if (max(0, 1/2 + z) - 1/2) / s is.
    """
    from ratecli.models.linear import HALF
    from ratecli.solvers.liblinear import add_ones_column
    from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
    from ratecli.solvers.majorize.rows import FeatureRows

    X = add_ones_column(problem.X)
    m, n = len(means), X.shape[0]
    error, constant = problem.error()
    coefficients = np.block(
        [[error, np.zeros((1, m))], [np.zeros((m, n)), np.eye(m) / CONTRAST_LENGTH]]
    )
    constants = np.append(constant, np.full(m, -HALF / CONTRAST_LENGTH - covariance / 2))
    rows = FeatureRows(_append_contrasts(X, CONTRAST_LENGTH * means), "none")
    ramp = RampProblem.of(rows, coefficients, constants, 2 * problem.l2)
    return ConvexProblem.tight_at(ramp, np.zeros(n + m))


def solve_bounded_problem(problem: ConvexProblem) -> ConvexSolution:
    """Solve to a certified gap, starting from w = 0, which satisfies every bound."""
    from ratecli.solvers.majorize.augmented import AugmentedLagrangian
    from ratecli.solvers.majorize.convex import StoppingRule

    goal = StoppingRule(gap=0.0, ceiling=MAX_MULTIPLIER, hopeless=np.inf, absolute=ZAFAR_GAP)
    return AugmentedLagrangian(goal).solve(problem, np.zeros(problem.ramp.rows.width))


def _append_contrasts(X: Features, rows: Array) -> Features:
    from scipy import sparse

    if isinstance(X, np.ndarray):
        return np.vstack([X, rows])
    return sparse.csr_array(sparse.vstack([X, sparse.csr_array(rows)], format="csr"))


def _final_status(found: ConvexSolution) -> tuple[str, str]:
    if found.converged:
        return "solved", ""
    return "iteration_limit", (
        f"stopped after {found.work} Newton steps with a gap of {2 * found.gap:.2g}, "
        f"above {2 * ZAFAR_GAP:.2g}"
    )

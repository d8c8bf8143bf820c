"""Linear SVMs with a certified gap: the plain one, and `zafar`, the one of bounded covariance."""

from __future__ import annotations

import time

import numpy as np
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.models.linear import RAMP_CORNER, Threshold
from ratecli.models.output_cache import array_digest
from ratecli.rates.analysis import Goal, affine_pieces
from ratecli.rates.matrix import RateMatrix
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.baselines.options import SVM_GAP, Zafar
from ratecli.solvers.design_matrix import DesignMatrix, add_ones_column
from ratecli.solvers.fit_cache import CACHED_FITS, FitCache
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
from ratecli.solvers.majorize.convex import ConvexProblem, ConvexSolution, RampProblem, StoppingRule
from ratecli.solvers.problem import Problem, combine_affine_forms, sum_by_goal

ZAFAR_GAP = 5e-7
"""Duality gap in rate units, in which w = 0 has a hinge loss of 1/2."""
MAX_MULTIPLIER = 1e4
CONTRAST_LENGTH = 100.0
"""Length to which the rows of means are scaled. One such row carries the weight of a constraint,
while other rows have weight 1 / n. Made longer and correspondingly lighter, it is like other rows
to the SVM, which is then solved 20 times as fast (measured on a9a).
"""
_svm_cache = FitCache[ConvexSolution](CACHED_FITS)


def fit_plain_svm(problem: Problem) -> tuple[Threshold, str]:
    """Minimize the mean hinge loss plus `l2 / 2 |w|^2`, bias included, on the labelled rows.

    The second value says why the solution is not optimal, and is "" if it is.

    Raises
    ------
    FaultError
        E306 if no row has a label.
    """
    error, constant = problem.error()
    labelled = np.flatnonzero(error)
    X, coefficients = problem.X[labelled], error[:, labelled]

    def fit() -> ConvexSolution:
        return _fit_svm(DesignMatrix(X), coefficients, constant, problem.l2, StoppingRule(SVM_GAP))

    svm = _svm_cache.get(array_digest(problem.l2, X, coefficients, constant), fit)
    return _classifier(svm), _late(svm, svm.gap, f"{SVM_GAP:.2g} of its loss")


def _fit_svm(
    rows: DesignMatrix, coefficients: Array, constants: Array, l2: float, stopping: StoppingRule
) -> ConvexSolution:
    """Minimize the hinges of `RampProblem.of` from w = 0, where all constraints hold."""
    ramp = RampProblem.of(rows, coefficients, constants, 2 * l2)
    convex = ConvexProblem.tight_at(ramp, np.zeros(len(rows)))
    return AugmentedLagrangian(stopping).solve(convex, np.zeros(rows.width))


def _classifier(svm: ConvexSolution) -> Threshold:
    """Return the classifier, whose scores have a margin of 1 instead of 1/2 as in rate units."""
    return Threshold(2 * svm.w[:-1], 2 * float(svm.w[-1]))


def _late(svm: ConvexSolution, gap: float, most: str) -> str:
    """Return why a solution is not optimal, "" if it is."""
    late = f"the SVM stopped after {svm.work} Newton steps with a gap of {gap:.2g}, above {most}"
    return "" if svm.converged else late


def solve_zafar(
    options: Zafar,
    problem: Problem,
    rng: np.random.Generator,  # noqa: ARG001
    progress: Progress,
) -> Solution:
    """Return the SVM of bounded covariance, to a certified gap."""
    begun = time.perf_counter()
    names, means = group_contrasts(problem)
    stopping = StoppingRule(gap=0.0, ceiling=MAX_MULTIPLIER, absolute=ZAFAR_GAP)
    svm = _fit_svm(*bounded_covariance_terms(problem, means, options.covariance), stopping)
    progress("hinge loss fitted")
    classifier = _classifier(svm)
    row = trace_row(1, 2 * svm.value, problem.violation(classifier), begun)
    largest = float((means @ (2 * svm.w)).max()) if names else 0.0
    row |= {"covariance": largest, "gap": 2 * svm.gap, "work": svm.work}
    late = _late(svm, 2 * svm.gap, f"{2 * ZAFAR_GAP:.2g}")
    ending = ("iteration_limit" if late else "solved", late)
    multipliers = sum_by_goal(names, svm.multipliers)
    return Solution({"deterministic": classifier}, *ending, multipliers, (row,))


def group_contrasts(problem: Problem) -> tuple[list[str], Array]:
    """Return the constraint name of each piece, and its difference of means (m, d + 1), bias last.

    A row is weighted by its coefficient in the constraint; the bias cancels.

    Raises
    ------
    FaultError
        E308 for a constraint that raises, or lowers, no decision. Most of them are rejected before
        a run (`Zafar.obstacle`), except those that depend on another trial.
    """
    refused = [one_sided_diagnostic(goal, problem.rates) for goal in problem.constraints]
    if any(refused):
        raise FaultError([each for each in refused if each])
    coefficients, _ = problem.rows(*problem.constraints)
    down, up = np.maximum(coefficients, 0), np.maximum(-coefficients, 0)
    weights = down / down.sum(axis=1, keepdims=True) - up / up.sum(axis=1, keepdims=True)
    means = np.asarray(weights @ problem.X)
    owners = [goal.name for goal in problem.constraints for _ in affine_pieces(goal)]
    return owners, np.hstack([means, np.zeros((len(means), 1))])


def one_sided_diagnostic(goal: Goal, rates: RateMatrix) -> Diagnostic | None:
    """Return an E308 diagnostic if a piece of the constraint raises, or lowers, no decision."""
    rows, _ = combine_affine_forms(rates, affine_pieces(goal))
    if (rows.max(axis=1) > 0).all() and (rows.min(axis=1) < 0).all():
        return None
    message = (
        f"zafar needs a constraint that raises the decisions of some rows and lowers those of "
        f"others: '{goal.name}' does only one of these"
    )
    return Diagnostic("E308", message, "write a rule that compares the rates of two groups")


def bounded_covariance_terms(
    problem: Problem, means: Array, covariance: float
) -> tuple[DesignMatrix, Array, Array, float]:
    """Return rows, coefficients, constants and penalty of the SVM with bounds, using hinges.

    <w, x> is at most `covariance` for the rows x of `means`. The problem is in rate units, in which
    w is half as large and the bound is c / 2. Each x becomes an additional row, with scores z = s
    <w, x>. As c / 2 is above -1 / (2 s), <w, x> is at most c / 2 if and only if (max(0, 1/2 + z) -
    1/2) / s is.
    """
    X = add_ones_column(problem.X)
    m, n = len(means), X.shape[0]
    error, constant = problem.error()
    coefficients = np.block(
        [[error, np.zeros((1, m))], [np.zeros((m, n)), np.eye(m) / CONTRAST_LENGTH]]
    )
    constants = np.append(constant, np.full(m, -RAMP_CORNER / CONTRAST_LENGTH - covariance / 2))
    parts = [X, CONTRAST_LENGTH * means]
    dense = isinstance(X, np.ndarray)
    rows = np.vstack(parts) if dense else sparse.csr_array(sparse.vstack(parts))
    return DesignMatrix(rows, "none"), coefficients, constants, problem.l2

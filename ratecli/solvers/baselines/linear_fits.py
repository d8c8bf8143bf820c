"""Plain linear classifiers and regressors: one fit for each loss."""

from __future__ import annotations

import numpy as np

from ratecli.models.linear import LinearRegressor, Logistic, Threshold
from ratecli.models.recent import array_digest
from ratecli.solvers.baselines.streamed import fit_plain_streamed
from ratecli.solvers.design_matrix import DesignMatrix, add_ones_column
from ratecli.solvers.fit_cache import FitCache
from ratecli.solvers.liblinear import ClassificationLoss, fit_liblinear
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
from ratecli.solvers.majorize.convex import ConvexProblem, ConvexSolution, RampProblem, StoppingRule
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.score_models import (
    fit_unconstrained,
    plain_objective,
    score_model_of,
)

SVM_GAP = 1e-5
"""Duality gap of the SVM, relative to the mean hinge loss."""
LOGISTIC_TOLERANCE = 1e-4
MAX_ITERATIONS = 20_000
CACHED_FITS = 8
"""Number of recent fits of a kind that a process caches: sweep points and algorithms share them."""
_svm_cache = FitCache[ConvexSolution](CACHED_FITS)
_logistic_cache = FitCache[tuple[Logistic, str]](CACHED_FITS)


def fit_plain_classifier(problem: Problem, loss: ClassificationLoss) -> tuple[Threshold, str]:
    """Minimize the mean loss plus `l2 / 2 |w|^2`, bias included, on the labelled rows.

    The SVM is solved to a certified gap, logistic regression by LIBLINEAR. The second value says
    why the solution is not optimal, and is "" if it is.

    Raises
    ------
    FaultError
        E306 if no row has a label.
    """
    if problem.stream is not None:
        return fit_plain_streamed(problem, loss)
    if loss == "logistic":
        return _fit_logistic(problem)
    svm = _fit_svm(problem)
    late = (
        f"the SVM stopped after {svm.work} Newton steps with a gap of {svm.gap:.2g}, above "
        f"{SVM_GAP:.2g} of its loss"
    )
    # In rate units the scores, and so the weights, are half as large as with a margin of 1.
    return Threshold(2 * svm.w[:-1], 2 * float(svm.w[-1])), "" if svm.converged else late


def fit_plain_estimate(problem: Problem) -> LinearRegressor:
    """Minimize the mean squared error plus `l2 / 2 |w|^2`, bias excluded, on the labelled rows.

    The solution is exact.

    Raises
    ------
    FaultError
        E306 if no row has a label.
    """
    model = score_model_of(problem)
    w = fit_unconstrained(
        plain_objective(problem, model), DesignMatrix(problem.X, "unregularized"), problem.l2
    )
    return LinearRegressor(w[:-1], float(w[-1]), model.range)


def _fit_svm(problem: Problem) -> ConvexSolution:
    error, constant = problem.error()
    labelled = np.flatnonzero(error)
    X, coefficients = problem.X[labelled], error[:, labelled]

    def fit() -> ConvexSolution:
        ramp = RampProblem.of(DesignMatrix(X), coefficients, constant, 2 * problem.l2)
        convex = ConvexProblem.tight_at(ramp, np.zeros(len(ramp.rows)))
        stopping = StoppingRule(SVM_GAP)
        return AugmentedLagrangian(stopping).solve(convex, np.zeros(ramp.rows.width))

    return _svm_cache.get(array_digest(problem.l2, X, coefficients, constant), fit)


def _fit_logistic(problem: Problem) -> tuple[Logistic, str]:
    signs, weights = problem.labels()
    labelled = np.flatnonzero(signs)
    X, signs, weights = problem.X[labelled], signs[labelled], weights[labelled] / problem.l2
    seed = int(np.random.default_rng(problem.seed).integers(2**31))

    def fit() -> tuple[Logistic, str]:
        w, converged = fit_liblinear(
            "logistic",
            add_ones_column(X),
            signs,
            weights,
            tolerance=LOGISTIC_TOLERANCE,
            iterations=MAX_ITERATIONS,
            seed=seed,
        )
        late = f"LIBLINEAR stopped after {MAX_ITERATIONS} passes over the rows"
        return Logistic(w[:-1], float(w[-1])), "" if converged else late

    return _logistic_cache.get(array_digest(seed, X, signs, weights), fit)

"""The plain linear classifier that other baselines start from."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from ratecli.errors import Fault, FaultError
from ratecli.models.base import Array, Features
from ratecli.models.linear import Estimate, Logistic, Threshold
from ratecli.solvers.fit_cache import Memory, digest
from ratecli.solvers.liblinear import fit_logistic, with_ones
from ratecli.solvers.majorize.augmented import Augmented
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.rows import Rows
from ratecli.solvers.majorize.solution import Goal
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.design import Design
from ratecli.solvers.seldonian.fit import fit
from ratecli.solvers.seldonian.measures import model_of
from ratecli.solvers.seldonian.objective import plain_objective

Loss = Literal["hinge", "logistic", "squared"]
Separating = Literal["hinge", "logistic"]

GAP = 1e-5
"""Of the SVM, relative to the mean hinge loss."""
TOLERANCE = 1e-4
MAX_ITERATIONS = 20_000
KEPT = 8
"""How many SVMs a process remembers, the latest ones: sweep points and baselines ask for the same."""


class Svm(NamedTuple):
    """Weights and bias (d + 1,), how near they are to the best, and after how many Newton steps."""

    w: Array
    converged: bool
    gap: float
    work: int


_svms = Memory[Svm](KEPT)


def plain_fit(
    problem: Problem, loss: Separating, rng: np.random.Generator
) -> tuple[Threshold, str]:
    """Least mean loss plus `l2 / 2 |w|^2`, the bias in it, on the labelled rows.

    The SVM to a certified gap, logistic regression by LIBLINEAR. Also why it is not quite the least
    one, "" if it is. Raises E306 where no row has a label, E406 where labels are numbers.
    """
    if model_of(problem).numeric:
        message = f"the labels are numbers, and {loss} loss tells two classes apart"
        raise FaultError(Fault("E406", message, "say unconstrained: {loss: squared}"))
    if problem.stream is not None:
        # it imports numba, which takes every process a fifth of a second
        from ratecli.solvers.streamed.plain import streamed_fit  # noqa: PLC0415

        return streamed_fit(problem, loss)
    if loss == "logistic":
        return _logistic(problem, rng)
    svm = _svm(problem)
    short = "" if svm.converged else (
        f"the SVM stopped after {svm.work} Newton steps with a gap of {svm.gap:.2g}, above "
        f"{GAP:.2g} of its loss"
    )  # fmt: skip
    # in rate units the scores, and so the weights, are half those of a margin of 1
    return Threshold(2 * svm.w[:-1], 2 * float(svm.w[-1])), short


def plain_estimate(problem: Problem) -> Estimate:
    """Least mean squared error plus `l2 / 2 |w|^2`, the bias not in it, on the labelled rows: exact.

    Raises E306 where no row has a label, E406 where labels are two classes.
    """
    model = model_of(problem)
    if not model.numeric:
        message = "the labels are two classes, and squared loss estimates numbers"
        raise FaultError(Fault("E406", message, "say loss: hinge, or loss: logistic"))
    w = fit(plain_objective(problem, model), Design(problem.X), problem.l2)
    return Estimate(w[:-1], float(w[-1]), model.range)


def _svm(problem: Problem) -> Svm:
    error, constant = problem.error()
    labelled = np.flatnonzero(error)
    X, coefficients = problem.X[labelled], error[:, labelled]
    key = digest(problem.l2, X, coefficients, constant)
    return _svms.get(key, lambda: _fitted(X, coefficients, constant, problem.l2))


def _fitted(X: Features, coefficients: Array, constant: Array, l2: float) -> Svm:
    ramp = RampProblem.of(Rows(X), coefficients, constant, 2 * l2)
    convex = ConvexProblem.tight_at(ramp, np.zeros(len(ramp.rows)))
    goal = Goal(GAP, ceiling=np.inf, hopeless=np.inf)
    found = Augmented(goal).solve(convex, np.zeros(ramp.rows.width))
    return Svm(found.w, found.converged, found.gap, found.work)


def _logistic(problem: Problem, rng: np.random.Generator) -> tuple[Logistic, str]:
    signs, weights = problem.labels()
    labelled = np.flatnonzero(signs)
    fit = fit_logistic(
        with_ones(problem.X[labelled]),
        signs[labelled],
        weights[labelled] / problem.l2,
        seed=int(rng.integers(2**31)),
        tolerance=TOLERANCE,
        iterations=MAX_ITERATIONS,
    )
    classifier = Logistic(fit.weights[:-1], float(fit.weights[-1]))
    if fit.converged:
        return classifier, ""
    return classifier, f"LIBLINEAR stopped after {MAX_ITERATIONS} passes over the rows"

"""The algorithms `unconstrained` and `audit`: a model of the labels, or the deployed model.

The model is also the one whose score `thresholded` and `post_shift` threshold.
"""

from __future__ import annotations

import numpy as np

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import ProbabilityThreshold
from ratecli.models.linear import LinearRegressor, Logistic, Threshold
from ratecli.models.output_cache import array_digest, take_rows
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.baselines.options import Audit, ThresholdSolver, Unconstrained
from ratecli.solvers.design_matrix import DesignMatrix, add_ones_column
from ratecli.solvers.fit_cache import CACHED_FITS, FitCache
from ratecli.solvers.liblinear import ClassificationLoss, fit_liblinear
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import existing_score, is_linear, is_regressor, model_name
from ratecli.solvers.oracles.model_names import LOGISTIC_MODEL
from ratecli.solvers.oracles.unseen import TUNING_FOLDS, UnseenScores, folds_by_label
from ratecli.solvers.problem import ERROR_RATE, Problem
from ratecli.solvers.seldonian.score_models import (
    fit_unconstrained,
    plain_objective,
    score_model_of,
)

ModelOptions = Unconstrained | ThresholdSolver
LOGISTIC_TOLERANCE = 1e-4
MAX_ITERATIONS = 20_000
_logistic_cache = FitCache[tuple[Logistic, str]](CACHED_FITS)
SMALLEST_CHANCE = float(np.finfo(float).eps)
"""A smaller probability of the true label counts as this in a log loss, as in scikit-learn."""


def solve_plain(
    options: Unconstrained,
    problem: Problem,
    rng: np.random.Generator,  # noqa: ARG001  fits that algorithms share have the problem's seed
    progress: Progress,
) -> Solution:
    """Fit the model to the labels: a classifier, a regressor, or a policy of episodes."""
    if problem.episodes is not None:
        from ratecli.solvers.seldonian.policy import fit_policy

        return Solution({"stochastic": fit_policy(problem)})
    if is_regressor(options.model):
        from ratecli.solvers.regression.least_squares import fit_plain_regressor

        return Solution({"estimate": fit_plain_regressor(options.model, problem)})
    if options.loss == "squared":
        return Solution({"estimate": _fit_squared(problem)})
    classifier, reason = fit_model(options, problem)
    progress(f"{model_name(options.model)} model ready")
    status = "iteration_limit" if reason else "solved"
    return Solution({"deterministic": classifier}, status, reason)


def return_deployed(
    options: Audit,  # noqa: ARG001
    problem: Problem,
    rng: np.random.Generator,  # noqa: ARG001
    progress: Progress,  # noqa: ARG001
) -> Solution:
    """Return the deployed model."""
    assert problem.deployed is not None  # files without one are rejected before a run
    return Solution({"deployed": problem.deployed})


def fit_model(options: ModelOptions, problem: Problem) -> tuple[Classifier, str]:
    """Fit the model that the options name to the labelled rows.

    The second value says why the classifier is not optimal, and is "" if it is. Algorithms of a
    trial's seed that fit the same model to the same rows get the same one. An existing score, the
    first feature, is not fitted.

    Raises
    ------
    FaultError
        E306 if no row has a label, E501 if the model cannot be fitted.
    """
    if score := existing_score(options.model):
        weights = np.zeros(problem.X.shape[1])
        weights[0] = 1.0
        return Threshold(weights, -score.threshold), ""
    if is_linear(options.model):
        logistic = model_name(options.model) == LOGISTIC_MODEL or options.loss == "logistic"
        return _fit_linear(problem, "logistic" if logistic else "hinge")
    rows = _labelled_rows(problem)
    if len(np.unique(rows.classes)) < 2:
        return Threshold(np.zeros(rows.layout.width), 1.0 if rows.classes[0] else -1.0), ""
    from ratecli.solvers.oracles.estimators import as_classifier, fit_named  # imports scikit-learn

    stopping = None if problem.validation is None else _labelled_rows(problem.validation)
    random = np.random.default_rng(problem.seed)
    return as_classifier(fit_named(options.model, rows, problem.l2, random, stopping)), ""


def _fit_linear(problem: Problem, loss: ClassificationLoss) -> tuple[Threshold, str]:
    """Minimize the mean loss plus `l2 / 2 |w|^2`, bias included, on the labelled rows."""
    if problem.stream is not None:
        from ratecli.solvers.baselines.streamed import fit_plain_streamed

        return fit_plain_streamed(problem, loss)
    if loss == "logistic":
        return _fit_logistic(problem)
    # imports numba, which takes a fifth of a second in every process
    from ratecli.solvers.baselines.svm import fit_plain_svm

    return fit_plain_svm(problem)


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


def _fit_squared(problem: Problem) -> LinearRegressor:
    """Minimize the mean squared error plus `l2 / 2 |w|^2`, bias excluded, on the labelled rows.

    The solution is exact.

    Raises
    ------
    FaultError
        E306 if no row has a label.
    """
    model = score_model_of(problem)
    design = DesignMatrix(problem.X, "unregularized")
    w = fit_unconstrained(plain_objective(problem), model, design, problem.l2)
    return LinearRegressor(w[:-1], float(w[-1]), model.range)


def _labelled_rows(problem: Problem) -> FitRows:
    signs, weights = problem.labels()
    signed = -signs * weights
    if problem.labelled:
        # undivided, so that fits to the same rows are the same to the last bit
        signed = problem.rates.sums[[problem.rates.index()[ERROR_RATE]]].toarray()[0]
    used = np.flatnonzero(signed)
    weights = np.abs(signed[used])
    classes = (signed[used] < 0).astype(np.intp)
    return FitRows(take_rows(problem.X, used), problem.layout, classes, weights / weights.mean())


def unseen_loss(options: ModelOptions, problem: Problem) -> float:
    """Return the mean log loss of the options' model, or the error if it has no probabilities.

    It is that of validation rows if there are some, else of each fold of the training rows by a
    model of the other folds. The goals have no influence.

    Raises
    ------
    FaultError
        E306 if no row has a label, E501 if a model cannot be fitted.
    """
    signs, weights = (problem.validation or problem).labels()
    if problem.validation is not None:
        classifier, _ = fit_model(options, problem)
        return float(weights @ _losses(classifier, problem.validation.X, signs))
    losses = UnseenScores.in_folds(folds_by_label(problem, TUNING_FOLDS)).scores(
        lambda rows: fit_model(options, problem.on(rows))[0],
        lambda classifier, rows: _losses(classifier, problem.X[rows], signs[rows]),
    )
    return float(weights @ losses)


def _losses(classifier: Classifier, X: Features, signs: Array) -> Array:
    """Return the loss (n,) of rows with labels of these signs."""
    if not isinstance(classifier, ProbabilityThreshold | Logistic):
        return np.asarray(classifier.decide(X) != (signs > 0), dtype=float)
    chance = classifier.estimate(X)
    true = np.where(signs > 0, chance, 1 - chance)
    return np.asarray(-np.log(np.maximum(true, SMALLEST_CHANCE)))

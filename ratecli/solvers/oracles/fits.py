"""Fits of the models that checked options name."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ratecli.models.base import Classifier
from ratecli.models.composed import ARGMAX_COSTS, CostSensitiveClassifier, ProbabilityThreshold
from ratecli.models.linear import Logistic, Threshold, logistic
from ratecli.models.probabilities import ProbabilityModel, SklearnModel
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import NamedOptions
from ratecli.solvers.oracles.estimators import fit_estimator, make_estimator


def fit_named(
    value: Any,
    rows: FitRows,
    l2: float,
    rng: np.random.Generator,
    stopping: FitRows | None = None,
    *,
    total: float | None = None,
) -> ProbabilityModel:
    """Fit the classifier or regressor that a checked option names to rows of classes, or numbers.

    `l2` is the regularization of a logistic regression without a `C` of its own, whose weights add
    up to `total`, by default the number of rows. `stopping` are rows for early stopping.

    Raises
    ------
    FaultError
        E501 if the model rejects the rows or its options, or cannot be stored.
    """
    choice = NamedOptions.parse(value)
    parameters = choice.parameters(l2, total or rows.X.shape[0])
    return fit_estimator(make_estimator(choice.name, parameters, rng), rows, stopping)


def as_classifier(model: ProbabilityModel) -> Classifier:
    """Return the decisions of a model of two classes as its library makes them."""
    if isinstance(model, SklearnModel):
        line = as_linear_threshold(model.model)
        if line is not None:
            is_logistic = model.has_probabilities and _is_logistic(model.model, line)
            return Logistic(line.weights, line.bias) if is_logistic else line
    if isinstance(model, SklearnModel) and not model.has_probabilities:
        return CostSensitiveClassifier(model, ARGMAX_COSTS)
    return ProbabilityThreshold(model)


def as_linear_threshold(model: BaseEstimator) -> Threshold | None:
    """Return the classifier as a linear threshold; None if it is not linear."""
    weights = getattr(model, "coef_", None)
    if not (isinstance(weights, np.ndarray) and weights.shape == (1, model.n_features_in_)):
        return None
    bias = np.ravel(model.intercept_)
    return Threshold(weights[0].astype(float), float(bias[0]))


def _is_logistic(model: BaseEstimator, line: Threshold) -> bool:
    """Return whether `predict_proba` is the logistic function of the linear score."""
    w = line.weights
    rows = np.outer(np.linspace(-2, 2, 5), w / max(float(w @ w), np.finfo(float).tiny))
    chances = model.predict_proba(rows)[:, 1]
    return bool(np.allclose(chances, logistic(line.score(rows)), rtol=1e-9, atol=0))

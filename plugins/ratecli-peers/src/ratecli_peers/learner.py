"""The model of an option as an estimator that other packages fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Logistic, Threshold
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import is_linear
from ratecli.solvers.oracles.estimators import as_classifier, fit_named
from ratecli.solvers.problem import Problem


@dataclass
class Learner:
    """The estimator that a package fits: the model of an option.

    Attributes
    ----------
    model
        The option.
    layout
        The columns behind the features.
    l2
        Regularization of a logistic regression.
    seed
        Seed of each fit.
    classifier
        The fitted classifier.
    decisions
        (n,) its decisions on the rows that it was fitted to, the only ones that fairlearn asks for.
    """

    model: Any
    layout: ColumnLayout
    l2: float
    seed: int
    classifier: Classifier = field(init=False)
    decisions: Array = field(init=False)

    @classmethod
    def of(cls, model: Any, problem: Problem) -> Learner:
        """Return the learner of a problem, with the seed of fits that algorithms share."""
        return cls(model, problem.layout, problem.l2, problem.seed)

    def __sklearn_clone__(self) -> Learner:
        return replace(self)

    def fit(self, X: Features, y: Any, sample_weight: Any) -> Learner:
        """Fit the model to rows (n, d), labels (n,) of both classes and weights (n,).

        Raises
        ------
        FaultError
            E501 if the model cannot be fitted or stored.
        """
        labels, weights = np.asarray(y, dtype=np.intp), np.asarray(sample_weight, dtype=float)
        if is_linear(self.model):
            fitted = LogisticRegression(
                solver="liblinear", C=1 / (X.shape[0] * self.l2), random_state=self.seed
            ).fit(to_int32_indices(X), labels, sample_weight=weights)
            self.classifier = Logistic(fitted.coef_[0].astype(float), float(fitted.intercept_[0]))
        else:
            used = np.flatnonzero(weights)
            rows = FitRows(X[used], self.layout, labels[used], weights[used])
            random = np.random.default_rng(self.seed)
            self.classifier = as_classifier(fit_named(self.model, rows, self.l2, random))
        self.decisions = self.classifier.decide(X)
        return self

    def predict(self, X: Features) -> Array:  # noqa: ARG002
        return self.decisions


def fit_weighted(
    learner: Learner, X: Features, label: NDArray[np.intp], weights: Array
) -> Classifier:
    """Return the learner's classifier of rows; a constant one if all have the same label."""
    if len(np.unique(label[weights > 0])) < 2:
        return constant(bool(label[weights > 0].any()), X.shape[1])
    return learner.fit(X, label, weights).classifier


def constant(yes: bool, width: int) -> Classifier:
    """Return the classifier that decides all rows alike."""
    return Threshold(np.zeros(width), 1.0 if yes else -1.0)

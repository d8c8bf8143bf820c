"""Any classifier of scikit-learn that takes sample weights, as an oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from ratecli.models.base import Array, Classifier
from ratecli.models.fitted import SklearnModel
from ratecli.models.linear import Threshold
from ratecli.models.weighed import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.solvers.oracles.estimators import EstimatorOracle, fit_estimator


@dataclass(frozen=True)
class ClassifierOracle(EstimatorOracle):
    """Fits a classifier to the cheaper decision of each row, weighted by what the other one costs more.

    With labels 1 where a yes costs less than nothing and weights of the size of that cost, the
    weighted error is the cost but for a constant (Agarwal et al. 2018, section 3.2; Algorithm 1 of
    Narasimhan et al. 2019 asks for no more).
    """

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Raises FaultError, E501, where the classifier refuses its options or the rows."""
        costs = self.ground.costs(prices)
        used = np.flatnonzero(costs)
        cheap = costs[used] < 0
        if cheap.all() or not cheap.any():
            return self.ground.constant(yes=bool(cheap.all()))
        model, X, weights = self.unfitted(used, np.abs(costs[used]))
        found = fit_estimator(model, X, cheap.astype(np.intp), weights)
        line = _as_linear_threshold(model) if isinstance(found, SklearnModel) else None
        return line or CostSensitiveClassifier(found, ARGMAX_COSTS)


def _as_linear_threshold(model: BaseEstimator) -> Threshold | None:
    """The classifier as a line, if it is one."""
    weights = getattr(model, "coef_", None)
    if not (isinstance(weights, np.ndarray) and weights.shape == (1, model.n_features_in_)):
        return None
    bias = np.ravel(model.intercept_)
    return Threshold(weights[0].astype(float), float(bias[0]))

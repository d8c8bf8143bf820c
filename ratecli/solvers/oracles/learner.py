"""Any classifier of scikit-learn that takes sample weights, as an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from ratecli.models.base import Array, Classifier
from ratecli.models.fitted import Fitted
from ratecli.models.linear import Threshold
from ratecli.models.weighed import GAIN, Weighed
from ratecli.solvers.oracles.estimators import fitted, made
from ratecli.solvers.oracles.ground import Ground


@dataclass(frozen=True)
class Learner:
    """Fits a classifier to the cheaper decision of each row, weighted by what the other one costs more.

    With labels 1 where a yes costs less than nothing and weights of the size of that cost, the
    weighted error is the cost but for a constant (Agarwal et al. 2018, section 3.2; Algorithm 1 of
    Narasimhan et al. 2019 asks for no more). Weights add up to the number of rows.

    Attributes
    ----------
    name
        A class of scikit-learn, such as `DecisionTreeClassifier`.
    options
        Its parameters.
    """

    starts: ClassVar[bool] = False
    ground: Ground
    name: str
    options: Mapping[str, Any]
    rng: np.random.Generator

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Raises FaultError, E501, where the classifier refuses its options or the rows."""
        costs = self.ground.costs(prices)
        used = np.flatnonzero(costs)
        cheap = costs[used] < 0
        if cheap.all() or not cheap.any():
            return Threshold(np.zeros(self.ground.X.shape[1]), 1.0 if cheap.all() else -1.0)
        weights = np.abs(costs[used])
        weights *= len(self.ground.kinds.of) / weights.sum()
        model = made(self.name, self.options, self.rng)
        found = fitted(model, self.ground.X[used], cheap.astype(np.intp), weights)
        line = _line(model) if isinstance(found, Fitted) else None
        return line or Weighed(found, GAIN)


def _line(model: BaseEstimator) -> Threshold | None:
    """The classifier as a line, if it is one."""
    weights = getattr(model, "coef_", None)
    if not (isinstance(weights, np.ndarray) and weights.shape == (1, model.n_features_in_)):
        return None
    bias = np.ravel(model.intercept_)
    return Threshold(weights[0].astype(float), float(bias[0]))

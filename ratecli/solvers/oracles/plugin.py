"""The plug-in: chances are fitted once, and every answer weighs them with that day's prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Classifier
from ratecli.models.fitted import SklearnModel
from ratecli.models.trees import TreeEnsemble
from ratecli.models.weighed import CostSensitiveClassifier
from ratecli.solvers.oracles.estimators import EstimatorOracle
from ratecli.solvers.oracles.ground import OracleRows
from ratecli.solvers.oracles.memory import fit_estimator_cached

MAX_LOGISTIC_ITERATIONS = 1000
"""Of the logistic regression."""


@dataclass(frozen=True)
class PlugInOracle(EstimatorOracle):
    """Yes where the expected cost of it is negative (Narasimhan 2018, COCO; the cost-sensitive oracle
    of Narasimhan, Cotter, Gupta 2019, table 2).

    A yes costs what the row's kind says: its label, and every slice that the rates tell apart. What
    is fitted are the chances of the kinds given the features, so that a group counts as far as the
    features tell it: each group has a threshold of its own where it is a feature or follows from
    some. The group itself is not looked at, neither in training nor later. The class has
    `predict_proba`; parameters of the default one are `logistic_defaults`.

    Attributes
    ----------
    known
        Of the same rows with other weights, chosen by the features alone: chances given the features are
        the same then, and are not fitted again.
    """

    known: PlugInOracle | None = None

    def weighing(self, ground: OracleRows) -> PlugInOracle:
        """The same chances with the costs of other weights of the rows."""
        return replace(self, ground=ground, known=self.known or self)

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Raises FaultError, E501, where the chances cannot be fitted."""
        costs = self.ground.kind_costs(prices)[self.kinds]
        if self.chances is None:
            return self.ground.constant(yes=bool(costs.sum() < 0))
        return CostSensitiveClassifier(self.chances, costs)

    @cached_property
    def _pairs(self) -> sparse.coo_array:
        """(Q, m) kinds and rows that occur together, and their weights."""
        shares = sparse.coo_array(self.ground.shares)
        kept = shares.data > 0
        rows = (shares.coords[0][kept], shares.coords[1][kept])
        return sparse.coo_array((shares.data[kept], rows), shares.shape)

    @cached_property
    def kinds(self) -> NDArray[np.intp]:
        """The kinds that occur."""
        if self.known:
            return self.known.kinds
        return np.unique(self._pairs.coords[0])

    @cached_property
    def chances(self) -> TreeEnsemble | SklearnModel | None:
        """None where there is only one kind."""
        if self.known:
            return self.known.chances
        if len(self.kinds) == 1:
            return None
        kinds, rows = self._pairs.coords
        model, X, weights = self.unfitted(rows, self._pairs.data)
        return fit_estimator_cached(model, X, np.searchsorted(self.kinds, kinds), weights)


def logistic_defaults(l2: float, rows: int) -> dict[str, Any]:
    """Parameters of the logistic regression that weighs `|w|^2` by `l2 / 2` beside the mean loss."""
    return {"C": 1 / (rows * l2), "max_iter": MAX_LOGISTIC_ITERATIONS}

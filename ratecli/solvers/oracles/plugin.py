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
from ratecli.models.grouped import GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.trees import TreeEnsemble
from ratecli.models.weighed import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.rates.sample import Mask
from ratecli.solvers.groups import Groups
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.estimators import EstimatorOracle, fit_estimator_cached
from ratecli.solvers.problem import ERROR_RATE

OUTER_THRESHOLD = 2.0
"""A threshold beyond all scores, which are the chance of a yes less that of a no."""


@dataclass(frozen=True)
class GroupPlugInOracle(EstimatorOracle):
    """Yes where the chance of a positive label is above the threshold of the row's group (COCO:
    Narasimhan 2018).

    In a group where a yes costs `a` if the label is positive and `b > a` if it is negative, it is
    expected to cost less than nothing where the chance is above `b / (b - a)`; where b is no more than
    a, all of the group are decided as is cheaper in sum. What differs within a group and label, such
    as decisions of a deployed model, counts by its mean there. The class has `predict_proba`.
    """

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Raises FaultError, E501, where the chances cannot be fitted."""
        return GroupThreshold(
            self._scorer, self._groups.slices, self._groups.patterns, self._thresholds(prices)
        )

    def _thresholds(self, prices: Array) -> Array:
        """(C,) on scores in [-1, 1]."""
        positive, negative, unlabelled = self._labels
        costs = self._weights * self.ground.kind_costs(prices)
        labelled = self._weights[:, ~unlabelled].sum(axis=1)
        spread = _safe_quotient(costs[:, unlabelled].sum(axis=1), labelled)
        a, b = (
            _safe_quotient(costs[:, own].sum(axis=1), self._weights[:, own].sum(axis=1)) + spread
            for own in (positive, negative)
        )
        cheaper = np.where(costs.sum(axis=1) < 0, -OUTER_THRESHOLD, OUTER_THRESHOLD)
        return np.clip(
            np.where((b > a) & (labelled > 0), _safe_quotient(b + a, b - a), cheaper),
            -OUTER_THRESHOLD,
            OUTER_THRESHOLD,
        )

    @cached_property
    def _groups(self) -> Groups:
        """Of the ground's rows."""
        return Groups.by(self.ground.slices, self.ground.members > 0)

    @cached_property
    def _weights(self) -> Array:
        """(C, Q) weight of each kind in each group."""
        inside = np.eye(len(self._groups.patterns))[self._groups.of]
        return np.asarray((self.ground.shares @ inside).T)

    @cached_property
    def _labels(self) -> tuple[Mask, Mask, Mask]:
        """(Q,) which kinds have a positive label, a negative one, or none: a yes adds to the error of
        rows with a negative one.
        """
        kinds = self.ground.kinds
        wrong = kinds.patterns[kinds.matrix.index()[ERROR_RATE]]
        return wrong < 0, wrong > 0, wrong == 0

    @cached_property
    def _scorer(self) -> CostSensitiveClassifier | Threshold:
        """Its score is the chance of a positive label less that of a negative one."""
        positive, negative, _ = self._labels
        shares = np.stack([self.ground.shares[own].sum(axis=0) for own in (negative, positive)])
        labels, rows = np.nonzero(shares)
        if len(np.unique(labels)) < 2:
            return Threshold(np.zeros(self.ground.width), 1.0 if labels.any() else -1.0)
        model, X, weights = self.unfitted(rows, shares[labels, rows])
        found = fit_estimator_cached(model, X, labels, weights)
        return CostSensitiveClassifier(found, ARGMAX_COSTS)


def _safe_quotient(top: Array, bottom: Array) -> Array:
    """0 where the bottom is not positive."""
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


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

"""Plug-in oracles: probabilities are fitted once and weighed with the current prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ratecli.models.base import Array, Classifier
from ratecli.models.cost_sensitive import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.models.group_threshold import GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.sklearn_model import SklearnModel
from ratecli.models.trees import TreeEnsemble
from ratecli.rates.sample import Mask
from ratecli.solvers.groups import Groups
from ratecli.solvers.oracles.base import OracleRows
from ratecli.solvers.oracles.estimators import EstimatorOracle, fit_estimator_cached
from ratecli.solvers.problem import ERROR_RATE

OUTER_THRESHOLD = 2.0
"""A threshold beyond all scores, which are differences of two probabilities."""


@dataclass(frozen=True)
class GroupPlugInOracle(EstimatorOracle):
    """Thresholds the probability of a positive label separately in each group (COCO: Narasimhan
    2018).

    In a group where a positive decision costs `a` for a positive label and `b > a` for a negative
    one, its expected cost is negative where the probability is above `b / (b - a)`. If b is not
    above a, the whole group gets the decision that is cheaper in total. Costs that differ within a
    group and label, such as those that depend on decisions of a deployed model, are replaced by
    their mean there. The class must have `predict_proba`.
    """

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Return the group thresholds; raise FaultError, E501, if a fit fails."""
        return GroupThreshold(
            self._scorer, self._groups.slices, self._groups.patterns, self._thresholds(prices)
        )

    def _thresholds(self, prices: Array) -> Array:
        """Return the threshold (C,) of each group, on scores in [-1, 1]."""
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
        """Groups of the training rows."""
        return Groups.by(self.ground.slices, self.ground.members > 0)

    @cached_property
    def _weights(self) -> Array:
        """(C, Q) weight of each kind in each group."""
        inside = np.eye(len(self._groups.patterns))[self._groups.of]
        return np.asarray((self.ground.shares @ inside).T)

    @cached_property
    def _labels(self) -> tuple[Mask, Mask, Mask]:
        """Three masks (Q,): kinds with a positive label, with a negative one, and without a label.

        They follow from the error rate: a positive decision adds to it where the label is negative.
        """
        kinds = self.ground.kinds
        wrong = kinds.patterns[kinds.matrix.index()[ERROR_RATE]]
        return wrong < 0, wrong > 0, wrong == 0

    @cached_property
    def _scorer(self) -> CostSensitiveClassifier | Threshold:
        """Its score is the probability of a positive label minus that of a negative one."""
        positive, negative, _ = self._labels
        shares = np.stack([self.ground.shares[own].sum(axis=0) for own in (negative, positive)])
        labels, rows = np.nonzero(shares)
        if len(np.unique(labels)) < 2:
            return Threshold(np.zeros(self.ground.width), 1.0 if labels.any() else -1.0)
        model, X, weights = self.unfitted(rows, shares[labels, rows])
        found = fit_estimator_cached(model, X, labels, weights)
        return CostSensitiveClassifier(found, ARGMAX_COSTS)


def _safe_quotient(top: Array, bottom: Array) -> Array:
    """Divide; 0 where the denominator is not positive."""
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)


MAX_LOGISTIC_ITERATIONS = 1000
"""Iteration limit of the default logistic regression."""


@dataclass(frozen=True)
class PlugInOracle(EstimatorOracle):
    """Decides positively where the expected cost of that is negative.

    This is the plug-in classifier of COCO (Narasimhan 2018) and the cost-sensitive oracle of
    Narasimhan, Cotter, Gupta 2019, table 2. The cost of a positive decision depends on the row's
    kind: its label and every slice that the rates distinguish. The probabilities of the kinds given
    the features are fitted, so a group counts as far as the features predict it: it gets its own
    threshold if it is a feature or follows from features. Group membership itself is not an input,
    neither in training nor later. The class must have `predict_proba`; the default parameters are
    `logistic_defaults`.

    Attributes
    ----------
    known
        An oracle for the same rows with other weights that depend on the features alone. Its
        probabilities given the features are the same, so they are not fitted again.
    """

    known: PlugInOracle | None = None

    def weighing(self, ground: OracleRows) -> PlugInOracle:
        """Return an oracle with the same probabilities for other row weights."""
        return replace(self, ground=ground, known=self.known or self)

    def answer(self, prices: Array, near: Classifier | None) -> Classifier:  # noqa: ARG002
        """Weigh the probabilities by costs; raise FaultError, E501, if they cannot be fitted."""
        costs = self.ground.kind_costs(prices)[self.kinds]
        if self.chances is None:
            return self.ground.constant(yes=bool(costs.sum() < 0))
        return CostSensitiveClassifier(self.chances, costs)

    @cached_property
    def _pairs(self) -> sparse.coo_array:
        """(Q, m) weights of the kinds and rows that occur together."""
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
        """The fitted probabilities of the kinds; None if there is only one kind."""
        if self.known:
            return self.known.chances
        if len(self.kinds) == 1:
            return None
        kinds, rows = self._pairs.coords
        model, X, weights = self.unfitted(rows, self._pairs.data)
        return fit_estimator_cached(model, X, np.searchsorted(self.kinds, kinds), weights)


def logistic_defaults(l2: float, rows: int) -> dict[str, Any]:
    """Parameters of the logistic regression with penalty `l2 / 2 |w|^2` added to the mean loss."""
    return {"C": 1 / (rows * l2), "max_iter": MAX_LOGISTIC_ITERATIONS}

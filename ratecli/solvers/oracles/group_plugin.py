"""The plug-in of groups that are known: chances of the label, and a threshold for each group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.grouped import GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.weighed import ARGMAX_COSTS, CostSensitiveClassifier
from ratecli.rates.sample import Mask
from ratecli.solvers.groups import Groups
from ratecli.solvers.oracles.estimators import EstimatorOracle
from ratecli.solvers.oracles.memory import fit_estimator_cached
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

"""fairlearn's `ThresholdOptimizer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge

from ratecli.models.base import Array
from ratecli_peers.rules import EQUALIZED_ODDS, GroupRule
from ratecli_peers.thresholds import WithinTolerance

if TYPE_CHECKING:
    from ratecli_peers.rows import GroupChances, GroupRows


@dataclass(frozen=True)
class ThresholdOptimizer(WithinTolerance):
    """fairlearn's `ThresholdOptimizer` (Hardt, Price, Srebro 2016): random thresholds of groups.

    It takes a limit on the difference of `positive_rate`, `tpr` or `fpr` between groups, which is
    its option `tol`. The ratio of rates is not among its rules: it becomes the largest difference
    that keeps the ratio on the training set, found by bisection. For equalized odds, it has no
    tolerance, so that the rates are equal whatever the limit is. A comparison in one direction is
    enforced in both. Without constraints, the model is returned. Rows in none of the groups keep
    the model's threshold.

    fairlearn chooses by scores of training rows (`scores: in_sample`). Its options `flip`,
    `objective` and `predict_method` are left out.

    Attributes
    ----------
    grid_size
        Number of values of the rate that are tried, minus 1.
    """

    grid_size: Annotated[int, Ge(1)] = 1000

    version: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("fairlearn",)

    def within(
        self, scores: Array, rows: GroupRows, rule: GroupRule, tolerance: float
    ) -> GroupChances:
        from fairlearn.postprocessing import ThresholdOptimizer as Peer

        tol = {} if rule.rate == EQUALIZED_ODDS else {"tol": tolerance}
        options = {"prefit": True, "predict_method": "predict", "grid_size": self.grid_size}
        peer = Peer(estimator=score_column(), constraints=rule.parity, **options, **tol)
        peer.fit(scores[:, None], rows.label, sensitive_features=rows.group)
        found = peer.interpolated_thresholder_.interpolation_dict
        return [_chances(found[g]) for g in range(len(found))]


def score_column() -> Any:
    """Return a fitted estimator whose prediction is its only feature."""
    from sklearn.base import BaseEstimator

    class ScoreColumn(BaseEstimator):  # type: ignore[misc]
        def fit(self, X: Any, y: Any) -> ScoreColumn:  # noqa: ARG002
            return self

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, X: Any) -> Any:
            return X[:, 0]

    return ScoreColumn()


def _chances(found: Any) -> tuple[Array, Array]:
    """Return the thresholds and chances of an interpolation of fairlearn."""
    ignored = float(found.get("p_ignore", 0.0))
    always = ignored * float(found.get("prediction_constant", 0.0))
    cuts = [found.operation0.threshold, found.operation1.threshold, -np.inf, np.inf]
    shares = [(1 - ignored) * found.p0, (1 - ignored) * found.p1, always, ignored - always]
    kept = np.array(shares) > 0
    return np.array(cuts, dtype=float)[kept], np.array(shares, dtype=float)[kept]

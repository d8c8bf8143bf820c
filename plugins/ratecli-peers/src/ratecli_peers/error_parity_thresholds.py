"""error-parity's `RelaxedThresholdOptimizer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from ratecli.models.base import Array
from ratecli_peers.rules import GroupRule
from ratecli_peers.thresholds import WithinTolerance

if TYPE_CHECKING:
    from ratecli_peers.rows import GroupChances, GroupRows


@dataclass(frozen=True)
class ErrorParity(WithinTolerance):
    """error-parity's `RelaxedThresholdOptimizer` (Cruz, Hardt 2024): random thresholds of groups.

    It takes a limit on the difference of `positive_rate`, `tpr`, `fpr` or both of these between
    groups, which is its option `tolerance`. The ratio of rates is not among its rules: it becomes
    the largest difference that keeps the ratio on the training set, found by bisection. A
    comparison in one direction is enforced in both. Without constraints, the model is returned.
    Rows in none of the groups keep the model's threshold.

    Its quickstart chooses thresholds by the model's training rows (`scores: in_sample`), the
    authors' experiments by rows that it was not fitted to: `scores: {held_out: 0.3}`. Its option
    `l_p_norm` is left out.

    Attributes
    ----------
    max_roc_ticks
        Largest number of points of a group's ROC curve; null for all of them.
    false_pos_cost
        Cost of a false positive decision.
    false_neg_cost
        Cost of a false negative decision.
    """

    max_roc_ticks: Annotated[int, Ge(3)] | None = 1000
    false_pos_cost: Annotated[float, Gt(0)] = 1.0
    false_neg_cost: Annotated[float, Gt(0)] = 1.0

    version: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = ("error-parity",)

    def within(
        self, scores: Array, rows: GroupRows, rule: GroupRule, tolerance: float
    ) -> GroupChances:
        from error_parity import RelaxedThresholdOptimizer

        peer = RelaxedThresholdOptimizer(
            predictor=lambda X: X[:, 0],
            constraint=rule.parity,
            tolerance=tolerance,
            false_pos_cost=self.false_pos_cost,
            false_neg_cost=self.false_neg_cost,
            max_roc_ticks=self.max_roc_ticks,
        ).fit(scores[:, None], rows.label, group=rows.group)
        found = peer._realized_classifier.group_to_clf  # noqa: SLF001  it has no public name
        points = peer.groupwise_roc_points
        return [_chances(found[g], float(points[g][0])) for g in range(len(points))]


def _chances(classifier: Any, false_positives: float) -> tuple[Array, Array]:
    """Return the thresholds and chances of a group's classifier.

    A part without threshold decides at random: positively with the chance of false positives.
    """
    parts = getattr(classifier, "classifiers", [classifier])
    chances = getattr(classifier, "probabilities", [1.0])
    cuts, shares = list[float](), list[float]()
    for part, chance in zip(parts, chances, strict=True):
        if hasattr(part, "threshold"):  # positive from the threshold on, not above it
            cuts.append(float(np.nextafter(part.threshold, -np.inf)))
            shares.append(chance)
        else:
            cuts += [-np.inf, np.inf]
            shares += [chance * false_positives, chance * (1 - false_positives)]
    kept = np.array(shares) > 0
    return np.array(cuts)[kept], np.array(shares)[kept]

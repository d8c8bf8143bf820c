"""Ranking measures: of the scores, not of decisions, hence no rows of A."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ratecli.rates.sample import Floats


def _two_class_measure(name: str) -> Callable[[Floats, Floats, Floats], float]:
    """A measure of scikit-learn, of labels, scores and weights (n,); NaN where one class is absent."""

    def value(label: Floats, score: Floats, weight: Floats) -> float:
        if len(np.unique(label)) < 2:
            return float("nan")
        from sklearn import metrics  # noqa: PLC0415  slow, and to look at a file takes none

        return float(getattr(metrics, name)(label, score, sample_weight=weight))

    return value


RANKING_MEASURES = {
    "roc_auc": _two_class_measure("roc_auc_score"),
    "pr_auc": _two_class_measure("average_precision_score"),
}

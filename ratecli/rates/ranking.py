"""Ranking measures: of the scores, not of decisions, hence no rows of A."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from ratecli.rates.sample import Floats


def _both_classes(measure: Callable[..., float]) -> Callable[[Floats, Floats, Floats], float]:
    def value(label: Floats, score: Floats, weight: Floats) -> float:
        if len(np.unique(label)) < 2:
            return float("nan")
        return float(measure(label, score, sample_weight=weight))

    return value


RANKING_MEASURES = {
    "roc_auc": _both_classes(roc_auc_score),
    "pr_auc": _both_classes(average_precision_score),
}

"""Rates of groups on new rows, stored with a trial for the description of its models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.expression import ALL_ROWS, Expression, Leaf, Slice
from ratecli.rates.matrix import Predictions, build_rate_matrix
from ratecli.rates.table import RATES
from ratecli.sampling.rows import TrialData

DECISION_RATES = ("positive_rate", "tpr", "fpr", "error")
NUMBER_RATES = ("mean_error", "mse")
MAX_GROUPS = 1000


def group_rates(
    rows: TrialData,
    metrics: Iterable[Expression],
    groups: Iterable[Slice],
    predictions: Mapping[str, Predictions],
) -> dict[str, Any]:
    """Return rates of all rows, of the groups in metrics and of more `groups`, as JSON data.

    They are those of the test set, or of the training set if there is none: `split` is its name
    and `rows` the number of rows of each group. `rates` has, by variant, group and rate, the value
    (None if undefined), the number of rows that it is a mean over, and its standard error if it is
    not a share of decisions. Rows of different weights count as the effective number of rows, the
    squared sum of weights by the sum of squares. At most `MAX_GROUPS` groups are included.
    """
    sample = rows.sample
    split = next(name for name in ("test", "train") if name in rows.splits())
    used = [leaf.where for leaf in ex.leaves(*metrics) if leaf.where.conditions]
    wheres = list(dict.fromkeys([ALL_ROWS, *used, *groups]))[: MAX_GROUPS + 1]
    kinds = DECISION_RATES if sample.label_range is None else NUMBER_RATES
    found: dict[str, dict[str, Any]] = {variant: {} for variant in predictions}
    for where in wheres:  # one at a time, which takes less memory
        leaves = [Leaf(RATES[kind], where) for kind in kinds]
        matrix = build_rate_matrix(leaves, sample, split)
        inside = sample.rows(where, split)
        members = [inside & sample.mask(leaf.rate.among) for leaf in leaves]
        for variant, predicted in predictions.items():
            values = matrix.measured(predicted.measurements(leaves, sample.label))
            numbers = found[variant][str(where)] = {}
            for leaf, own, value in zip(leaves, members, values.tolist(), strict=True):
                n, weight = sample.counted(own), sample.weight[own]
                weighted = sample.count is None and n and np.ptp(weight) > 0
                effective = float(weight.sum() ** 2 / (weight**2).sum()) if weighted else n
                numbers[leaf.rate.name] = [None if math.isnan(value) else value, effective]
                if leaf.rate.of != "decision" and n > 1:
                    errors = predicted.measure(leaf.rate.of, sample.label)[own] - value
                    scale = abs(errors).max() or 1.0  # squares of squared errors may be infinite
                    variance = (weight**2) @ (errors / scale) ** 2 / weight.sum() ** 2 * n / (n - 1)
                    numbers[leaf.rate.name].append(scale * math.sqrt(variance))
    counts = {str(where): sample.counted(sample.rows(where, split)) for where in wheres}
    return {"split": split, "rows": counts, "rates": found}

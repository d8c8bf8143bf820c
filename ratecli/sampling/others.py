"""The rates of other algorithms in `of(...)`, as rates that no decision of the classifier changes.

Rates of two algorithms on the same rows vary together. As one measurement per row, their difference
has the standard error, and the confidence bound, of paired samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from ratecli.rates import expression as ex
from ratecli.rates.expression import AlgorithmMetric, Expression, Leaf
from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Sample
from ratecli.rates.table import DECISION_MEASUREMENTS, DEPLOYED, OTHER, Rate
from ratecli.sampling.deployed import deployed_predictions


def rates_of_other(node: Expression) -> Expression | None:
    """Return the metric of an `of(...)` with its rates as those of the other algorithm.

    For use with `ex.transform`. None for other nodes, and for a metric that is not a function of
    rates which count rows.
    """
    if not isinstance(node, AlgorithmMetric):
        return None
    for part in ex.measured_nodes(node.metric):
        if not (isinstance(part, Leaf) and _counts_rows(part.rate)):
            return None

    def moved(part: Expression) -> Expression | None:
        return replace(part, rate=_other_rate(node, part)) if isinstance(part, Leaf) else None

    return ex.transform(node.metric, moved)


def _counts_rows(rate: Rate) -> bool:
    return rate.of in DECISION_MEASUREMENTS and not (rate.outcome or rate.weight_power)


def _other_rate(node: AlgorithmMetric, leaf: Leaf) -> Rate:
    name = f"of({node.algorithm}, {leaf.rate.name})"
    return replace(leaf.rate, name=name, yes=OTHER, no=OTHER, complement="")


def with_others(
    sample: Sample, trees: Iterable[Expression], predictions: Mapping[str, Predictions]
) -> Sample:
    """Return the sample with what each row adds to the rates of other algorithms in some trees.

    `predictions` are those of the algorithms on all rows, by label; others are left out.
    """
    if sample.deployed is not None:
        predictions = {**predictions, DEPLOYED: deployed_predictions(sample)}
    found, rows = dict(sample.others), np.arange(len(sample))
    for node in (part for tree in trees for part in ex.walk(tree)):
        if isinstance(node, AlgorithmMetric) and node.algorithm in predictions:
            for leaf in filter(lambda each: _counts_rows(each.rate), ex.leaves(node.metric)):
                yes, no = sample.counts(leaf.rate, rows)
                m = predictions[node.algorithm].measure(leaf.rate.of, sample.label)
                found[_other_rate(node, leaf).name] = m * (yes - no) + no
    return replace(sample, others=found)

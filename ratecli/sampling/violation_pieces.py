"""How far constraints are from being violated on the test set, with standard errors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from ratecli.ledger.violations import Pieces
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal, pieces
from ratecli.rates.expression import Leaf
from ratecli.rates.matrix import Predictions, RateMatrix, build_rate_matrix, unseen_variance
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.table import OTHER, Measurement
from ratecli.rates.tangent import parts_of
from ratecli.sampling.others import rates_of_other
from ratecli.sampling.rows import TrialData

ROUNDING = 1e-12
MAX_MEASURED_PIECES = 1000
"""Constraints with more pieces are left out, because each piece takes time."""


def violation_pieces(
    rows: TrialData, goals: Sequence[Goal], predictions: Mapping[str, Predictions]
) -> dict[str, dict[str, Pieces]]:
    """Return the pieces of constraints' violations on the test set, by variant and metric.

    Left out are constraints that are not functions of means over rows, and those that are undefined
    on the test set. Nothing is known of streamed rows with weights.
    """
    if rows.stream is not None and rows.stream.weight_at is not None:
        return {}
    test = np.flatnonzero(rows.sample.rows(ex.ALL_ROWS, "test"))
    counts = None if rows.stream is None else rows.stream.count[test]
    parts = {}
    for goal in goals:
        tree = ex.transform(goal.expression, rates_of_other)
        if _is_measurable(tree, rows.sample):
            parts[ex.to_text(goal.expression)] = pieces(tree)
    matrix = build_rate_matrix(
        ex.leaves(*itertools.chain(*parts.values())), rows.sample, "test"
    ).on(test)
    found: dict[str, dict[str, Pieces]] = {}
    for variant, predicted in predictions.items():
        of = predicted.measurements(matrix.leaves, rows.sample.label)
        measured = {key: values[test] for key, values in of.items()}
        rates = matrix.measured(measured)
        for metric, own in parts.items():
            each = [parts_of(piece, rates, matrix.index()) for piece in own]
            slopes = np.vstack([part.slopes for part in each])
            errors = _standard_errors(matrix, slopes, measured, counts)
            found_values = np.concatenate([part.values for part in each])
            numbers = list(zip(found_values.tolist(), errors.tolist(), strict=True))
            if len(test) and np.isfinite(numbers).all():
                found.setdefault(variant, {})[metric] = numbers
    return found


def _standard_errors(
    matrix: RateMatrix,
    slopes: Floats,
    measured: Mapping[Measurement, Floats],
    counts: Floats | None,
) -> Floats:
    if measured.keys() == {"decision"}:
        decisions = measured["decision"]
        known = matrix.standard_error(slopes, measured, counts)
        if (
            decisions == decisions[:1]
        ).all():  # a constant decision has the same rates in every sample
            return known
        rates = matrix.measured(measured)
        others = slopes[:, [leaf.rate.yes == OTHER for leaf in matrix.leaves]]
        same = others.any(axis=1) & (known < ROUNDING)  # both algorithms decide all rows alike
        unseen = np.sqrt(slopes**2 @ unseen_variance(rates, matrix.totals))
        return np.hypot(known, np.where(same, 0.0, unseen))
    if counts is not None:
        return np.full(len(slopes), np.nan)
    return matrix.standard_error(slopes, measured)


def _is_measurable(tree: ex.Expression, sample: Sample) -> bool:
    """Whether a violation is a function of means over rows, with few enough pieces."""
    for part in ex.walk(tree):
        if isinstance(part, ex.AlgorithmMetric | ex.RankingMeasure | ex.Disclosure):
            return False
        if not (isinstance(part, Leaf) and part.rate.yes == OTHER):
            continue
        if part.rate.name not in sample.others or sample.count is not None:
            return False  # unknown, or known only as shares of equal rows
    return len(pieces(tree)) <= MAX_MEASURED_PIECES

"""Numbers stored with a trial for cards, plots and answers: rates of groups, filters, violations.

None of them is part of a trial's key.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic
from ratecli.ledger.records import FILTERS_KEY, ROC_STEPS
from ratecli.ledger.violations import Pieces
from ratecli.models.base import Classifier
from ratecli.models.proxies import ProxyFilter
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal, pieces
from ratecli.rates.expression import ALL_ROWS, JOINT_RATE, Expression, Leaf, Slice
from ratecli.rates.matrix import (
    MIN_PROXY_SHARE,
    Predictions,
    RateMatrix,
    build_rate_matrix,
    unseen_variance,
)
from ratecli.rates.rate_function import PieceParts
from ratecli.rates.sample import Floats, Sample
from ratecli.rates.syntax import Condition
from ratecli.rates.table import OTHER, RATES, Measurement
from ratecli.sampling.deployed import rates_of_other
from ratecli.sampling.rows import TrialData
from ratecli.solvers.curve import RateCurve

DECISION_RATES = ("positive_rate", "tpr", "fpr", "error")
NUMBER_RATES = ("mean_error", "mse")
MAX_GROUPS = 1000
MAX_CURVES = 8
"""Most groups with curves."""
MAX_BINS, MIN_BIN_ROWS = 10, 20
"""Most bins of a calibration curve, and the fewest rows of a bin."""
CURVE_DIGITS = 4
"""Decimals to which curves are rounded."""


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


def group_curves(
    rows: TrialData,
    metrics: Iterable[Expression],
    groups: Iterable[Slice],
    predictions: Mapping[str, Predictions],
) -> dict[str, Any]:
    """Return ROC and calibration curves of the main variant by group, as JSON data.

    The rows are those of `group_rates`, the groups the first `MAX_CURVES` of `groups` and of those
    in metrics. `variant` and `split` are names; `groups` has, for each group:

    - `roc` (`ROC_STEPS` + 1,): the true positive rates at evenly spaced false positive rates;
    - `area`: the area under the exact curve; `positives`: the number of positive rows;
    - `calibration` (3, B): mean probability, share of positives and number of rows of each of at
      most `MAX_BINS` bins of about equally many rows with neighbouring scores, where equal scores
      are in one bin; B = 0 if the model returns no probabilities.

    Numbers of rows are effective ones. Groups are left out if they have one class, or if their
    scores have fewer than three values. There are no curves for numeric labels, logged decisions
    and streams.
    """
    sample = rows.sample
    if not predictions or sample.label_range or sample.logs or sample.count is not None:
        return {}
    variant, main = next(iter(predictions.items()))
    split = next(name for name in ("test", "train") if name in rows.splits())
    used = [leaf.where for leaf in ex.leaves(*metrics) if leaf.where.conditions]
    wheres = list(dict.fromkeys([*groups, *used]))[:MAX_CURVES]
    masks = {str(each): sample.rows(each, split) & sample.mask("labelled") for each in wheres}
    own = {name: np.flatnonzero(mask) for name, mask in masks.items() if mask.any()}
    found = {name: _curves(sample, main, some) for name, some in own.items()}
    known = {name: each for name, each in found.items() if each}
    return {"variant": variant, "split": split, "groups": known}


def _curves(sample: Sample, main: Predictions, rows: NDArray[np.intp]) -> dict[str, Any]:
    """Return the curves of some rows, or nothing if they have one class or too few scores."""
    curve = RateCurve.of(main.scores[rows])
    rows = rows[curve.order]
    positive, weight, chances = sample.label[rows] == 1, sample.weight[rows], main.estimates[rows]
    classes = weight * np.stack([positive, ~positive])
    reached = np.cumsum(classes, axis=1)[:, curve.counts[1:] - 1]
    if len(curve.counts) < 4 or not reached[:, -1].all():
        return {}
    tpr, fpr = np.pad(reached / reached[:, -1:], ((0, 0), (1, 0)))
    # the model returns no probabilities if its estimates are its decisions
    decides = np.array_equal(chances, main.decisions[rows])
    bins = 0 if decides else min(MAX_BINS, len(rows) // MIN_BIN_ROWS)
    parts = np.stack([weight * chances, classes[0], weight, weight**2])
    starts = _bin_starts(curve.counts, bins)
    chance, share, total, squares = np.add.reduceat(parts, starts, axis=1)[:, ::-1]
    numbers = {
        "roc": np.interp(np.linspace(0, 1, ROC_STEPS + 1), fpr, tpr),
        "area": (tpr[1:] + tpr[:-1]) @ np.diff(fpr) / 2,
        "positives": reached[0, -1] ** 2 / (classes[0] @ classes[0]),
        "calibration": np.stack([chance / total, share / total, total**2 / squares]),
    }
    return {name: np.round(each, CURVE_DIGITS).tolist() for name, each in numbers.items()}


def _bin_starts(counts: NDArray[np.intp], bins: int) -> NDArray[np.intp]:
    """Return the first rows of at most `bins` bins: some of `counts`, where scores change."""
    rows, starts = int(counts[-1]), [0][:bins]
    for k in range(1, bins):
        least = max(k * rows // bins, starts[-1] + MIN_BIN_ROWS)
        start = counts[np.searchsorted(counts, min(least, rows))]
        if start + MIN_BIN_ROWS <= rows:
            starts.append(int(start))
    return np.array(starts, dtype=np.intp)


SUMMARY_DIGITS = 10
"""Digits to which shares are rounded."""

MIN_KEPT_SHARE = 0.2
"""A filter that keeps a smaller share of the training rows gives a warning."""

GroupConditions = dict[str, dict[str, Condition]]
"""For each column, the names of its groups, in the order of its values, with their conditions."""


def summarize_filters(
    goals: Iterable[Goal],
    sample: Sample,
    splits: Iterable[str],
    variants: Mapping[str, Classifier],
    answers: Mapping[str, Predictions],
) -> dict[str, Any]:
    """Return the summary of every variant that is a filter, by name; empty if there is none.

    `answers` are the predictions of the variants on all rows. For a proxy with L values and a
    column with K groups, over the rows of a split that belong to one of the groups:

    - `keep` (L,): the chance that a row with a value is kept, the same on every split;
    - `groups` (K,): the names of the groups; `base` (K,): their shares;
    - `size` (L,): the share of each value; `posterior` (L, K): the share of each group among the
      rows with a value, None for a value without rows;
    - `after` (K,): the expected shares of the groups among the kept rows, None if no rows are kept.
    """
    by_column, splits = joint_rate_groups(goals), tuple(splits)
    found = {
        name: {
            "keep": _round_values(variant.keep),
            "columns": {
                column: {
                    "groups": list(groups),
                    "splits": _summary_by_split(groups, sample, splits, answers[name]),
                }
                for column, groups in by_column.items()
            },
        }
        for name, variant in variants.items()
        if isinstance(variant, ProxyFilter) and by_column
    }
    return {FILTERS_KEY: found} if found else {}


def few_kept_warning(
    kept: float, way: str, name: str = "the filter", where: str = ""
) -> list[Diagnostic]:
    """Return a W412 if a filter keeps a share `kept` below `MIN_KEPT_SHARE` of the training rows.

    `way` says how to set the least share, and `where` in which trials.
    """
    if not kept < MIN_KEPT_SHARE:
        return []
    message = f"{name} keeps only {100 * kept:.2g} % of the training rows{where}"
    hint = f"{way} keeps more rows, in groups that may be less balanced"
    return [Diagnostic("W412", message, hint)]


def joint_rate_groups(goals: Iterable[Goal]) -> GroupConditions:
    """Return the groups in `joint_rate` terms of the goals that have one condition on a column."""
    found: GroupConditions = {}
    for leaf in ex.leaves(*(goal.expression for goal in goals)):
        if leaf.rate == JOINT_RATE and len(leaf.where.atoms) == 1:
            (condition,) = leaf.where.atoms
            found.setdefault(condition.column, {})[_group_name(condition)] = condition
    return found


def _group_name(condition: Condition) -> str:
    """Return the value that defines the group if there is just one, else the whole condition."""
    if condition.op != "=" or len(condition.values) != 1:
        return str(condition)
    (value,) = condition.values
    return str(value)


def _summary_by_split(
    groups: Mapping[str, Condition], sample: Sample, splits: Iterable[str], predictions: Predictions
) -> dict[str, Any]:
    """Summarize each split that has a row of any of the groups."""
    wheres = [ex.Slice.of((), [condition]) for condition in groups.values()]
    members = np.stack([sample.rows(where) for where in wheres], axis=1).astype(float)
    known = members.any(axis=1)
    found = {}
    for split in splits:
        rows = known & sample.rows(ex.ALL_ROWS, split)
        weight = sample.weight[rows]
        if weight.sum() > 0:
            share = weight / weight.sum()
            proxy, kept = predictions.proxy[rows], predictions.decisions[rows]
            found[split] = _count_groups(members[rows], share, proxy, kept)
    return found


def _count_groups(members: Floats, share: Floats, proxy: Floats, kept: Floats) -> dict[str, Any]:
    """Summarize rows in groups (n, K), with weights `share` (n,) that add up to 1.

    `proxy` is (n, L), `kept` is (n,).
    """
    size = share @ proxy
    both = (proxy * share[:, None]).T @ members
    chosen = share * kept
    return {
        "base": _round_values(share @ members),
        "size": _round_values(size),
        "posterior": [
            _round_values(row / mass) if mass > MIN_PROXY_SHARE else None
            for row, mass in zip(both, size, strict=True)
        ],
        "after": _round_values(chosen @ members / chosen.sum()) if chosen.sum() > 0 else None,
    }


def _round_values(values: Floats) -> list[float]:
    return [round(float(value), SUMMARY_DIGITS) for value in values]


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
    leaves = ex.leaves(*itertools.chain(*parts.values()))
    matrix = build_rate_matrix(leaves, rows.sample, "test").on(test)
    functions = {metric: PieceParts(own, matrix.index()) for metric, own in parts.items()}
    found: dict[str, dict[str, Pieces]] = {}
    for variant, predicted in predictions.items():
        of = predicted.measurements(matrix.leaves, rows.sample.label)
        measured = {key: values[test] for key, values in of.items()}
        rates = matrix.measured(measured)
        for metric, own in functions.items():
            at = own.at(rates)
            errors = _standard_errors(matrix, at.slopes, measured, counts)
            numbers = list(zip(at.value.tolist(), errors.tolist(), strict=True))
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
        # a constant decision has the same rates in every sample
        if (decisions == decisions[:1]).all():
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

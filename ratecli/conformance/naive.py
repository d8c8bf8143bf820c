"""Naive computation of rates, row by row, and of metrics, by arithmetic on the parsed formula."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratecli.conformance.outcome import CheckSkippedError
from ratecli.rates import syntax
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.matrix import Predictions
from ratecli.rates.metrics import find_metric
from ratecli.rates.parser import parse_expression
from ratecli.rates.sample import Sample
from ratecli.rates.table import Composite, Rate, canonical_name

RowMask = NDArray[np.bool_]


@dataclass(frozen=True)
class NaiveSample:
    """Random rows with predictions; `inside` (n,) is the slice `g = a`."""

    sample: Sample
    predictions: Predictions
    inside: RowMask


def naive_sample(seed: int, n: int = 80) -> NaiveSample:
    """Return a sample in which some labels and deployed decisions are missing.

    Some decisions are exactly 0 or 1, others probabilities; weights are 0.5, 1 or 3.
    """
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], size=n)
    label = rng.choice([0.0, 1.0, np.nan], size=n, p=[0.4, 0.4, 0.2])
    deployed = rng.choice([0.0, 1.0, np.nan], size=n, p=[0.4, 0.4, 0.2])
    chance = np.clip(rng.uniform(-0.3, 1.3, size=n), 0.0, 1.0)
    sample = Sample(
        {"g": group.astype(object)},
        label,
        np.full(n, "tiny"),
        np.full(n, "train"),
        rng.choice([0.5, 1.0, 3.0], size=n),
        deployed,
    )
    estimates = np.clip(rng.uniform(0.01, 0.99, size=n), 0.0, 1.0)
    return NaiveSample(sample, Predictions(chance, chance, estimates), np.asarray(group == "a"))


def naive_rate(row: Rate, of: NaiveSample, inside: RowMask) -> float:
    """Return the rate of a slice, summed row by row; NaN if there are no rows."""
    total = weight = 0.0
    for k in range(len(of.sample)):
        counted = row.whole or bool(inside[k])
        if not (counted and _all(row.among, of.sample, k)):
            continue
        own = float(of.sample.weight[k])
        weight += own
        if row.whole and not inside[k]:
            continue
        said = _said(row, of, k)
        if _all(row.yes, of.sample, k):
            total += own * said
        if _all(row.no, of.sample, k):
            total += own * (1.0 - said)
    return total / weight if weight else math.nan


def _said(row: Rate, of: NaiveSample, k: int) -> float:
    label, estimate = float(of.sample.label[k]), float(of.predictions.estimates[k])
    if row.of == "decision":
        return float(of.predictions.decisions[k])
    if math.isnan(label):
        return 0.0
    if row.of == "log_loss":
        return -math.log(estimate if label == 1 else 1 - estimate)
    return estimate - label if row.of == "error" else (estimate - label) ** 2


def _all(mask: str, sample: Sample, k: int) -> bool:
    return all(_is(part, sample, k) for part in mask.split("&"))


def _is(part: str, sample: Sample, k: int) -> bool:
    assert sample.deployed is not None
    label, deployed = float(sample.label[k]), float(sample.deployed[k])
    return {
        "all": True,
        "none": False,
        "labelled": not math.isnan(label),
        "+": label == 1,
        "-": label == 0,
        "deployed": not math.isnan(deployed),
        "deployed_yes": deployed == 1,
        "deployed_no": deployed == 0,
    }[part]


def naive_value(
    row: Composite, arguments: Mapping[str, float], of: NaiveSample, inside: RowMask
) -> float:
    """Return the value of a composite metric on a slice; NaN if a part of it is undefined."""
    top = _value(parse_expression(row.text), arguments, of, inside)
    if not row.over:
        return top
    bottom = find_metric(row.over)
    assert isinstance(bottom, Rate)
    return _over(top, naive_rate(bottom, of, np.ones(len(of.sample), dtype=bool)))


def _value(
    node: syntax.SyntaxNode, arguments: Mapping[str, float], of: NaiveSample, inside: RowMask
) -> float:
    match node:
        case syntax.NumberLiteral():
            return node.value
        case syntax.Negation():
            return -_value(node.operand, arguments, of, inside)
        case syntax.BinaryOperation():
            left = _value(node.left, arguments, of, inside)
            right = _value(node.right, arguments, of, inside)
            return math.nan if math.isnan(left) or math.isnan(right) else _do(node.op, left, right)
        case syntax.NameNode():
            return _name(node, arguments, of, inside)


def _do(op: str, left: float, right: float) -> float:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return _over(left, right)
    try:
        power = left**right
    except (ZeroDivisionError, OverflowError):
        return math.nan
    return power if isinstance(power, float) else math.nan


def _over(top: float, bottom: float) -> float:
    if bottom == 0:
        return math.nan if top == 0 else math.copysign(math.inf, top)
    return top / bottom


def _name(
    node: syntax.NameNode, arguments: Mapping[str, float], of: NaiveSample, inside: RowMask
) -> float:
    if node.by or node.items or node.split:
        raise CheckSkippedError(f"'{node}' speaks of columns, which random rows do not have")
    if node.name in arguments:
        return arguments[node.name]
    given = [_value(each, arguments, of, inside) for each in node.arguments or ()]
    if node.name in FUNCTIONS:
        if any(math.isnan(value) for value in given):
            return math.nan
        return float(FUNCTIONS[node.name].value(*given))
    found = find_metric(canonical_name(node.name))
    if isinstance(found, Rate):
        return naive_rate(found, of, inside)
    if isinstance(found, Composite):
        return naive_value(found, dict(zip(found.parameters, given, strict=True)), of, inside)
    raise CheckSkippedError(f"'{node.name}' is no mean over rows")

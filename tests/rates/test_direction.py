"""Directions of metrics: by their text, and by the effect of corrected decisions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from full_scope import value

from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.metrics import Direction, direction
from ratecli.rates.parser import parse_expression
from ratecli.rates.sample import Sample
from ratecli.rates.table import METRICS

ROWS = 24


def of(text: str) -> Direction:
    return direction(parse_expression(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("error[women]@validation", "low"),
        ("recall[d2]", "high"),
        ("1 - error", "high"),
        ("-2 * error", "high"),
        ("kappa * error", "low"),
        ("error + fnr[men]", "low"),
        ("error + accuracy", "either"),
        ("error / of(unconstrained, error)", "low"),
        ("positive_rate[women] / positive_rate[men]", "either"),
        ("tpr[women] - tpr[men]", "either"),
        ("abs(tpr[women] - tpr[men])", "low"),
        ("max_gap(positive_rate, by=sex)", "low"),
        ("min_ratio(positive_rate, by=sex)", "high"),
        ("min(tpr, by=sex)", "high"),
        ("kl(base_rate, positive_rate[women])", "low"),
        ("imbalance(by=sex)", "low"),
        ("sqrt(error) ** 2", "low"),
        ("f_score(2)", "high"),
        ("auc", "high"),
        ("mse", "low"),
        ("mean_error", "either"),
        ("churn", "either"),
        ("3", "fixed"),
    ],
)
def test_directions(text, expected):
    assert of(text) == expected


DECIDED = [
    name for name in METRICS
    if name not in {"roc_auc", "pr_auc", "mean_error", "mse", "log_loss", "f_score", "share"}
]  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_a_corrected_decision_moves_a_metric_in_its_direction(name):
    rng = np.random.default_rng(3)
    moves = set[str]()
    for _ in range(20):
        label, deployed = rng.integers(0, 2, (2, ROWS)).astype(float)
        decisions = rng.integers(0, 2, ROWS).astype(float)
        before = number(name, label, deployed, decisions)
        for row in np.flatnonzero(decisions != label):
            decisions[row] = label[row]
            after = number(name, label, deployed, decisions)
            moves |= {"up"} if after > before + 1e-12 else set()
            moves |= {"down"} if after < before - 1e-12 else set()
            before = after
    expected = {"low": {"down"}, "high": {"up"}, "either": {"up", "down"}, "fixed": set()}
    assert moves == expected[of(name)]


def number(name, label, deployed, decisions) -> float:
    names = {"columns": {}, "dataset": np.full(ROWS, "d1"), "part": np.full(ROWS, "train")}
    sample = Sample(label=label, deployed=deployed, weight=np.ones(ROWS), **names)
    found = measure([value(name)], sample, "train", Predictions(*[decisions] * 3))[0]
    return math.nan if math.isinf(found) else found

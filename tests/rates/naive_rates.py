"""Every rate by its definition, and random samples with the names of their groups."""

from __future__ import annotations

import math

import numpy as np

from ratecli.rates.expression import Expression
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.parser import parse_conditions, parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.sample import Logs, Sample
from ratecli.rates.scope import LoggedRanges, Scope
from ratecli.rates.table import DECISION_MEASUREMENTS, RATES

ROW_RATES = {name: rate for name, rate in RATES.items() if rate.of in DECISION_MEASUREMENTS}
"""The rates of rows; those of episodes are tested with policies."""
WORDS = {"sex": ("f", "m"), "zip": ("03", "1", "2.5")}
SCOPE = Scope(
    datasets=frozenset({"d1", "d2", "d3"}),
    groups={"women": parse_conditions("sex = f"), "men": parse_conditions("sex = m")},
    values=(WORDS | {"age": ()}).get,
    algorithms=frozenset({"other"}),
    logged=LoggedRanges({"outcome": (-math.inf, math.inf)}),
)


def node(text: str) -> Expression:
    return resolve(parse_expression(text), SCOPE)


def number(
    text: str, sample: Sample, predictions: Predictions, split: str = "train", scope: Scope = SCOPE
) -> float:
    expression = resolve(parse_expression(text), scope)
    return measure([expression], sample, split, predictions)[0]


def definitions(sample: Sample, said: Predictions) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each rate, the rows that count and what each row contributes to the mean."""
    n, p, y, e = len(sample), said.decisions, sample.label, said.estimates
    g = np.full(n, np.nan) if sample.deployed is None else sample.deployed
    everyone, positive, negative = np.ones(n, dtype=bool), y == 1, y == 0
    labelled, deployed = positive | negative, (g == 0) | (g == 1)
    both, same = labelled & deployed, g == y
    right = np.where(positive, p, 1 - p)
    with np.errstate(divide="ignore"):
        log_loss = -np.log(np.where(positive, e, 1 - e))
    assert sample.logs is not None
    action, weight, reward = sample.logs.action, sample.logs.weight, sample.logs.outcomes["outcome"]
    logged, same_action = ~np.isnan(action), np.where(action == 1, p, 1 - p)
    model, true = sample.logs.models["outcome"], sample.logs.truths["outcome"]
    predicted = np.where(action == 1, *model)
    doubly_robust = p * model[0] + (1 - p) * model[1] + same_action * weight * (reward - predicted)
    return {
        "positive_rate": (everyone, p),
        "joint_rate": (everyone, p),
        "negative_rate": (everyone, 1 - p),
        "error": (labelled, 1 - right),
        "accuracy": (labelled, right),
        "tpr": (positive, p),
        "fnr": (positive, 1 - p),
        "fpr": (negative, p),
        "tnr": (negative, 1 - p),
        "true_positives": (labelled, positive * p),
        "false_positives": (labelled, negative * p),
        "true_negatives": (labelled, negative * (1 - p)),
        "false_negatives": (labelled, positive * (1 - p)),
        "base_rate": (labelled, y),
        "churn": (deployed, np.where(g == 1, 1 - p, p)),
        "agreement": (deployed, np.where(g == 1, p, 1 - p)),
        "wins": (both, ~same * right),
        "losses": (both, same * (1 - right)),
        "mean_error": (labelled, e - y),
        "mse": (labelled, (e - y) ** 2),
        "log_loss": (labelled, log_loss),
        "value": (logged, same_action * weight * reward),
        "value_logged": (logged, reward),
        "value_doubly_robust": (logged, doubly_robust),
        "value_true": (logged, p * true[0] + (1 - p) * true[1]),
        "importance_weight": (logged, same_action * weight),
        "squared_importance_weight": (logged, same_action * weight**2),
    }


def naive_rate(
    name: str, sample: Sample, said: Predictions, keep: np.ndarray, over: np.ndarray
) -> float:
    """The mean over the rows `over`, to which only the rows `keep` contribute."""
    counts, contribution = definitions(sample, said)[name]
    rows = np.flatnonzero(over & counts)
    weight, each = sample.weight[rows], np.where(keep, contribution, 0)[rows]
    return sum(weight * each) / sum(weight) if len(rows) else math.nan


def random_sample(seed: int, rows: int, *, deployed: bool = True) -> tuple[Sample, Predictions]:
    rng = np.random.default_rng(seed)

    def words(*choices: str | None) -> np.ndarray:
        return rng.choice(np.array(choices, dtype=object), rows)

    age = rng.integers(18, 70, rows).astype(float)
    age[rng.random(rows) < 0.1] = np.nan
    decisions = rng.choice([0.0, 1.0, rng.random()], rows)
    others = np.random.default_rng(seed + 1)
    action = others.choice([0.0, 1.0, np.nan], rows)
    reward, *sides = others.normal(size=(5, rows))
    logs = Logs(
        action=action,
        weight=1 / others.uniform(0.1, 1, rows),
        outcomes={"outcome": reward},
        models={"outcome": (sides[0], sides[1])},
        truths={"outcome": (sides[2], sides[3])},
    )
    sample = Sample(
        columns={"sex": words("f", "m", None), "zip": words("1", "2.5", "03"), "age": age},
        label=rng.choice([0.0, 1.0, np.nan], rows, p=[0.5, 0.3, 0.2]),
        dataset=rng.choice(["d1", "d2", "d3"], rows),
        part=rng.choice(["train", "validation", "test"], rows),
        weight=rng.choice([0.5, 1.0, 3.25], rows),
        deployed=rng.choice([0.0, 1.0, np.nan], rows) if deployed else None,
        logs=logs,
    )
    return sample, Predictions(decisions, rng.normal(size=rows).round(1), rng.random(rows))

"""Every rate from its definition, one row after the other; and random samples to try it on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Sample


@dataclass(frozen=True)
class Row:
    """One row: chance of a yes, label, decision of the deployed model (NaN: none), estimate."""

    yes: float
    label: float
    deployed: float
    estimate: float

    @property
    def right(self) -> float:
        return self.yes if self.label == 1 else 1 - self.yes

    @property
    def deployed_right(self) -> bool:
        return self.deployed == self.label


def _any(row: Row) -> bool:
    return row is not None


def _labelled(row: Row) -> bool:
    return row.label in {0, 1}


def _positive(row: Row) -> bool:
    return row.label == 1


def _negative(row: Row) -> bool:
    return row.label == 0


def _deployed(row: Row) -> bool:
    return row.deployed in {0, 1}


def _both(row: Row) -> bool:
    return _labelled(row) and _deployed(row)


def _log_loss(row: Row) -> float:
    chance = row.estimate if row.label == 1 else 1 - row.estimate
    return -math.log(chance) if chance > 0 else math.inf


Definition = tuple[Callable[[Row], bool], Callable[[Row], float]]

DEFINITIONS: dict[str, Definition] = {
    "positive_rate": (_any, lambda row: row.yes),
    "joint_rate": (_any, lambda row: row.yes),
    "negative_rate": (_any, lambda row: 1 - row.yes),
    "error": (_labelled, lambda row: 1 - row.right),
    "accuracy": (_labelled, lambda row: row.right),
    "tpr": (_positive, lambda row: row.yes),
    "fnr": (_positive, lambda row: 1 - row.yes),
    "fpr": (_negative, lambda row: row.yes),
    "tnr": (_negative, lambda row: 1 - row.yes),
    "true_positives": (_labelled, lambda row: row.yes if row.label == 1 else 0),
    "false_positives": (_labelled, lambda row: row.yes if row.label == 0 else 0),
    "true_negatives": (_labelled, lambda row: 1 - row.yes if row.label == 0 else 0),
    "false_negatives": (_labelled, lambda row: 1 - row.yes if row.label == 1 else 0),
    "base_rate": (_labelled, lambda row: row.label),
    "churn": (_deployed, lambda row: 1 - row.yes if row.deployed == 1 else row.yes),
    "agreement": (_deployed, lambda row: row.yes if row.deployed == 1 else 1 - row.yes),
    "wins": (_both, lambda row: 0 if row.deployed_right else row.right),
    "losses": (_both, lambda row: 1 - row.right if row.deployed_right else 0),
    "mean_error": (_labelled, lambda row: row.estimate - row.label),
    "mse": (_labelled, lambda row: (row.estimate - row.label) ** 2),
    "log_loss": (_labelled, _log_loss),
}
"""By name: which rows count, and what a row contributes to the mean."""


def naive_rate(
    name: str,
    sample: Sample,
    predictions: Predictions,
    keep: Callable[[int], bool],
    everyone: Callable[[int], bool] | None = None,
) -> float:
    """A rate of the rows that are kept; a mean over more rows where `everyone` says which."""
    counts, contributes = DEFINITIONS[name]
    above = below = 0.0
    for i in range(len(sample)):
        deployed = math.nan if sample.deployed is None else sample.deployed[i]
        row = Row(predictions.decisions[i], sample.label[i], deployed, predictions.estimates[i])
        if (everyone or keep)(i) and counts(row):
            above += sample.weight[i] * contributes(row) if keep(i) else 0
            below += sample.weight[i]
    return above / below if below else math.nan


def random_sample(seed: int, rows: int, *, deployed: bool = True) -> tuple[Sample, Predictions]:
    rng = np.random.default_rng(seed)

    def words(*choices: str | None) -> np.ndarray:
        return rng.choice(np.array(choices, dtype=object), rows)

    age = rng.integers(18, 70, rows).astype(float)
    age[rng.random(rows) < 0.1] = np.nan
    decisions = rng.choice([0.0, 1.0, rng.random()], rows)
    sample = Sample(
        columns={"sex": words("f", "m", None), "zip": words("1", "2.5", "03"), "age": age},
        label=rng.choice([0.0, 1.0, np.nan], rows, p=[0.5, 0.3, 0.2]),
        dataset=rng.choice(["d1", "d2", "d3"], rows),
        part=rng.choice(["train", "validation", "test"], rows),
        weight=rng.choice([0.5, 1.0, 3.25], rows),
        deployed=rng.choice([0.0, 1.0, np.nan], rows) if deployed else None,
    )
    return sample, Predictions(decisions, rng.normal(size=rows).round(1), rng.random(rows))

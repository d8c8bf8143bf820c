"""From one run to the next: a model that the first leaves is what the second compares with."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest

DATA = "datasets: {people: {path: people.csv, label: y, drop: [part], split: {by: part}}}\n"
FIRST = f"""\
name: first
{DATA}
groups: {{women: sex = F, men: sex = M}}
constraints: {{parity: 'positive_rate[women] >= kappa * positive_rate[men]'}}
sweep: {{kappa: [0.5, 0.95]}}
algorithms: [majorize: {{iterations: 2}}]
"""
SECOND = f"""\
name: second
{DATA}
algorithms: [unconstrained]
deployed: {{model: results/first/models/majorize-kappa=0.95-seed=0/deterministic.npz}}
metrics: {{churn: churn, their_churn: 'of(deployed, churn)', women: 'churn[sex = F]'}}
"""


@pytest.fixture
def people(folder) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    sex = rng.choice(["F", "M"], 240)
    x, z = rng.normal(size=240) + 1.2 * (sex == "M"), 5 + 2 * rng.normal(size=240)
    y = (x + 0.5 * (z - 5) + 0.7 * rng.normal(size=240) > 0.6).astype(int)
    part = np.where(np.arange(240) % 3 == 0, "test", "train")
    frame = pd.DataFrame({"sex": sex, "x": x, "z": z, "y": y, "part": part})
    frame.to_csv(folder / "people.csv", index=False)
    return frame


def decisions(path, people):
    """A stored threshold's answers on all rows; the features are encoded here, by training rows."""
    train = people[people.part == "train"]
    features = [
        *((people.sex == sex).astype(float) for sex in ("F", "M")),
        *((people[name] - train[name].mean()) / train[name].std(ddof=0) for name in ("x", "z")),
    ]
    with np.load(path, allow_pickle=False) as arrays:
        return np.column_stack(features) @ arrays["weights"] + arrays["bias"] > 0


def measured(path):
    with path.open(newline="") as file:
        return {(row["metric"], row["split"]): float(row["value"]) for row in csv.DictReader(file)}


def test_churn_against_the_stored_model_is_what_one_counts(folder, cli, people):
    for name, text in (("first", FIRST), ("second", SECOND)):
        (folder / f"{name}.yaml").write_text(text)
        assert cli("run", f"{name}.yaml", "-q", "-j", 1).code == 0
    models = folder / "results" / "first" / "models"
    old = decisions(models / "majorize-kappa=0.95-seed=0" / "deterministic.npz", people)
    other = decisions(models / "majorize-kappa=0.5-seed=0" / "deterministic.npz", people)
    assert (old != other).any()
    ours = folder / "results" / "second" / "models" / "unconstrained-seed=0" / "deterministic.npz"
    changed = decisions(ours, people) != old
    known = measured(folder / "results" / "second" / "metrics.csv")
    for split in ("train", "test"):
        rows = people.part == split
        assert 0 < changed[rows].sum() < rows.sum()
        assert known["churn", split] == pytest.approx(changed[rows].mean(), abs=1e-12)
        women = rows & (people.sex == "F")
        assert known["women", split] == pytest.approx(changed[women].mean(), abs=1e-12)
        assert known["their_churn", split] == 0.0


@pytest.mark.usefixtures("people")
def test_the_main_variant_may_be_randomized(folder, cli):
    """It counts by its likelier decisions, so that it differs from itself by its chances alone."""
    (folder / "first.yaml").write_text(FIRST)
    assert cli("run", "first.yaml", "-q", "-j", 1).code == 0
    text = SECOND.replace("deterministic.npz", "stochastic.npz")
    (folder / "second.yaml").write_text(text)
    assert cli("run", "second.yaml", "-q", "-j", 1).code == 0
    assert measured(folder / "results/second/metrics.csv")["their_churn", "test"] == 0.0


@pytest.mark.usefixtures("people")
def test_a_model_of_other_columns_is_refused(folder, cli):
    (folder / "first.yaml").write_text(FIRST)
    assert cli("run", "first.yaml", "-q", "-j", 1).code == 0
    (folder / "second.yaml").write_text(SECOND.replace("drop: [part]", "drop: [part, z]"))
    answer = cli("run", "second.yaml", "-q")
    assert answer.code == 4
    assert "error[E411]: the deployed model has 4 weights, the rows 3 features" in answer.err

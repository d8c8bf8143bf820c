"""`deployed: {model: ...}` compares with a model that another run stored."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
from small import read_rows

from ratecli.cli.app import main

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


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Where the table lies and `FIRST` has been run."""
    place = tmp_path_factory.mktemp("first")
    table().to_csv(place / "people.csv", index=False)
    (place / "first.yaml").write_text(FIRST)
    results = str(place / "results")
    assert main(["run", str(place / "first.yaml"), "-q", "-j", "1", "-o", results]) == 0
    return place


@pytest.fixture
def people(folder, first) -> pd.DataFrame:
    """The rows; the working folder is that of a first run."""
    shutil.copytree(first, folder, dirs_exist_ok=True)
    return table()


def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    sex = rng.choice(["F", "M"], 240)
    x, z = rng.normal(size=240) + 1.2 * (sex == "M"), 5 + 2 * rng.normal(size=240)
    y = (x + 0.5 * (z - 5) + 0.7 * rng.normal(size=240) > 0.6).astype(int)
    part = np.where(np.arange(240) % 3 == 0, "test", "train")
    return pd.DataFrame({"sex": sex, "x": x, "z": z, "y": y, "part": part})


def decisions(path, people):
    """Return a stored model's decisions; the features are encoded here, by training rows."""
    train = people[people.part == "train"]
    features = [
        *((people.sex == sex).astype(float) for sex in ("F", "M")),
        *((people[name] - train[name].mean()) / train[name].std(ddof=0) for name in ("x", "z")),
    ]
    with np.load(path, allow_pickle=False) as arrays:
        return np.column_stack(features) @ arrays["weights"] + arrays["bias"] > 0


def measured(path):
    return {(row["metric"], row["split"]): float(row["value"]) for row in read_rows(path)}


def test_churn_against_the_stored_model(folder, cli, people):
    (folder / "second.yaml").write_text(SECOND)
    assert cli("run", "second.yaml", "-q", "-j", 1).code == 0
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


COPY = "copy the model out of there and name the copy"


def itself(folder, model: str) -> None:
    """A file that compares with a model of its own results."""
    text = FIRST + f"deployed: {{model: {model}}}\nmetrics: {{churn: churn}}\n"
    (folder / "itself.yaml").write_text(text.replace("name: first", "name: itself"))


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize("output", ["results", "elsewhere"])
def test_a_run_may_not_compare_with_its_own_models(folder, cli, output):
    itself(folder, "first.npz")
    theirs = folder / "results" / "first" / "models" / "majorize-kappa=0.95-seed=0"
    (folder / "first.npz").write_bytes((theirs / "stochastic.npz").read_bytes())
    assert cli("run", "itself.yaml", "-q", "-j", 1, "-o", output).code == 0
    ours = folder / output / "itself" / "models"
    (ours / "mine.npz").write_bytes((folder / "first.npz").read_bytes())
    (folder / "link.npz").symlink_to(ours / "majorize-kappa=0.5-seed=0" / "stochastic.npz")
    inside = f"{output}/itself/models"
    for model in (
        f"{inside}/majorize-kappa=0.95-seed=0/deterministic.npz",
        f"{inside}/mine.npz",
        "link.npz",
        str(ours / "majorize-kappa=0.5-seed=0" / "stochastic.npz"),
    ):
        itself(folder, model)
        for command in ("run", "plan"):
            answer = cli(command, "itself.yaml", "-o", output)
            assert answer.code == 2
            assert f"error[E310]: this run itself writes the models in '{inside}'" in answer.err
            assert "--> itself.yaml:8:19" in answer.err
            assert COPY in answer.err


@pytest.mark.usefixtures("people")
@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_two_runs_of_a_command_may_not_share_a_model(folder, cli, order):
    (folder / "second.yaml").write_text(SECOND)
    answer = cli("run", *(f"{name}.yaml" for name in order), "-q", "-j", 1)
    assert answer.code == 2
    message = "the run of 'first.yaml' writes the models in 'results/first/models'"
    assert f"error[E310]: {message}\n  --> second.yaml:5:19" in answer.err
    assert f"run 'first.yaml' first, by itself, or {COPY}" in answer.err
    assert not (folder / "results" / "second").exists()
    assert cli("run", "second.yaml", "-q", "-j", 1).code == 0
    assert cli("run", *(f"{name}.yaml" for name in order), "-q", "-j", 1, "-o", "new").code == 0

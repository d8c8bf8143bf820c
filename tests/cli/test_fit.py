"""`ratecli fit`: the setting that a run chose, trained on all rows."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ratecli

FAIR = """\
name: fair
datasets: {own: {path: own.csv, label: repaid, positive: "yes", split: SPLIT}}
objective: error
HOLDS
constraints: {parity: "min_ratio(positive_rate, by=sex) >= limit"}
sweep: {limit: [0.5, 0.8]}
goal: {limit: 0.8}
algorithms:
  - unconstrained
  - post_shift
seeds: 2
metrics: {late: "error@test"}
report: {plots: []}
"""
ROWS = 3000


@pytest.fixture
def written(folder):
    """Write a table of which `part` says the split, and an experiment on it."""

    def write(split="{}", holds="holds: new_rows", rows=ROWS):
        X, y = (each[:rows] for each in ratecli.load_dataset("loans", rows=ROWS))
        part = np.array(["train", "test", "train", "validation"])[np.arange(rows) % 4]
        table = X.assign(repaid=np.where(y == 1, "yes", "no"), part=part)
        if split == "{}":
            table = table.drop(columns="part")
        table.to_csv("own.csv", index=False)
        (folder / "fair.yaml").write_text(FAIR.replace("SPLIT", split).replace("HOLDS", holds))
        return table

    return write


def test_the_answer_of_the_goal_is_trained_on_all_rows(folder, cli, written):
    table = written()
    ran = cli("run", "fair.yaml", "-j", 1)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == "fit      ratecli fit fair.yaml"
    answer = cli("fit", "fair.yaml")
    assert answer.code == 0, answer.err
    first, measured, *said = answer.out.splitlines()
    assert first.startswith("post_shift, limit = 0.8: trained on 3,000 rows in ")
    assert measured == "the run measured 2 such models, trained on 2,000 rows:"
    assert said[:2] == [line for line in ran.out.splitlines() if line in said[:2]]
    place = folder / "results" / "fair" / "model"
    names = {each.name for each in place.iterdir()}
    assert {"encoder.json", "card.md", "card.html", "trials.sqlite", "model.onnx"} <= names
    card = (place / "card.md").read_text()
    assert "for 2 models of the same setting with 2,000 training rows each" in card
    assert "split: 3,000 training rows\n" in card
    for what in ("Rates", "ROC"):
        assert f"{what} of the training rows, with" in card
    decided = cli("predict", place, "own.csv", "-o", "decided.csv")
    assert decided.code == 0, decided.err
    answers = pd.read_csv("decided.csv")
    assert set(answers["chance"]) <= {0, 1}, "deterministic by default"
    model = ratecli.load_results(place).model()
    assert (model.predict(table) == answers["decision"]).all()
    (place / "notes.txt").write_text("mine")
    again = ratecli.fit("fair.yaml")
    assert not (place / "notes.txt").exists(), "the folder is replaced whole"
    assert (again.predict(table) == answers["decision"]).all()


def test_decisions_of_the_exported_file_are_those_of_predict(cli, written):
    runtime = pytest.importorskip("onnxruntime")
    written()
    assert cli("run", "fair.yaml", "-q", "-j", 1).code == 0
    model = ratecli.fit("fair.yaml", at={"limit": 0.5}, algorithm="unconstrained")
    session = runtime.InferenceSession("results/fair/model/model.onnx")
    X, _ = ratecli.load_dataset("loans", rows=10_000)
    feeds = {
        each.name: X[[each.name]].to_numpy(str if each.type == "tensor(string)" else np.float64)
        for each in session.get_inputs()
    }
    decisions = session.run(["decision"], feeds)[0].ravel()
    assert (decisions == model.predict(X)).all()


@pytest.mark.parametrize(
    ("split", "rows", "validated"),
    [
        ("{by: part}", 2250, 750),
        ("{train: 0.5, validation: 0.2}", 2400, 600),
        ("{order: age, test: 0.2}", 3000, 0),
        ("{folds: 2, validation: 0.2}", 2400, 600),
    ],
)
def test_test_rows_are_trained_on_and_others_keep_their_role(cli, written, split, rows, validated):
    written(split, holds="")
    assert cli("run", "fair.yaml", "-q", "-j", 1).code == 0
    answer = cli("fit", "fair.yaml", "--algorithm", "post_shift")
    but = f" but the {validated:,} validation rows" * bool(validated)
    assert f"trained on {rows:,} rows{f' (all{but})' * bool(but)} in" in answer.out, answer.err
    card = Path("results/fair/model/card.md").read_text()
    assert f"This model was trained on all rows{but}." in card
    assert "no test set" not in card
    assert ("part (text)" in card) == (split != "{by: part}"), "the split is no feature"


@pytest.mark.parametrize(
    ("split", "kind"), [("{test: 0}", "training"), ("{test: 0, validation: 0.2}", "validation")]
)
def test_the_card_says_that_an_experiment_had_no_test_set(cli, written, split, kind):
    written(split, holds="")
    path = Path("fair.yaml")
    path.write_text(path.read_text().replace("error@test", "error"))
    assert cli("run", "fair.yaml", "-q", "-j", 1).code == 0
    answer = cli("fit", "fair.yaml", "--at=limit=0.5", "--algorithm", "post_shift")
    assert answer.code == 0, answer.err
    card = Path("results/fair/model/card.md").read_text()
    assert f"There was no test set: these are numbers of {kind} rows." in card
    table = card.partition("There was no test set")[2].split("\n\n")[1]
    assert re.match(rf"\| metric +\| +{kind} rows +\|", table)
    assert "\n| late " in table


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--at", "limit=0.7"], "E104", "not one sweep point has limit = 0.7"),
        (["--at", "limit"], "E104", "--at is not NAME=VALUE"),
        (["--at", "limit=[1"], "E104", "--at is not NAME=VALUE"),
        (["--algorithm", "mixture"], "E104", "mixture"),
        (["--set", "objective=error + fpr"], "E507", "has changed since the run"),
        (["-o", "elsewhere"], "E503", "elsewhere"),
    ],
)
def test_what_cannot_be_fitted_is_said_and_nothing_is_written(cli, written, options, code, message):
    written()
    assert cli("run", "fair.yaml", "-q", "-j", 1).code == 0
    answer = cli("fit", "fair.yaml", *options)
    assert answer.code == 2
    assert f"error[{code}]" in answer.err
    assert message in answer.err
    assert not Path("results/fair/model").exists()
    assert not list(Path("results").glob("fit-*"))


@pytest.mark.parametrize(
    ("change", "rows", "reason"),
    [
        (
            ("  - post_shift\n", ""),
            ROWS,
            "limit = 0.8: no model qualifies; the closest is unconstrained",
        ),
        (("  - unconstrained\n", ""), 30, "no trial of 'fair' at limit = 0.8 returned a model"),
    ],
)
def test_without_a_model_that_is_expected_to_hold_there_is_none(cli, written, change, rows, reason):
    written(rows=rows)
    path = Path("fair.yaml")
    path.write_text(path.read_text().replace(*change))
    ran = cli("run", "fair.yaml", "-j", 1)
    assert "ratecli fit" not in ran.out
    answer = cli("fit", "fair.yaml")
    assert answer.code == 1
    assert f"error[E510]: {reason}" in answer.err
    assert not Path("results/fair/model").exists()


def test_a_goal_that_no_sweep_has_is_an_error(cli, written, folder):
    written()
    text = (folder / "fair.yaml").read_text()
    (folder / "fair.yaml").write_text(text.replace("goal: {limit: 0.8}", "goal: {limit: 0.7}"))
    answer = cli("validate", "fair.yaml")
    assert "the goal is not one point of the sweep, but 0" in answer.err
    (folder / "fair.yaml").write_text(text.replace("goal: {limit: 0.8}", "goal: {kappa: 0.8}"))
    assert "error[E104]" in cli("validate", "fair.yaml").err


def test_a_goal_leaves_no_name_open(cli, written):
    written()
    path = Path("fair.yaml")
    text = path.read_text().replace(
        "sweep: {limit: [0.5, 0.8]}", "sweep: {limit: [0.8], e: [1, 2]}"
    )
    path.write_text(text)
    assert "the goal is not one point of the sweep, but 2" in cli("validate", "fair.yaml").err
    path.write_text(text.replace("goal: {limit: 0.8}", "goal: {limit: 0.8, e: 2}"))
    assert cli("validate", "fair.yaml").code == 0


def test_the_goal_of_the_file_and_what_run_recommends_are_read_back(cli, written):
    written(holds="")
    path = Path("fair.yaml")
    text = path.read_text().replace("[0.5, 0.8]", "[0.00001, 0.00002]")
    path.write_text(text.replace("goal: {limit: 0.8}", ""))
    recommended = cli("run", "fair.yaml", "-j", 1).out.splitlines()[-1].split()
    assert recommended[:3] == ["fit", "ratecli", "fit"]
    assert "limit = 2e-05" in cli(*recommended[2:]).out
    path.write_text(text.replace("goal: {limit: 0.8}", "goal: {limit: 0.00001}"))
    assert "limit = 1e-05" in cli("fit", "fair.yaml").out


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_fit_did_not_write_is_not_replaced(cli, written, kind):
    written()
    assert cli("run", "fair.yaml", "-q", "-j", 1).code == 0
    place = Path("results/fair/model")
    if kind == "file":
        place.write_text("mine")
    else:
        place.mkdir()
    answer = cli("fit", "fair.yaml")
    assert answer.code == 2
    assert "it was not made by `ratecli fit`" in answer.err


def test_a_deployed_model_is_not_replaced(cli, written):
    written()
    assert cli("run", "fair.yaml", "-q", "-j", 1).code == 0
    assert cli("fit", "fair.yaml").code == 0
    path = Path("fair.yaml")
    (model,) = Path("results/fair/model").glob("*.npz")
    path.write_text(path.read_text() + f"deployed: {{model: {model}}}\n")
    assert "error[E310]" in cli("run", "fair.yaml").err


def test_the_cost_of_one_algorithm_is_against_that_without_constraints(cli, written):
    written()
    ran = cli("run", "fair.yaml", "-j", 1).out
    (cost,) = (line for line in ran.splitlines() if line.startswith("limit = 0.8"))
    assert cost in cli("fit", "fair.yaml", "--algorithm", "post_shift").out


@pytest.mark.parametrize("change", ["seeds: [2]", "levels"])
def test_other_seeds_and_models_that_apply_to_no_table(cli, written, change):
    written(holds="")
    path = Path("fair.yaml")
    text = path.read_text()
    if change == "levels":
        text = text.replace('positive: "yes",', 'positive: "yes", levels: 2,')
    path.write_text(text.replace("seeds: 2", "seeds: [2]"))
    assert cli("run", "fair.yaml", "-q", "-j", 1).code == 0
    answer = cli("fit", "fair.yaml", "--algorithm", "post_shift")
    assert answer.code == 0, answer.err
    assert ("predict  ratecli predict" in answer.out) == (change != "levels")
    assert ".tmp" not in answer.out

"""The deployed model as a file, and its own numbers in rules and metrics."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from experiments import measured_values, people, run_file, write
from ratecli.datasets.logged import read_decisions
from ratecli.errors import FaultError
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import check_available, prepare
from ratecli.models.linear import Ramp, Threshold
from ratecli.models.storage import dumps, loads
from ratecli.sampling.rows import load_trial_data

FILE = """
name: deployed
datasets:
  people: {path: people.csv, label: y, drop: [old, part], split: {by: part}}
groups: {women: sex = F}
objective: error
constraints: {recall: 'recall >= of(deployed, recall[women]) - 0.05'}
algorithms: [majorize: {iterations: 2}, unconstrained]
deployed: {model: old.npz}
metrics:
  churn: churn
  theirs: of(deployed, recall[women])
  ours: recall[women]
  trained: of(deployed, error@train)
  f1: of(deployed, f1)
"""
MODEL = Ramp(np.array([0.1, -0.1, 0.2, 0.15]), 0.05)
"""Over the features sex=F, sex=M, x and z."""


@pytest.fixture
def folder(tmp_path):
    frame = people(300, 1)
    frame["part"] = np.where(np.arange(300) % 3 == 0, "test", "train")
    frame.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "old.npz").write_bytes(dumps(MODEL))
    return tmp_path


def results(path, *overrides):
    """Label to its trial's metrics by name and split, main variant; and the trials themselves."""
    outcome, store = run_file(path, *overrides)
    assert set(outcome.counts) <= {"ok", "not_met"}
    found = {}
    for planned in store.plan():
        result = store.result(planned.key)
        found[planned.label] = measured_values(planned, result), result
    return found


def by_hand(frame, decisions):
    """Metrics of decisions, by name and split."""
    y, women = frame.y == 1, frame.sex == "F"
    known = {}
    for split in ("train", "test"):
        part = frame.part == split
        yes = decisions[part & y].sum()
        known["theirs", split] = decisions[part & y & women].mean()
        known["trained", split] = (decisions != frame.y)[frame.part == "train"].mean()
        known["f1", split] = 2 * yes / (decisions[part].sum() + y[part].sum())
    return known


@pytest.mark.parametrize("source", ["{model: old.npz}", "{column: old}"])
def test_metrics_of_the_deployed_model(folder, source):
    path = write(folder, FILE.replace("{model: old.npz}", source))
    rows = load_trial_data(prepare(path).data, 0)
    frame = pd.read_csv(folder / "people.csv").iloc[rows.positions]
    decisions = frame.old.to_numpy()
    if "model" in source:
        decisions = (MODEL.decide(rows.X) > 0.5).astype(float)
    expected = by_hand(frame, decisions)
    for known, result in results(path).values():
        for at, value in expected.items():
            assert known[at] == pytest.approx(value, abs=1e-12)
        p = loads(next(iter(result.models.values()))).decide(rows.X)
        for split in ("train", "test"):
            part = rows.sample.part == split
            differs = np.where(decisions == 1, 1 - p, p)[part].mean()
            assert known["churn", split] == pytest.approx(differs, abs=1e-12)
            ours = p[part & (rows.sample.label == 1)].mean()
            bound = expected["theirs", split] - 0.05
            assert known["violation.recall", split] == pytest.approx(bound - ours, abs=1e-9)


def test_constraint_relative_to_the_deployed_model(folder):
    (known, result), _ = results(write(folder, FILE)).values()
    assert result.status == "ok"
    assert known["violation.recall", "train"] <= 1e-9
    text = FILE.replace("recall[women]) - 0.05", "recall[women]) + 0.9")
    _, store = run_file(write(folder, text))
    refused = store.result(store.plan()[0].key)
    assert refused.status in {"infeasible", "no_solution_found"}


def test_deployed_algorithm_equals_of_its_label(folder):
    """Where its main variant is deterministic: decisions are its likelier ones."""
    text = FILE.replace("{model: old.npz}", "{algorithm: unconstrained}")
    text = text.replace("  f1:", "  label: of(unconstrained, recall[women])\n  f1:")
    for known, _ in results(write(folder, text)).values():
        for split in ("train", "test"):
            assert known["theirs", split] == known["label", split] > 0
    own, _ = results(write(folder, text))["unconstrained"]
    assert own["theirs", "test"] == own["ours", "test"]


def test_key_depends_on_the_model_but_not_on_its_path(folder):
    def keys(text, name="exp.yaml"):
        return {task.key for task in prepare(write(folder, text, name)).plan.tasks}

    before = keys(FILE)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "new.npz").write_bytes(dumps(MODEL))
    assert keys(FILE.replace("old.npz", "elsewhere/new.npz")) == before
    (folder / "old.npz").write_bytes(dumps(Threshold(MODEL.weights, MODEL.bias)))
    assert not keys(FILE) & before
    assert not keys(FILE.replace("{model: old.npz}", "{column: old}")) & before


def test_manifest_has_the_sha256_of_the_model(folder):
    run_file(write(folder, FILE))
    manifest = json.loads((folder / "results" / "manifest.json").read_text())
    digest = hashlib.sha256((folder / "old.npz").read_bytes()).hexdigest()
    assert manifest["deployed_model"] == {"sha256": digest}
    assert "model: old.npz" in (folder / "results" / "resolved.yaml").read_text()


def test_deployed_is_not_the_name_of_an_algorithm(folder):
    prepared = prepare(write(folder, FILE))
    assert [task.needs for task in prepared.plan.tasks] == [(), ()]
    assert {case.label: case.referenced_labels() for case in prepared.cases} == {
        "majorize": [],
        "unconstrained": [],
    }
    lines = [line.strip() for line in explain(check_available(prepared.path))]
    canonical = "of(deployed, tpr[sex = F])"
    note = "is known once the deployed model has decided; 0.5 stands for it in the form below"
    assert f"{canonical} {note}" in lines
    assert "-tpr <= -0.45" in lines


def test_column_with_gaps_in_slices_without_gaps(folder):
    frame = pd.read_csv(folder / "people.csv")
    frame.loc[frame.sex == "M", "old"] = np.nan
    frame.to_csv(folder / "people.csv", index=False)
    text = FILE.replace("{model: old.npz}", "{column: old}")
    text = text.replace("error@train", "error[women]@train").replace("f1)", "f1[women])")
    known, _ = results(write(folder, text))["majorize"]
    women = frame[(frame.sex == "F") & (frame.part == "test") & (frame.y == 1)]
    assert known["theirs", "test"] == pytest.approx(women.old.mean())


@pytest.mark.parametrize("words", [("1", "0"), ("yes", "No"), (" TRUE", "false")])
def test_decisions_are_numbers_or_words(words):
    yes, no = words
    column = np.array([yes, no, None, yes], dtype=object)
    np.testing.assert_array_equal(read_decisions(column, "old"), [1.0, 0.0, np.nan, 1.0])
    with pytest.raises(FaultError, match="E406: 'maybe' in the column 'old'"):
        read_decisions(np.array([yes, "maybe"], dtype=object), "old")


def test_decisions_in_the_words_of_the_label():
    column = np.array(["hired", "rejected", None, "Hired"], dtype=object)
    found = read_decisions(column, "old", positive="hired")
    np.testing.assert_array_equal(found, [1.0, 0.0, np.nan, 1.0])
    with pytest.raises(FaultError, match="'hired' in the column 'old' is not"):
        read_decisions(column, "old", positive="accepted")
    words = np.array(["yes", "no"], dtype=object)  # decisions, even if the positive label is no
    np.testing.assert_array_equal(read_decisions(words, "old", positive="no"), [1.0, 0.0])

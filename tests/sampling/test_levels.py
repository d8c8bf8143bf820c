"""Rows at several levels: copies that differ in the level alone, so that biases are thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from experiments import measured_values, people, run_file, write
from ratecli.datasets.encode import features_at_levels
from ratecli.experiment.prepare import prepare
from ratecli.models.linear import Threshold
from ratecli.models.storage import loads
from ratecli.rates.matrix import measure
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.scope import Scope
from ratecli.runner.trial import training_problem
from ratecli.sampling.rows import TrialData, load_trial_data

ENTRY = "{path: people.csv, label: y, drop: [old], weight: w, split: {validation: 1/5}}"
PLAIN = f"""
name: plain
datasets: {{people: {ENTRY}}}
deployed: {{column: old}}
algorithms: [unconstrained]
"""
THREE = PLAIN.replace("label: y", "label: y, levels: 3")
PRECISION = """
objective: 1 - mean(precision, by=level)
constraints:
  recall: max(1/6 - recall[level = 0], 1/2 - recall[level = 1], 5/6 - recall[level = 2]) <= 0
"""
METRICS = (
    "metrics: {levels: 'mean(precision, by=level)', low: 'recall[level = 0]', plain: 'pr_auc', "
    "pr_auc: 'pr_auc[level = 2]'}\n"
)


@pytest.fixture
def folder(tmp_path):
    frame = people(300, 1)
    frame["w"] = np.random.default_rng(2).integers(1, 4, len(frame))
    frame.to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def rows_of(folder, text: str, seed: int = 0) -> TrialData:
    return load_trial_data(prepare(write(folder, text)).data, seed, "old")


def number(text: str, rows: TrialData, classifier: Threshold, split: str | None = None) -> float:
    scope = Scope(values=lambda _: (0.0, 1.0, 2.0))
    expression = resolve(parse_expression(text), scope)
    return measure([expression], rows.sample, split or "train", rows.predictions(classifier))[0]


def test_copies_of_a_row_differ_in_their_level_only(folder):
    plain, three = rows_of(folder, PLAIN), rows_of(folder, THREE)
    assert (three.levels, len(three.sample)) == (3, 900)
    names = ("label", "part", "weight", "dataset", "deployed")
    for copy in range(3):
        for name in names:
            assert (getattr(three.sample, name)[copy::3] == getattr(plain.sample, name)).all()
        for name, column in plain.sample.columns.items():
            assert (three.sample.columns[name][copy::3] == column).all()
        assert (three.sample.columns["level"][copy::3] == copy).all()
        d = plain.X.shape[1]
        assert (three.X[copy::3, :d] == plain.X).all()
        assert (three.X[copy::3, d:] == np.eye(3)[copy]).all()
    assert plain.sample.deployed is not None
    assert len(np.unique(plain.sample.weight)) == 3


def test_sparse_rows_stay_sparse():
    dense = np.array([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])
    found = features_at_levels(sparse.csr_array(dense), 2)
    assert (sparse.issparse(found), found.nnz) == (True, 2 * 2 + 3 * 2)
    expected = [[0, 2, 1, 0], [0, 2, 0, 1], [3, 0, 1, 0], [3, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert found.toarray().tolist() == features_at_levels(dense, 2).tolist() == expected


def test_penalty_per_row_counts_each_row_once(folder):
    goals = prepare(write(folder, PLAIN)).cases[0]
    penalties = [
        training_problem(rows, goals.objective, (), penalty).l2
        for penalty in ("1/n", 0.25)
        for rows in (rows_of(folder, PLAIN), rows_of(folder, THREE))
    ]
    assert penalties == [1 / 140, 1 / 140, 0.25, 0.25]


def test_rates_of_a_level_equal_those_at_its_threshold(folder):
    plain, three = rows_of(folder, PLAIN), rows_of(folder, THREE)
    weights = np.random.default_rng(3).normal(size=plain.X.shape[1])
    biases = np.array([-1.0, 0.1, 0.8])
    levelled = Threshold(np.append(weights, biases), 0.2)
    for level, bias in enumerate(biases):
        single = Threshold(weights, bias + 0.2)
        for metric in ("recall", "precision", "error", "churn", "positive_rate"):
            expected = number(metric, plain, single)
            assert number(f"{metric}[level = {level}]", three, levelled) == expected
        ranked = number("pr_auc", plain, single)
        assert number(f"pr_auc[level = {level}]", three, levelled) == ranked


def test_mean_precision_at_recalls_of_vector_9_14(tmp_path):
    """Vector 9.14: cut where recall first is 1/6, 1/2, 5/6 the precisions are 1, 2/3, 3/4."""
    scores, labels = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4), (1, 0, 1, 1, 0, 0)
    lines = [f"{s},{y},train" for s, y in zip(scores, labels, strict=True)]
    lines += ["0,0,test", "1,1,test"]
    (tmp_path / "people.csv").write_text("\n".join(["s,y,part", *lines]) + "\n")
    text = (
        "name: x\nalgorithms: [unconstrained]\n"
        "datasets: {d: {path: people.csv, label: y, levels: 3, split: {by: part}}}\n"
    )
    rows = load_trial_data(prepare(write(tmp_path, text)).data, 0)
    part = rows.X[rows.sample.part == "train"][::3, 0]  # scaled, in the same order
    between = (part[[0, 2, 3]] + part[[1, 3, 4]]) / 2
    classifier = Threshold(np.append(1.0, -between))
    found = [number(f"recall[level = {level}]", rows, classifier) for level in range(3)]
    assert found == pytest.approx([1 / 3, 2 / 3, 1])
    assert number("mean(precision, by=level)", rows, classifier) == pytest.approx(29 / 36)
    assert number("pr_auc[level = 1]", rows, classifier) == pytest.approx(29 / 36)


def test_three_player_satisfies_a_recall_at_each_level(folder):
    players = (
        "{randomize: true, variants: [last], shrink: metrics, steps: 400, learning_rate: 0.03}"
    )
    text = THREE.replace("unconstrained", f"three_player: {players}") + PRECISION + METRICS
    outcome, store = run_file(write(folder, text))
    assert outcome.counts == {"ok": 1}
    (planned,) = store.plan()
    result = store.result(planned.key)
    found = measured_values(planned, result)
    assert found["violation.recall", "train"] <= 1e-6
    assert found["low", "train"] >= 1 / 6
    assert found["levels", "train"] > 0.75
    last = loads(result.models["last"])
    rows = rows_of(folder, THREE)
    by_hand = number("pr_auc[level = 2]", rows, last, "test")
    assert measured_values(planned, result, "last")["pr_auc", "test"] == by_hand
    assert number("pr_auc[level = 0]", rows, last, "test") == pytest.approx(by_hand, abs=1e-9)
    biases = last.weights[-3:]
    assert biases[0] < biases[1] < biases[2]  # more recall, lower threshold


def test_post_shift_finds_a_threshold_for_each_level(folder):
    text = THREE.replace("unconstrained", "post_shift") + PRECISION + METRICS
    _, store = run_file(write(folder, text))
    (planned,) = store.plan()
    result = store.result(planned.key)
    found = measured_values(planned, result, "deterministic")
    assert found["violation.recall", "train"] <= 0
    plain = rows_of(folder, PLAIN)
    scored = loads(result.models["deterministic"]).scorer
    rows = plain.sample.part == "train"
    score = scored.score(rows_of(folder, THREE).X)[::3][rows]
    label, weight = plain.sample.label[rows], plain.sample.weight[rows]
    order = np.argsort(-score)
    hits, all_yes = np.cumsum((label * weight)[order]), np.cumsum(weight[order])
    best = [(hits / all_yes)[hits >= r * hits[-1]].max() for r in (1 / 6, 1 / 2, 5 / 6)]
    assert found["levels", "train"] == pytest.approx(np.mean(best), abs=1e-4)

"""Training rows that go through a balanced filter: weighed or drawn, by a trial that others need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments import faults, measured_values, people, run_file, write
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE
from ratecli.ledger.records import TrialResult
from ratecli.ledger.store import LedgerStore
from ratecli.models.storage import dumps, loads
from ratecli.runner.executors import ProcessExecutor, SerialExecutor
from ratecli.runner.run import run_experiment
from ratecli.runner.trial import run_trial
from ratecli.sampling.resampling import TrainingRowsSpec
from ratecli.sampling.rows import (
    DROPPED,
    filter_trial_data,
    load_training_rows,
    load_trial_data,
)

FILE = """
name: stage
datasets: {people: {path: people.csv, label: y, drop: [old]}}
groups: {women: sex = F, men: sex = M}
filter: {balance: sex, disclosivity: 0.3, take: TAKE}
algorithms: [unconstrained, unconstrained: {as: plain, filter: false}]
metrics: {error: error, yes: 'positive_rate[women]'}
"""
ROWS = 900


def unequal(rows, seed):
    """Few women, whose features tell something of that, and a place."""
    frame = people(3 * rows, seed)
    rng = np.random.default_rng(seed)
    women = frame[frame.sex == "F"].head(rows // 4)
    frame = pd.concat([women, frame[frame.sex == "M"].head(rows - len(women))])
    frame["x"] += 0.6 * (frame.sex == "M")
    frame["place"] = rng.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1])
    return frame.sample(frac=1, random_state=seed)


@pytest.fixture
def folder(tmp_path):
    unequal(ROWS, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def text(take="weights", file=FILE):
    return file.replace("TAKE", take)


def trials(store):
    """By label, each with its result and numbers by metric and split of the main variant."""
    found = {}
    for planned in store.plan():
        result = store.result(planned.key)
        measured = measured_values(planned, result)
        found.setdefault(planned.label, []).append((planned, result, measured))
    return found


def jobs(prepared):
    return {
        (task.payload.case.label, task.payload.seed): task.payload for task in prepared.plan.tasks
    }


def rows_of(prepared, store, label, seed=0):
    """The rows that a trial was given."""
    job = jobs(prepared)[label, seed]
    row_filter = job.training_rows.row_filter
    results = {row_filter.key: store.result(row_filter.key)} if row_filter else {}
    return load_training_rows(job.data, job.seed, None, job.training_rows, results)


def women(sample, split="train"):
    """Their share of the weight of a split."""
    here = sample.part == split
    inside = sample.columns["sex"][here] == "F"
    return float(sample.weight[here] @ inside / sample.weight[here].sum())


def test_rows_count_by_the_chance_that_they_are_kept(folder):
    path = write(folder, text())
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 3}
    ((planned, result, numbers),) = trials(store)["filter"]
    assert (planned.algorithm, dict(planned.point)) == ("balanced_tree", {})
    assert list(result.models) == ["expected"]
    prepared = prepare(path)
    given, plain = (rows_of(prepared, store, label) for label in ("unconstrained", "plain"))
    assert women(plain.sample) == pytest.approx(0.25, abs=0.03)
    assert women(given.sample) == pytest.approx(numbers["filter.least_share", "train"], abs=1e-12)
    assert women(given.sample) > 0.4
    assert numbers["filter.imbalance", "train"] == pytest.approx(
        np.sqrt(2) * (0.5 - women(given.sample)), abs=1e-12
    )
    assert numbers["filter.disclosivity", "train"] <= 0.3 + 1e-6
    assert numbers["violation.disclosivity", "train"] == pytest.approx(
        numbers["filter.disclosivity", "train"] - 0.3
    )
    train = plain.sample.part == "train"
    mean = np.where(given.sample.part == "train", given.sample.weight, 0.0)[train].mean()
    assert mean == pytest.approx(numbers["filter.kept", "train"], abs=1e-12)
    assert (given.sample.weight > 0).all()


def test_other_rows_are_as_they_were(folder):
    path = write(folder, text().replace("drop: [old]", "drop: [old], split: {validation: 0.2}"))
    _, store = run_file(path)
    prepared = prepare(path)
    for take in ("weights", "sample"):
        job = jobs(prepared)["unconstrained", 0]
        row_filter = job.training_rows.row_filter
        blob = store.result(row_filter.key).models["expected"]
        how = TrainingRowsSpec(job.training_rows.drawing, replace(row_filter, take=take))
        given, plain = filter_trial_data(job.data, 0, None, how, blob), load_trial_data(job.data, 0)
        for split in ("validation", "test"):
            here = plain.sample.part == split
            assert here.sum() > 50
            np.testing.assert_array_equal(given.sample.part == split, here)
            assert (given.sample.weight[here] == 1).all()
        assert set(given.sample.part[plain.sample.part == "train"]) <= {"train", DROPPED}
        np.testing.assert_array_equal(given.unfiltered().part, plain.sample.part)
        np.testing.assert_array_equal(given.unfiltered().weight, plain.sample.weight)


def test_a_sample_is_drawn_with_the_chances(folder):
    seeds = 20
    path = write(folder, text("sample") + f"seeds: {seeds}\n")
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 3 * seeds}
    prepared, gaps, counts = prepare(path), [], []
    found = {planned.seed: numbers for planned, _, numbers in trials(store)["filter"]}
    for seed in range(seeds):
        rows = rows_of(prepared, store, "unconstrained", seed)
        here = rows.sample.part == "train"
        assert (rows.sample.weight[here] == 1).all()
        expected = found[seed]["filter.least_share", "train"]
        deviation = np.sqrt(expected * (1 - expected) / here.sum())
        gaps.append((women(rows.sample) - expected) / deviation)
        counts.append(here.sum() / (rows.sample.part != "test").sum())
    # a mean of 20 nearly independent draws, each less scattered than a binomial
    assert abs(np.mean(gaps)) < 4 / np.sqrt(seeds)
    assert 0.3 < np.std(gaps) < 1.2
    kept = [numbers["filter.kept", "train"] for numbers in found.values()]
    assert np.mean(counts) == pytest.approx(np.mean(kept), abs=0.02)


def test_features_are_encoded_as_the_rows_say_that_train(folder):
    path = write(folder, text("sample"))
    _, store = run_file(path)
    given = rows_of(prepare(path), store, "unconstrained")
    here = given.sample.part == "train"
    X = given.X.toarray() if hasattr(given.X, "toarray") else given.X
    numbers = [k for k in range(X.shape[1]) if len(np.unique(X[:, k])) > 2]
    assert len(numbers) == 2
    np.testing.assert_allclose(X[here][:, numbers].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(X[here][:, numbers].std(axis=0), 1, atol=1e-9)


def test_a_value_that_only_dropped_rows_have_makes_no_feature(folder):
    frame = pd.read_csv(folder / "people.csv")
    frame.loc[frame.index[frame.sex == "M"][:3], "place"] = "rare"
    rare = folder / "rare"
    rare.mkdir()
    frame.to_csv(rare / "people.csv", index=False)
    path = write(rare, text("sample") + "seeds: 12\n")
    _, store = run_file(path)
    prepared, found = prepare(path), set()
    for seed in range(12):
        rows = rows_of(prepared, store, "unconstrained", seed)
        trained = rows.sample.part == "train"
        there = bool((rows.sample.columns["place"][trained] == "rare").any())
        # sex, place and two numbers
        assert rows.X.shape[1] == 2 + 3 + there + 2
        found.add(there)
    assert found == {True, False}


def test_nobody_filtered_is_as_without_a_filter(folder):
    plain = text().replace("[unconstrained, ", "[unconstrained: {filter: false}, ")
    without = "\n".join(line for line in plain.splitlines() if not line.startswith("filter:"))
    without = without.replace("filter: false, ", "").replace(", filter: false", "")
    without = without.replace("{filter: false}", "")
    tables = []
    for name, file in (("off", plain), ("none", without)):
        tasks = prepare(write(folder, file, f"{name}.yaml")).plan.tasks
        tables.append({task.key for task in tasks})
    assert tables[0] == tables[1]
    assert len(tables[0]) == 1  # the two entries are one trial


def test_with_and_without_differ_and_share_one_filter(folder):
    path = write(folder, text() + "sweep: {unused: [1, 2]}\nseeds: 2\n")
    prepared = prepare(path)
    kinds = [task.payload.case.label for task in prepared.plan.tasks]
    assert sorted(kinds) == ["filter", "filter", "plain", "plain", "unconstrained", "unconstrained"]
    for (label, seed), job in jobs(prepared).items():
        needs = next(t.needs for t in prepared.plan.tasks if t.key == job.key)
        own = jobs(prepared)["filter", seed].key
        assert needs == ((own,) if label == "unconstrained" else ())
    assert [dict(p.point) for p in prepared.plan.planned if p.label == "filter"] == [{}, {}]
    assert prepared.plan.planned[-1].label == "filter"
    assert "unused" in prepared.plan.planned[0].point


def test_settings_may_be_swept(folder):
    swept = text("how").replace(
        "disclosivity: 0.3", "disclosivity: alpha, algorithm: {balanced_tree: {depth: d}}"
    )
    swept = swept.replace("balance: sex", "balance: column")
    sweep = "{alpha: [0.1, 0.3], how: [weights, sample], column: [sex, place], d: [2]}"
    prepared = prepare(write(folder, swept + f"sweep: {sweep}\n"))
    stages = [p for p in prepared.plan.planned if p.label == "filter"]
    points = [dict(p.point) for p in stages]
    assert points == [
        {"alpha": alpha, "column": column, "d": 2}
        for alpha in (0.1, 0.3)
        for column in ("sex", "place")
    ]
    assert len({p.key for p in stages}) == 4
    assert len({job.key for job in jobs_of(prepared, "unconstrained")}) == 8
    assert {p.options["depth"] for p in stages} == {2}


def jobs_of(prepared, label):
    return [t.payload for t in prepared.plan.tasks if t.payload.case.label == label]


def test_its_take_is_in_the_key_and_the_filter_is_not_found_twice(folder):
    weights, sample = (
        jobs(prepare(write(folder, text(take), f"{take}.yaml"))) for take in ("weights", "sample")
    )
    assert weights["filter", 0].key == sample["filter", 0].key
    assert weights["plain", 0].key == sample["plain", 0].key
    assert weights["unconstrained", 0].key != sample["unconstrained", 0].key


@pytest.mark.slow
def test_the_same_numbers_with_any_number_of_workers(folder):
    path = write(folder, text("sample") + "seeds: 3\n")
    _, serial = run_file(path)
    run_experiment(prepare(path), folder / "other", ProcessExecutor(2), quiet=True)
    with LedgerStore(folder / "other" / LEDGER_FILE, readonly=True) as store:
        for planned in serial.plan():
            mine, theirs = serial.result(planned.key), store.result(planned.key)
            assert mine.values == theirs.values
            assert mine.models == theirs.models


def test_what_an_interrupted_run_has_is_used(folder):
    path = write(folder, text())
    prepared = prepare(path)
    run_file(path)
    whole = LedgerStore(folder / "results" / LEDGER_FILE, readonly=True)
    only_filter = folder / "again"
    stage = jobs(prepared)["filter", 0].key
    with LedgerStore(only_filter / LEDGER_FILE) as store:
        store.put(whole.result(stage))
    outcome = run_experiment(prepared, only_filter, SerialExecutor(), quiet=True)
    assert outcome.ran == 2
    with LedgerStore(only_filter / LEDGER_FILE, readonly=True) as store:
        for planned in store.plan():
            assert store.result(planned.key).values == whole.result(planned.key).values


def test_a_filter_that_fails_takes_along_who_needs_it(folder):
    failing = "algorithm: {qp_proxy: {classifier: {GaussianNB: {priors: [1]}}}}"
    broken = text().replace("disclosivity: 0.3", failing)
    outcome, store = run_file(write(folder, broken))
    found = trials_ended(store)
    assert found["filter"].status == "error"
    assert found["unconstrained"].status == "error"
    assert found["unconstrained"].reason.startswith("needs trial ")
    assert found["filter"].reason in found["unconstrained"].reason
    assert found["plain"].status == "ok"
    assert outcome.exit_code == 1


def trials_ended(store):
    return {planned.label: store.result(planned.key) for planned in store.plan()}


@pytest.mark.parametrize("take", ["weights", "sample"])
def test_a_filter_that_keeps_nobody_leaves_no_solution(folder, take):
    path = write(folder, text(take))
    _, store = run_file(path)
    job = jobs(prepare(path))["unconstrained", 0]
    stage = store.result(job.training_rows.row_filter.key)
    found = loads(stage.models["expected"])
    nobody = dumps(replace(found, keep=np.zeros(found.proxy.values)))
    for given, reason in (
        (replace(stage, models={"expected": nobody}), "the filter keeps no training row"),
        (
            TrialResult(stage.key, "no_solution_found"),
            "the filter is needed and found no solution",
        ),
    ):
        result = run_trial(job, {stage.key: given})
        assert (result.status, result.reason) == ("no_solution_found", reason)


def test_targets_of_ones_own(folder):
    aim = "objective: 'rms(share[women] - 0.4, share[men] - 0.6)'"
    path = write(folder, text().replace("balance: sex", aim))
    _, store = run_file(path)
    ((planned, _, numbers),) = trials(store)["filter"]
    assert set(planned.metrics) == {
        "filter.objective",
        "filter.disclosivity",
        "filter.kept",
        "filter.least_share",
        "violation.disclosivity",
    }
    assert numbers["filter.objective", "train"] == pytest.approx(0, abs=1e-6)
    assert numbers["filter.least_share", "train"] == pytest.approx(0.4, abs=1e-6)
    assert women(rows_of(prepare(path), store, "unconstrained").sample) == pytest.approx(
        0.4, abs=1e-6
    )


SAFE = """
name: tested
datasets: {people: {path: people.csv, label: y, drop: [old]}}
filter: {balance: sex, take: TAKE}
safety: {delta: 0.1, fraction: 0.4, division: optimized}
constraints: {right: 'error[sex = F] <= 0.45'}
algorithms: [unconstrained, unconstrained: {as: untested, safety: false}]
metrics: {error: error}
"""


@pytest.mark.parametrize("take", ["weights", "sample"])
def test_rows_of_a_safety_test_are_not_filtered(folder, take):
    path = write(folder, text(take, SAFE))
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 4}
    prepared, found = prepare(path), trials(store)
    # the untested algorithm trains on all training rows, through a filter of them all
    assert list(found) == ["unconstrained", "untested", "filter", "filter_untested"]
    for label in ("unconstrained", "untested"):
        assert women(rows_of(prepared, store, label).sample) > 0.4
        stage = store.result(jobs(prepared)[label, 0].training_rows.row_filter.key)
        assert stage.info["rows"].get("safety", 0) == (240 if label == "unconstrained" else 0)
    rows = rows_of(prepared, store, "unconstrained")
    assert rows.splits()["safety"] == 240
    assert women(rows.sample, "safety") == pytest.approx(0.25, abs=0.06)
    (record,) = found["unconstrained"][0][1].info["certificates"]
    classifier = loads(found["unconstrained"][0][1].models["deterministic"])
    here = (rows.sample.part == "safety") & (rows.sample.columns["sex"] == "F")
    wrong = rows.predictions(classifier).decisions[here] != rows.sample.label[here]
    assert record["estimate"] == pytest.approx(wrong.mean() - 0.45, abs=1e-12)
    assert record["exact"]


def test_predictions_of_a_test_need_rows_that_count_alike(folder):
    for entry in ("seldonian", "majorize: {safety: {aim: 0.9}}"):
        file = text("weights", SAFE).replace("[unconstrained,", f"[{entry},")
        (fault,) = faults(write(folder, file))
        assert (fault.code, fault.place.line) == ("E104", 7)
        assert "predicts its safety test from training rows" in fault.message
    file = text("sample", SAFE).replace("[unconstrained,", "[seldonian,")
    _, store = run_file(write(folder, file))
    result = store.result(store.plan()[0].key)
    assert result.status in {"ok", "no_solution_found"}
    assert "certificates" in result.info or "expected" in result.reason


OTHERS = """
name: others
datasets: {people: {path: people.csv, label: y, drop: [old]}}
groups: {women: sex = F}
filter: {balance: sex, take: TAKE}
constraints: {fair: 'error[women] <= 1.5 * of(plain, error[women])'}
algorithms: [majorize: {iterations: 2}, unconstrained: {as: plain, filter: false}]
deployed: {algorithm: plain}
metrics: {error: error, churn: churn, theirs: 'of(plain, error)', deployed: 'of(deployed, error)'}
"""


@pytest.mark.parametrize("take", ["weights", "sample"])
def test_others_are_measured_on_the_same_rows_with_their_own_features(folder, take):
    path = write(folder, text(take, OTHERS))
    _, store = run_file(path)
    found, prepared = trials(store), prepare(path)
    (_, plain, theirs), (_, _, mine) = found["plain"][0], found["majorize"][0]
    assert mine["theirs", "test"] == mine["deployed", "test"] == theirs["error", "test"]
    rows, own = rows_of(prepared, store, "majorize"), rows_of(prepared, store, "plain")
    decisions = own.predictions(loads(plain.models["deterministic"])).decisions
    here = rows.sample.part == "train"
    wrong = (decisions != rows.sample.label)[here]
    weighed = rows.sample.weight[here] @ wrong / rows.sample.weight[here].sum()
    assert mine["theirs", "train"] == pytest.approx(weighed, abs=1e-12)
    assert mine["theirs", "train"] != theirs["error", "train"]


def test_an_audit_has_the_rows_of_what_is_deployed(folder):
    file = text(file=OTHERS).replace("deployed: 'of(deployed, error)'", "e: error")
    both = file.replace("[majorize: {iterations: 2}, ", "[audit, ")
    (fault,) = faults(write(folder, both))
    assert (fault.code, fault.place.line) == ("E310", 8)
    assert "filter: false of both or of neither" in fault.help
    outcome, _ = run_file(write(folder, both.replace("[audit,", "[audit: {filter: false},")))
    assert set(outcome.counts) == {"ok"}
    neither = both.replace(", filter: false}", "}")
    outcome, store = run_file(write(folder, neither))
    found = trials(store)
    assert found["audit"][0][2]["error", "train"] == found["plain"][0][2]["error", "train"]


def test_data_sets_one_by_one_and_rows_drawn_anew(folder):
    other = unequal(600, 5).rename(columns={"sex": "gender"})
    other["gender"] = other.gender.replace({"F": "woman", "M": "man"})
    other.to_csv(folder / "others.csv", index=False)
    file = """
name: several
datasets:
  people: {path: people.csv, label: y, drop: [old]}
  others: {path: others.csv, label: y, drop: [old]}
sweep: {dataset: [people, others], column: [sex, gender], zip: [[dataset, column]], much: [0.5, 1]}
resample: much
filter: {balance: column, disclosivity: 0.5}
algorithms: [unconstrained]
"""
    outcome, store = run_file(write(folder, file))
    assert outcome.counts == {"ok": 8}
    stages = trials(store)["filter"]
    assert [dict(planned.point) for planned, _, _ in stages] == [
        {"dataset": name, "column": column, "much": much}
        for name, column in (("people", "sex"), ("others", "gender"))
        for much in (0.5, 1)
    ]
    for planned, result, numbers in stages:
        size = {"people": 900, "others": 600}[planned.point["dataset"]]
        assert result.info["rows"] == {"train": size * planned.point["much"], "test": size}
        assert numbers["filter.least_share", "train"] > 0.4


def test_a_filter_may_train_behind_a_filter(folder):
    file = (
        text()
        .replace("[unconstrained, ", "[{balanced_tree: {oracle: regression}}, ")
        .replace("groups:", "objective: 'imbalance(by=place)'\ngroups:")
    )
    _, store = run_file(write(folder, file))
    found = trials(store)
    assert set(found) == {"balanced_tree", "plain", "filter"}
    assert found["balanced_tree"][0][2]["objective", "train"] < 0.05


def test_explain_says_what_it_is_to_reach(folder):
    lines = explain(prepare(write(folder, text("sample"))))
    start = lines.index("filter")
    shown = lines[start : lines.index("objective")]
    assert "  of the training rows a sample is drawn by the seed" in shown
    assert "  not for plain, which train on all rows" in shown
    assert "    minimize    imbalance(by=sex)" in shown
    assert "    subject to  disclosivity(by=sex) <= 0.3" in shown
    assert "    wanted      0.5 of sex = F" in shown
    assert "    not seen    sex" in shown


def test_the_penalty_counts_rows_that_are_expected_to_be_kept(folder):
    """As many as a sample has: an algorithm behind weights is no less regularized."""
    path = write(folder, text("weights"))
    _, store = run_file(path)
    (filtered,) = trials(store)["filter"]
    given = rows_of(prepare(path), store, "unconstrained")
    here = np.flatnonzero(given.sample.part == "train")
    whole = int((given.before.part == "train").sum())
    expected = filtered[2]["filter.kept", "train"] * whole
    assert given.counted(here) == pytest.approx(expected, rel=1e-6)
    assert given.counted(here) < 0.9 * len(here)

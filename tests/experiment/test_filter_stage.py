"""Training rows that pass through a balanced filter: weighted or sampled, by a trial of its own."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from thinned import one_in

from experiments import faults, measured_values, people, run_file, write
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import TrialResult
from ratecli.models.storage import dumps, loads
from ratecli.runner.trial import run_trial
from ratecli.sampling.rows import DROPPED, filter_trial_data, load_training_rows, load_trial_data

FILE = """
name: stage
datasets: {people: {path: people.csv, label: y, drop: [old]}}
groups: {women: sex = F, men: sex = M}
filter: {balance: sex, disclosivity: 0.3, take: TAKE}
algorithms: [unconstrained, unconstrained: {as: plain, filter: false}]
metrics: {error: error, yes: 'positive_rate[women]'}
"""
ALONE = FILE.replace(", unconstrained: {as: plain, filter: false}", "")
"""Without the algorithm that does not use the filter."""
ROWS = 900


def unequal(rows, seed):
    """Return rows with few women, whose features are correlated with sex, and a place."""
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
    """Return (planned trial, result, values by metric and split) of each trial, by label."""
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
    """Return the rows of a trial."""
    job = jobs(prepared)[label, seed]
    row_filter = job.training_rows.row_filter
    results = {row_filter.key: store.result(row_filter.key)} if row_filter else {}
    return load_training_rows(job.data, job.seed, None, job.training_rows, results)


def women(sample, split="train"):
    """Return the women's share of the weight of a split."""
    here = sample.part == split
    inside = sample.columns["sex"][here] == "F"
    return float(sample.weight[here] @ inside / sample.weight[here].sum())


def test_rows_are_weighted_by_the_chance_that_they_are_kept(folder):
    path = write(folder, text())
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 3}
    ((planned, result, numbers),) = trials(store)["filter"]
    assert (planned.algorithm, dict(planned.point)) == ("balanced_tree", {})
    assert list(result.models) == ["expected"]
    prepared = prepare(path)
    filtered, plain = (rows_of(prepared, store, label) for label in ("unconstrained", "plain"))
    assert women(plain.sample) == pytest.approx(0.25, abs=0.03)
    share = women(filtered.sample)
    assert share == pytest.approx(numbers["filter.least_share", "train"], abs=1e-12)
    assert share > 0.4
    imbalance = np.sqrt(2) * (0.5 - share)
    assert numbers["filter.imbalance", "train"] == pytest.approx(imbalance, abs=1e-12)
    disclosed = numbers["filter.disclosivity", "train"]
    assert disclosed <= 0.3 + 1e-6
    assert numbers["violation.disclosivity", "train"] == pytest.approx(disclosed - 0.3)
    train = plain.sample.part == "train"
    mean = np.where(filtered.sample.part == "train", filtered.sample.weight, 0.0)[train].mean()
    assert mean == pytest.approx(numbers["filter.kept", "train"], abs=1e-12)
    assert (filtered.sample.weight > 0).all()
    # the penalty counts the rows that are expected to be kept, as many as a sample has
    here = np.flatnonzero(filtered.sample.part == "train")
    expected = numbers["filter.kept", "train"] * (filtered.before.part == "train").sum()
    assert filtered.counted(here) == pytest.approx(expected, rel=1e-6)
    assert filtered.counted(here) < 0.9 * len(here)


def test_other_rows_are_not_filtered(folder):
    path = write(folder, text().replace("drop: [old]", "drop: [old], split: {validation: 0.2}"))
    _, store = run_file(path)
    prepared = prepare(path)
    for take in ("weights", "sample"):
        job = jobs(prepared)["unconstrained", 0]
        row_filter = job.training_rows.row_filter
        blob = store.result(row_filter.key).models["expected"]
        how = replace(job.training_rows, row_filter=replace(row_filter, take=take))
        given, plain = filter_trial_data(job.data, 0, None, how, blob), load_trial_data(job.data, 0)
        for split in ("validation", "test"):
            here = plain.sample.part == split
            assert here.sum() > 50
            np.testing.assert_array_equal(given.sample.part == split, here)
            assert (given.sample.weight[here] == 1).all()
        assert set(given.sample.part[plain.sample.part == "train"]) <= {"train", DROPPED}
        np.testing.assert_array_equal(given.unfiltered().part, plain.sample.part)
        np.testing.assert_array_equal(given.unfiltered().weight, plain.sample.weight)


def test_rows_are_sampled_with_their_chances(folder):
    seeds = 6
    path = write(folder, text("sample", ALONE) + f"seeds: {seeds}\n")
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 2 * seeds}
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
    # a mean of nearly independent draws, each less scattered than a binomial
    assert abs(np.mean(gaps)) < 4 / np.sqrt(seeds)
    assert 0.3 < np.std(gaps) < 1.2
    kept = [numbers["filter.kept", "train"] for numbers in found.values()]
    assert np.mean(counts) == pytest.approx(np.mean(kept), abs=0.02)


def test_features_are_encoded_by_the_rows_that_train(folder):
    frame = pd.read_csv(folder / "people.csv")
    frame.loc[frame.index[frame.sex == "M"][:3], "place"] = "rare"
    frame.to_csv(folder / "people.csv", index=False)
    path = write(folder, text("sample", ALONE) + "seeds: 3\n")
    _, store = run_file(path)
    prepared, found = prepare(path), set()
    for seed in range(3):
        rows = rows_of(prepared, store, "unconstrained", seed)
        trained = rows.sample.part == "train"
        has_rare = bool((rows.sample.columns["place"][trained] == "rare").any())
        X = rows.X.toarray() if hasattr(rows.X, "toarray") else rows.X
        assert X.shape[1] == 2 + 3 + has_rare + 2  # sex, place and two numbers
        numbers = [k for k in range(X.shape[1]) if len(np.unique(X[:, k])) > 2]
        assert len(numbers) == 2
        np.testing.assert_allclose(X[trained][:, numbers].mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(X[trained][:, numbers].std(axis=0), 1, atol=1e-9)
        found.add(has_rare)
    assert found == {True, False}


def test_the_filter_is_in_the_keys_of_its_users_only(folder):
    weights, sample = (
        jobs(prepare(write(folder, text(take), f"{take}.yaml"))) for take in ("weights", "sample")
    )
    same = [name for name, _ in weights if weights[name, 0].key == sample[name, 0].key]
    assert set(same) == {"filter", "plain"}
    unused = text().replace("[unconstrained, ", "[unconstrained: {filter: false}, ")
    without = re.sub(r"filter: (\{.*\}\n|false(, )?)", "", unused)
    keys = []
    for name, file in (("off", unused), ("none", without)):
        tasks = prepare(write(folder, file, f"{name}.yaml")).plan.tasks
        keys.append({task.key for task in tasks})
    assert keys[0] == keys[1]
    assert len(keys[0]) == 1  # the two entries are one trial


def test_algorithms_share_one_filter_trial_per_seed(folder):
    path = write(folder, text() + "sweep: {unused: [1, 2]}\nseeds: 2\n")
    prepared = prepare(path)
    labels = sorted(task.payload.case.label for task in prepared.plan.tasks)
    assert labels == [label for label in ("filter", "plain", "unconstrained") for _ in range(2)]
    for (label, seed), job in jobs(prepared).items():
        needs = next(t.needs for t in prepared.plan.tasks if t.key == job.key)
        own = jobs(prepared)["filter", seed].key
        assert needs == ((own,) if label == "unconstrained" else ())
    assert [dict(p.point) for p in prepared.plan.planned if p.label == "filter"] == [{}, {}]
    assert prepared.plan.planned[-1].label == "filter"
    assert "unused" in prepared.plan.planned[0].point


def test_settings_of_the_filter_can_be_swept(folder):
    swept = text("how").replace(
        "disclosivity: 0.3", "disclosivity: alpha, algorithm: {balanced_tree: {depth: d}}"
    )
    swept = swept.replace("balance: sex", "balance: column")
    sweep = "{alpha: [0.1, 0.3], how: [weights, sample], column: [sex, place], d: [2]}"
    plan = prepare(write(folder, swept + f"sweep: {sweep}\n")).plan
    stages = [p for p in plan.planned if p.label == "filter"]
    assert [dict(p.point) for p in stages] == [
        {"alpha": alpha, "column": column, "d": 2}
        for alpha in (0.1, 0.3)
        for column in ("sex", "place")
    ]
    assert len({p.key for p in stages}) == 4
    assert len({p.key for p in plan.planned if p.label == "unconstrained"}) == 8
    assert {p.options["depth"] for p in stages} == {2}


@pytest.mark.parametrize("take", ["weights", "sample"])
def test_a_filter_that_keeps_no_row_gives_no_solution(folder, take):
    path = write(folder, text(take))
    _, store = run_file(path)
    job = jobs(prepare(path))["unconstrained", 0]
    stage = store.result(job.training_rows.row_filter.key)
    found = loads(stage.models["expected"])
    nobody = dumps(replace(found, keep=np.zeros(found.proxy.values)))
    for given, reason in (
        (replace(stage, models={"expected": nobody}), "the filter keeps no training row"),
        (TrialResult(stage.key, "no_solution_found"), "the filter is needed but found no solution"),
    ):
        result = run_trial(job, {stage.key: given})
        assert (result.status, result.reason) == ("no_solution_found", reason)


def test_custom_targets(folder):
    aim = "objective: 'rms(share[women] - 0.4, share[men] - 0.6)'"
    path = write(folder, text().replace("balance: sex", aim))
    _, store = run_file(path)
    ((planned, _, numbers),) = trials(store)["filter"]
    names = ["objective", "disclosivity", "kept", "least_share"]
    assert set(planned.metrics) == {*(f"filter.{n}" for n in names), "violation.disclosivity"}
    assert numbers["filter.objective", "train"] == pytest.approx(0, abs=1e-6)
    assert numbers["filter.least_share", "train"] == pytest.approx(0.4, abs=1e-6)
    share = women(rows_of(prepare(path), store, "unconstrained").sample)
    assert share == pytest.approx(0.4, abs=1e-6)


SAFE = """
name: tested
datasets: {people: {path: people.csv, label: y, drop: [old]}}
filter: {balance: sex, take: TAKE}
safety: {delta: 0.1, fraction: 0.4}
constraints: {right: 'error[sex = F] <= 0.45'}
algorithms: [unconstrained, unconstrained: {as: untested, safety: false}]
metrics: {error: error}
"""


@pytest.mark.parametrize("take", one_in(2, ["weights", "sample"]))
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


def test_predicting_a_safety_test_needs_rows_of_equal_weight(folder):
    for entry in ("seldonian", "majorize: {safety: {aim: 0.9}}"):
        file = text("weights", SAFE).replace("[unconstrained,", f"[{entry},")
        (fault,) = faults(write(folder, file))
        assert (fault.code, fault.place.line) == ("E104", 7)
        assert "needs rows of equal weight" in fault.message
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


@pytest.mark.parametrize("take", one_in(2, ["sample", "weights"]))
def test_other_algorithms_are_measured_on_the_same_rows(folder, take):
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


def test_audit_and_deployed_algorithm_need_the_same_rows(folder):
    file = text(file=OTHERS).replace("deployed: 'of(deployed, error)'", "e: error")
    both = file.replace("[majorize: {iterations: 2}, ", "[audit, ")
    (fault,) = faults(write(folder, both))
    assert (fault.code, fault.place.line) == ("E310", 8)
    assert "the same filter" in fault.help
    outcome, _ = run_file(write(folder, both.replace("[audit,", "[audit: {filter: false},")))
    assert set(outcome.counts) == {"ok"}
    neither = both.replace(", filter: false}", "}")
    outcome, store = run_file(write(folder, neither))
    found = trials(store)
    assert found["audit"][0][2]["error", "train"] == found["plain"][0][2]["error", "train"]


def test_filters_of_swept_data_sets_and_resampled_rows(folder):
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


def test_a_filter_may_be_trained_on_filtered_rows(folder):
    file = text().replace("[unconstrained, ", "[{balanced_tree: {oracle: regression}}, ")
    file = file.replace("groups:", "objective: 'imbalance(by=place)'\ngroups:")
    found = trials(run_file(write(folder, file))[1])
    assert set(found) == {"balanced_tree", "plain", "filter"}
    assert found["balanced_tree"][0][2]["objective", "train"] < 0.05


def test_explain_describes_the_filter(folder):
    lines = explain(prepare(write(folder, text("sample"))))
    shown = lines[lines.index("filter") : lines.index("objective")]
    assert {
        "  each training row is kept or not, at random by the seed",
        "  not used by plain, which train on all rows",
        "    minimize    imbalance(by=sex)",
        "    subject to  disclosivity(by=sex) <= 0.3",
        "    hidden      sex",
    } <= set(shown)

"""Classifiers that use slices, run from files: trials, stored models, other tables."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments import faults, measured_values, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.models.composed import GroupThreshold
from ratecli.models.linear import Threshold
from ratecli.models.storage import dumps, loads
from ratecli.sampling.rows import load_trial_data

FILE = """
name: shifted
datasets:
  people: {path: people.csv, label: y, features: [x, z], split: {by: part}}
objective: error
constraints:
  parity: 'positive_rate[sex = F] >= 0.95 * positive_rate[sex = M]'
  old: 'tpr[age >= 60, sex = F] >= 0.6'
algorithms: [post_shift]
metrics: {women: 'positive_rate[sex = F]', men: 'positive_rate[sex = M]', error: error}
"""
OTHER = """
name: other
datasets:
  people: {path: other.csv, label: y, features: [x, z], split: {by: part}}
deployed: {model: old.npz}
algorithms: [unconstrained]
metrics: {women: 'of(deployed, positive_rate[x < 99])'}
"""


def table(rows, seed):
    frame = people(rows, seed).drop(columns="old")
    frame["age"] = np.random.default_rng(seed + 1).integers(20, 80, rows)
    frame["part"] = np.where(np.arange(rows) % 3 == 0, "test", "train")
    return frame


@pytest.fixture
def folder(tmp_path):
    table(600, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def trained(folder):
    """The stored trial, its planned metrics, and the table."""
    both = "[post_shift: {randomize: true, variants: [deterministic]}]"
    outcome, store = run_file(write(folder, FILE.replace("[post_shift]", both)))
    assert outcome.counts == {"ok": 1}
    (planned,) = store.plan()
    return planned, store.result(planned.key), pd.read_csv(folder / "people.csv")


def by_hand(model, frame, X):
    """Decisions of a stored choice of thresholds, from a table and its encoded features."""
    scores = np.asarray(X @ model.scorer.weights + model.scorer.bias)
    older = (frame.sex == "F") & (frame.age >= 60)
    assert model.slices == ("age >= 60, sex = F", "sex = F", "sex = M")
    members = np.stack([older, frame.sex == "F", frame.sex == "M"], axis=1)
    decisions = np.full(len(frame), np.nan)
    for group, threshold in zip(model.groups, model.thresholds, strict=True):
        inside = (members == group).all(axis=1)
        decisions[inside] = scores[inside] > threshold
    assert not np.isnan(decisions).any()
    return decisions


def test_measured_rates_are_those_of_group_thresholds(folder):
    planned, result, frame = trained(folder)
    rows = load_trial_data(prepare(folder / "exp.yaml").data, 0)
    frame = frame.iloc[rows.positions]
    assert rows.X.shape[1] == 2  # the group is no feature
    mixed = loads(result.models["stochastic"])
    parts = zip(mixed.members, mixed.chances, strict=True)
    chance = sum(share * by_hand(model, frame, rows.X) for model, share in parts)
    single = by_hand(loads(result.models["deterministic"]), frame, rows.X)
    for variant, p in (("stochastic", chance), ("deterministic", single)):
        for split in ("train", "test"):
            part = frame.part == split
            women, men = (p[part & (frame.sex == sex)].mean() for sex in "FM")
            error = np.where(frame.y == 1, 1 - p, p)[part].mean()
            parity = 0.95 * men - women
            expected = {"women": women, "men": men, "error": error, "violation.parity": parity}
            known = measured_values(planned, result, variant)
            for name, value in expected.items():
                assert known[name, split] == pytest.approx(value, abs=1e-12)
            assert split == "test" or parity <= 1e-6
    spread = {model.thresholds.tobytes() for model in mixed.members}
    assert len(spread) == len(mixed.members)


def test_stored_model_uses_the_groups_of_the_new_table(folder):
    """The same features, decided by the group that the new table says."""
    _, result, frame = trained(folder)
    (folder / "old.npz").write_bytes(result.models["deterministic"])
    model = loads(result.models["deterministic"])
    frame["sex"] = np.where(frame.sex == "F", "M", "F")
    frame.to_csv(folder / "other.csv", index=False)
    path = write(folder, OTHER, "other.yaml")
    rows = load_trial_data(prepare(path).data, 0)
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 1}
    (planned,) = store.plan()
    known = measured_values(planned, store.result(planned.key))
    frame = frame.iloc[rows.positions]
    expected = by_hand(model, frame, rows.X)
    for split in ("train", "test"):
        assert known["women", split] == expected[frame.part == split].mean()


DATED = """
name: dated
datasets: {people: {path: people.csv, label: y, features: [x, z], split: {by: part}STREAM}}
algorithms: [unconstrained]
"""


@pytest.mark.parametrize("stream", ["", ", stream: true"])
def test_dates_are_compared_as_pandas_compares_them(folder, stream):
    frame = pd.read_csv(folder / "people.csv")
    days = pd.Timestamp("2023-11-20") + pd.to_timedelta(np.arange(600) % 90, "D")
    frame["day"] = pd.Series(days + pd.Timedelta("9h")).dt.strftime("%Y-%m-%dT%H:%M")
    frame.loc[::7, "day"] = None
    frame.to_csv(folder / "people.csv", index=False)
    day = pd.to_datetime(frame.day)
    expected = {
        "day >= 2023-12-24": day >= "2023-12-24",
        "day <= 2023-12-24": day < "2023-12-25",
        "day < 2024-01": day < "2024-01-01",
        "day > 2024-01 or sex = F": (day >= "2024-02-01") | (frame.sex == "F"),
        "not day > 2024-01": day < "2024-02-01",
    }
    rates = {f"m{k}": f"base_rate[{text}]" for k, text in enumerate(expected)}
    text = DATED.replace("STREAM", stream) + f"metrics: {json.dumps(rates)}\n"
    _, store = run_file(write(folder, text))
    (planned,) = store.plan()
    known = measured_values(planned, store.result(planned.key))
    for name, inside in zip(rates, expected.values(), strict=True):
        own = frame.y[inside & (frame.part == "test")]
        assert known[name, "test"] == pytest.approx(own.mean(), abs=1e-12)


def model_of(*slices):
    groups = np.eye(len(slices), dtype=bool)
    return GroupThreshold(Threshold(np.ones(2)), slices, groups, np.zeros(len(slices)))


@pytest.mark.parametrize(
    ("slices", "code", "message"),
    [
        (("sexe = F",), "E411", "uses the condition 'sexe = F', and there is no column 'sexe'"),
        (("sexe = F", "sexe = F, x < 1"), "E411", "there is no column 'sexe'"),
        (("sex < 3",), "E411", "uses the condition 'sex < 3', and 'sex' contains text"),
        (("sex > 2024-05",), "E411", "and 'sex' contains 'F'"),
        (("x > 2024-05",), "E411", "condition 'x > \"2024-05\"', and 'x' contains '"),
        (("sex =",), "E404", "'old.npz' holds no stored classifier: E301"),
        (("women",), "E404", "holds no stored classifier: E301: 'women' is not a condition"),
    ],
)
def test_stored_model_with_unknown_slices_is_refused(folder, slices, code, message):
    table(60, 2).to_csv(folder / "other.csv", index=False)
    (folder / "old.npz").write_bytes(dumps(model_of(*slices)))
    (fault,) = faults(write(folder, OTHER))
    assert (fault.code, fault.place.line, fault.place.column) == (code, 5, 19)
    assert message in fault.message


def test_data_sets_and_constant_rates_make_no_groups(folder):
    frame = pd.read_csv(folder / "people.csv")
    frame[frame.index % 2 == 0].to_csv(folder / "one.csv", index=False)
    frame[frame.index % 2 == 1].to_csv(folder / "two.csv", index=False)
    keys = "label: y, features: [x, z], split: {by: part}"
    text = f"""
name: x
datasets: {{d1: {{path: one.csv, {keys}}}, d2: {{path: two.csv, {keys}}}}}
algorithms: [post_shift]
constraints:
  a: recall[d2] >= 0.9
  b: positive_rate[d1] <= base_rate[sex = F] + 0.3
"""
    outcome, store = run_file(write(folder, text))
    assert outcome.counts == {"ok": 1}
    (planned,) = store.plan()
    for blob in store.result(planned.key).models.values():
        assert loads(blob).slices == ()


def test_constraints_are_tightened_for_groups_of_validation_rows(folder):
    """What is asked on training rows is tightened until it holds on those of validation."""
    frame = pd.read_csv(folder / "people.csv")
    frame["part"] = np.array(["train", "validation", "test"])[np.arange(len(frame)) % 3]
    frame.to_csv(folder / "people.csv", index=False)
    held = "[post_shift, post_shift: {as: held, holds: validation}]"
    outcome, store = run_file(write(folder, FILE.replace("[post_shift]", held)))
    assert outcome.counts == {"ok": 2}
    worst = {}
    for planned in store.plan():
        known = measured_values(planned, store.result(planned.key))
        rules = ("violation.parity", "violation.old")
        worst[planned.label] = max(known[rule, "validation"] for rule in rules)
    assert worst["post_shift"] > 0.01
    assert worst["held"] <= 1e-4

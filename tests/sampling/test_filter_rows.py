"""Rows that a filter cannot do with: found before any trial, each at its place in the file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from oracles.a9a import NEEDS_A9A

from experiments import people, run_file, write
from ratecli.errors import FaultError
from ratecli.experiment.prepare import prepare
from ratecli.models.storage import loads
from ratecli.sampling.rows import load_trial_data

STAGE = """
name: rows
datasets: {people: {path: people.csv, label: y, drop: [old, part], split: {by: part}}}
algorithms: [unconstrained]
filter: {balance: sex}
"""
ALGORITHM = """
name: rows
datasets: {people: {path: people.csv, label: y, drop: [old, part], split: {by: part}}}
objective: imbalance(by=sex)
constraints: {secret: 'disclosivity(by=sex) <= 0.3'}
algorithms: [balanced_tree]
"""
both = pytest.mark.parametrize(("text", "line", "column"), [(STAGE, 5, 19), (ALGORITHM, 4, 12)])


@pytest.fixture
def frame():
    found = people(400, 2)
    found["part"] = np.where(np.arange(400) % 4 == 0, "test", "train")
    found.loc[::8, "part"] = "validation"
    return found


def prepared(folder, frame, text):
    folder.mkdir(exist_ok=True)
    frame.to_csv(folder / "people.csv", index=False)
    return prepare(write(folder, text))


def faults(folder, frame, text):
    with pytest.raises(FaultError) as caught:
        prepared(folder, frame, text)
    return caught.value.faults


@both
@pytest.mark.parametrize(
    ("sex", "code", "message"),
    [
        ("F", "E304", "'sex' has 1 value, 'imbalance' takes 2 to 1000"),
        ("X", "E408", "no training row is in the group 'sex = X'"),
    ],
)
def test_groups_that_cannot_be_balanced(tmp_path, frame, text, line, column, sex, code, message):  # noqa: PLR0917
    frame.loc[(frame.part == "test") | (sex == "F"), "sex"] = sex
    found = faults(tmp_path, frame, text)
    assert {fault.code for fault in found} == {code}
    assert found[0].message == message
    expected = (4, 25) if (code, line) == ("E304", 4) else (line, column)
    assert (found[0].place.line, found[0].place.column) == expected


@both
def test_small_group_is_a_warning(tmp_path, frame, text, line, column):
    frame.loc[frame.part == "validation", "sex"] = "M"
    frame.loc[(frame.part == "test") & (frame.x > -0.6), "sex"] = "M"
    found = [f for f in prepared(tmp_path, frame, text).warnings if f.code == "W401"]
    (warning,) = found
    few = int(((frame.part == "test") & (frame.sex == "F")).sum())
    assert 1 < few < 30
    assert f"the group 'sex = F' has few rows (0 validation, {few} test)" in warning.message
    assert (warning.place.line, warning.place.column) == (line, column)


@both
def test_rows_with_an_unknown_group(tmp_path, frame, text, line, column):
    frame.loc[frame.index[frame.part == "test"][:5], "sex"] = None
    prepared(tmp_path, frame, text)  # on other rows it does not matter
    frame.loc[frame.index[frame.part == "train"][:3], "sex"] = None
    other = tmp_path / "missing"
    found = faults(other, frame, text)
    assert {fault.code for fault in found} == {"E411"}
    assert found[0].message == "'sex' is empty in 3 training rows: their group is unknown"
    assert found[0].help == "set missing: leave_out in the filter's options"
    assert (found[0].place.line, found[0].place.column) == (line, column)
    free = text.replace("sex}\n", "sex, algorithm: {balanced_tree: {missing: leave_out}}}\n")
    free = free.replace("[balanced_tree]", "[balanced_tree: {missing: leave_out}]")
    outcome, _ = run_file(write(other, free))
    assert set(outcome.counts) == {"ok"}


def test_rows_left_out_do_not_affect_the_filter(tmp_path, frame):
    """The filter is the one that is found without the rows: here each training row once more."""
    again = frame[frame.part == "train"].assign(sex=None)
    text = ALGORITHM.replace(
        "[balanced_tree]",
        "[balanced_tree: {missing: leave_out, kept: 0.1}, qp_proxy: {missing: leave_out}]\n"
        "regularization: {l2: 0.01}",
    )
    chances = []
    for name, rows in (("once", frame), ("twice", pd.concat([frame, again]))):
        ready = prepared(tmp_path / name, rows, text)
        _, store = run_file(ready.path)
        loaded = load_trial_data(ready.data, 0, None, ready.cases[0].sampling)
        X = loaded.X[np.argsort(loaded.positions)][: len(frame)]
        models = (loads(store.result(p.key).models["expected"]) for p in store.plan())
        chances.append(np.stack([model.decide(X) for model in models]))
    assert np.ptp(chances[0], axis=1).min() > 0.2
    np.testing.assert_allclose(chances[0], chances[1], atol=1e-4)


def test_filters_need_no_label(tmp_path, frame):
    text = ALGORITHM.replace("label: y, drop: [old, part]", "drop: [y, old, part]")
    outcome, _ = run_file(prepared(tmp_path, frame, text).path)
    assert set(outcome.counts) == {"ok"}
    others = text.replace("[balanced_tree]", "[balanced_tree, unconstrained]")
    (fault,) = faults(tmp_path, frame, others)
    assert (fault.code, fault.message) == ("E306", "no training row has a label")


def test_rows_in_no_group_of_the_goal_are_kept(tmp_path, frame):
    """A share of women is aimed at: men are known to be none."""
    frame.loc[frame.index[frame.part == "train"][:3], "sex"] = None
    shares = []
    for rule in ("rms(share[sex = F] - 0.5)", "rms(share[sex = F] - 0.5, share[sex = M] - 0.5)"):
        text = ALGORITHM.replace("constraints: {secret: 'disclosivity(by=sex) <= 0.3'}\n", "")
        text = text.replace("imbalance(by=sex)", rule)
        text = text.replace("[balanced_tree]", "[balanced_tree: {missing: leave_out}]")
        ready = prepared(tmp_path / str(len(shares)), frame, text)
        _, store = run_file(ready.path)
        (planned,) = store.plan()
        rows = load_trial_data(ready.data, 0, None, ready.cases[0].sampling)
        chances = loads(store.result(planned.key).models["expected"]).decide(rows.X)
        known = (rows.sample.part == "train") & pd.notna(rows.sample.columns["sex"])
        women = rows.sample.columns["sex"][known] == "F"
        shares.append(chances[known][women].sum() / chances[known].sum())
    assert shares[0] == pytest.approx(shares[1], abs=1e-4)
    assert abs(shares[0] - 0.5) < 0.5 * abs(women.mean() - 0.5)


def test_errors_of_later_seeds_are_errors_of_trials(tmp_path, frame):
    text = STAGE.replace(", part], split: {by: part}", "]")
    text = text.replace("algorithms", "seeds: 20\nalgorithms")
    frame = frame.drop(columns="part")
    rows = load_trial_data(prepared(tmp_path, frame, text).data, 0)
    frame.loc[rows.positions[rows.sample.part == "test"][0], "sex"] = None
    other = tmp_path / "other"
    _, store = run_file(prepared(other, frame, text).path)
    ends = {each.seed: store.result(each.key) for each in store.plan() if each.label == "filter"}
    bad = [result for result in ends.values() if result.status == "error"]
    assert 5 < len(bad) < 20
    assert ends[0].status == "ok"
    assert all("'sex' is empty" in result.reason for result in bad)


@pytest.mark.parametrize(
    ("rule", "shares"),
    [
        ("share[sex = F] - 0.6, share[sex = M] - 0.6", "0.6 of 'sex = F' and 0.6 of 'sex = M'"),
        ("share[sex = F] + 0.1", "-0.1 of 'sex = F'"),
        ("share[x < 0] - 0.9, share[x < 1] - 0.7", "0.9 of 'x < 0' and 0.7 of 'x < 1'"),
        ("share[sex = F] - 0.6", None),
        ("share[x < 0] - 0.7, share[x < 1] - 0.9", None),
    ],
)
def test_target_shares_that_no_rows_have(tmp_path, frame, rule, shares):
    stage = STAGE.replace("balance: sex", f"objective: 'rms({rule})'")
    algorithm = ALGORITHM.replace("imbalance(by=sex)", f"rms({rule})")
    for text, place in ((stage, (5, 26)), (algorithm, (4, 16))):
        if shares is None:
            prepared(tmp_path, frame, text)
            continue
        (fault,) = faults(tmp_path, frame, text)
        assert (fault.code, (fault.place.line, fault.place.column)) == ("E305", place)
        assert fault.message == f"no rows have the target shares {shares}"


@pytest.mark.parametrize(
    ("stage", "code", "at", "words"),
    [
        ("{balance: sx}", "E205", 19, "there is no column 'sx'"),
        ("{balance: [sex, race]}", "E205", 19, "there is no column 'race'"),
        ("{balance: [sex, sex]}", "E304", 19, "'sex' is named twice"),
        ("{balance: x}", "E304", 19, "'x' has 400 values"),
        ("{balance: sex, algorithm: majorize}", "E308", 35, "'majorize' is not a filter"),
        ("{balance: sex, algorithm: balanced_trie}", "E202", 35, "no algorithm is called"),
        ("{balance: sex, algorithm: {qp_proxy: {noise: 2}}}", "E104", 54, "'noise' must be at"),
        ("{balance: sex, algorithm: {qp_proxy: {nois: 1}}}", "E101", 47, "unknown key 'nois'"),
        ("{balance: sex, disclosivity: 0.1, algorithm: qp_proxy}", "E308", 24, "does not bound"),
        ("{balance: sex, disclosivity: b}", "E203", 38, "'b' is not a swept name"),
        ("{balance: sex, disclosivity: big}", "E104", 38, "'big' is the number 2"),
        ("{balance: big}", "E104", 19, "'big' must be a column to balance, not the number 2"),
        ("{objective: error}", "E308", 21, "the filter cannot minimize this: it is affine"),
        ("{objective: 'rms(share[y=1]@test - 1)'}", "E309", 26, "a goal uses the split"),
        ("{objective: 'rms(shore[y=1] - 1)'}", "E203", 26, "the name 'shore' is unknown"),
        ("{objective: 'rms(share[x < 0] - 1)', disclosivity: 0.1}", "E304", 46, "has 400 values"),
    ],
)
def test_errors_in_the_filter_section(tmp_path, frame, stage, code, at, words):  # noqa: PLR0917
    text = STAGE.replace("{balance: sex}", stage) + "sweep: {big: [2]}\n"
    (fault,) = faults(tmp_path, frame, text)
    assert (fault.code, fault.place.column) == (code, at), (fault, fault.place)
    assert fault.place.line == 5
    assert words in fault.message


@NEEDS_A9A
def test_ready_made_features_cannot_hide_a_column(tmp_path):
    text = """
name: ready
datasets: {a9a: {source: a9a}}
filter: {balance: sex}
algorithms: [unconstrained]
"""
    with pytest.raises(FaultError) as caught:
        prepare(write(tmp_path, text))
    (fault,) = caught.value.faults
    assert (fault.code, fault.place.line, fault.place.column) == ("E411", 4, 19)
    assert fault.message == "the features are ready-made: 'sex' cannot be removed from them"

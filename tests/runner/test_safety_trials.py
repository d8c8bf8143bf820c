"""Trials whose models must pass a safety test."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from experiments import people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.models.linear import Threshold
from ratecli.models.storage import dumps, loads
from ratecli.sampling.rows import load_trial_data

FILE = """
name: tested
datasets:
  people: {path: people.csv, label: y, drop: [old]}
groups: {women: sex = F, men: sex = M}
constraints: {few: 'positive_rate[women] <= 0.5'}
safety: {delta: 0.05, fraction: 0.5, bound: hoeffding}
algorithms: [unconstrained]
metrics: {error: error, women: 'positive_rate[women]', there: error@safety}
"""


@pytest.fixture
def folder(tmp_path):
    people(3000, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def trials(folder, text, *overrides):
    """Label to result, of one seed."""
    _, store = run_file(write(folder, text), *overrides)
    return {planned.label: store.result(planned.key) for planned in store.plan()}, store


def test_a_model_that_passes_is_given_with_its_certificate(folder):
    found, store = trials(folder, FILE)
    result = found["unconstrained"]
    assert (result.status, result.reason) == ("ok", "")
    (record,) = result.info["certificates"]
    rows = load_trial_data(
        prepare(folder / "exp.yaml").data, 0, None, prepare(folder / "exp.yaml").cases[0].sampling
    )
    model = loads(result.models["deterministic"])
    mask = (rows.sample.part == "safety") & (rows.sample.columns["sex"] == "F")
    share, count = model.decide(rows.X)[mask].mean(), int(mask.sum())
    upper = share + np.sqrt(np.log(1 / 0.05) / (2 * count)) - 0.5
    assert record["estimate"] == pytest.approx(share - 0.5, abs=1e-12)
    assert record["upper"] == pytest.approx(upper, abs=1e-9)
    assert record["passed"] is True
    assert upper <= 0
    assert (record["constraint"], record["variant"]) == ("few", "deterministic")
    measured = {(v.metric, v.split): v.value for v in result.values}
    (planned,) = store.plan()
    there = measured[planned.metrics["women"], "safety"]
    assert there == pytest.approx(share, abs=1e-12)
    labelled = rows.sample.part == "safety"
    wrong = (model.decide(rows.X) != rows.sample.label)[labelled].mean()
    for split in ("train", "test", "safety"):
        assert measured[planned.metrics["there"], split] == pytest.approx(wrong, abs=1e-12)


def test_a_model_that_fails_is_not_given(folder):
    found, _ = trials(folder, FILE.replace("<= 0.5", "<= 0.3"))
    result = found["unconstrained"]
    assert result.status == "no_solution_found"
    assert not result.values
    assert not result.models
    (record,) = result.info["certificates"]
    assert record["passed"] is False
    assert record["upper"] > 0
    assert result.reason == record["explanation"]
    assert "'few': the upper bound reached" in result.reason
    assert "it must be at most 0" in result.reason


def test_every_constraint_must_pass_at_its_own_delta(folder):
    text = FILE.replace("<= 0.5'}", "<= 0.5', right: error <= 0.5, men: 'fnr[men] <= 0.001'}")
    found, _ = trials(folder, text.replace("delta: 0.05", "delta: {men: 0.2}"))
    records = {each["constraint"]: each for each in found["unconstrained"].info["certificates"]}
    assert {name: (each["delta"], each["passed"]) for name, each in records.items()} == {
        "few": (0.05, True),
        "right": (0.05, True),
        "men": (0.2, False),
    }
    assert found["unconstrained"].status == "no_solution_found"
    assert "'men'" in found["unconstrained"].reason
    assert "'few'" not in found["unconstrained"].reason


@pytest.mark.parametrize(
    ("limit", "margin", "delta", "passed"),
    [
        (0.4, 0.9, 0.05, (False, False)),
        (0.4, 0.9, 0.1, (True, False)),
        (0.4, 0.9, 0.2, (True, True)),
        (0.3, 0.9999, 0.07, (False, True)),
    ],
)
def test_only_variants_that_pass_are_kept(folder, limit, margin, delta, passed):
    """The main one decides how the trial ends, and the reason tells of others that passed."""
    algorithm = f"algorithms=[majorize: {{iterations: 1, margin: {margin}}}]"
    text = FILE.replace("<= 0.5", f"<= {limit}").replace("delta: 0.05", f"delta: {delta}")
    result = trials(folder, text, algorithm)[0]["majorize"]
    found = {each["variant"]: each["passed"] for each in result.info["certificates"]}
    assert found == dict(zip(("stochastic", "deterministic"), passed, strict=True))
    kept = [name for name, through in found.items() if through] if passed[0] else []
    assert result.status == ("ok" if passed[0] else "no_solution_found")
    told = result.reason.endswith("; its variant 'deterministic' passed")
    assert told is (passed == (False, True))
    assert list(result.models) == kept == list(dict.fromkeys(v.variant for v in result.values))


def test_what_is_measured_of_an_algorithm_with_other_rows_is_its_own(folder):
    """Its features follow its own training rows."""
    text = FILE.replace(
        "[unconstrained]", "[unconstrained, unconstrained: {as: all, safety: false}]"
    )
    text = text.replace("women: 'pos", "theirs: 'of(all, positive_rate[women])', women: 'pos")
    found, store = trials(folder, text)
    metrics = store.plan()[0].metrics
    mine = {(v.metric, v.split): v.value for v in found["unconstrained"].values}
    theirs = {(v.metric, v.split): v.value for v in found["all"].values}
    assert mine[metrics["theirs"], "test"] == theirs[metrics["women"], "test"]
    assert found["all"].info["rows"] == {"train": 2000, "test": 1000}
    assert "certificates" not in found["all"].info
    rows = found["unconstrained"].info["rows"]
    assert rows == {"train": 1000, "test": 1000, "safety": 1000}
    share = (mine[metrics["theirs"], "train"] + mine[metrics["theirs"], "safety"]) / 2
    assert share == pytest.approx(theirs[metrics["women"], "train"], abs=0.02)


def test_a_rule_is_held_to_what_another_reached_on_the_same_rows(folder):
    text = FILE.replace("[unconstrained]", "[unconstrained, majorize: {iterations: 1}]")
    text = text.replace(
        "'positive_rate[women] <= 0.5'", "'error <= of(unconstrained, error) + 0.1'"
    )
    found, store = trials(folder, text, "sweep={k: [1]}")
    assert {result.status for result in found.values()} == {"ok"}
    metrics = store.plan()[0].metrics
    trained = {(v.metric, v.split): v.value for v in found["unconstrained"].values}
    limit = trained[metrics["error"], "train"] + 0.1
    for result in found.values():
        record = result.info["certificates"][0]
        known = {v.split: v.value for v in result.values
                 if (v.variant, v.metric) == (record["variant"], metrics["error"])}  # fmt: skip
        shown = known["safety"] - limit
        assert record["estimate"] == pytest.approx(shown, abs=1e-12)


def test_rows_that_lack_a_group_find_no_solution(folder):
    """A file is not refused for that: the smallest of several amounts may well lack it."""
    text = FILE + "resample: k\nsweep: {k: [0.002, 1]}\nseeds: 8\n"
    text = text.replace("[unconstrained]", "[majorize: {iterations: 1}]")
    _, store = run_file(write(folder, text))
    few = [store.result(each.key) for each in store.plan() if each.point["k"] < 1]
    assert {each.status for each in few} == {"no_solution_found"}
    assert any("no training row" in each.reason for each in few)
    assert all(each.reason for each in few)


@pytest.mark.parametrize("division", ["equal", "optimized"])
def test_answers_do_not_hang_on_what_else_is_run(folder, division):
    text = FILE.replace("bound: hoeffding", f"method: leaves, division: {division}")
    text = text.replace("positive_rate[women] <= 0.5", "abs(tpr[women] - tpr[men]) <= 0.4")
    one = trials(folder, text)[0]["unconstrained"]
    both = trials(
        folder, text, "algorithms=[unconstrained: {loss: logistic, as: a}, unconstrained]"
    )
    again = both[0]["unconstrained"]
    assert one.key == again.key
    assert one.info == again.info
    deltas = [each["delta"] for each in leaves_of(one.info["certificates"][0]["tree"])]
    total = sum(side for pair in deltas for side in pair if side is not None)
    assert total == pytest.approx(0.05)


def leaves_of(node):
    if not node["children"]:
        return [node] if "bound" in node else []
    return [leaf for child in node["children"] for leaf in leaves_of(child)]


def test_the_deployed_model_itself_is_put_to_the_test(folder):
    """Whether a column, a file or an algorithm says what it decides."""
    text = FILE.replace("[unconstrained]", "[audit, unconstrained]")
    text = text.replace("error: error", "error: error, churn: churn")
    frame = pd.read_csv(folder / "people.csv")
    rule = Threshold(np.array([0.0, 0.0, 1.0, 0.0]), -0.3)
    (folder / "old.npz").write_bytes(dumps(rule))
    for source in ("column: old", "model: old.npz", "algorithm: unconstrained"):
        found, store = trials(folder, f"{text}deployed: {{{source}}}\n")
        result = found["audit"]
        assert result.status == "ok", result.reason
        metrics = store.plan()[0].metrics
        known = {(v.metric, v.split): v.value for v in result.values}
        assert list(result.models) == ["deployed"]
        for split in ("train", "test", "safety"):
            assert known[metrics["churn"], split] == 0.0
        if "column" in source:
            rows = prepare(folder / "exp.yaml")
            sample = load_trial_data(rows.data, 0, "old", rows.cases[0].sampling).sample
            wrong = frame.old.to_numpy() != frame.y.to_numpy()
            for split in ("train", "test", "safety"):
                share = wrong[sample.part == split].mean()
                assert known[metrics["error"], split] == pytest.approx(share, abs=1e-12)


def test_a_column_of_words_is_audited_as_it_is_read(folder):
    frame = pd.read_csv(folder / "people.csv")
    frame["old"] = np.where(frame.old == 1, np.where(frame.x > 1, "1.0", "1"), "0")
    man = frame.index[frame.sex == "M"][0]
    frame.loc[man, "old"] = "n/a"  # so that the column is read as words
    frame.to_csv(folder / "people.csv", index=False)
    text = FILE.replace("[unconstrained]", "[audit]")
    text = text.replace("error: error", "error: error, churn: churn")
    found, store = trials(folder, f"{text}deployed: {{column: old}}\n")
    metrics = store.plan()[0].metrics
    known = {(v.metric, v.split): v.value for v in found["audit"].values}
    assert known[metrics["churn"], "test"] == 0.0


def test_rows_are_put_aside_without_a_test_for_those_that_others_speak_of(folder):
    """It breaks the constraint and is given all the same: the same rows train it as those of the test."""
    text = FILE.replace("0.5'", "0.3', e: 'error <= of(unconstrained, error) + 0.2'")
    text = text.replace("[unconstrained]", "[majorize, unconstrained: {safety: {test: false}}]")
    found, _ = trials(folder, text)
    plain = found["unconstrained"]
    assert plain.status == "ok"
    assert plain.info["rows"] == found["majorize"].info["rows"]
    assert "certificates" not in plain.info
    assert {each["constraint"] for each in found["majorize"].info["certificates"]} == {"few", "e"}


def test_who_is_held_to_a_model_that_was_not_found_has_found_none_either(folder):
    text = FILE.replace("<= 0.5'", "<= 0.3', near: 'error <= of(unconstrained, error) + 0.1'")
    found, _ = trials(folder, text.replace("[unconstrained]", "[unconstrained, majorize]"))
    assert {result.status for result in found.values()} == {"no_solution_found"}
    assert found["majorize"].reason == "'unconstrained' is needed and found no solution"
    assert found["majorize"].info["rows"] == {"train": 1000, "test": 1000, "safety": 1000}


@pytest.mark.parametrize(
    ("algorithm", "rule", "needed"),
    [("audit", "", True), ("mixture", ", near: churn <= 0.5", True), ("mixture", "", False)],
)
def test_the_same_of_a_deployed_model(folder, algorithm, rule, needed):
    text = FILE.replace("<= 0.5'", f"<= 0.3'{rule}")
    found, _ = trials(folder, text.replace("[unc", f"[{algorithm}, unc") + USED)
    assert found["unconstrained"].status == "no_solution_found"
    assert found[algorithm].status == "no_solution_found"
    reason = "the deployed algorithm is needed and found no solution"
    assert (found[algorithm].reason == reason) == needed  # or it was tested itself, and failed


USED = "deployed: {algorithm: unconstrained}\n"


def test_what_is_only_measured_against_a_model_that_was_not_found_has_no_value(folder):
    text = FILE.replace("<= 0.5", "<= 0.3").replace(
        "[unconstrained]", "[unconstrained, unconstrained: {as: free, safety: {test: false}}]"
    )
    text = text.replace(
        "women: 'pos", "by: 'error - of(unconstrained, error)', changed: churn, women: 'pos"
    )
    found, store = trials(folder, text + USED)
    assert found["unconstrained"].status == "no_solution_found"
    free = found["free"]
    assert (free.status, free.reason) == ("ok", "")
    metrics = store.plan()[0].metrics
    values = {v.metric: v.value for v in free.values if v.split == "test"}
    assert np.isnan(values[metrics["by"]])
    assert np.isnan(values[metrics["changed"]])
    assert 0 < values[metrics["error"]] < 0.5

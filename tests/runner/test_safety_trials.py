"""Trials whose models must pass a safety test."""

import numpy as np
import pandas as pd
import pytest

from experiments import measured_values, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import NEW_DATA_KEY
from ratecli.models.linear import Threshold
from ratecli.models.storage import dumps, loads
from ratecli.sampling.rows import load_trial_data

BOTH = "randomize: true, variants: [deterministic]"
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
    """Run one seed; return the results by label, and their measured values by label."""
    _, store = run_file(write(folder, text), *overrides)
    results = {planned.label: store.result(planned.key) for planned in store.plan()}
    values = {
        planned.label: measured_values(planned, results[planned.label])
        for planned in store.plan()
        if results[planned.label].values
    }
    return results, values


def prepared_rows(folder, deployed=None):
    prepared = prepare(folder / "exp.yaml")
    return load_trial_data(prepared.data, 0, deployed, prepared.cases[0].sampling)


def test_a_model_that_passes_has_a_certificate(folder):
    results, values = trials(folder, FILE)
    result, measured = results["unconstrained"], values["unconstrained"]
    assert (result.status, result.reason) == ("ok", "")
    (record,) = result.info["certificates"]
    rows = prepared_rows(folder)
    decisions = loads(result.models["deterministic"]).decide(rows.X)
    labelled = rows.sample.part == "safety"
    women = labelled & (rows.sample.columns["sex"] == "F")
    share = decisions[women].mean()
    upper = share + np.sqrt(np.log(1 / 0.05) / (2 * women.sum())) - 0.5
    assert record["estimate"] == pytest.approx(share - 0.5, abs=1e-12)
    assert record["upper"] == pytest.approx(upper, abs=1e-9)
    assert record["passed"] is True
    assert upper <= 0
    assert (record["constraint"], record["variant"]) == ("few", "deterministic")
    assert measured["women", "safety"] == pytest.approx(share, abs=1e-12)
    wrong = (decisions != rows.sample.label)[labelled].mean()
    for split in ("train", "test", "safety"):
        assert measured["there", split] == pytest.approx(wrong, abs=1e-12)


def test_a_model_that_fails_is_not_returned(folder):
    """Each constraint is tested at its own delta, and the reason names those that failed."""
    text = FILE.replace("<= 0.5'}", "<= 0.5', right: error <= 0.5, men: 'fnr[men] <= 0.001'}")
    found, _ = trials(folder, text.replace("delta: 0.05", "delta: {men: 0.2}"))
    result = found["unconstrained"]
    assert (result.status, result.values, result.models) == ("no_solution_found", (), {})
    records = {each["constraint"]: each for each in result.info["certificates"]}
    assert {name: (each["delta"], each["passed"]) for name, each in records.items()} == {
        "few": (0.05, True),
        "right": (0.05, True),
        "men": (0.2, False),
    }
    assert records["men"]["upper"] > 0
    assert result.reason == records["men"]["explanation"]
    assert "'men': the upper bound on the violation is" in result.reason


@pytest.mark.parametrize(
    ("limit", "margin", "delta", "passed"),
    [
        (0.4, 0.9, 0.05, (False, False)),
        (0.4, 0.9, 0.1, (True, False)),
    ],
)
def test_only_variants_that_pass_are_kept(folder, limit, margin, delta, passed):
    """The main variant determines the status."""
    algorithm = (
        f"algorithms=[majorize: {{iterations: 1, holds: new_rows, level: {margin}, {BOTH}}}]"
    )
    text = FILE.replace("<= 0.5", f"<= {limit}").replace("delta: 0.05", f"delta: {delta}")
    result = trials(folder, text, algorithm)[0]["majorize"]
    found = {each["variant"]: each["passed"] for each in result.info["certificates"]}
    assert found == dict(zip(("stochastic", "deterministic"), passed, strict=True))
    kept = [name for name, through in found.items() if through] if passed[0] else []
    assert result.status == ("ok" if passed[0] else "no_solution_found")
    assert list(result.models) == kept == list(dict.fromkeys(v.variant for v in result.values))


@pytest.mark.parametrize("algorithm", ["majorize: {iterations: 1, randomize: true}", "seldonian"])
def test_the_last_candidate_that_passes_before_the_first_failure_is_returned(folder, algorithm):
    text = FILE.replace("bound: hoeffding", "aim: 0.99").replace("<= 0.5", "<= 0.3")
    results, values = trials(folder, text.replace("[unconstrained]", f"[{algorithm}]"))
    ((label, result),) = results.items()
    records = {each["variant"]: each for each in result.info["certificates"]}
    main = next(iter(records.values()))
    assert result.status == "ok"
    assert 1 < main["candidate"] < main["candidates"]
    assert main["upper"] <= 0
    # with one more step, the upper bound would be above 0: the model has little slack
    assert main["upper"] > -0.02
    assert values[label]["violation.few", "safety"] == pytest.approx(main["estimate"], abs=1e-12)
    new_data = result.info[NEW_DATA_KEY]
    assert new_data["levels"] == {}  # the test bounds how often a violating model passes
    assert new_data["test"][1] == pytest.approx(1 / 3)
    ((piece, error),) = next(iter(new_data["pieces"].values()))["positive_rate[sex = F] - 0.3"]
    assert piece == pytest.approx(values[label]["violation.few", "test"], abs=1e-12)
    share, women = piece + 0.3, (pd.read_csv(folder / "people.csv").sex == "F").sum() / 3
    assert (
        0.5 < error / np.sqrt(share * (1 - share) / women) < 1.1
    )  # chances vary less than decisions


def test_a_joint_guarantee_divides_delta_among_algorithms_and_variants(folder):
    """An algorithm with two points of its own sweep counts twice, an untested one not."""
    others = "unconstrained: {sweep: {loss: [hinge, logistic]}}, audit: {safety: false}"
    text = FILE.replace("[unconstrained]", f"[majorize: {{iterations: 1, {BOTH}}}, {others}]")
    text = text.replace("bound: hoeffding", "guarantee: joint") + "deployed: {column: old}\n"
    results, _ = trials(folder, text)
    for label, count in (("majorize", 6), ("unconstrained", 3)):
        for record in results[label].info["certificates"]:
            assert (record["delta"], record["models"]) == (pytest.approx(0.05 / count), count)


def test_of_an_algorithm_with_other_training_rows_is_its_own_value(folder):
    """Its features depend on its own training rows."""
    text = FILE.replace(
        "[unconstrained]", "[unconstrained, unconstrained: {as: all, safety: false}]"
    )
    text = text.replace("women: 'pos", "theirs: 'of(all, positive_rate[women])', women: 'pos")
    results, values = trials(folder, text)
    mine, theirs = values["unconstrained"], values["all"]
    assert mine["theirs", "test"] == theirs["women", "test"]
    assert results["all"].info["rows"] == {"train": 2000, "test": 1000}
    assert "certificates" not in results["all"].info
    rows = results["unconstrained"].info["rows"]
    assert rows == {"train": 1000, "test": 1000, "safety": 1000}
    share = (mine["theirs", "train"] + mine["theirs", "safety"]) / 2
    assert share == pytest.approx(theirs["women", "train"], abs=0.02)


def test_a_safety_test_compares_two_algorithms_row_by_row(folder):
    """A row counts -1, 0 or 1: whether this model errs, less whether the other one does."""
    text = FILE.replace("[unconstrained]", "[unconstrained, majorize: {iterations: 1}]")
    text = text.replace(
        "'positive_rate[women] <= 0.5'", "'error <= of(unconstrained, error) + 0.1'"
    )
    results, values = trials(folder, text, "sweep={k: [1]}")
    assert {result.status for result in results.values()} == {"ok"}
    theirs = values["unconstrained"]["error", "safety"]
    for label, result in results.items():
        record = result.info["certificates"][0]
        difference = values[label]["error", "safety"] - theirs - 0.1
        assert record["estimate"] == pytest.approx(difference, abs=1e-12)
        width = 2 * np.sqrt(np.log(1 / 0.05) / (2 * result.info["rows"]["safety"]))
        assert record["upper"] == pytest.approx(difference + width)


def test_samples_without_a_group_find_no_solution(folder):
    """The file is not refused, since small samples of a sweep often lack a group."""
    text = FILE + "resample: k\nsweep: {k: [0.002, 1]}\nseeds: 8\n"
    text = text.replace("[unconstrained]", "[majorize: {iterations: 1}]")
    _, store = run_file(write(folder, text))
    few = [store.result(each.key) for each in store.plan() if each.point["k"] < 1]
    assert {each.status for each in few} == {"no_solution_found"}
    assert any("no training row" in each.reason for each in few)
    assert all(each.reason for each in few)


def test_results_do_not_depend_on_other_algorithms_of_the_run(folder):
    text = FILE.replace("bound: hoeffding", "method: leaves")
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


@pytest.mark.parametrize("source", ["column: old", "model: old.npz", "algorithm: unconstrained"])
def test_audit_tests_the_deployed_model(folder, source):
    text = FILE.replace("[unconstrained]", "[audit, unconstrained]") + f"deployed: {{{source}}}\n"
    rule = Threshold(np.array([0.0, 0.0, 1.0, 0.0]), -0.3)
    (folder / "old.npz").write_bytes(dumps(rule))
    results, values = trials(folder, text.replace("error: error", "error: error, churn: churn"))
    result, measured = results["audit"], values["audit"]
    assert result.status == "ok", result.reason
    assert list(result.models) == ["deployed"]
    for split in ("train", "test", "safety"):
        assert measured["churn", split] == 0.0
    if "column" in source:
        rows, frame = prepared_rows(folder, "old"), pd.read_csv(folder / "people.csv")
        frame, part = frame.iloc[rows.positions], rows.sample.part
        wrong = frame.old.to_numpy() != frame.y.to_numpy()
        for split in ("train", "test", "safety"):
            share = wrong[part == split].mean()
            assert measured["error", split] == pytest.approx(share, abs=1e-12)


def test_a_failed_audit_says_how_to_see_the_rates(folder):
    text = FILE.replace("[unconstrained]", "[audit]") + "deployed: {column: old}\n"
    rule = "constraints: {all: tpr >= 0.9999, "
    assert "constraints: {" in text
    results, values = trials(folder, text.replace("constraints: {", rule))
    assert results["audit"].status == "no_solution_found"
    assert results["audit"].reason.endswith("add `audit: {as: rates, safety: false}`")
    assert not values.get("audit")


def test_audit_reads_a_text_column_as_decisions(folder):
    frame = pd.read_csv(folder / "people.csv")
    frame["old"] = np.where(frame.old == 1, np.where(frame.x > 1, "1.0", "1"), "0")
    frame.loc[frame.index[frame.sex == "M"][0], "old"] = "n/a"  # so that the column is text
    frame.to_csv(folder / "people.csv", index=False)
    text = FILE.replace("[unconstrained]", "[audit]") + "deployed: {column: old}\n"
    _, values = trials(folder, text.replace("error: error", "error: error, churn: churn"))
    assert values["audit"]["churn", "test"] == 0.0


USED = "deployed: {algorithm: unconstrained}\n"
DEPLOYED = "the deployed algorithm is needed but found no solution"
OTHER = "'unconstrained' is needed but found no solution"


@pytest.mark.parametrize(
    ("algorithm", "rule", "reason"),
    [
        ("audit", "", DEPLOYED),
        ("mixture", ", near: churn <= 0.5", DEPLOYED),
        ("majorize", ", near: 'error <= of(unconstrained, error) + 0.1'", OTHER),
        ("mixture", "", "'few': the upper bound"),  # it is tested itself, and fails
    ],
)
def test_algorithms_that_need_a_model_without_solution_find_none(folder, algorithm, rule, reason):
    text = FILE.replace("<= 0.5'", f"<= 0.3'{rule}")
    found, _ = trials(folder, text.replace("[unc", f"[{algorithm}, unc") + USED)
    assert found["unconstrained"].status == "no_solution_found"
    assert found[algorithm].status == "no_solution_found"
    assert reason in found[algorithm].reason
    assert found[algorithm].info["rows"] == {"train": 1000, "test": 1000, "safety": 1000}


def test_metrics_that_refer_to_a_model_without_solution_are_undefined(folder):
    text = FILE.replace("<= 0.5", "<= 0.3").replace(
        "[unconstrained]", "[unconstrained, unconstrained: {as: free, safety: {test: false}}]"
    )
    text = text.replace(
        "women: 'pos", "by: 'error - of(unconstrained, error)', changed: churn, women: 'pos"
    )
    results, values = trials(folder, text + USED)
    assert results["unconstrained"].status == "no_solution_found"
    assert (results["free"].status, results["free"].reason) == ("ok", "")  # it is not tested
    assert "certificates" not in results["free"].info
    assert results["free"].info["rows"] == results["unconstrained"].info["rows"]
    assert np.isnan(values["free"]["by", "test"])
    assert np.isnan(values["free"]["changed", "test"])
    assert 0 < values["free"]["error", "test"] < 0.5


def test_a_reason_has_one_number_of_rows(folder):
    """A solver that predicts the failure of its test says how many rows some candidate needs."""
    text = FILE.replace("positive_rate[women] <= 0.5", "error <= 0.16")
    result = trials(folder, text, "algorithms=[seldonian]")[0]["seldonian"]
    assert result.status == "no_solution_found"
    assert "no model is expected to pass the test of 'few'" in result.reason
    assert result.reason.count("safety rows instead of") == 1
    (record,) = {each["explanation"] for each in result.info["certificates"][:1]}
    assert "this candidate would pass with" in record

"""Trials of algorithms with `tune`: what they see, store and report."""

import pandas as pd
import pytest
from thinned import one_in

from experiments import faults, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.files import LEDGER_FILE, REPORT_FILE
from ratecli.ledger.view import Ledger
from ratecli.report.sheets import tuning_sheet
from ratecli.report.tables import trials_table
from ratecli.report.write import write_report
from ratecli.sampling.rows import load_trial_data

FILE = """
name: tuned
datasets:
  people: {path: people.csv, label: y, drop: [old]}
groups: {women: sex = F, men: sex = M}
constraints: {parity: 'positive_rate[women] >= kappa * positive_rate[men]'}
sweep: {kappa: [0.5, 0.95]}
safety: {delta: 0.3, fraction: 0.5, test: false}
algorithms:
  - zafar: {tune: {covariance: [0, 0.4, 10]}}
  - zafar: {as: none, covariance: 0}
  - zafar: {as: some, covariance: 0.4}
  - zafar: {as: all, covariance: 10}
"""
LABELS = {0: "none", 0.4: "some", 10: "all"}


@pytest.fixture
def folder(tmp_path):
    people(600, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def tuned_trials(store):
    """Return (point's kappa, result) of the tuned trials, and models of the others by label."""
    plan = [(each, store.result(each.key)) for each in store.plan()]
    tuned = {each.point["kappa"]: found for each, found in plan if each.label == "zafar"}
    others = {(each.label, each.point["kappa"]): found.models for each, found in plan}
    return tuned, others


@pytest.mark.parametrize("split", one_in(2, ["", ", split: {validation: 0.3}"]))
def test_each_sweep_point_chooses_by_its_own_goal_and_returns_that_model(folder, split):
    text = FILE.replace("drop: [old]", f"drop: [old]{split}")
    _, store = run_file(write(folder, text))
    tuned, others = tuned_trials(store)
    chosen = {}
    for kappa, result in tuned.items():
        (setting,) = (row["setting"] for row in result.trace if row.get("chosen"))
        chosen[kappa] = setting["covariance"]
        assert result.models == others[LABELS[chosen[kappa]], kappa]
    assert chosen[0.5] > chosen[0.95]
    ledger = Ledger.read(folder / "results" / LEDGER_FILE)
    shown = trials_table(ledger).query("algorithm == 'zafar'")
    assert dict(zip(shown.kappa, shown.setting, strict=True)) == {
        kappa: f"covariance: {value}" for kappa, value in chosen.items()
    }
    write_report(folder / "results")
    pages = [(folder / "results" / name).read_text("utf-8") for name in ("summary.md", REPORT_FILE)]
    assert all("Tuned parameters" in page for page in pages)
    sheet = tuning_sheet(ledger)
    assert sheet.titles == ("algorithm", "at", "setting", "objective", "violation", "chosen")
    assert [row[-1].text for row in sheet.rows].count("1 of 1") == 2


def test_the_choice_depends_on_training_rows_only(folder):
    path = write(folder, FILE.partition("  - zafar: {as: none")[0])
    _, store = run_file(path)
    before, _ = tuned_trials(store)
    original, prepared = pd.read_csv(folder / "people.csv"), prepare(path)
    rows = load_trial_data(prepared.data, 0, None, prepared.cases[0].sampling)
    part, frame = rows.positions[rows.sample.part != "train"], original.copy()
    frame.loc[part, ["x", "z"]] = 99.0
    frame.loc[part, "y"] = 1 - frame.loc[part, "y"]
    frame.to_csv(folder / "people.csv", index=False)
    _, store = run_file(path)
    after, _ = tuned_trials(store)
    assert len(after) == 2
    for kappa, result in after.items():
        assert result.key != before[kappa].key
        assert result.models == before[kappa].models
        assert result.trace[:3] == before[kappa].trace[:3]


def test_streamed_rows_cannot_form_folds(folder, monkeypatch):
    monkeypatch.setenv("RATECLI_DATA", str(folder / "data"))
    text = """
name: streamed
datasets: {people: {path: people.csv, label: y, stream: true, split: {test: 0.3}}}
algorithms: [unconstrained: {tune: {loss: [hinge, logistic]}}]
"""
    path = write(folder, text)
    (fault,) = faults(path)
    assert (fault.code, fault.loc[-1]) == ("E410", "tune")
    _, store = run_file(path, "datasets.people.split.validation=0.2")
    (planned,) = store.plan()
    rows = store.result(planned.key).trace[:2]
    assert [row["setting"]["loss"] for row in rows] == ["hinge", "logistic"]
    assert planned.options["tune"] == {"loss": ["hinge", "logistic"]}


@pytest.mark.parametrize(
    "algorithm", one_in(3, ["unconstrained", "post_shift: {model: logistic}", "majorize"])
)
def test_a_tuned_penalty_acts_as_that_of_the_file(folder, algorithm):
    def trial(entry, l2="1/n"):
        rest = f"regularization: {{l2: {l2}}}\nalgorithms: [{entry}]\n"
        _, store = run_file(
            write(folder, FILE.partition("sweep:")[0].replace("kappa", ".8") + rest)
        )
        ((_, result),) = [(each, store.result(each.key)) for each in store.plan()]
        return result

    penalties = ["1", "0.6/n"]
    name, _, options = algorithm.partition(": ")
    options = options.strip("{}") + ", " if options else ""
    found = trial(f"{name}: {{{options}tune: {{l2: [{', '.join(penalties)}]}}}}")
    settings = [row for row in found.trace if "chosen" in row]
    assert [str(row["setting"]["l2"]) for row in settings] == penalties
    (chosen,) = (row["setting"]["l2"] for row in settings if row["chosen"])
    alone = {each: trial(algorithm, each).models for each in penalties}
    assert alone["1"] != alone["0.6/n"]
    assert found.models == alone[str(chosen)]


def test_a_key_depends_on_every_tuned_value_and_their_order(folder):
    values = ("[0, 0.4, 10]", "[0, 0.5, 10]", "[0, 0.4]", "[0.4, 0, 10]")
    plans = [prepare(write(folder, FILE.replace(values[0], each))).plan for each in values]
    first = [plan.planned[0].key for plan in plans]
    assert len(set(first)) == 4
    assert {plan.planned[2].key for plan in plans} == {plans[0].planned[2].key}

"""Baselines that read constraints: options that name one, and constraints they cannot use."""

import numpy as np
import pytest

from experiments import faults, measured_values, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.models.storage import loads
from ratecli.sampling.rows import load_trial_data
from ratecli.solvers.baselines.svm import ZAFAR_GAP
from ratecli.solvers.majorize.convex import FEASIBILITY_TOLERANCE

FILE = """
name: baselines
datasets: {people: {path: people.csv, label: y, drop: [old]}}
objective: error
constraints: {cover: positive_rate <= 0.3, recall: recall >= 0.9}
sweep: {WHICH}
algorithms: [thresholded: {meets: NAME}]
"""


@pytest.fixture
def folder(tmp_path):
    people(200, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def text_of(old, new):
    """Return the file without a sweep, with a part of it exchanged."""
    return FILE.replace("{WHICH}", "{}").replace(old, new)


def keys(folder, name, *renamed):
    text = text_of("NAME", name)
    for old, new in renamed:
        text = text.replace(f" {old}:", f" {new}:").replace(f"{{{old}:", f"{{{new}:")
    return {task.key for task in prepare(write(folder, text)).plan.tasks}


def test_a_constraint_named_by_an_option_can_be_swept(folder):
    text = FILE.replace("WHICH", "goal: [cover, recall]").replace("NAME", "goal")
    path = write(folder, text)
    outcome, store = run_file(path)
    assert outcome.counts == {"not_met": 2}  # the other constraint
    missed = {}
    for trial in store.plan():
        measured = measured_values(trial, store.result(trial.key))
        violations = [measured[f"violation.{name}", "train"] for name in ("cover", "recall")]
        missed[trial.point["goal"]] = [violation > 0 for violation in violations]
    assert missed == {"cover": [False, True], "recall": [True, False]}


def test_infeasible_constraints_give_no_classifier(folder):
    outcome, store = run_file(write(folder, text_of("NAME", "null")))
    assert outcome.counts == {"infeasible": 1}
    (trial,) = store.plan()
    result = store.result(trial.key)
    assert result.reason.startswith("no threshold satisfies all constraints")
    assert result.models == {}


def test_a_key_contains_the_constraint_that_an_option_names_but_not_its_name(folder):
    """Otherwise, a file with two names exchanged would get the results of the other constraint."""
    one = keys(folder, "cover")
    assert keys(folder, "few", ("cover", "few")) == one
    assert keys(folder, "recall") != one
    swapped = (("cover", "x"), ("recall", "cover"), ("x", "recall"))
    assert keys(folder, "recall", *swapped) == one
    assert keys(folder, "cover", *swapped) != one


def test_a_wrong_constraint_name_in_a_sweep_is_refused(folder):
    text = FILE.replace("WHICH", "goal: [cover, recal]").replace("NAME", "goal")
    (fault,) = faults(write(folder, text))
    assert (fault.code, fault.place.line, fault.place.column) == ("E203", 7, 35)
    assert fault.message == "no constraint is called 'recal'"
    assert "did you mean 'recall'?" in fault.help


def test_zafar_needs_constraints_that_compare_two_groups(folder):
    recall, cover = faults(write(folder, text_of("thresholded: {meets: NAME}", "zafar")))
    assert recall.message.endswith("others: 'recall' does only one of these")
    assert cover.message.endswith("others: 'cover' does only one of these")
    assert {(fault.code, fault.place.line) for fault in (recall, cover)} == {("E308", 5)}


def test_zafar_refuses_an_unsuitable_constraint_that_depends_on_a_trial(folder):
    text = text_of("thresholded: {meets: NAME}", "unconstrained, zafar")
    text = text.replace(
        "{cover: positive_rate <= 0.3, recall: recall >= 0.9}",
        "{cover: 'positive_rate <= of(unconstrained, positive_rate)'}",
    )
    outcome, store = run_file(write(folder, text))
    assert outcome.counts == {"ok": 1, "error": 1}
    reason = store.result(store.plan()[1].key).reason
    assert reason.startswith(
        "E308: zafar needs a constraint that raises the decisions of some rows"
    )


def test_a_stored_zafar_model_satisfies_its_covariance_limit(folder):
    rule = "positive_rate[sex = M] <= 2 * positive_rate[sex = F]"
    text = FILE.replace("{cover: positive_rate <= 0.3, recall: recall >= 0.9}", f"{{a: '{rule}'}}")
    text = text.replace("WHICH", "c: [0, 0.3]")
    text = text.replace("thresholded: {meets: NAME}", "zafar: {covariance: c}")
    path = write(folder, text)
    outcome, store = run_file(path)
    assert outcome.counts == {"ok": 2}
    rows = load_trial_data(prepare(path).data, 0)
    train = rows.sample.part == "train"
    men = rows.sample.columns["sex"] == "M"
    for trial in store.plan():
        result = store.result(trial.key)
        scores = loads(result.models["deterministic"]).score(rows.X)
        slack = trial.point["c"] - np.mean(scores[train & men]) + np.mean(scores[train & ~men])
        assert slack >= -2 * FEASIBILITY_TOLERANCE
        # the constraint is active, and the remaining slack is worth no more than the gap
        assert result.multipliers["a"] > 0.04
        assert slack * result.multipliers["a"] <= result.trace[0]["gap"] + 1e-9 <= 2 * ZAFAR_GAP

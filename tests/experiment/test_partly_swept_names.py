"""Names that vary for some algorithms only: left out, refused, or setting an option."""

import pytest

from experiments import faults, people, run_file, write
from ratecli.experiment.explain import explain
from ratecli.experiment.prepare import check_available, prepare
from ratecli.ledger.view import Ledger

FILE = """
name: partly
datasets: {people: {path: people.csv, label: y, drop: [old]}}
groups: {men: sex = M, women: sex = F}
objective: error
constraints: {ratio: 'positive_rate[men] <= target * positive_rate[women]'}
algorithms:
  - unconstrained
  - majorize: {iterations: 2, sweep: {target: [1.25, 1.5]}}
  - zafar: {sweep: {covariance: [0, 0.2], target: [1]}}
metrics:
  over: positive_rate[men] - target * positive_rate[women]
  error: error
  price: error / of(unconstrained, error)
"""
ZAFAR = "zafar: {sweep: {covariance: [0, 0.2], target: [1]}}"


@pytest.fixture
def folder(tmp_path):
    people(300, 1).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def planned(folder, text, name="other.yaml"):
    return prepare(write(folder, text, name)).plan.planned


def refused(folder, old, new):
    """Return the only error of a changed file, and the text at its place."""
    assert old in FILE
    (fault,) = faults(write(folder, FILE.replace(old, new)))
    start = fault.place.column - 1
    return fault, fault.place.excerpt[start : start + fault.place.width]


def test_undefined_metrics_are_left_out(folder):
    outcome, store = run_file(write(folder, FILE))
    assert set(outcome.counts) <= {"ok", "not_met"}
    by_label = {trial.label: set(trial.metrics) for trial in store.plan()}
    everything = {"objective", "over", "error", "price", "violation.ratio"}
    assert by_label == {
        "unconstrained": {"objective", "error", "price"},
        "majorize": everything,
        "zafar": everything,
    }
    assert [(trial.label, trial.point) for trial in store.plan()] == [
        ("unconstrained", {}),
        ("majorize", {"target": 1.25}),
        ("majorize", {"target": 1.5}),
        ("zafar", {"covariance": 0, "target": 1}),
        ("zafar", {"covariance": 0.2, "target": 1}),
    ]
    for trial in store.plan():
        values = store.result(trial.key).values
        assert {v.metric for v in values} == set(trial.metrics.values())
    ledger = Ledger(store.plan(), store.results(), store.meta())
    assert ledger.metrics == ("objective", "over", "error", "price", "violation.ratio")


def test_keys_do_not_depend_on_sweeps_of_others(folder):
    text = FILE.replace("price: error / of(unconstrained, error)", "price: error / 2")
    every = text.replace("algorithms:", "sweep: {target: [1.25, 1.5]}\nalgorithms:")
    one, other = planned(folder, text), planned(folder, every)
    assert [t.key for t in one if t.label == "majorize"] == [
        t.key for t in other if t.label == "majorize"
    ]


def test_own_sweep_sets_the_option_of_its_name(folder):
    spelled = FILE.replace(ZAFAR, "zafar: {covariance: c, sweep: {c: [0, 0.2], target: [1]}}")
    given = FILE.replace(ZAFAR, ZAFAR.replace("{sweep", "{covariance: 0.1, sweep"))
    common = FILE.replace(ZAFAR, "zafar: {sweep: {target: [1]}}")
    common = common.replace("algorithms:", "sweep: {covariance: [0.1, 0.2]}\nalgorithms:")
    named = FILE.replace("covariance: [0, 0.2]", "include: [{target: 1, covariance: 0.2}]")

    def options(text):
        trials = [t for t in planned(folder, text) if t.label == "zafar"]
        return [t.options["covariance"] for t in trials], [t.key for t in trials]

    assert options(FILE) == options(spelled)
    assert options(FILE)[0] == [0, 0.2]
    assert options(given)[0] == [0.1, 0.1]
    assert options(common)[0] == [0, 0]  # a sweep of all speaks to rules: the option is not meant
    assert options(named)[0] == [0.2]


@pytest.mark.parametrize(
    ("old", "new", "label"),
    [
        (", target: [1]", "", "zafar"),
        (ZAFAR, "thresholded", "thresholded"),
        (ZAFAR, "majorize: {as: again}", "again"),
        ("objective: error", "objective: target * error", "unconstrained"),
    ],
)
def test_constraints_and_objective_need_their_names(folder, old, new, label):
    fault, shown = refused(folder, old, new)
    assert (fault.code, shown) == ("E203", "target")
    assert fault.message == f"'target' has no value for '{label}'"
    assert fault.help == "say sweep: {target: [1]} in its entry, or sweep it for all algorithms"


def test_errors_of_swept_options_and_misspelt_names(folder):
    fault, shown = refused(folder, "covariance: [0, 0.2]", "covariance: [0, -0.2]")
    assert (fault.code, shown) == ("E104", "[0, -0.2]")
    assert "'covariance'" in fault.message
    fault, _ = refused(folder, "<= target", "<= targt")
    assert "did you mean 'target'?" in fault.help


def test_explain_shows_the_first_definition(folder):
    lines = explain(check_available(write(folder, FILE)))
    assert "  over = positive_rate[sex = M] - 1.25 * positive_rate[sex = F]" in lines
    assert any(line.strip().startswith("at target=1.25") for line in lines)


def test_options_may_have_no_effect_at_some_sweep_points(folder):
    swept = FILE.replace("- unconstrained", "- unconstrained: {model: model, loss: logistic}")
    swept += "sweep: {model: [linear, LogisticRegression]}\n"
    assert len(planned(folder, swept)) == 2 * (1 + 2 + 2)
    fixed = "unconstrained: {model: LogisticRegression, loss: logistic}\n"
    fault, shown = refused(folder, "unconstrained\n", fixed)
    assert (fault.code, shown) == ("E104", "loss")

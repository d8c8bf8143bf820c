"""Swept data sets: each is a separate problem, as in a file of its own."""

import pandas as pd
import pytest

from experiments import faults, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.experiment.report_facts import report_metadata

DATASETS = {
    "north": "north: {path: north.csv, label: y, drop: [old]}",
    "south": "south: {path: south.csv, label: y, drop: [old]}",
}
GROUPS = {"north": "sex = F", "south": "gender = f"}
GOALS = """
objective: error
constraints:
  ratio: positive_rate <= 1.1 * positive_rate[women]
  price: error <= 1.2 * of(unconstrained, error)
algorithms: [unconstrained, majorize: {iterations: 2}]
metrics: {error: error, women: 'positive_rate[women]'}
seeds: 2
"""
BOTH = f"""
name: both
datasets: {{{", ".join(DATASETS.values())}}}
sweep: {{dataset: [north, south]}}
groups: {{women: {{north: sex = F, south: gender = f}}}}
{GOALS}"""


@pytest.fixture
def folder(tmp_path):
    people(200, 1).to_csv(tmp_path / "north.csv", index=False)
    south: pd.DataFrame = people(160, 2).rename(columns={"sex": "gender"})
    south["gender"] = south["gender"].str.lower()
    south.to_csv(tmp_path / "south.csv", index=False)
    return tmp_path


def alone(name):
    head = f"name: {name}\ndatasets: {{{DATASETS[name]}}}\ngroups: {{women: {GROUPS[name]}}}\n"
    return head + GOALS


def results(store):
    """Keys and values of every trial, by data set, label and seed."""
    return {
        (trial.point.get("dataset"), trial.label, trial.seed): (trial.key, found.values)
        for trial in store.plan()
        for found in [store.result(trial.key)]
    }


def test_trials_equal_those_of_a_file_for_each_data_set(folder):
    _, store = run_file(write(folder, BOTH))
    together = results(store)
    assert len(together) == 2 * 2 * 2
    for name in DATASETS:
        _, own = run_file(write(folder, alone(name), f"{name}.yaml"))
        expected = {(name, label, seed): each for (_, label, seed), each in results(own).items()}
        assert {at: each for at, each in together.items() if at[0] == name} == expected


def test_only_selected_data_sets_are_read(folder):
    (folder / "south.csv").unlink()
    only = prepare(write(folder, BOTH), ["sweep.dataset=[north]"])
    assert {trial.point["dataset"] for trial in only.plan.planned} == {"north"}
    assert [fault.code for fault in faults(write(folder, BOTH))] == ["E405"]


def test_expectations_of_data_sets_that_are_not_selected_are_ignored(folder):
    expect = """
expect:
  - {dataset: north, algorithm: majorize, metric: error, paper: 0.2}
  - {dataset: south, algorithm: majorize, metric: error, paper: 0.3}
"""
    only = prepare(write(folder, BOTH + expect), ["sweep.dataset=[north]"])
    assert len(only.plan.planned) == 4
    (fault,) = faults(write(folder, BOTH + expect.replace("south", "west")))
    assert fault.code == "E104"


def test_one_trial_of_each_algorithm_runs_first_and_trials_with_equal_rows_are_consecutive(folder):
    jobs = [task.payload for task in prepare(write(folder, BOTH)).plan.tasks]
    algorithms = {(job.case.label, job.case.datasets) for job in jobs}
    first = jobs[: len(algorithms)]
    assert {(job.case.label, job.case.datasets) for job in first} == algorithms
    assert {job.seed for job in first} == {0}
    for part in (first, jobs[len(algorithms) :]):
        rows = [(job.case.datasets, job.seed) for job in part]
        assert rows == sorted(rows)


def test_own_sweep_may_select_data_sets(folder):
    text = BOTH.replace("majorize: {iterations: 2}", "majorize: {sweep: {dataset: [south]}}")
    planned = prepare(write(folder, text)).plan.planned
    taken = {(trial.label, trial.point["dataset"]) for trial in planned}
    assert taken == {("unconstrained", "north"), ("unconstrained", "south"), ("majorize", "south")}


def test_errors_of_columns_and_groups_name_the_data_set(folder):
    text = BOTH.replace("women: 'positive_rate[women]'", "women: 'positive_rate[sex = F]'")
    (fault,) = faults(write(folder, text))
    assert (fault.code, fault.message) == ("E205", "in 'south' there is no column 'sex'")
    text = BOTH.replace("south: gender = f}", "\n  south: 'gender = f, x > 100'}")
    fault = next(fault for fault in faults(write(folder, text)) if fault.code == "E408")
    assert "is in the group 'women' of 'south'" in fault.message
    assert fault.place.excerpt.lstrip().startswith("south:")


def test_a_split_that_some_data_sets_have_can_be_shown_and_expected(folder):
    """One of a data set without it is refused: see `tests/cli/broken_files.py`."""
    halves = BOTH.replace("drop: [old]}", "drop: [old], split: {validation: 1/3}}", 1)
    report = "report: {tables: [{rows: [dataset], columns: [error], split: validation}]}\n"
    entry = "algorithm: majorize, metric: error, split: validation, at_most: 1}"
    text = f"{halves}{report}expect: [{{{entry}, {{dataset: north, {entry}]\n"
    assert prepare(write(folder, text)).plan.planned


PLOTTED = """\
name: x
datasets: {d: {source: loans, rows: 200}}
groups: {women: sex = Female, men: sex = Male}
constraints:
  parity: positive_rate[women] >= kappa * positive_rate[men]
  cover: positive_rate <= 0.4
sweep: {kappa: [0.5, 0.8]}
algorithms: [majorize]
metrics: {ratio: 'positive_rate[women] / positive_rate[men]', cover: positive_rate}
report: {plots: [%s]}
"""
LIMIT = {"value": 0.0, "label": "limit"}
COVER = {"value": 0.4, "label": "cover: 0.4"}


def parity(kappa, **more):
    return {"value": kappa, "label": f"parity: {kappa:g}"} | more


@pytest.mark.parametrize(
    ("plot", "levels", "heights"),
    [
        ("{kind: tradeoff, x: ratio, y: cover}", [parity(0.5), parity(0.8)], [COVER]),
        (
            "{kind: tradeoff, x: ratio, y: objective, by: kappa}",
            [parity(0.5, panel=0.5), parity(0.8, panel=0.8)],
            [],
        ),
        ("{kind: tradeoff, x: violation.parity, y: violation.cover, by: kappa}", [LIMIT], [LIMIT]),
        # along what is swept a limit of y would be another one at each place
        ("{kind: tradeoff, x: kappa, y: ratio}", [], []),
        ("{kind: tradeoff, x: kappa, y: violation.parity}", [], [LIMIT]),
    ],
)
def test_lines_of_a_tradeoff(tmp_path, plot, levels, heights):
    path = tmp_path / "exp.yaml"
    path.write_text(PLOTTED % f"{plot}, {{kind: convergence}}")
    lines = {"levels": levels, "heights": heights}
    assert report_metadata(prepare(path))["plots"] == [lines, {}]

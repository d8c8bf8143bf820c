"""Labels that are numbers: measures of estimates, defaults, and label ranges."""

import math

import numpy as np
import pandas as pd
import pytest

from experiments import measured_values, run_file, write
from ratecli.experiment.prepare import check_file, prepare
from ratecli.models.storage import loads
from ratecli.rates.analysis import objective_goal
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.scope import Scope
from ratecli.runner.trial import training_problem
from ratecli.sampling.rows import TrialData, load_trial_data
from ratecli.solvers.seldonian.score_models import score_model_of

ENTRY = "path: {}.csv, label: y, target: number"
PLAIN = f"""
name: marks
datasets: {{d: {{{ENTRY.format("marks")}, label_range: [0, 4], split: {{validation: 1/5}}}}}}
algorithms: [unconstrained: {{loss: squared}}]
"""
TWO_CLASSES = "name: x\ndatasets: {d: {source: loans, rows: 200}}\nalgorithms: [unconstrained]\n"
GOALS = """
groups: {women: sex = F, men: sex = M}
metrics: {mse: mse, women: 'mean_error[women]', gap: 'abs(mean_error[women] - mean_error[men])'}
"""


def marks(count: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex, x = np.where(np.arange(count) % 2, "M", "F"), rng.normal(size=count)
    y = np.clip(2 + x + 0.3 * (sex == "F") + rng.normal(size=count) / 2, 0, 4)
    y[::10] = np.nan
    return pd.DataFrame({"sex": sex, "x": x, "y": y})


@pytest.fixture
def folder(tmp_path):
    marks(300, 0).to_csv(tmp_path / "marks.csv", index=False)
    marks(90, 1).to_csv(tmp_path / "others.csv", index=False)
    return tmp_path


def rows_of(folder, text: str) -> TrialData:
    return load_trial_data(prepare(write(folder, text)).data, 0)


def test_errors_of_estimates(folder):
    _, store = run_file(write(folder, PLAIN + GOALS))
    ((trial, result),) = [(each, store.results()[each.key]) for each in store.plan()]
    assert result.status == "ok"
    rows = rows_of(folder, PLAIN + GOALS)
    model = loads(store.models(trial.key)[result.values[0].variant])
    error = model.estimate(rows.X) - rows.sample.label
    women = rows.sample.columns["sex"] == "F"
    measured = measured_values(trial, result)
    for split in ("train", "validation", "test"):
        there = (rows.sample.part == split) & ~np.isnan(rows.sample.label)
        means = [error[there & women].mean(), error[there & ~women].mean()]
        mse, gap = (error[there] ** 2).mean(), abs(means[0] - means[1])
        expected = {"mse": mse, "women": means[0], "gap": gap, "objective": mse}
        for name, value in expected.items():
            assert measured[name, split] == pytest.approx(value, rel=1e-12)
    assert measured["mse", "test"] < 0.5


def test_constraint_on_estimates_is_safety_tested(folder):
    text = PLAIN.replace("unconstrained: {loss: squared}", "seldonian")
    text += (
        "constraints: {close: mse <= limit}\nsafety: {fraction: 1/2}\nsweep: {limit: [0.1, 1.5]}\n"
    )
    _, store = run_file(write(folder, text))
    found = {trial.point["limit"]: store.results()[trial.key] for trial in store.plan()}
    assert [found[limit].status for limit in (0.1, 1.5)] == ["no_solution_found", "ok"]
    ((certificate,),) = [found[1.5].info["certificates"]]
    assert (certificate["classifier"], certificate["exact"]) == ("estimate", True)
    assert certificate["estimate"] < certificate["upper"] <= 0


@pytest.mark.parametrize(
    ("text", "objective", "metrics"),
    [
        (PLAIN, "mse", {"mse": "mse"}),
        (PLAIN + "objective: 2 * mse\nmetrics: {b: mean_error}\n", "2 * mse", {"b": "mean_error"}),
        (TWO_CLASSES, "error", {"error": "error"}),
    ],
)
def test_default_objective_and_metrics(folder, text, objective, metrics):
    experiment = check_file(write(folder, text)).experiment
    assert (experiment.objective, experiment.metrics) == (objective, metrics)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (("[0, 4]", "[-1, 4]"), (-1, 4)),
        (("[0, null]", "[0, 5]"), (0, math.inf)),
        ((None, "[0, 4]"), (-math.inf, math.inf)),
    ],
)
def test_solvers_get_the_label_range(folder, ranges, expected):
    entries = [
        ENTRY.format(name) + (f", label_range: {ends}" if ends else "")
        for name, ends in zip(("marks", "others"), ranges, strict=True)
    ]
    text = f"name: x\ndatasets: {{d: {{{entries[0]}}}, e: {{{entries[1]}}}}}\n"
    rows = rows_of(folder, text + "algorithms: [unconstrained: {loss: squared}]\n")
    assert rows.sample.label_range == expected
    problem = squared(rows)
    assert problem.label_range == expected
    train = rows.sample.part == "train"
    np.testing.assert_array_equal(problem.label, rows.sample.label[train])


def squared(rows):
    goal = objective_goal("mse", resolve(parse_expression("mse"), Scope()))
    return training_problem(rows, goal, (), "1/n")


def test_numbers_have_no_class_even_if_they_are_0_and_1(folder):
    (folder / "marks.csv").write_text("x,y\n" + "1,0\n2,1\n3,1\n" * 10)
    text = f"name: x\ndatasets: {{d: {{{ENTRY.format('marks')}, label_range: [0, 1]}}}}\n"
    rows = rows_of(folder, text + "algorithms: [unconstrained: {loss: squared}]\n")
    assert score_model_of(squared(rows)).numeric
    assert squared(rows).label_ends == (0, 1)
    assert rows.sample.mask("labelled").all()
    assert not (rows.sample.mask("+") | rows.sample.mask("-")).any()

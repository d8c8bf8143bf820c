"""What trials keep of filters, against sums over rows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments import measured_values, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import FILTERS_KEY
from ratecli.models.storage import loads
from ratecli.rates.analysis import objective_goal
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.scope import Scope
from ratecli.sampling.rows import load_trial_data
from ratecli.sampling.summaries import joint_rate_groups

FILE = """
name: filters
datasets: {people: {path: people.csv, label: y, weight: w, split: {test: 1/3}}}
objective: imbalance(by=city)
constraints: {rule: 'disclosivity(by=sex) <= 0.3'}
algorithms: [balanced_tree: {sampled: true, missing: leave_out}, naive_proxy: {missing: leave_out}]
metrics: {far: imbalance(by=city), tells: disclosivity(by=sex)}
"""


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summarize_filters")
    frame = people(900, 3)
    rng = np.random.default_rng(5)
    frame["city"] = np.where(frame["z"] + rng.normal(size=900) > 1, "Ulm", "Bonn")
    frame["city"] = frame["city"].where(rng.random(900) > 0.1)  # some rows tell no city
    frame["w"] = rng.choice([0.5, 1.0, 2.0], 900)
    frame.to_csv(folder / "people.csv", index=False)
    path = write(folder, FILE)
    _, store = run_file(path)
    results = {trial.label: store.result(trial.key) for trial in store.plan()}
    return prepare(path), results, {trial.label: trial for trial in store.plan()}


def test_summary_equals_sums_over_rows(trials):
    prepared, results, _ = trials
    rows = load_trial_data(prepared.data, 0, None, prepared.cases[0].sampling)
    sample = rows.sample
    for result in results.values():
        for name, told in result.info[FILTERS_KEY].items():
            classifier = loads(result.models[name])
            said, kept = classifier.memberships(rows.X), classifier.decide(rows.X)
            assert json.loads(json.dumps(told, allow_nan=False)) == told
            assert told["keep"] == pytest.approx(classifier.keep.tolist(), abs=1e-9)
            assert list(told["columns"]) == ["city", "sex"]
            for column, names in (("city", ["Bonn", "Ulm"]), ("sex", ["F", "M"])):
                here = told["columns"][column]
                assert here["groups"] == names
                assert list(here["splits"]) == ["train", "test"]
                for split, found in here["splits"].items():
                    values = sample.columns[column]
                    weight = sample.weight * (sample.part == split) * np.isin(values, names)
                    members = np.stack([values == group for group in names])
                    own, after = members @ weight, members @ (weight * kept)
                    both = members @ (weight[:, None] * said)
                    for key, expected in (
                        ("size", weight @ said / weight.sum()),
                        ("base", own / weight.sum()),
                        ("after", after / (weight @ kept)),
                        ("posterior", (both / (weight @ said)).T),
                    ):
                        np.testing.assert_allclose(found[key], expected, atol=1e-9)


def test_metrics_agree_with_the_summary(trials):
    _, results, planned = trials
    for label, result in results.items():
        for name, told in result.info[FILTERS_KEY].items():
            for split in ("train", "test"):
                known = measured_values(planned[label], result, name)
                city = told["columns"]["city"]["splits"][split]
                sex = told["columns"]["sex"]["splits"][split]
                shifts = np.abs(np.array(sex["posterior"]) - sex["base"])
                tells = known["tells", split]
                assert shifts.max() == pytest.approx(tells, abs=1e-9)
                assert sum(city["after"]) == pytest.approx(1)


def test_sampled_variant_has_its_own_summary(trials):
    told = trials[1]["balanced_tree"].info[FILTERS_KEY]
    assert list(told) == ["expected", "sampled"]  # the main variant first
    for column in ("city", "sex"):
        first, second = (told[name]["columns"][column]["splits"]["train"] for name in told)
        assert first["posterior"] == second["posterior"]
        assert first["after"] != second["after"]


def goal(text):
    values = {"job": ["b", "a"], "age": [3.0, 20.5, 30.0]}
    scope = Scope(values=values.get, columns=frozenset(values))
    return objective_goal(text, resolve(parse_expression(text), scope))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("imbalance(by=job)", {"job": ["b", "a"]}),
        ("imbalance(by=(age, job))", {"age": ["3", "20.5", "30"], "job": ["b", "a"]}),
        ("disclosivity(by=job)", {"job": ["b", "a"]}),
        ("share[age >= 20] - share[job = a]", {"age": ["age >= 20"], "job": ["a"]}),
        ("share[job = a, age > 4] + positive_rate[job = b]", {}),
    ],
)
def test_groups_of_goals(text, groups):
    found = {column: list(told) for column, told in joint_rate_groups([goal(text)]).items()}
    assert found == groups

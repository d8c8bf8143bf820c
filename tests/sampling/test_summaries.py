"""Rates of groups, violations and filters that are stored with a trial."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn import metrics

from experiments import measured_values, people, run_file, write
from ratecli.experiment.prepare import prepare
from ratecli.ledger.records import FILTERS_KEY
from ratecli.models.storage import loads
from ratecli.rates.analysis import constraint_goal, objective_goal
from ratecli.rates.expression import Slice
from ratecli.rates.matrix import Predictions
from ratecli.rates.parser import parse_conditions, parse_constraint, parse_expression
from ratecli.rates.resolve import constraint_differences, resolve, violation_expression
from ratecli.rates.sample import Sample
from ratecli.rates.scope import Scope
from ratecli.sampling.rows import TrialData, load_trial_data
from ratecli.sampling.summaries import (
    group_curves,
    group_rates,
    joint_rate_groups,
    violation_pieces,
)


def rates_of(label, predicted, weight, label_range=None):
    """The stored numbers of all rows, by rate."""
    n = len(label)
    sample = Sample(
        columns={},
        label=label,
        dataset=np.full(n, "d"),
        part=np.full(n, "test"),
        weight=weight,
        label_range=label_range,
    )
    predictions = {"main": Predictions(predicted, predicted, predicted)}
    found = group_rates(TrialData(sample, np.zeros((n, 0))), [], [], predictions)
    assert found["rows"] == {"all rows": n}
    return found["rates"]["main"]["all rows"]


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_errors_of_weighted_rates_are_their_standard_deviations(spread):
    rng, n = np.random.default_rng(0), 300
    weight = np.exp(spread * rng.normal(size=n))
    shares, means = [], []
    for _ in range(200):
        decisions, label = rng.random(n) < 0.3, np.zeros(n)
        shares.append(rates_of(label, decisions.astype(float), weight)["positive_rate"])
        means.append(rates_of(label, rng.normal(size=n), weight, (-9.0, 9.0))["mse"])
    values, rows = np.array(shares).T
    assert (rows[0] == n) == (spread == 0)
    assert np.std(values) == pytest.approx(np.sqrt(0.3 * 0.7 / rows[0]), rel=0.15)
    values, _, errors = np.array(means).T
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.15)


GROUP = Slice.of((), parse_conditions("sex = F"))


def curves_of(label, scores, estimates=None, weight=None, **more):
    """The stored curves of a group with all rows but the last, which has the highest score."""
    n = len(label) + 1
    sample = Sample(
        columns={"sex": np.array(["F"] * (n - 1) + ["M"], dtype=object)},
        label=np.append(label, 0.0),
        dataset=np.full(n, "d"),
        part=np.full(n, "test"),
        weight=np.ones(n) if weight is None else np.append(weight, 1.0),
        **more,
    )
    scores = np.append(scores, max(scores, default=0) + 1)
    decisions = (scores > 0).astype(float)
    main = Predictions(
        decisions, scores, decisions if estimates is None else np.append(estimates, 1)
    )
    rows = TrialData(sample, np.zeros((n, 0)))
    found = group_curves(rows, [], [GROUP], {"main": main, "other": main})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found["groups"].get(str(GROUP)) if found else None


@pytest.mark.parametrize("weighted", [False, True])
def test_curves_of_a_group_are_those_of_scikit_learn(weighted):
    """Scores of two digits have ties."""
    rng, n = np.random.default_rng(0), 500
    scores = rng.normal(size=n).round(2)
    chances = 1 / (1 + np.exp(-scores))
    label = (rng.random(n) < chances).astype(float)
    weight = rng.choice([1.0, 2.0], n) if weighted else np.ones(n)
    found = curves_of(label, scores, chances, weight)
    fpr, tpr, _ = metrics.roc_curve(label, scores, sample_weight=weight, drop_intermediate=False)
    assert found["roc"] == pytest.approx(np.interp(np.linspace(0, 1, 21), fpr, tpr), abs=1e-4)
    area = metrics.roc_auc_score(label, scores, sample_weight=weight)
    assert found["area"] == pytest.approx(area, abs=1e-4)
    own = weight[label == 1]
    assert found["positives"] == pytest.approx(own.sum() ** 2 / (own @ own))
    probabilities, shares, counts = found["calibration"]
    assert len(counts) == 10
    assert max(counts) < (50 if weighted else 60)
    if not weighted:
        bins = np.split(np.sort(chances), np.cumsum(counts[:-1]).astype(int))
        assert probabilities == pytest.approx([each.mean() for each in bins], abs=1e-4)
        assert np.average(shares, weights=counts) == pytest.approx(label.mean(), abs=1e-4)


@pytest.mark.parametrize("sizes", [(200, 250, 50), (30, 460, 10), (1, 2, 497)])
def test_rows_of_equal_scores_are_in_one_bin_in_any_order(sizes):
    """Scores of a calibrated tree, of rows sorted by label."""
    chances = np.repeat([0.2, 0.5, 0.8], sizes)
    label = np.concatenate(
        [np.arange(n) < round(c * n) for c, n in zip(np.unique(chances), sizes, strict=True)]
    )
    order = np.argsort(label)
    found = curves_of(label[order], chances[order] - 0.5, chances[order])
    probabilities, shares, counts = found["calibration"]
    assert shares == pytest.approx(probabilities, abs=2e-3)
    assert (sum(counts), min(counts) >= 20) == (500, True)
    shuffled = np.random.default_rng(0).permutation(500)
    assert curves_of(label[shuffled], chances[shuffled] - 0.5, chances[shuffled]) == found


LABEL, SCORES = np.arange(60) % 2, np.arange(60) - 30.0


@pytest.mark.parametrize(
    ("known", "calibrated", "arguments"),
    [
        (True, False, {}),
        (True, True, {"estimates": np.linspace(0, 1, 60)}),
        (False, False, {"label": np.ones(60)}),
        (False, False, {"label": np.full(60, np.nan)}),
        (False, False, {"scores": np.sign(SCORES + 0.5)}),
        (False, False, {"label": [], "scores": []}),
        (False, False, {"label_range": (0.0, 1.0)}),
        (False, False, {"count": np.ones(61)}),
    ],
)
def test_which_models_have_curves(known, calibrated, arguments):
    found = curves_of(**{"label": LABEL, "scores": SCORES, **arguments})
    assert (found is not None) == known
    if found is not None:
        assert [len(each) for each in found["calibration"]] == [3 * calibrated] * 3


def pieces_of(text, label, yes):
    """The value of the only piece and its standard error."""
    n = len(label)
    sample = Sample(
        columns={},
        label=label,
        dataset=np.full(n, "d"),
        part=np.full(n, "test"),
        weight=np.ones(n),
    )
    parts = constraint_differences(parse_constraint(text), Scope())
    goal = constraint_goal("p", text, parts, violation_expression(parts))
    found = violation_pieces(
        TrialData(sample, np.zeros((n, 0))), [goal], {"main": Predictions(yes, yes, yes)}
    )
    ((piece,),) = found["main"].values()
    return piece


def test_a_precision_of_0_in_4_rows_is_uncertain():
    """The true positives are 0 of 200 rows: with 2 more rows as in Agresti and Coull, 1 of 202."""
    n, near = 200, 1 / 202
    label, yes = np.zeros(n), np.zeros(n)
    label[:20], yes[-4:] = 1, 1
    value, error = pieces_of("precision >= 0.2", label, yes)
    assert value == pytest.approx(0.2)
    assert error == pytest.approx(np.sqrt(near * (1 - near) / n) / (4 / n))


@pytest.mark.parametrize("yes", [0.0, 1.0])
def test_a_constant_decision_has_certain_selection_rates(yes):
    label = np.arange(60) % 2
    assert pieces_of("positive_rate <= 0.02", label, np.full(60, yes)) == (yes - 0.02, 0.0)


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
            said, kept = classifier.proxy.memberships(rows.X), classifier.decide(rows.X)
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

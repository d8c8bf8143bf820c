"""r = A p + c against loops over rows, hand-made counts and scikit-learn."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_rates import ROW_RATES, definitions, naive_rate, node, number, random_sample
from oracles.goals import by_kind
from sklearn import metrics as sk

from ratecli.rates.expression import Slice
from ratecli.rates.matrix import (
    Predictions,
    RateMatrix,
    RowKinds,
    build_rate_matrix,
    log_loss,
    measure,
)
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.sample import Sample
from ratecli.rates.scope import Scope
from ratecli.rates.table import RATES

SEEDS = st.integers(0, 2**32 - 1)


def matrix_of(texts: list[str], sample: Sample, split: str | None = "train") -> RateMatrix:
    return build_rate_matrix(list(map(node, texts)), sample, split)


def plain(
    label: list[float], decisions: list[float], deployed: list[float] | None = None
) -> tuple[Sample, Predictions]:
    """Training rows of one data set with weights of 1."""
    rows, p = len(label), np.array(decisions, dtype=float)
    names = np.full(rows, "d1"), np.full(rows, "train")
    old = None if deployed is None else np.array(deployed, dtype=float)
    sample = Sample({}, np.array(label, dtype=float), *names, np.ones(rows), old)
    return sample, Predictions(p, p, p)


SLICES = {
    "": lambda _, __: True,
    "[women]": lambda s, i: s.columns["sex"][i] == "f",
    "[sex != f]": lambda s, i: s.columns["sex"][i] == "m",
    "[sex = (f, m), age >= 30]": lambda s, i: (
        s.columns["sex"][i] is not None and s.columns["age"][i] >= 30
    ),
    "[age < 40, age > 20]": lambda s, i: 20 < s.columns["age"][i] < 40,
    "[age != 33]": lambda s, i: not math.isnan(s.columns["age"][i]) and s.columns["age"][i] != 33,
    "[age = (20, '21', old)]": lambda s, i: s.columns["age"][i] in {20, 21},
    "[zip = (1, 2.5)]": lambda s, i: s.columns["zip"][i] in {"1", "2.5"},
    "[zip <= 2.5]": lambda s, i: float(s.columns["zip"][i]) <= 2.5,
    "[women or age >= 30]": lambda s, i: s.columns["sex"][i] == "f" or s.columns["age"][i] >= 30,
    "[not (women and age >= 30), d1]": lambda s, i: (
        (s.columns["sex"][i] == "m" or s.columns["age"][i] < 30) and s.dataset[i] == "d1"
    ),
    "[not (sex in (f, m) or age < 30) or zip = 1 and women]": lambda s, i: (
        s.columns["zip"][i] == "1" and s.columns["sex"][i] == "f"
    ),
    "[d1]": lambda s, i: s.dataset[i] == "d1",
    "[d1, d3, women]": lambda s, i: s.dataset[i] in {"d1", "d3"} and s.columns["sex"][i] == "f",
}


@pytest.mark.parametrize("name", ROW_RATES)
@given(
    seed=SEEDS,
    rows=st.integers(1, 30),
    where=st.sampled_from(sorted(SLICES)),
    deployed=st.booleans(),
)
@settings(max_examples=12)
def test_a_rate_agrees_with_its_definition(name, seed, rows, where, *, deployed):
    sample, predictions = random_sample(seed, rows, deployed=deployed)
    inside = np.array([SLICES[where](sample, i) for i in range(rows)])
    named = [each for each in ("d1", "d2", "d3") if each in where]
    for split, own in itertools.product(("train", "test"), ("", "@validation")):
        part = sample.part == (own[1:] or split)
        keep = part & inside
        over = part & np.isin(sample.dataset, named or ["d1", "d2", "d3"])
        expected = naive_rate(name, sample, predictions, keep, over if RATES[name].whole else keep)
        found = number(RATES[name].text + where + own, sample, predictions, split)
        assert found == pytest.approx(expected, nan_ok=True)


@given(SEEDS)
@settings(max_examples=20)
def test_matrix_and_measurements_give_the_same_rates(seed):
    sample, predictions = random_sample(seed, 40)
    assert set(definitions(sample, predictions)) == set(ROW_RATES)
    everywhere = "", "[women]", "[d2]@test", "[sex = x]"
    texts = [f"{rate.text}{where}" for rate in ROW_RATES.values() for where in everywhere]
    leaves = list(map(node, texts))
    matrix = build_rate_matrix([*leaves, *leaves], sample, "train")
    assert matrix.leaves == tuple(leaves)
    assert matrix.A.shape == (len(leaves), len(sample))
    assert [matrix.index()[leaf] for leaf in leaves] == list(range(len(leaves)))
    measurements = predictions.measurements(leaves, sample.label)
    assert set(measurements) == {"decision", "error", "squared_error", "log_loss"}
    expected = np.array(measure(leaves, sample, "train", predictions))
    np.testing.assert_array_equal(matrix.measured(measurements), expected)
    decisive = [leaf.rate.of == "decision" for leaf in leaves]
    np.testing.assert_allclose(matrix.rates(predictions.decisions)[decisive], expected[decisive])
    with pytest.raises(KeyError):
        matrix.measured({"decision": predictions.decisions})


def test_log_loss_of_estimates_at_and_outside_the_ends():
    estimates = np.array([0.25, 0.25, 1, 0, 1, 0, 0.5, 1.2, -0.1])
    label = np.array([1, 0, 1, 0, 0, 1, np.nan, 1, 0])
    expected = [math.log(4), -math.log(0.75), 0, 0, math.inf, math.inf, 0, math.inf, math.inf]
    assert log_loss(estimates, label) == pytest.approx(expected)
    assert not np.signbit(log_loss(estimates, label)).any()
    sample, _ = plain([1, 0], [0, 0])
    estimate = np.array([1.0, 0.75])
    predictions = Predictions(estimate, estimate, estimate)
    assert number("log_loss", sample, predictions) == pytest.approx(math.log(4) / 2)
    wrong = Predictions(1 - estimate, estimate, 1 - estimate)
    assert number("log_loss + error", sample, wrong) == math.inf


def test_matrices_without_rates_rows_or_dependence_on_decisions():
    sample, predictions = random_sample(1, 30)
    nothing = matrix_of([], sample)
    assert (nothing.A.shape, nothing.rates(predictions.decisions).shape) == ((0, 30), (0,))
    some = matrix_of(["tpr[sex = x]", "tpr"], sample)
    assert np.isnan(some.rates(predictions.decisions)).tolist() == [True, False]
    base = matrix_of(["base_rate"], sample)
    assert base.A.nnz == 0
    assert 0 < base.c[0] < 1


@pytest.mark.parametrize("name", ROW_RATES)
def test_rates_that_need_labels_or_the_deployed_model_are_nan_without_them(name):
    sample, predictions = random_sample(7, 60)
    unlabelled = replace(sample, label=np.full(60, np.nan))
    alone = replace(sample, deployed=None)
    text = RATES[name].text
    assert math.isnan(number(text, unlabelled, predictions)) == RATES[name].needs_labels
    assert math.isnan(number(text, alone, predictions)) == RATES[name].needs_deployed


@given(SEEDS)
@settings(max_examples=20)
def test_rates_of_the_mean_decision_are_the_mean_rates(seed):
    rng = np.random.default_rng(seed)
    sample, _ = random_sample(seed, 40)
    members, chances = rng.integers(0, 2, (3, 40)).astype(float), rng.dirichlet(np.ones(3))
    names = [rate.text for rate in ROW_RATES.values() if rate.of == "decision"]
    matrix = matrix_of([f"{name}[{d}]" for name in names for d in ("d1", "d2")], sample, "test")
    mean = sum(chance * matrix.rates(p) for chance, p in zip(chances, members, strict=True))
    np.testing.assert_allclose(matrix.rates(chances @ members), mean, atol=1e-12)


HALF_POSITIVE, DECIDED = [1] * 5 + [0] * 5, [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
COUNTS = "2 * true_positives + false_positives + false_negatives"


@pytest.mark.parametrize(
    ("label", "decisions", "expected"),
    [
        # vector 9.6: TP, FP, FN = 3, 1, 2 of 10 rows, then mixed equally with no positive decisions
        (HALF_POSITIVE, DECIDED, {"f1": 2 / 3, "2 * true_positives": 0.6, COUNTS: 0.9}),
        (HALF_POSITIVE, [each / 2 for each in DECIDED], {"f1": 0.42857}),
        # vector 9.15: tpr .8, tnr .5
        ([1] * 10 + [0] * 10, [1] * 8 + [0] * 2 + [1] * 5 + [0] * 5,
         {"1 - g_mean": 0.36754, "1 - h_mean": 0.38462, "1 - q_mean": 0.38079}),
        # vector 9.14: average precision of scores
        ([1, 0, 1, 1, 0, 0], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], {"pr_auc": 0.80556}),
        # ends of domains
        ([1, 0], [0, 0], {"f1": 0, "tnr / tpr": math.inf, "-tnr / tpr": -math.inf}),
        ([1, 0], [0, 0], dict.fromkeys(
            ("precision", "max(tpr, 0 * tpr + precision)", "sqrt(tpr - 1)"), math.nan)),
    ],
)  # fmt: skip
def test_known_values_of_metrics(label, decisions, expected):
    sample, predictions = plain(label, decisions)
    found = {text: number(text, sample, predictions) for text in expected}
    assert found == pytest.approx(expected, nan_ok=True, abs=1e-5)


def test_churn_by_cells():
    """Vector 9.5: in each cell of label and deployed decision, some rows change their decision."""
    cells = {(1, 1): (40, 5), (1, 0): (10, 4), (0, 1): (20, 6), (0, 0): (30, 3)}
    label, deployed, decided = [], [], []
    for (y, g), (size, flips) in cells.items():
        label += [y] * size
        deployed += [g] * size
        decided += [1 - g] * flips + [g] * (size - flips)
    sample, predictions = plain(label, decided, deployed)
    assert number("churn", sample, predictions) == pytest.approx(0.18)
    assert number("wins", sample, predictions) == pytest.approx((4 + 6) / 100)
    assert number("losses", sample, predictions) == pytest.approx((5 + 3) / 100)
    assert number("win_loss_ratio", sample, predictions) == pytest.approx(10 / 8)


def test_metrics_of_other_algorithms_come_from_a_function():
    sample, predictions = plain([1, 0], [1, 1])
    goal = node("error - 2 * of(other, error)")
    assert measure([goal], sample, "train", predictions, lambda _: 0.1) == pytest.approx([0.3])
    assert math.isnan(measure([goal], sample, "train", predictions, lambda _: math.nan)[0])
    with pytest.raises(TypeError, match="other"):
        measure([goal], sample, "train", predictions)


@given(SEEDS)
@settings(max_examples=25)
def test_metrics_agree_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    rows = 60
    label, yes = rng.integers(0, 2, rows), rng.integers(0, 2, rows)
    label[:2], yes[:2] = [0, 1], [1, 1]
    weight, scores = rng.uniform(0.1, 3, rows), rng.normal(size=rows).round(1)
    estimates = 1 / (1 + np.exp(-scores))
    sample, _ = plain(label.tolist(), yes.tolist())
    sample = replace(sample, weight=weight)
    predictions = Predictions(yes.astype(float), scores, estimates)
    weights = {"sample_weight": weight}
    expected = {
        "accuracy": sk.accuracy_score(label, yes, **weights),
        "error": sk.zero_one_loss(label, yes, **weights),
        "recall": sk.recall_score(label, yes, **weights),
        "specificity": sk.recall_score(label, yes, pos_label=0, **weights),
        "precision": sk.precision_score(label, yes, **weights),
        "f1": sk.f1_score(label, yes, **weights),
        "f_score(2)": sk.fbeta_score(label, yes, beta=2, **weights),
        "f_score(0.5)": sk.fbeta_score(label, yes, beta=0.5, **weights),
        "roc_auc": sk.roc_auc_score(label, scores, **weights),
        "pr_auc": sk.average_precision_score(label, scores, **weights),
        "mse": sk.brier_score_loss(label, estimates, **weights),
        "balanced_accuracy": sk.balanced_accuracy_score(label, yes, **weights),
    }
    found = measure([node(text) for text in expected], sample, "train", predictions)
    assert dict(zip(expected, found, strict=True)) == pytest.approx(expected)


def test_rankings_use_their_slice_and_split():
    sample, predictions = random_sample(11, 200)
    rows = sample.rows(Slice(("d1",)), "test") & ~np.isnan(sample.label)
    expected = sk.roc_auc_score(
        sample.label[rows], predictions.scores[rows], sample_weight=sample.weight[rows]
    )
    assert number("roc_auc[d1]@test", sample, predictions) == pytest.approx(expected)
    assert number("roc_auc[d1]", sample, predictions, "test") == pytest.approx(expected)


FAIRLEARN = (
    "demographic_parity_difference demographic_parity_ratio equal_opportunity_difference "
    "equal_opportunity_ratio equalized_odds_difference equalized_odds_ratio "
    "accuracy_score_difference accuracy_score_ratio false_positive_rate_difference"
)


@pytest.mark.parametrize("samples", [2, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("by", [["zip"], ["sex", "zip"]])
def test_fairness_measures_are_those_of_fairlearn(samples, by):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    for seed in range(samples):
        drawn, _said = random_sample(seed, 300)
        rows = np.flatnonzero(~np.isnan(drawn.label) & (drawn.columns["sex"] != None))  # noqa: E711
        names = np.full(len(rows), "d1"), np.full(len(rows), "train")
        weight = drawn.weight[rows]
        columns = {name: drawn.columns[name][rows] for name in ("sex", "zip")}
        label = drawn.label[rows]
        p = (np.random.default_rng(seed).random(len(rows)) < 0.5).astype(float)
        sample = Sample(columns, label, *names, weight)
        scope = Scope(values=lambda name: sorted(set(columns[name])))  # noqa: B023
        for name in FAIRLEARN.split():
            tree = resolve(parse_expression(f"{name}(by=[{', '.join(by)}])"), scope)
            (found,) = measure([tree], sample, "train", Predictions(p, p, p))
            groups = np.column_stack([columns[each] for each in by])
            expected = getattr(fairlearn, name)(
                label, p, sensitive_features=groups, sample_weight=weight
            )
            assert found == pytest.approx(expected, abs=1e-12), (seed, name)


KINDS = ["error", "positive_rate[sex=f]", "tpr[sex=m]", "churn", "base_rate", "wins[zip=1]"]


def some_kinds(seed: int, rows: int = 60, *, weighted: bool = True) -> RowKinds:
    sample, _ = random_sample(seed, rows)
    weight = sample.weight if weighted else np.ones(rows)
    return RowKinds.by(matrix_of(KINDS, replace(sample, weight=weight)))


@given(SEEDS)
def test_sums_over_kinds_give_rates(seed):
    kinds, p = some_kinds(seed), np.random.default_rng(seed).random((60, 3))
    yes = by_kind(kinds, p)
    expected = kinds.matrix.A @ p + kinds.matrix.c[:, None]
    np.testing.assert_allclose(kinds.rates(yes), expected, atol=1e-12)
    np.testing.assert_allclose(kinds.rates(yes[:, 0]), expected[:, 0], atol=1e-12)


def test_the_kind_of_a_row_does_not_depend_on_its_weight():
    kinds = some_kinds(0, 5000)
    dense = kinds.matrix.sums.toarray()
    assert kinds.count == len(np.unique(np.sign(dense), axis=1).T)
    np.testing.assert_array_equal(kinds.patterns[:, kinds.of] * kinds.weight, dense)
    assert kinds.totals.sum() == pytest.approx(kinds.weight.sum())


def test_decisions_with_weights_of_1_give_exact_rates():
    kinds = some_kinds(3, weighted=False)
    p = np.random.default_rng(3).integers(2, size=60).astype(float)
    np.testing.assert_array_equal(kinds.rates(by_kind(kinds, p)), kinds.matrix.rates(p))

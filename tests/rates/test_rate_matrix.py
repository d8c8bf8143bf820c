"""r = A p + c against loops over rows, hand-made counts and scikit-learn."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_rates import definitions, naive_rate, random_sample
from sklearn import metrics as sk

from ratecli.rates.expression import Expression, Leaf, Slice
from ratecli.rates.matrix import (
    RANKING_MEASURES,
    Predictions,
    build_rate_matrix,
    log_loss,
    measure,
)
from ratecli.rates.parser import parse_conditions, parse_expression
from ratecli.rates.resolve import Scope, resolve
from ratecli.rates.sample import Sample
from ratecli.rates.table import RANKINGS, RATES

SCOPE = Scope(
    datasets=frozenset({"d1", "d2", "d3"}),
    groups={"women": parse_conditions("sex = f")},
    algorithms=frozenset({"other"}),
)
SEEDS = st.integers(0, 2**32 - 1)


def node(text: str) -> Expression:
    return resolve(parse_expression(text), SCOPE)


def leaf(text: str) -> Leaf:
    found = node(text)
    assert isinstance(found, Leaf)
    return found


def number(text: str, sample: Sample, predictions: Predictions, split: str = "train") -> float:
    return measure([node(text)], sample, split, predictions)[0]


def plain(
    label: list[float], decisions: list[float], deployed: list[float] | None = None
) -> tuple[Sample, Predictions]:
    """Rows of one data set, all training rows, of weight 1."""
    rows, p = len(label), np.array(decisions, dtype=float)
    sample = Sample(
        columns={},
        label=np.array(label, dtype=float),
        dataset=np.full(rows, "d1"),
        part=np.full(rows, "train"),
        weight=np.ones(rows),
        deployed=None if deployed is None else np.array(deployed, dtype=float),
    )
    return sample, Predictions(p, p, p)


def test_every_rate_of_the_table_has_a_definition_here() -> None:
    assert set(definitions(*random_sample(0, 5))) == set(RATES)
    assert set(RANKING_MEASURES) == set(RANKINGS)


# against a loop over rows


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
    "[d1]": lambda s, i: s.dataset[i] == "d1",
    "[d1, d3, women]": lambda s, i: s.dataset[i] in {"d1", "d3"} and s.columns["sex"][i] == "f",
}


@pytest.mark.parametrize("name", RATES)
@given(
    seed=SEEDS,
    rows=st.integers(1, 30),
    where=st.sampled_from(sorted(SLICES)),
    deployed=st.booleans(),
)
@settings(max_examples=12)
def test_a_rate_is_its_definition(name, seed, rows, where, *, deployed) -> None:
    sample, predictions = random_sample(seed, rows, deployed=deployed)
    inside = np.array([SLICES[where](sample, i) for i in range(rows)])
    named = [each for each in ("d1", "d2", "d3") if each in where]
    for split, own in itertools.product(("train", "test"), ("", "@validation")):
        part = sample.part == (own[1:] or split)
        keep = part & inside
        over = part & np.isin(sample.dataset, named or ["d1", "d2", "d3"])
        expected = naive_rate(name, sample, predictions, keep, over if RATES[name].whole else keep)
        found = number(name + where + own, sample, predictions, split)
        assert found == pytest.approx(expected, nan_ok=True)


@given(SEEDS)
@settings(max_examples=20)
def test_the_matrix_alone_gives_the_rates_of_decisions(seed: int) -> None:
    sample, predictions = random_sample(seed, 40)
    leaves = [leaf(f"{name}{where}") for name in RATES for where in ("", "[women]", "[d2]@test")]
    decisive = [item for item in leaves if item.rate.of == "decision"]
    matrix = build_rate_matrix([*decisive, *decisive], sample, "train")
    assert matrix.leaves == tuple(decisive)
    assert matrix.A.shape == (len(decisive), len(sample))
    assert [matrix.index()[item] for item in decisive] == list(range(len(decisive)))
    expected = measure(decisive, sample, "train", predictions)
    np.testing.assert_allclose(matrix.rates(predictions.decisions), expected)


def test_rates_of_what_each_is_a_mean_of() -> None:
    sample, predictions = random_sample(5, 60)
    leaves = [leaf(f"{name}{where}") for name in RATES for where in ("", "[women]", "[sex = x]")]
    matrix = build_rate_matrix(leaves, sample, "train")
    asked = predictions.measurements(leaves, sample.label)
    assert set(asked) == {"decision", "error", "squared_error", "log_loss"}
    expected = measure(leaves, sample, "train", predictions)
    np.testing.assert_array_equal(matrix.measured(asked), expected)
    decisive = build_rate_matrix([leaf("tpr"), leaf("error[women]")], sample, "train")
    of_decisions = {"decision": predictions.decisions}
    np.testing.assert_array_equal(
        decisive.measured(of_decisions), decisive.rates(predictions.decisions)
    )
    with pytest.raises(KeyError):
        matrix.measured(of_decisions)


def test_log_loss_of_certain_and_impossible_chances() -> None:
    estimates = np.array([0.25, 0.25, 1, 0, 1, 0, 0.5, 1.2, -0.1])
    label = np.array([1, 0, 1, 0, 0, 1, np.nan, 1, 0])
    expected = [math.log(4), -math.log(0.75), 0, 0, math.inf, math.inf, 0, math.inf, math.inf]
    assert log_loss(estimates, label) == pytest.approx(expected)
    assert not np.signbit(log_loss(estimates, label)).any()
    sample, _ = plain([1, 0], [0, 0])
    estimate = np.array([1.0, 0.75])
    predictions = Predictions(estimate, estimate, estimate)
    assert number("log_loss", sample, predictions) == pytest.approx(math.log(4) / 2)
    assert (
        number("log_loss + error", sample, Predictions(1 - estimate, estimate, 1 - estimate))
        == math.inf
    )


def test_all_rows_count_where_no_split_is_named() -> None:
    sample, predictions = random_sample(3, 50)
    matrix = build_rate_matrix([leaf("positive_rate")], sample, None)
    mean = np.average(predictions.decisions, weights=sample.weight)
    assert matrix.rates(predictions.decisions) == pytest.approx([mean])


def test_a_matrix_of_no_rates_has_no_rows() -> None:
    sample, predictions = random_sample(0, 5)
    matrix = build_rate_matrix([], sample, "train")
    assert matrix.A.shape == (0, 5)
    assert matrix.rates(predictions.decisions).shape == (0,)


def test_an_empty_slice_has_no_rate() -> None:
    sample, predictions = random_sample(1, 30)
    for name in (name for name, rate in RATES.items() if not rate.whole):
        assert math.isnan(number(f"{name}[sex = x]", sample, predictions))
        assert math.isnan(number(f"1 - {name}[sex = x]", sample, predictions))
    assert number("joint_rate[sex = x]", sample, predictions) == 0
    matrix = build_rate_matrix([leaf("tpr[sex = x]"), leaf("tpr")], sample, "train")
    assert np.isnan(matrix.rates(predictions.decisions)).tolist() == [True, False]


def test_the_row_of_a_base_rate_is_empty() -> None:
    sample, _ = random_sample(1, 30)
    matrix = build_rate_matrix([leaf("base_rate")], sample, "train")
    assert matrix.A.nnz == 0
    assert 0 < matrix.c[0] < 1


def test_unlabelled_rows_count_for_coverage_and_churn() -> None:
    sample, predictions = plain([math.nan] * 4, [1, 1, 0, 1], [1, 0, 0, math.nan])
    assert number("positive_rate", sample, predictions) == 0.75
    assert number("churn", sample, predictions) == pytest.approx(1 / 3)
    for name in ("error", "tpr", "wins", "base_rate", "mse", "roc_auc", "pr_auc"):
        assert math.isnan(number(name, sample, predictions))


def test_rates_and_their_complements_add_up() -> None:
    sample, predictions = random_sample(5, 60)
    for rate in RATES.values():
        if rate.complement:
            other = RATES[rate.complement]
            assert other.complement == rate.name
            assert (other.among, other.yes, other.no) == (rate.among, rate.no, rate.yes)
    for left, right, total in [
        ("tpr", "fnr", "1"),
        ("churn", "agreement", "1"),
        ("true_positives", "false_negatives", "base_rate"),
        ("false_positives", "true_negatives", "1 - base_rate"),
        ("wins - losses", "error", "1 - (true_positives + true_negatives) + wins - losses"),
    ]:
        assert number(f"{left} + {right} - ({total})", sample, predictions) == pytest.approx(0)


@pytest.mark.parametrize("name", RATES)
def test_a_rate_says_what_it_needs(name: str) -> None:
    """What needs labels is NaN without any; what does not is a number. Likewise the deployed model."""
    sample, predictions = random_sample(7, 60)
    unlabelled = replace(sample, label=np.full(60, np.nan), _cache={})
    alone = replace(sample, deployed=None, _cache={})
    assert math.isnan(number(name, unlabelled, predictions)) == RATES[name].needs_labels
    assert math.isnan(number(name, alone, predictions)) == RATES[name].needs_deployed


# randomized decisions and mixtures


@given(SEEDS)
@settings(max_examples=20)
def test_rates_of_the_mean_decision_are_the_mean_rates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sample, _ = random_sample(seed, 40)
    members, chances = rng.integers(0, 2, (3, 40)).astype(float), rng.dirichlet(np.ones(3))
    leaves = [
        leaf(f"{n}[{d}]") for n, r in RATES.items() if r.of == "decision" for d in ("d1", "d2")
    ]
    matrix = build_rate_matrix(leaves, sample, "test")
    mean = sum(chance * matrix.rates(p) for chance, p in zip(chances, members, strict=True))
    np.testing.assert_allclose(matrix.rates(chances @ members), mean, atol=1e-12)


def test_f1_of_a_mixture_is_of_expected_counts() -> None:
    """Vector 9.6: TP, FP, FN = 3, 1, 2 of 10 rows, mixed half and half with all-no."""
    label = [1] * 5 + [0] * 5
    first = np.array([1, 1, 1, 0, 0, 1, 0, 0, 0, 0], dtype=float)
    sample, predictions = plain(label, first.tolist())
    assert number("f1", sample, predictions) == pytest.approx(2 / 3)
    assert number("2 * true_positives", sample, predictions) == pytest.approx(0.6)
    total = "2 * true_positives + false_positives + false_negatives"
    assert number(total, sample, predictions) == pytest.approx(0.9)
    mixed = Predictions(first / 2, first, first)
    assert number("f1", sample, mixed) == pytest.approx(0.42857, abs=1e-5)


def test_churn_by_cells() -> None:
    """Vector 9.5: rows of each (label, deployed) cell, of which some flip."""
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


def test_means_of_rates() -> None:
    """Vector 9.15: tpr .8, tnr .5."""
    sample, predictions = plain([1] * 10 + [0] * 10, [1] * 8 + [0] * 2 + [1] * 5 + [0] * 5)
    assert number("1 - g_mean", sample, predictions) == pytest.approx(0.36754, abs=1e-5)
    assert number("1 - h_mean", sample, predictions) == pytest.approx(0.38462, abs=1e-5)
    assert number("1 - q_mean", sample, predictions) == pytest.approx(0.38079, abs=1e-5)


def test_pr_auc_is_average_precision() -> None:
    """Vector 9.14."""
    sample, _ = plain([1, 0, 1, 1, 0, 0], [0] * 6)
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    predictions = Predictions(np.zeros(6), scores, scores)
    assert number("pr_auc", sample, predictions) == pytest.approx(0.80556, abs=1e-5)


def test_undefined_ratios_are_not_numbers() -> None:
    sample, predictions = plain([1, 0], [0, 0], [1, 0])
    assert math.isnan(number("precision", sample, predictions))
    assert number("f1", sample, predictions) == 0
    assert number("tnr / tpr", sample, predictions) == math.inf
    assert number("-tnr / tpr", sample, predictions) == -math.inf
    assert math.isnan(number("max(tpr, 0 * tpr + precision)", sample, predictions))
    assert math.isnan(number("sqrt(tpr - 1)", sample, predictions))


def test_another_algorithm_s_value_is_asked_for() -> None:
    sample, predictions = plain([1, 0], [1, 1])
    goal = node("error - 2 * of(other, error)")
    assert measure([goal], sample, "train", predictions, lambda _: 0.1) == pytest.approx([0.3])
    assert math.isnan(measure([goal], sample, "train", predictions, lambda _: math.nan)[0])
    with pytest.raises(TypeError, match="other"):
        measure([goal], sample, "train", predictions)


# against scikit-learn


@given(SEEDS)
@settings(max_examples=25)
def test_metrics_are_those_of_scikit_learn(seed: int) -> None:
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
        "(tpr + tnr) / 2": sk.balanced_accuracy_score(label, yes, **weights),
    }
    found = measure([node(text) for text in expected], sample, "train", predictions)
    assert dict(zip(expected, found, strict=True)) == pytest.approx(expected)


def test_rankings_look_at_their_slice_and_split() -> None:
    sample, predictions = random_sample(11, 200)
    rows = sample.rows(Slice(("d1",)), "test") & ~np.isnan(sample.label)
    expected = sk.roc_auc_score(
        sample.label[rows], predictions.scores[rows], sample_weight=sample.weight[rows]
    )
    assert number("roc_auc[d1]@test", sample, predictions) == pytest.approx(expected)
    assert number("roc_auc[d1]", sample, predictions, "test") == pytest.approx(expected)

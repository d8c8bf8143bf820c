"""Affine forms, cleared denominators and positive combinations."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import rule_strategies
from hypothesis import given
from hypothesis import strategies as st
from naive_rates import SCOPE, node
from rule_strategies import value

from ratecli.rates import expression as ex
from ratecli.rates.affine import (
    Affine,
    affine,
    clear_denominators,
    ratio_sum,
)
from ratecli.rates.analysis import Shape, affine_pieces
from ratecli.rates.expression import Leaf
from ratecli.rates.rate_function import threshold
from ratecli.rates.table import RATES

goal = partial(rule_strategies.goal, scope=SCOPE)


def forms(text: str) -> list[dict[str, float]]:
    """Normal forms of a rule as coefficients by rate; "1" is the constant."""
    return [
        {ex.to_text(rate): pytest.approx(c) for rate, c in form.coefficients.items()}
        | ({"1": pytest.approx(form.constant)} if form.constant else {})
        for form in affine_pieces(goal(text))
    ]


def form_of(**coefficients: float) -> Affine:
    constant = coefficients.pop("constant", 0.0)
    return Affine({Leaf(RATES[name]): c for name, c in coefficients.items()}, constant)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("tpr", form_of(tpr=1)),
        ("0.25", form_of(constant=0.25)),
        ("2 * tpr - (fpr - 0.5) / 2", form_of(tpr=2, fpr=-0.5, constant=0.25)),
        ("tpr - fpr - tpr", form_of(fpr=-1)),
        ("-(tpr + fpr) * 3", form_of(tpr=-3, fpr=-3)),
        *((text, None) for text in ("tpr * fpr", "precision", "abs(tpr)", "1 / tpr", "roc_auc")),
    ],
)
def test_affine_forms(text, form):
    assert affine(node(text)) == form


def test_an_affine_form_gives_its_expression_and_range():
    form = affine(node("2 * tpr - fpr[women] + 1"))
    assert form is not None
    assert form.expression() == node("2 * tpr - fpr[women] + 1")
    assert form.range() == (0.0, 3.0)
    assert form_of(mean_error=1).range() == (-math.inf, math.inf)
    assert form_of(mse=-2, constant=1).range() == (-math.inf, 1)


WOMEN, MEN = "[sex = f]", "[sex = m]"
LESS = {f"fpr{WOMEN}": 1.0, f"fpr{MEN}": -1.0, "1": -0.02}
MORE = {f"fpr{WOMEN}": -1.0, f"fpr{MEN}": 1.0, "1": -0.02}
FEW_WOMEN = {f"positive_rate{MEN}": 0.8, f"positive_rate{WOMEN}": -1.0}
FEW_MEN = {f"positive_rate{WOMEN}": 0.8, f"positive_rate{MEN}": -1.0}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("precision >= 75%", [{"true_positives": -0.25, "false_positives": 0.75}]),
        ("precision <= 0.5", [{"true_positives": 0.5, "false_positives": -0.5}]),
        ("2 * precision - 1 >= 0.5", [{"true_positives": -0.5, "false_positives": 1.5}]),
        ("f1 >= 0.5",
         [{"true_positives": -1.0, "false_positives": 0.5, "false_negatives": 0.5}]),
        ("win_loss_ratio >= 2", [{"wins": -1.0, "losses": 2.0}]),
        ("positive_rate[women] / positive_rate[men] >= 0.8", [FEW_WOMEN]),
        ("min_ratio(positive_rate, by=sex) >= 0.8", [FEW_WOMEN, FEW_MEN]),
        ("max_gap(fpr, by=sex) <= 0.02", [LESS, MORE]),
        ("abs(fpr[women] - fpr[men]) <= 0.02", [LESS, MORE]),
        ("-0.02 <= fpr[women] - fpr[men] <= 0.02", [MORE, LESS]),
    ],
)  # fmt: skip
def test_rules_that_are_families_of_affine_forms(rule, expected):
    assert forms(rule) == expected


def test_denominators_that_may_be_negative_are_not_cleared():
    assert ratio_sum(node("tpr / (fpr - 0.5)")) is None
    assert ratio_sum(node("tpr / mean_error")) is None
    assert goal("tpr / (fpr - 0.5) <= 1").shape is Shape.SMOOTH
    assert clear_denominators(node("tpr / (1 - fpr) - 1")) == form_of(tpr=1, fpr=1, constant=-1)


def test_a_difference_of_ratios_is_a_sum_of_ratios():
    form = ratio_sum(node("f1[women] - f1[men] - 0.1"))
    assert form is not None
    assert form.affine == Affine({}, -0.1)
    assert [[*ratio.numerator.coefficients.values()] for ratio in form.ratios] == [[2], [-2]]
    assert clear_denominators(node("f1[women] - f1[men] - 0.1")) is None
    assert clear_denominators(node("precision - tpr")) is None


def test_ratios_with_equal_denominators_are_merged():
    form = ratio_sum(node("tpr / fpr - 2 * (fnr / fpr) + 1"))
    assert form is not None
    assert [ratio.numerator for ratio in form.ratios] == [form_of(tpr=1, fnr=-2)]
    assert ratio_sum(node("tpr / fpr - tpr / fpr")) == ratio_sum(node("0"))


TERMS = ["tpr", "fpr[women]", "true_positives", "false_positives", "base_rate", "wins", "losses"]


@given(
    st.dictionaries(st.sampled_from(TERMS), st.integers(-3, 3).filter(bool), min_size=1),
    st.integers(-2, 2),
    st.integers(0, 10**6),
)
def test_clearing_a_denominator_keeps_the_sign(top, bound, seed):
    numerator = " + ".join(f"({factor}) * {rate}" for rate, factor in top.items())
    ratio = node(f"({numerator}) / (2 * tpr + churn) - ({bound})")
    form = clear_denominators(ratio)
    assert form is not None
    rng = np.random.default_rng(seed)
    rates = {rate: float(rng.choice([0, 0.5, rng.random()])) for rate in ex.leaves(ratio)}
    one, other = value(ratio, rates), value(form.expression(), rates)
    if not math.isnan(one) and abs(other) > 1e-12:
        assert (one <= 0) == (other <= 0)


def test_the_precision_rule_by_counts():
    """Vector 9.4: the decision is wrong on 2 of 5 positive and on 1 of 5 negative rows."""
    (form,) = affine_pieces(goal("precision >= 0.75"))
    counts = {"true_positives": 0.3, "false_positives": 0.1}
    rates = {Leaf(RATES[name]): share for name, share in counts.items()}
    assert value(form.expression(), rates) == pytest.approx(0)


@pytest.mark.parametrize(
    ("metric", "rule", "levels"),
    [
        ("positive_rate[women] / positive_rate[men]",
         "positive_rate[women] >= 0.8 * positive_rate[men]", [0.8]),
        ("error", "error <= 0.1", [0.1]),
        ("accuracy", "error <= 0.1", [None]),
        ("precision", "precision >= 0.75", [0.75]),
        ("2 * precision + 1", "precision >= 0.75", [2.5]),
        ("tpr[women] - tpr[men]", "max_gap(tpr, by=sex) <= 0.1", [0.1, -0.1]),
        ("error", "fpr <= 0.1", [None]),
        ("abs(tpr)", "tpr <= 0.1", [0.1]),
    ],
)  # fmt: skip
def test_implied_thresholds(metric, rule, levels):
    found = [threshold(node(metric), piece) for piece in goal(rule).pieces]
    assert found == [None if t is None else pytest.approx(t) for t in levels]


@pytest.mark.parametrize(
    ("metric", "rule", "level"),
    [
        ("min_ratio(tpr, by=sex)", "min_ratio(tpr, by=sex) >= 0.8", 0.8),
        ("1 - min_ratio(tpr, by=sex)", "min_ratio(tpr, by=sex) >= 0.8", 0.2),
        ("max_gap(f1, by=sex)", "max_gap(f1, by=sex) <= 0.1", 0.1),
        ("min(tpr[men] / tpr[women], tpr[women] / tpr[men])", "min_ratio(tpr, by=sex) >= 0.8", 0.8),
        ("max_gap(tpr, by=sex)", "min_ratio(tpr, by=sex) >= 0.8", None),
        ("max_gap(tpr, by=sex)", "max_gap(fpr, by=sex) <= 0.1", None),
        ("roc_auc", "roc_auc >= 0.7", 0.7),
    ],
)
def test_linear_thresholds_of_any_shape(metric, rule, level):
    found = threshold(node(metric), goal(rule).expression)
    assert found == (None if level is None else pytest.approx(level))


@pytest.mark.parametrize("rule", ["max_gap(f1, by=sex) <= 0.1", "kl(0.2, tpr) <= 0.1"])
def test_affine_pieces_of_another_goal_are_refused(rule):
    with pytest.raises(ValueError, match="not affine"):
        affine_pieces(goal(rule))


def test_terms_of_equal_ratios_have_one_key():
    one, other = (
        ratio_sum(node(text)).terms()
        for text in ("precision[women] - f1[men] - 0.1", "f1[men] - 2 * precision[women] + tpr")
    )
    assert len(one.keys() & other.keys()) == 2
    assert {other[key][0] / one[key][0] for key in one} == {-2.0, -1.0}
    assert {one[key][1] == other[key][1] for key in one} == {True}

"""Affine forms, cleared denominators and positive combinations."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
import rule_strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_rates import random_sample
from rule_strategies import value

from ratecli.rates import expression as ex
from ratecli.rates.affine import (
    Affine,
    affine,
    bound_text,
    clear_denominators,
    implied_threshold,
    positive_combination,
    ratio_sum,
)
from ratecli.rates.analysis import Shape, affine_pieces
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.matrix import build_rate_matrix, measure
from ratecli.rates.parser import parse_conditions, parse_constraint, parse_expression
from ratecli.rates.resolve import Scope, constraint_differences, resolve
from ratecli.rates.table import RATES

SCOPE = Scope(
    datasets=frozenset({"d1", "d2", "d3"}),
    groups={"women": parse_conditions("sex = f"), "men": parse_conditions("sex = m")},
    values={"sex": ("f", "m"), "zip": ("1", "2.5", "03")}.get,
)


def node(text: str) -> Expression:
    return resolve(parse_expression(text), SCOPE)


def leaf(text: str) -> Leaf:
    found = node(text)
    assert isinstance(found, Leaf)
    return found


goal = partial(rule_strategies.goal, scope=SCOPE)


def forms(text: str) -> list[dict[str, float]]:
    """Normal forms of a rule, by canonical text of the rates; "1" is the constant."""
    return [
        {ex.to_text(rate): pytest.approx(c) for rate, c in form.coefficients.items()}
        | ({"1": pytest.approx(form.constant)} if form.constant else {})
        for form in affine_pieces(goal(text))
    ]


def form_of(**coefficients: float) -> Affine:
    constant = coefficients.pop("constant", 0.0)
    return Affine({Leaf(RATES[name]): c for name, c in coefficients.items()}, constant)


# affine forms


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("tpr", form_of(tpr=1)),
        ("0.25", form_of(constant=0.25)),
        ("2 * tpr - (fpr - 0.5) / 2", form_of(tpr=2, fpr=-0.5, constant=0.25)),
        ("tpr - fpr - tpr", form_of(fpr=-1)),
        ("-(tpr + fpr) * 3", form_of(tpr=-3, fpr=-3)),
    ],
)
def test_affine_forms(text: str, form: Affine) -> None:
    assert affine(node(text)) == form


@pytest.mark.parametrize("text", ["tpr * fpr", "precision", "abs(tpr)", "1 / tpr", "roc_auc"])
def test_what_is_not_affine_has_no_affine_form(text: str) -> None:
    assert affine(node(text)) is None


def test_an_affine_form_is_the_expression_it_came_from() -> None:
    form = affine(node("2 * tpr - fpr[women] + 1"))
    assert form is not None
    assert form.expression() == node("2 * tpr - fpr[women] + 1")
    assert form.range() == (0.0, 3.0)
    assert form_of(mean_error=1).range() == (-math.inf, math.inf)
    assert form_of(mse=-2, constant=1).range() == (-math.inf, 1)


def test_precision_is_affine_once_its_denominator_is_cleared() -> None:
    assert forms("precision >= 0.75") == [{"true_positives": -0.25, "false_positives": 0.75}]
    assert forms("0.75 <= precision") == forms("precision >= 75%")
    assert forms("precision <= 0.5") == [{"true_positives": 0.5, "false_positives": -0.5}]
    assert forms("2 * precision - 1 >= 0.5") == [{"true_positives": -0.5, "false_positives": 1.5}]
    assert forms("f1 >= 0.5") == [
        {"true_positives": -1.0, "false_positives": 0.5, "false_negatives": 0.5}
    ]
    assert forms("win_loss_ratio >= 2") == [{"wins": -1.0, "losses": 2.0}]


def test_a_ratio_of_rates_against_a_number_is_affine() -> None:
    women, men = "positive_rate[sex = f]", "positive_rate[sex = m]"
    assert forms("positive_rate[women] / positive_rate[men] >= 0.8") == [{men: 0.8, women: -1.0}]
    assert forms("min_ratio(positive_rate, by=sex) >= 0.8") == [
        {men: 0.8, women: -1.0},
        {women: 0.8, men: -1.0},
    ]


def test_gaps_and_absolute_values_are_families_of_affine_rules() -> None:
    women, men = "fpr[sex = f]", "fpr[sex = m]"
    both = [{women: 1.0, men: -1.0, "1": -0.02}, {women: -1.0, men: 1.0, "1": -0.02}]
    assert forms("max_gap(fpr, by=sex) <= 0.02") == both
    assert forms("abs(fpr[women] - fpr[men]) <= 0.02") == both
    assert forms("0.02 >= abs(fpr[women] - fpr[men])") == both
    assert forms("-0.02 <= fpr[women] - fpr[men] <= 0.02") == both[::-1]
    assert len(forms("max_gap(tpr, by=zip) <= 5%")) == 6


def test_denominators_that_may_be_negative_are_not_cleared() -> None:
    assert ratio_sum(node("tpr / (fpr - 0.5)")) is None
    assert ratio_sum(node("tpr / mean_error")) is None
    assert goal("tpr / (fpr - 0.5) <= 1").shape is Shape.OTHER
    assert clear_denominators(node("tpr / (1 - fpr) - 1")) == form_of(tpr=1, fpr=1, constant=-1)


def test_what_compares_two_ratios_stays_a_sum_of_ratios() -> None:
    form = ratio_sum(node("f1[women] - f1[men] - 0.1"))
    assert form is not None
    assert form.affine == Affine({}, -0.1)
    assert [ratio.weight for ratio in form.ratios] == [1.0, -1.0]
    assert clear_denominators(node("f1[women] - f1[men] - 0.1")) is None
    assert clear_denominators(node("precision - tpr")) is None


def test_ratios_over_one_denominator_are_one_ratio() -> None:
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
@settings(max_examples=60)
def test_clearing_keeps_the_sign_wherever_the_ratio_is_defined(
    top: dict[str, int], bound: int, seed: int
) -> None:
    numerator = " + ".join(f"({factor}) * {rate}" for rate, factor in top.items())
    ratio = node(f"({numerator}) / (2 * tpr + churn) - ({bound})")
    form = clear_denominators(ratio)
    assert form is not None
    rng = np.random.default_rng(seed)
    rates = {rate: float(rng.choice([0, 0.5, rng.random()])) for rate in ex.leaves(ratio)}
    one, other = value(ratio, rates), value(form.expression(), rates)
    if not math.isnan(one) and abs(other) > 1e-12:
        assert (one <= 0) == (other <= 0)


# positive combinations (protocols of Goh et al., table of section 1)


@pytest.mark.parametrize(
    ("rule", "bounds"),
    [
        ("error <= 0.1", ["error <= 0.1"]),
        ("accuracy >= 0.9", ["error <= 0.1"]),
        ("recall >= 0.9", ["fnr <= 0.1"]),
        ("fpr <= 0.2", ["fpr <= 0.2"]),
        ("tnr >= 0.8", ["fpr <= 0.2"]),
        (
            "precision >= 0.75",
            ["0.75 * false_positives + 0.25 * false_negatives <= 0.25 * base_rate"],
        ),
        ("coverage <= 0.3", ["positive_rate <= 0.3"]),
        ("coverage >= 0.3", ["negative_rate <= 0.7"]),
        (
            "positive_rate[women] >= 0.8 * positive_rate[men]",
            ["0.8 * positive_rate[sex = m] + negative_rate[sex = f] <= 1"],
        ),
        (
            "positive_rate[men] <= positive_rate[women] / 2",
            ["positive_rate[sex = m] + 0.5 * negative_rate[sex = f] <= 0.5"],
        ),
        (
            "abs(positive_rate[women] - positive_rate[men]) <= 0.1",
            [
                "positive_rate[sex = f] + negative_rate[sex = m] <= 1.1",
                "negative_rate[sex = f] + positive_rate[sex = m] <= 1.1",
            ],
        ),
        (
            "max_gap(tpr, by=sex) <= 0.1",
            ["tpr[sex = f] + fnr[sex = m] <= 1.1", "tpr[sex = m] + fnr[sex = f] <= 1.1"],
        ),
        ("churn[d3] <= 5%", ["churn[d3] <= 0.05"]),
        ("agreement >= 95%", ["churn <= 0.05"]),
        ("wins >= losses", ["losses - wins <= 0"]),
        ("tpr[d2] >= 0.99", ["fnr[d2] <= 0.01"]),
        ("fpr[d2] <= 0.01", ["fpr[d2] <= 0.01"]),
        ("true_negatives >= 0.3", ["false_positives <= 0.7 - base_rate"]),
    ],
)
def test_bounds_as_in_the_table(rule: str, bounds: list[str]) -> None:
    found = [bound_text(positive_combination(form)) for form in affine_pieces(goal(rule))]
    assert [terms(text) for text in found] == [terms(text) for text in bounds]


def terms(text: str) -> tuple[Expression, ...]:
    """Order of terms does not count: `a + b <= c` as its affine form."""
    (difference,) = constraint_differences(parse_constraint(text), SCOPE)
    form = affine(difference)
    assert form is not None
    coefficients = sorted((ex.to_text(rate), round(c, 9)) for rate, c in form.coefficients.items())
    return (*coefficients, round(form.constant, 9))


@given(
    st.dictionaries(st.sampled_from(sorted(RATES)), st.floats(-2, 2), min_size=1),
    st.integers(0, 10**6),
)
@settings(max_examples=60)
def test_a_positive_combination_has_the_same_value(factors: dict[str, float], seed: int) -> None:
    sample, predictions = random_sample(seed, 40)
    coefficients = {leaf(f"{name}[women]"): c for name, c in factors.items() if c}
    form = Affine(coefficients, 0.25)
    positive = positive_combination(form)
    one, other = measure([form.expression(), positive.expression()], sample, "train", predictions)
    assert one == pytest.approx(other, nan_ok=True, abs=1e-9)
    named = {rate.name for rate in RATES.values() if rate.complement}
    assert all(c > -1e-12 for rate, c in positive.coefficients.items() if rate.rate.name in named)


def test_the_precision_rule_by_counts() -> None:
    """Vector 9.4: with 5 positive rows (2 missed) and 5 negative rows (1 let in) it is tight."""
    rule = goal("precision >= 0.75")
    (form,) = (positive_combination(form) for form in affine_pieces(rule))
    counts = {"false_negatives": 0.2, "false_positives": 0.1, "base_rate": 0.5}
    rates = {Leaf(RATES[name]): share for name, share in counts.items()}
    assert value(form.expression(), rates) == pytest.approx(0)
    assert value(Affine(form.coefficients).expression(), rates) == pytest.approx(1.25 / 10 - 0.125)


def test_wins_and_losses_split_by_row_as_by_hand() -> None:
    """`wins >= losses`: rows that a yes helps have negative weight, those it harms positive."""
    sample, _ = random_sample(2, 60)
    matrix = build_rate_matrix([leaf("losses"), leaf("wins")], sample, "train")
    per_row = matrix.A.T @ np.array([1.0, -1.0])
    both = (sample.part == "train") & ~np.isnan(sample.label) & ~np.isnan(sample.deployed)
    share = sample.weight / sample.weight[both].sum()
    np.testing.assert_allclose(
        per_row, np.where(both, share * np.where(sample.label == 1, -1, 1), 0)
    )


# levels


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
        ("abs(tpr)", "tpr <= 0.1", [None]),
    ],
)  # fmt: skip
def test_the_level_of_a_metric_where_a_rule_is_just_met(
    metric: str, rule: str, levels: list[float | None]
) -> None:
    found = [implied_threshold(node(metric), piece) for piece in goal(rule).pieces]
    assert found == [None if t is None else pytest.approx(t) for t in levels]


def test_affine_pieces_of_another_goal_are_refused() -> None:
    for text in ("max_gap(f1, by=sex) <= 0.1", "kl(0.2, tpr) <= 0.1"):
        with pytest.raises(ValueError, match="not affine"):
            affine_pieces(goal(text))


def test_every_named_complement_turns_a_sign() -> None:
    for name, rate in itertools.chain(RATES.items()):
        form = positive_combination(form_of(**{name: -1.0}))
        if rate.complement:
            assert form.coefficients[Leaf(RATES[rate.complement])] == 1
        else:
            assert form == form_of(**{name: -1.0})

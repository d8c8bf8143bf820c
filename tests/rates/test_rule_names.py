"""Resolved rules: names, templates, folded constants and canonical text."""

from __future__ import annotations

import itertools

import pytest
from full_scope import FULL, VALUES, value
from hypothesis import given, settings
from rule_strategies import EXPRESSIONS, SCOPE

from ratecli.rates import expression as ex
from ratecli.rates.expression import AlgorithmMetric, Apply, Constant, Expression, Slice
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.resolve import Scope, constraint_differences, resolve, violation_expression
from ratecli.rates.syntax import Condition
from ratecli.rates.table import BALANCE_METRICS, COMPOSITES, METRICS, SYNONYMS, TEMPLATES


def rule(text: str) -> tuple[Expression, ...]:
    return constraint_differences(parse_constraint(text), FULL)


@pytest.mark.parametrize(("synonym", "name"), SYNONYMS.items())
def test_a_synonym_gives_the_same_tree(synonym, name):
    assert name in METRICS
    assert synonym not in METRICS
    assert value(f"{synonym}[women]@test") == value(f"{name}[women]@test")


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_carries_slice_and_split_to_its_rates(name):
    arguments = "(2)" if COMPOSITES[name].parameters else ""
    leaves = ex.leaves(value(f"{name}{arguments}[women, d2]@test"))
    where = Slice(("d2",), (Condition("sex", "=", ("Female",)),))
    assert leaves
    over = {(Slice(("d2",)), "test")} if COMPOSITES[name].over else set()
    assert {(leaf.where, leaf.split) for leaf in leaves} == {(where, "test"), *over}


def test_names_are_unique():
    names = [*METRICS, *SYNONYMS, *FUNCTIONS, *TEMPLATES, *BALANCE_METRICS, "of"]
    assert len(names) == len(set(names))


def test_groups_are_written_out_in_canonical_order():
    assert ex.to_text(value("tpr[old, d2, women, d1]")) == (
        "tpr[d1, d2, age >= 39, race != Black, sex = Female]"
    )
    assert value("tpr[women, old]") == value("tpr[old, sex = Female, women]")


def test_a_sweep_name_is_replaced_by_its_number():
    assert value("kappa * tpr") == value("0.8 * tpr")
    assert value("count") == Constant(3.0)
    assert value("f_score(count)") == value("f_score(3)")


def test_a_template_compares_all_ordered_pairs():
    gap = value("max_gap(tpr[d1], by=race)")
    parts = [value(f"tpr[d1, race = {name}]") for name in VALUES["race"]]
    assert gap == Apply(
        "max", tuple(ex.subtract(a, b) for a, b in itertools.permutations(parts, 2))
    )
    ratio = value("min_ratio(precision, by=sex)")
    women, men = value("precision[women]"), value("precision[men]")
    assert ratio == Apply("min", (ex.divide(women, men), ex.divide(men, women)))
    assert [leaf.where for leaf in ex.leaves(value("max_gap(tpr, by=age)"))][2] == Slice(
        (), (Condition("age", "=", (41.5,)),)
    )


def test_a_mean_over_values_is_the_sum_written_out():
    parts = [f"precision[d1, race = {name}]" for name in VALUES["race"]]
    count = len(parts)
    written = value(f"({' + '.join(parts)}) / {count}")
    assert value("mean(precision[d1], by=race)") == written
    assert value("1 - mean(precision, by=sex)") == value(
        "1 - 0.5 * precision[women] - 0.5 * precision[men]"
    )


def test_templates_without_data_and_nested_templates():
    gap = resolve(parse_expression("max_gap(tpr, by=anything)"), Scope())
    assert len(ex.leaves(gap)) == 2
    assert len(ex.leaves(value("max_gap(max_gap(tpr, by=sex), by=race)"))) == 6


def test_of_keeps_the_metric_of_another_algorithm():
    node = value("of(unconstrained, error[women])")
    assert node == AlgorithmMetric("unconstrained", value("error[women]"))
    assert ex.leaves(node) == []
    assert ex.to_text(node) == "of(unconstrained, error[sex = Female])"


def test_differences_and_violations_of_rules():
    tpr, fpr = value("tpr"), value("fpr")
    assert rule("tpr <= fpr") == (ex.subtract(tpr, fpr),)
    assert rule("tpr >= fpr") == (ex.subtract(fpr, tpr),)
    assert rule("0.1 <= tpr <= 0.5") == (
        ex.add(Constant(0.1), ex.negate(tpr)),
        ex.add(tpr, Constant(-0.5)),
    )
    assert violation_expression(rule("tpr >= fpr")) == ex.subtract(fpr, tpr)
    whole = violation_expression(rule("0.1 <= tpr <= 0.5"))
    for rate, broken in [(0.05, 0.05), (0.3, -0.2), (0.7, 0.2)]:
        assert ex.evaluate(whole, lambda _, rate=rate: rate) == pytest.approx(broken)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3 / 10", 0.3),
        ("1 - 3 * 2", -5.0),
        ("max(1, 2, 3) - min(1, 2)", 2.0),
        ("abs(-5%)", 0.05),
        ("rms(3, 4) * rms(3, 4)", 12.5),
        ("0 * tpr", 0.0),
        ("-0.0", 0.0),
        ("2 ** 3 ** 2", 512.0),
        ("-2 ** 2", -4.0),
        ("(-2) ** 3", -8.0),
        ("4 ** -0.5", 0.5),
        ("tpr ** 0", 1.0),
    ],
)
def test_constants_are_folded(text, number):
    node = value(text)
    assert isinstance(node, Constant)
    assert node.value == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tpr - fpr", "-fpr + tpr"),
        ("2 * (tpr - fpr)", "2 * tpr - 2 * fpr"),
        ("(tpr + 0.5) / 2", "0.5 * tpr + 0.25"),
        ("1 + tpr - 1", "tpr"),
        ("tpr * 3", "3 * tpr"),
        ("--tpr", "tpr"),
        ("power(tpr, 2)", "tpr ** 2"),
        ("tpr ** count", "tpr ** 3"),
        ("tpr ** 1", "tpr"),
        ("tpr ** -1", "1 / tpr"),
    ],
)
def test_equal_expressions_have_equal_trees(one, other):
    def terms(text: str) -> set[Expression]:
        node = value(text)
        return set(ex.children(node)) if ex.children(node) else {node}

    assert terms(one) == terms(other)


@given(EXPRESSIONS)
@settings(max_examples=80)
def test_canonical_text_of_random_expressions(node):
    assert resolve(parse_expression(ex.to_text(node)), SCOPE) == node
    assert ex.to_text(resolve(parse_expression(ex.to_text(node)), SCOPE)) == ex.to_text(node)


@pytest.mark.parametrize(
    "text",
    [
        "max_gap(f1, by=sex) - min_ratio(precision[old], by=sex)",
        "1 - mean(f1[old], by=sex)",
        "-(tpr * fpr) - 0.3 / precision + -2",
        "of(majorize, 1 - tpr[women]@test) * of(deployed, tpr)",
        "roc_auc[women] - pr_auc@test",
        "win_loss_ratio - 1.1 * (wins / losses)",
        "share[women]@test - joint_rate[d1, d2, old]",
        "min(share, by=(race, sex)) + max(tpr, by=race) - rms(fpr - 0.1, by=sex)",
        "mean(precision, by=(race, sex))",
        "imbalance(by=(race, sex))[d1]@test",
        "disclosivity(by=(race, sex))[d2, d1]@validation - 0.1",
        "of(majorize, disclosivity(by=sex) / imbalance(by=sex))",
        "2 * max(disclosivity(by=sex), disclosivity(by=race)) ** 2",
        "1e-300 * tpr + 1e22",
    ],
)
def test_canonical_text_resolves_to_the_same_expression(text):
    node = value(text)
    assert value(ex.to_text(node)) == node

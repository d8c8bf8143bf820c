"""Resolved rules: names, their errors, templates, folded constants and canonical text."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest
from full_scope import FULL, VALUES, fault_under, value
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.goals import evaluate
from rule_strategies import EXPRESSIONS, SCOPE, codes

from ratecli.errors import FaultError, Span
from ratecli.rates import expression as ex
from ratecli.rates.analysis import compare_in_pairs
from ratecli.rates.expression import AlgorithmMetric, Apply, Constant, Expression, Slice
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.parser import MAX_LENGTH, parse_conditions, parse_constraint, parse_expression
from ratecli.rates.resolve import (
    constraint_differences,
    left_out_groups,
    resolve,
    violation_expression,
)
from ratecli.rates.scope import Scope, check_condition
from ratecli.rates.syntax import Condition
from ratecli.rates.table import BALANCE_METRICS, COMPOSITES, MEASURES, METRICS, SYNONYMS, TEMPLATES


def rule(text: str) -> tuple[Expression, ...]:
    return constraint_differences(parse_constraint(text), FULL)


@pytest.mark.parametrize(("synonym", "name"), SYNONYMS.items())
def test_a_synonym_gives_the_same_tree(synonym, name):
    assert name in {*METRICS, *MEASURES}
    assert synonym not in {*METRICS, *MEASURES}
    columns = "(by=race)" if name in MEASURES else ""
    assert value(f"{synonym}{columns}[women]@test") == value(f"{name}{columns}[women]@test")


@pytest.mark.parametrize("name", [name for name in COMPOSITES if name != "return_weighted"])
def test_a_composite_carries_slice_and_split_to_its_rates(name):
    arguments = {(): "", ("outcome",): "(profit)"}.get(COMPOSITES[name].parameters, "(2)")
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


def test_a_template_compares_the_largest_and_the_smallest_value():
    gap = value("max_gap(tpr[d1], by=race)")
    parts = [value(f"tpr[d1, race = {name}]") for name in VALUES["race"]]
    assert gap == ex.subtract(Apply("max", tuple(parts)), Apply("min", tuple(parts)))
    pairs = tuple(ex.subtract(a, b) for a, b in itertools.permutations(parts, 2))
    assert compare_in_pairs(gap) == Apply("max", pairs)
    ratio = value("min_ratio(precision, by=sex)")
    women, men = value("precision[women]"), value("precision[men]")
    assert ratio == ex.divide(Apply("min", (women, men)), Apply("max", (women, men)))
    pairs = ex.divide(women, men), ex.divide(men, women)
    assert compare_in_pairs(ex.negate(ratio)) == ex.negate(Apply("min", pairs))
    assert value("min_ratio(mcc, by=sex)").function == "min"  # of ratios of negative numbers
    assert [leaf.where for leaf in ex.leaves(value("max_gap(tpr, by=age)"))][2] == Slice(
        (), (Condition("age", "=", ("41.5",)),)
    )


@pytest.mark.parametrize(
    ("measure", "written"),
    [
        ("demographic_parity_ratio(by=sex)", "min_ratio(positive_rate, by=sex)"),
        (
            "equalized_odds_difference(by=race)[old]@test",
            "max(max_gap(tpr[old]@test, by=race), max_gap(fpr[old]@test, by=race))",
        ),
        ("predictive_parity_difference(by=[sex, race])", "max_gap(precision, by=[sex, race])"),
        ("max_gap(tpr, by=[sex])", "max_gap(tpr, by=sex)"),
        (
            "mean(tpr, by=[sex, race])",
            "(" + " + ".join(f"tpr[{s}, race={r}]" for s in ("women", "men") for r in VALUES["race"])
            + ") / 6",
        ),
        (
            "max(tpr, by=[age, sex])",
            ("max(tpr[age < 30, women], tpr[age < 30, men], tpr[age >= 30, age < 40, women], "
            "tpr[age >= 30, age < 40, men], tpr[age >= 40, women], tpr[age >= 40, men])"),
        ),
        ("tpr[women or race in (Asian, White)]", "tpr[race = (Asian, White) or sex = Female]"),
        ("tpr[not (women or age < 30)]", "tpr[sex != Female, age >= 30]"),
        ("tpr[not old]", "tpr[age < 39 or race = Black]"),
        ("tpr[race in [Asian, White]]", "tpr[race = (Asian, White)]"),
        ("tpr[race not in Asian and women, age > 3]", "tpr[women, race != Asian, age > 3]"),
        ('tpr["sex" = Female or race = (Black)]', "tpr[race = Black or women]"),
    ],
)  # fmt: skip
def test_measures_combinations_and_conditions_written_out(measure, written):
    scope = replace(FULL, bins={"age": (30.0, 40.0)})
    assert value(measure, scope) == value(written, scope)


@pytest.mark.parametrize(
    ("rates", "ratio"),
    [((0.0, 0.0, 0.5), 0.0), ((0.0, 0.0, 0.0), np.nan), ((0.2, 0.4, np.nan), np.nan), ((0.2, 0.4, 0.5), 0.4)],
)  # fmt: skip
def test_the_smallest_ratio_is_that_of_the_smallest_to_the_largest_rate(rates, ratio):
    by_race = dict(zip(VALUES["race"], rates, strict=True))
    node = value("min_ratio(positive_rate, by=race)")
    found = evaluate(
        node, {leaf: by_race[leaf.where.atoms[0].values[0]] for leaf in ex.leaves(node)}
    )
    assert found == pytest.approx(ratio, nan_ok=True)


def test_combinations_with_few_rows_are_left_out():
    rows = {("Female", "Asian"): 29, ("Male", "Black"): 0}
    asked = [(s, r) for s in VALUES["sex"] for r in VALUES["race"]]

    def count(conditions):
        found = {each.column: each.values[0] for each in conditions}
        return rows.get((found["sex"], found.get("race")), 30)

    scope = replace(FULL, count=count)
    text = "min_ratio(tpr, by=[sex, race])"
    kept = {leaf.where for leaf in ex.leaves(value(text, scope))}
    assert kept == {
        Slice.of((), (Condition("sex", "=", (s,)), Condition("race", "=", (r,))))
        for s, r in asked
        if (s, r) not in rows
    }
    (fault,) = left_out_groups(parse_expression(f"1 - {text}"), scope)
    assert (fault.code, fault.span) == ("W401", Span(4, 4 + len(text)))
    assert "race = Asian, sex = Female (29); race = Black, sex = Male (0)" in fault.message
    for other in (f"{text[:-1]}, min_rows=0)", "min_ratio(tpr, by=sex)"):
        assert not list(left_out_groups(parse_expression(other), scope))
        assert len(ex.leaves(value(other, scope))) in {2, 6}
    fault_under("max_gap(tpr, by=sex, min_rows=«31»)", lambda each: value(each, scope))


def test_a_mean_over_values_is_the_sum_written_out():
    parts = [f"precision[d1, race = {name}]" for name in VALUES["race"]]
    count = len(parts)
    written = value(f"({' + '.join(parts)}) / {count}")
    assert value("mean(precision[d1], by=race)") == written
    written = value("1 - 0.5 * precision[women] - 0.5 * precision[men]")
    assert value("1 - mean(precision, by=sex)") == written


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
    low, high = ex.add(Constant(0.1), ex.negate(tpr)), ex.add(tpr, Constant(-0.5))
    assert rule("0.1 <= tpr <= 0.5") == (low, high)
    assert violation_expression(rule("tpr >= fpr")) == ex.subtract(fpr, tpr)
    whole = violation_expression(rule("0.1 <= tpr <= 0.5"))
    for rate, broken in [(0.05, 0.05), (0.3, -0.2), (0.7, 0.2)]:
        assert evaluate(whole, dict.fromkeys(ex.leaves(whole), rate)) == pytest.approx(broken)


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
@settings(max_examples=40)
def test_canonical_text_of_random_expressions(node):
    assert resolve(parse_expression(ex.to_text(node)), SCOPE) == node
    assert ex.to_text(resolve(parse_expression(ex.to_text(node)), SCOPE)) == ex.to_text(node)


TEXTS = (
    "max_gap(f1, by=sex) - min_ratio(precision[old], by=sex); 1 - mean(f1[old], by=sex); "
    "-(tpr * fpr) - 0.3 / precision + -2; "
    "of(majorize, 1 - tpr[women]@test) * of(deployed, tpr); roc_auc[women] - pr_auc@test; "
    "win_loss_ratio - 1.1 * (wins / losses); share[women]@test - joint_rate[d1, d2, old]; "
    "min(share, by=(race, sex)) + max(tpr, by=race) - rms(fpr - 0.1, by=sex); "
    "mean(precision, by=(race, sex)); imbalance(by=(race, sex))[d1]@test; "
    "disclosivity(by=(race, sex))[d2, d1]@validation - 0.1; "
    "of(majorize, disclosivity(by=sex) / imbalance(by=sex)); "
    "2 * max(disclosivity(by=sex), disclosivity(by=race)) ** 2; 1e-300 * tpr + 1e22"
)


@pytest.mark.parametrize("text", TEXTS.split("; "))
def test_canonical_text_resolves_to_the_same_expression(text):
    node = value(text)
    assert value(ex.to_text(node)) == node


def mark_of(faulty: str, code: str, help_: str = "", message: str = "") -> tuple[str, ...]:
    return faulty, code, help_, message


@pytest.mark.parametrize(
    ("mark", "code", "help_", "message"),
    [
        mark_of("tpr - «trp»", "E203", "did you mean 'tpr'"),
        mark_of("0.5 * «Recall»[women]", "E203", "did you mean 'recall'"),
        mark_of("«sqr»(tpr)", "E203", "did you mean 'sqrt'"),
        mark_of("1 - «women»", "E203", "positive_rate[women]", "is a slice"),
        mark_of(
            "«demographic_parity»(by=sex)",
            "E203",
            "demographic_parity_difference or demographic_parity_ratio",
        ),
        mark_of("1 - «recall_gap»(by=sex)", "E203", "max_gap(recall, by=COLUMN)"),
        mark_of("«equalised_odds_ratio»(by=sex)", "E203", "did you mean 'equalized_odds_ratio'"),
        mark_of("1 - «equalized_odds_ratio»", "E304", "equalized_odds_ratio(by=sex)"),
        mark_of("«equalized_odds_ratio(tpr, by=sex)»", "E304", "equalized_odds_ratio(by=sex)"),
        mark_of("disparate_impact(by=(sex, «race»))", "E304", "by=[sex, race]"),
        mark_of("«disclosivity(by=[sex, race])»", "E304", "(by=(sex, race))"),
        mark_of("tpr[women or «d1»]", "E204", "by a comma"),
        mark_of("tpr[women or «sx = 1»]", "E205", "did you mean 'sex'"),
        mark_of("tpr[«wimen»]", "E204", "did you mean 'women'"),
        mark_of("tpr[women, «d4»]", "E204", "d1, d2, d3"),
        mark_of("tpr[women, «sx = Female»]", "E205", "did you mean 'sex'"),
        mark_of("max_gap(tpr, by=«gender»)", "E205", "age, alone, day, race, sex"),
        mark_of("tpr[«sex=female»]", "E206", "did you mean 'Female'? values: Female, Male"),
        mark_of("tpr[«age = 40»]", "E206", "20, 39, 41.5"),
        mark_of("tpr[«sex >= 30»]", "E206", "Female, Male", "compares numbers"),
        mark_of("tpr[«sex >= 2024-05»]", "E206", "as in 2024-05-31", "contains 'Female'"),
        mark_of("tpr[«age >= 2024-05»]", "E206", "as in 2024-05-31", "contains '20'"),
        mark_of("tpr[«day = 2024-05-31»]", "E206", "write day >= 2024-05-31 and day < ..."),
        mark_of("tpr[«day > 3»]", "E206", "as in day > 2024-05-30"),
        mark_of("tpr@«tests»", "E209", "did you mean 'test'"),
        mark_of("of(«unconstraint», error)", "E202", "did you mean 'unconstrained'"),
        mark_of("tpr / «0»", "E311"),
        mark_of("log(«-1»)", "E311"),
        mark_of("kl(«2», tpr)", "E311", "from 0 to 1"),
        mark_of("«log(0)» + tpr", "E311"),
        mark_of("1 + «1e308 * 10» * tpr", "E311"),
        mark_of("tpr / «log(0)»", "E311"),
        mark_of("1 + «tpr(women)»", "E304", "write tpr[women]", "takes no arguments"),
        mark_of("1 + «tpr(2)»", "E304", "write tpr", "takes no arguments"),
        mark_of("1 + «f_score»", "E304", "f_score(beta)"),
        mark_of("f_score(«tpr»)", "E304", "", "takes a number"),
        mark_of("1 + «kl(tpr)»", "E304", "", "2 arguments, not 1"),
        mark_of("1 + «max()»", "E304", "", "1 or more"),
        mark_of("1 + «max(tpr, fpr)[women]»", "E304", "after each rate inside: tpr[...]"),
        mark_of(
            "1.1 * «of(unconstrained, error)@validation»",
            "E304",
            "of(unconstrained, error@validation)",
        ),
        mark_of("error(by=«sex»)", "E304", "max(error, by=COLUMN)"),
        mark_of("tpr(by=«sex»)", "E304", "min(tpr, by=COLUMN)", "max_gap, mean, min_ratio"),
        mark_of("«max_gap(tpr, fpr, by=sex)»", "E304", "max_gap(tpr, by=sex)"),
        mark_of("max_gap(tpr, by=«alone»)", "E304", "", "1 value,"),
        mark_of("max_gap(tpr, by=«zip»)", "E304", "", "1001 values"),
        mark_of("«mean(tpr, fpr)»", "E304", "mean(tpr, by=sex)"),
        mark_of("«of(3, error)»", "E304", "of(unconstrained, error)"),
        mark_of("1 - «kappa[women]»", "E304", "", "is a number"),
        mark_of("tpr - «flag»", "E304", "", "True"),
        mark_of("tpr - «mode»", "E304", "", "'fast'"),
        mark_of("tpr(by=(«sex, race»))", "E304", "", "max, min, rms, imbalance, disclosivity"),
        mark_of("1 - «imbalance»", "E304", "", "takes a column and no metric"),
        mark_of("«disclosivity(by=sex)[women]»", "E304", "", "not on those where sex = Female"),
        mark_of("max(«imbalance(by=race)», by=sex)", "E304", "", "not on those where sex = Female"),
        mark_of("disclosivity(by=(sex, «sex»))", "E304", "", "'sex' is named twice"),
        mark_of("max_gap(tpr, by=(sex, «race»))", "E304", "", "compares the groups of one column"),
        mark_of("«min(tpr, fpr, by=sex)»", "E304", "", "takes one metric and a column"),
    ],
)
def test_errors_of_names(mark, code, help_, message):
    fault = fault_under(mark, value)
    assert fault.code == code
    assert help_ in (fault.help or "")
    assert message in fault.message


def test_conditions_of_groups_are_checked():
    def check(text: str) -> None:
        for condition in parse_conditions(text):
            check_condition(condition, FULL)

    check("sex = Female, age >= 3, age = (20, '39'), zip <= 12")
    assert fault_under("sex = Male, «rce = White»", check).code == "E205"
    assert fault_under("sex = Male, «race = Whit»", check).code == "E206"
    assert fault_under("«race < 3»", check).code == "E206"


def test_columns_are_not_checked_without_data():
    scope = Scope(groups=FULL.groups)
    assert resolve(parse_expression("tpr[sx = f, age >= 3] - max_gap(tpr, by=gender)"), scope)


def test_parts_of_a_composite_have_the_span_of_its_name():
    node = value("0.25 + f_score(2)[women]")
    inner = [part.span for child in ex.children(node)[:1] for part in ex.walk(child)]
    assert set(inner) == {Span(7, 24)}


@pytest.mark.parametrize(
    "text",
    [
        "max_gap(" * 30 + "tpr" + ", by=sex)" * 30,
        "f_score(" * 30 + "2" + ")" * 30,
        "max_gap(max_gap(max_gap(f1, by=race), by=race), by=race)",
        "*".join(["tpr"] * 90),
        "/".join(["tpr"] * 90),
    ],
)
def test_nested_rules_are_refused_quickly(text):
    begun = time.process_time()
    found = {"E302", "E304"}
    try:
        assert sum(1 for _ in ex.walk(value(text))) < 1e6
    except FaultError as error:
        found = codes(error)
    assert found <= {"E302", "E304"}
    assert time.process_time() - begun < 2


WORDS = ["tpr", "f1", "f_score", "kappa", "mode", "max", "kl", "of", "max_gap", "women", "zz"]
NAMES = st.sampled_from([*WORDS, "majorize"])


@given(
    st.recursive(
        NAMES | st.sampled_from(["1", "0", "tpr[women]", "tpr@x", "f1[sex=Q]"]),
        lambda parts: (
            st.tuples(NAMES, parts, parts).map(lambda p: f"{p[0]}({p[1]}, {p[2]})")
            | st.tuples(NAMES, parts).map(lambda p: f"{p[0]}({p[1]}, by=sex)")
            | st.tuples(parts, st.sampled_from("+-*/"), parts).map(
                lambda p: f"({p[0]} {p[1]} {p[2]})"
            )
        ),
        max_leaves=5,
    )
)
@settings(max_examples=40)
def test_random_rules_raise_only_errors_with_spans(text):
    try:
        node = value(text)
    except FaultError as error:
        unplaced = [fault for fault in error.faults if fault.span is None]
    else:
        unplaced = []
        shown = ex.to_text(node)  # longer than what may be read where nested gaps are expanded
        assert len(shown) > MAX_LENGTH or value(shown) == node
    assert not unplaced


@pytest.mark.parametrize(
    ("condition", "known", "help_"),
    [
        ("g = NA", ("a", "b"), "it stands for a missing value, which belongs to no group"),
        ("g = 1", ("01", "x"), "did you mean '01'? values: 01, x"),
        ("g = 1.0", ("1", "x"), "values: 1, x"),
        ("g in (1, 3)", (1.0, 2.0), "values: 1, 2"),
        ("g = 1", (), "there are none here"),
        ("g = 1.0", (1.0, 2.0), None),
        ("g >= 1", ("01", "2"), None),
    ],
)
def test_values_are_compared_as_text_unless_a_column_has_numbers(condition, known, help_):
    scope = Scope(values={"g": known}.get, columns=frozenset({"g"}))
    (parsed,) = parse_conditions(condition)
    if help_ is None:
        check_condition(parsed, scope)
        return
    with pytest.raises(FaultError) as caught:
        check_condition(parsed, scope)
    (fault,) = caught.value.faults
    assert (fault.code, fault.help) == ("E206", help_)

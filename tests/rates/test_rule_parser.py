"""Parsing of rules: trees, spans, syntax errors and limits."""

from __future__ import annotations

import time

import pytest
from full_scope import fault_under
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_strategies import CONDITIONS, TEXTS_OF_VALUES

from ratecli.errors import FaultError, Span
from ratecli.rates.parser import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_OPERATORS,
    parse_conditions,
    parse_constraint,
    parse_expression,
)
from ratecli.rates.syntax import (
    Condition,
    Name,
    NameNode,
    NumberLiteral,
    Operation,
    Relation,
    SyntaxNode,
)

A, B, C = NameNode("a"), NameNode("b"), NameNode("c")


def op(sign: str, *operands: SyntaxNode) -> Operation:
    return Operation(sign, operands)


@given(st.lists(CONDITIONS, min_size=1, max_size=3).map(tuple))
def test_printed_groups_parse_to_themselves(conditions):
    assert parse_conditions(", ".join(map(str, conditions))) == conditions


@given(TEXTS_OF_VALUES)
def test_the_span_of_a_tree_is_text_that_parses_to_it(text):
    tree = parse_expression(text)
    own = text[tree.span.start : tree.span.end]
    assert parse_expression(own) == tree or text.lstrip().startswith("(")
    if isinstance(tree, Operation):
        for part in tree.operands:
            own = text[part.span.start : part.span.end]
            if own.count("(") == own.count(")"):
                assert parse_expression(own) == part


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", op("+", A, op("*", B, C))),
        ("(a + b) * c", op("*", op("+", A, B), C)),
        ("a - b - c", op("-", op("-", A, B), C)),
        ("a / b * c", op("*", op("/", A, B), C)),
        ("-a * b", op("*", op("-", A), B)),
        ("a - -b", op("-", A, op("-", B))),
        ("--a", op("-", op("-", A))),
        ("a ** b ** c", op("**", A, op("**", B, C))),
        ("(a ** b) ** c", op("**", op("**", A, B), C)),
        ("-a ** b", op("-", op("**", A, B))),
        ("a ** -b", op("**", A, op("-", B))),
        ("a ** -b ** c * b", op("*", op("**", A, op("-", op("**", B, C))), B)),
        ("a * b ** c / b", op("/", op("*", A, op("**", B, C)), B)),
        ("a**2%", op("**", A, NumberLiteral(0.02))),
        ("5% * a", op("*", NumberLiteral(0.05), A)),
        ("12.5 %", NumberLiteral(0.125)),
        ("1e-3", NumberLiteral(0.001)),
        (".5", NumberLiteral(0.5)),
        ("2.", NumberLiteral(2.0)),
        ("f()", NameNode("f", ())),
        ("max(a, b + c)", NameNode("max", (A, op("+", B, C)))),
        ("max_gap(a, by=sex)", NameNode("max_gap", (A,), (Name("sex"),))),
        ('max_gap(a, by = "marital status")', NameNode("max_gap", (A,), (Name("marital status"),))),
        ("max(by, by)", NameNode("max", (NameNode("by"), NameNode("by")))),
        ("a@test", NameNode("a", split=Name("test"))),
        ("a[d2]@validation", NameNode("a", items=(Name("d2"),), split=Name("validation"))),
        ("f_score(2)[women]", NameNode("f_score", (NumberLiteral(2.0),), items=(Name("women"),))),
    ],
)
def test_precedence_and_forms(text, tree):
    assert parse_expression(text) == tree


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("sex = Female", [("sex", "=", "Female")]),
        ("sex=Female,age>=30", [("sex", "=", "Female"), ("age", ">=", 30.0)]),
        ("sex != 'Not said'", [("sex", "!=", "Not said")]),
        ('income = ">50K"', [("income", "=", ">50K")]),
        ('city = "\\"X\\" \\\\ Y"', [("city", "=", '"X" \\ Y')]),
        ("race = (Black, 'Asian Pac', 3)", [("race", "=", "Black", "Asian Pac", "3")]),
        ("hours-per-week < 40.5", [("hours-per-week", "<", 40.5)]),
        ("'marital status' = Never-married", [("marital status", "=", "Never-married")]),
        ("x > -1e3", [("x", ">", -1000.0)]),
        ("zip = '01234'", [("zip", "=", "01234")]),
        ("zip in (1234, 01234)", [("zip", "=", "1234", "01234")]),
        ("x != 1.0", [("x", "!=", "1.0")]),
        ("x = nan", [("x", "=", "nan")]),
        ("größe <= 3", [("größe", "<=", 3.0)]),
    ],
)
def test_slices(text, conditions):
    items = tuple(Condition(column, op, tuple(values)) for column, op, *values in conditions)
    assert parse_conditions(text) == items
    assert parse_expression(f"tpr[{text}]") == NameNode("tpr", items=items)


def test_chains_of_comparisons():
    assert parse_constraint("0.2 <= a <= b <= 5%") == Relation(
        (NumberLiteral(0.2), A, B, NumberLiteral(0.05)), ("<=", "<=", "<=")
    )
    assert parse_constraint("a >= b").ops == (">=",)


def test_spans_of_compounds_exclude_blanks_around_them():
    assert parse_expression("  (a + b)  * (c)  ").span == Span(2, 16)
    assert parse_constraint(" a  <=  (b) ").span == Span(1, 11)
    assert parse_expression(" tpr [ women ] @ test ").span == Span(1, 21)


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("tpr «fpr»", "an operator or the end is expected, found 'fpr'"),
        ("tpr >= «>=» 3", "a number, a rate or '(' is expected, found '>='"),
        ("tpr «+»", "the rule ends here"),
        ("tpr«$»", "found '$'"),
        ("(tpr «]»", "')' is missing after the bracketed part"),
        ("max_gap(tpr, by=sex, «tpr»)", "only `min_rows=` is expected"),
        ("max_gap(tpr, by=[a, b], min_rows=«2.5»)", "2.5 is not a whole number of rows"),
        ("max_gap(tpr, by=[a, b], min_rows=«1e999»)", "1e999 is not a whole number of rows"),
        ("max_gap(tpr, by=[a, b], min_rows=«inf»)", "a number is expected, found 'inf'"),
        ("max_gap(tpr, by=«3»)", "a name is expected in `by=`"),
        ("tpr[«]»", "a name is expected in a slice"),
        ("tpr[city = New «York»]", "']' is missing after the slice, found 'York'"),
        ("tpr[hours-per-week«]»", "a comparison is expected after 'hours-per-week'"),
        ("tpr[a = «]»", "a value is expected"),
        ("tpr[a = (b «c»)]", "')' is missing after the values"),
        ("tpr[age >= «old»]", "'>=' compares with a number or a date, not with 'old'"),
        ("tpr@«3»", "the name of a split is expected"),
        ("«1e999» * tpr", "larger than any number"),
    ],
)
def test_syntax_errors_point_at_the_token(mark, message):
    fault = fault_under(mark, parse_expression)
    assert fault.code == "E301"
    assert message in fault.message


@pytest.mark.parametrize(
    ("mark", "read", "code", "help_"),
    [
        # operators of other languages
        ("tpr«^»2", parse_constraint, "E301", "write r ** 2"),
        ("maximize «tpr»", parse_expression, "E301", "a minus before what should be large"),
        ("tpr «==» 3", parse_constraint, "E301", "two rules"),
        ("tpr «=» 3", parse_constraint, "E301", "write <= or >="),
        ("tpr «<» 3", parse_constraint, "E301", "write <="),
        ("tpr «≥3»", parse_constraint, "E301", "write <= or >="),
        ("tpr >= 0«,»8", parse_constraint, "E301", "with a point"),
        ("tpr(sex «=» Female) >= 1", parse_constraint, "E301", "recall[sex = Female]"),
        ("tpr[length «of» stay >= 3] <= 1", parse_constraint, "E301", "in quotes"),
        ("tpr[sex «==» Female]", parse_constraint, "E301", "single ="),
        ("tpr[«30» <= age < 40] <= 1", parse_constraint, "E301", "age >= 30 and age < 40"),
        ("max_gap(tpr, by=sex, «race») <= 1", parse_constraint, "E301", "by=[sex, race]"),
        ("tpr[Länge «(»Tage) > 10] <= 1", parse_constraint, "E301", "in quotes"),
        ("max_gap(tpr, by=prior «visits») <= 1", parse_constraint, "E301", "in quotes"),
        ('tpr[day > «"1 June 2024"»] <= 1', parse_constraint, "E301", "as in 2024-05-31"),
        ("tpr[age > 60 «<=» 1", parse_constraint, "E301", "write ] before it"),
        ("tpr[women «&» old] <= 1", parse_constraint, "E301", "write `and`"),
        ("tpr[women «||» old] <= 1", parse_constraint, "E301", "write `or`"),
        # mixed chains
        ("«a <= b >= c»", parse_constraint, "E301", "two rules"),
        # values instead of comparisons, and the reverse
        (" «tpr» ", parse_constraint, "E303", "value <= bound"),
        (" «tpr <= 3» ", parse_expression, "E303", "under `constraints`"),
        # groups
        ("a = 1, «women»", parse_conditions, "E301", "column = value"),
        ("a = 1«,»", parse_conditions, "E301", ""),
    ],
)
def test_errors_of_constraints_expressions_and_groups(mark, read, code, help_):
    fault = fault_under(mark, read)
    assert fault.code == code
    assert help_ in (fault.help or "")


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_rule_is_an_error(text):
    with pytest.raises(FaultError, match="E301"):
        parse_constraint(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("(" * 10_000 + "1" + ")" * 10_000, "E302"),
        ("-" * 1900 + "1", "E302"),
        ("abs(" * 300 + "1" + ")" * 300, "E302"),
        ("tpr" + " + tpr" * (MAX_OPERATORS + 1), "E302"),
        ("a" * (MAX_LENGTH + 1), "E302"),
        ("9" + "**9" * MAX_DEPTH + "**9", "E302"),
        ("tpr" + "*tpr**2" * (MAX_OPERATORS // 2) + "*2", "E302"),
        ("(" * 2000, "E302"),
        ("[" * 2000, "E301"),
    ],
)
def test_limits_are_enforced_quickly(text, code):
    begun = time.process_time()
    for read in (parse_constraint, parse_expression):
        with pytest.raises(FaultError) as raised:
            read(text)
        assert [fault.code for fault in raised.value.faults] == [code]
    assert time.process_time() - begun < 1


def test_rules_at_the_limits_are_accepted():
    assert parse_expression("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH) == A
    assert isinstance(parse_expression("a" + " + a" * MAX_OPERATORS), Operation)
    assert len(parse_constraint("a" + " <= 1" * 300).ops) == 300
    assert fault_under("(" * MAX_DEPTH + "(«a»)" + ")" * MAX_DEPTH, parse_expression).code == "E302"


SHARDS = st.sampled_from(
    [
        *"()[],@%=<>+-*/^'\"\\ .#$\0é²",
        *["<=", ">=", "!=", "==", "**", "tpr", "by", "max", "1e3", "5%"],
    ]
)


@given(st.lists(SHARDS, max_size=25).map("".join) | st.text(max_size=30))
@settings(max_examples=50)
def test_random_text_raises_only_errors_with_spans(text):
    for read in (parse_constraint, parse_expression, parse_conditions):
        try:
            read(text)
        except FaultError as error:
            for fault in error.faults:
                assert fault.span is not None
                assert 0 <= fault.span.start < fault.span.end <= max(len(text), 1)

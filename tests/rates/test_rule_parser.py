from __future__ import annotations

import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rule_marks import fault_under
from rule_strategies import CONDITIONS, NODES, TEXTS_OF_VALUES, relations

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
    BinaryOperation,
    Condition,
    NameNode,
    Negation,
    NumberLiteral,
    Relation,
    SliceName,
    SyntaxNode,
)

A, B, C = NameNode("a"), NameNode("b"), NameNode("c")


# what is written is read


@given(NODES)
def test_a_printed_tree_is_read_as_itself(tree: SyntaxNode) -> None:
    assume(len(str(tree)) <= MAX_LENGTH)
    assert parse_expression(str(tree)) == tree


@given(relations())
@settings(max_examples=50)
def test_a_printed_relation_is_read_as_itself(tree: Relation) -> None:
    assume(len(str(tree)) <= MAX_LENGTH)
    assert parse_constraint(str(tree)) == tree


@given(st.lists(CONDITIONS, min_size=1, max_size=3).map(tuple))
@settings(max_examples=50)
def test_a_printed_group_is_read_as_itself(conditions: tuple[Condition, ...]) -> None:
    assert parse_conditions(", ".join(map(str, conditions))) == conditions


@given(TEXTS_OF_VALUES)
@settings(max_examples=60)
def test_text_with_any_blanks_and_brackets_means_what_its_canonical_text_means(text: str) -> None:
    tree = parse_expression(text)
    assert parse_expression(str(tree)) == tree


@given(TEXTS_OF_VALUES)
@settings(max_examples=60)
def test_every_node_stands_under_its_own_text(text: str) -> None:
    tree = parse_expression(text)
    assert parse_expression(
        text[tree.span.start : tree.span.end]
    ) == tree or text.lstrip().startswith("(")
    if isinstance(tree, BinaryOperation):
        for part in (tree.left, tree.right):
            own = text[part.span.start : part.span.end]
            if own.count("(") == own.count(")"):
                assert parse_expression(own) == part


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", BinaryOperation("+", A, BinaryOperation("*", B, C))),
        ("a * b + c", BinaryOperation("+", BinaryOperation("*", A, B), C)),
        ("(a + b) * c", BinaryOperation("*", BinaryOperation("+", A, B), C)),
        ("a - b - c", BinaryOperation("-", BinaryOperation("-", A, B), C)),
        ("a - (b - c)", BinaryOperation("-", A, BinaryOperation("-", B, C))),
        ("a / b * c", BinaryOperation("*", BinaryOperation("/", A, B), C)),
        ("-a * b", BinaryOperation("*", Negation(A), B)),
        ("-(a * b)", Negation(BinaryOperation("*", A, B))),
        ("a - -b", BinaryOperation("-", A, Negation(B))),
        ("a*-b", BinaryOperation("*", A, Negation(B))),
        ("--a", Negation(Negation(A))),
        ("a ** b ** c", BinaryOperation("**", A, BinaryOperation("**", B, C))),
        ("(a ** b) ** c", BinaryOperation("**", BinaryOperation("**", A, B), C)),
        ("-a ** b", Negation(BinaryOperation("**", A, B))),
        ("(-a) ** b", BinaryOperation("**", Negation(A), B)),
        ("a ** -b", BinaryOperation("**", A, Negation(B))),
        (
            "a ** -b ** c * b",
            BinaryOperation(
                "*", BinaryOperation("**", A, Negation(BinaryOperation("**", B, C))), B
            ),
        ),
        (
            "a * b ** c / b",
            BinaryOperation("/", BinaryOperation("*", A, BinaryOperation("**", B, C)), B),
        ),
        ("a ** (b + c)", BinaryOperation("**", A, BinaryOperation("+", B, C))),
        ("a**2%", BinaryOperation("**", A, NumberLiteral(0.02))),
        ("5% * a", BinaryOperation("*", NumberLiteral(0.05), A)),
        ("12.5 %", NumberLiteral(0.125)),
        ("1e-3", NumberLiteral(0.001)),
        (".5", NumberLiteral(0.5)),
        ("2.", NumberLiteral(2.0)),
        ("  a  ", A),
        ("f()", NameNode("f", ())),
        ("max(a, b + c)", NameNode("max", (A, BinaryOperation("+", B, C)))),
        ("max_gap(a, by=sex)", NameNode("max_gap", (A,), ("sex",))),
        ('max_gap(a, by = "marital status")', NameNode("max_gap", (A,), ("marital status",))),
        ("max(by, by)", NameNode("max", (NameNode("by"), NameNode("by")))),
        ("a@test", NameNode("a", split="test")),
        ("a[d2]@validation", NameNode("a", items=(SliceName("d2"),), split="validation")),
        (
            "f_score(2)[women]",
            NameNode("f_score", (NumberLiteral(2.0),), items=(SliceName("women"),)),
        ),
    ],
)
def test_precedence_and_forms(text: str, tree: SyntaxNode) -> None:
    assert parse_expression(text) == tree


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("sex = Female", (Condition("sex", "=", ("Female",)),)),
        (
            "sex=Female,age>=30",
            (Condition("sex", "=", ("Female",)), Condition("age", ">=", (30.0,))),
        ),
        ("sex != 'Not said'", (Condition("sex", "!=", ("Not said",)),)),
        ('income = ">50K"', (Condition("income", "=", (">50K",)),)),
        ('city = "\\"X\\" \\\\ Y"', (Condition("city", "=", ('"X" \\ Y',)),)),
        ("race = (Black, 'Asian Pac', 3)", (Condition("race", "=", ("Black", "Asian Pac", 3.0)),)),
        ("race != (A, B)", (Condition("race", "!=", ("A", "B")),)),
        ("hours-per-week < 40.5", (Condition("hours-per-week", "<", (40.5,)),)),
        (
            "'marital status' = Never-married",
            (Condition("marital status", "=", ("Never-married",)),),
        ),
        ("x > -1e3", (Condition("x", ">", (-1000.0,)),)),
        ("zip = '01234'", (Condition("zip", "=", ("01234",)),)),
        ("zip = 1234", (Condition("zip", "=", (1234.0,)),)),
        ("x = nan", (Condition("x", "=", ("nan",)),)),
        ("größe <= 3", (Condition("größe", "<=", (3.0,)),)),
    ],
)
def test_slices(text: str, items: tuple[Condition, ...]) -> None:
    assert parse_conditions(text) == items
    assert parse_expression(f"tpr[{text}]") == NameNode("tpr", items=items)


def test_a_chain_keeps_all_its_operands() -> None:
    assert parse_constraint("0.2 <= a <= b <= 5%") == Relation(
        (NumberLiteral(0.2), A, B, NumberLiteral(0.05)), ("<=", "<=", "<=")
    )
    assert parse_constraint("a >= b").ops == (">=",)


def test_a_span_covers_all_of_a_compound_and_no_blank_around_it() -> None:
    assert parse_expression("  (a + b)  * (c)  ").span == Span(2, 16)
    assert parse_constraint(" a  <=  (b) ").span == Span(1, 11)
    assert parse_expression(" tpr [ women ] @ test ").span == Span(1, 21)


# what cannot be read is pointed at


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("tpr >= «>=» 3", "a number, a rate or '(' is expected, found '>='"),
        ("«*» 3", "expected, found '*'"),
        ("tpr «+»", "the rule ends here"),
        ("tpr «fpr»", "an operator or the end is expected, found 'fpr'"),
        ("2 «tpr»", "found 'tpr'"),
        ("tpr «]»", "found ']'"),
        ("tpr«$»", "found '$'"),
        ("(tpr «]»", "')' is missing after the bracketed part"),
        ("max(tpr «fpr»)", "')' is missing after the arguments"),
        ("max(tpr, «)»", "found ')'"),
        ("max_gap(tpr, by=sex«,» tpr)", "')' is missing after the arguments"),
        ("max_gap(tpr, by=«3»)", "a name is expected in `by=`"),
        ("tpr[«]»", "a name is expected in a slice"),
        ("tpr[«3» = 4]", "a name is expected in a slice"),
        ("tpr[women «York»]", "']' is missing after the slice"),
        ("tpr[city = New «York»]", "']' is missing after the slice, found 'York'"),
        ("tpr[hours-per-week«]»", "a comparison is expected after 'hours-per-week'"),
        ("tpr[a = «]»", "a value is expected"),
        ('tpr[a = «"»b]', "a value is expected"),
        ("tpr[a = («)»]", "a value is expected"),
        ("tpr[a = (b «c»)]", "')' is missing after the values"),
        ("tpr[age >= «old»]", "'>=' compares with a number, not with 'old'"),
        ("tpr[age < «'30'»]", "'<' compares with a number"),
        ("tpr[sex «==» Female]", "'==' is not a comparison"),
        ("tpr@«3»", "the name of a split is expected"),
        ("tpr@test«[»women]", "found '['"),
        ("«1e999» * tpr", "larger than any number"),
        ("1.2«.3»", "found '.3'"),
    ],
)
def test_syntax_faults_lie_under_the_token(mark: str, says: str) -> None:
    fault = fault_under(mark, parse_expression)
    assert fault.code == "E301"
    assert says in fault.message


@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ("tpr«^»2", "write r ** 2"),
        ("tpr «==» 3", "two rules"),
        ("tpr «=» 3", "write <= or >="),
        ("tpr «<» 3", "write <="),
        ("tpr «>» 3", "write >="),
        ("tpr[sex «==» Female]", "single ="),
    ],
)
def test_habits_of_other_languages_are_answered(mark: str, says: str) -> None:
    fault = fault_under(mark, parse_constraint)
    assert fault.code == "E301"
    assert says in (fault.help or "")


@pytest.mark.parametrize("mark", ["«a <= b >= c»", " «a >= b <= c»  ", "«(a) <= b >= c»"])
def test_a_mixed_chain_is_refused_as_a_whole(mark: str) -> None:
    assert fault_under(mark, parse_constraint).code == "E301"


@pytest.mark.parametrize(
    ("mark", "read"),
    [
        (" «tpr» ", parse_constraint),
        ("«(a + b) * c»", parse_constraint),
        (" «tpr <= 3» ", parse_expression),
    ],
)
def test_a_value_is_no_comparison_and_the_reverse(mark, read) -> None:
    assert fault_under(mark, read).code == "E303"


@pytest.mark.parametrize(
    "mark", ["a = 1, «women»", "«women»", "a = 1 «b» = 2", "a = 1«]»", "«>=» 3", "a = 1«,»"]
)
def test_a_group_is_nothing_but_conditions(mark: str) -> None:
    assert fault_under(mark, parse_conditions).code == "E301"


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_is_no_rule(text: str) -> None:
    with pytest.raises(FaultError, match="E301"):
        parse_constraint(text)


# bounds


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("(" * 10_000 + "1" + ")" * 10_000, "E302"),
        ("(" * 900 + "1" + ")" * 900, "E302"),
        ("-" * 1900 + "1", "E302"),
        ("abs(" * 300 + "1" + ")" * 300, "E302"),
        ("tpr" + " + tpr" * (MAX_OPERATORS + 1), "E302"),
        ("tpr" + "*tpr" * 400, "E302"),
        ("a" * (MAX_LENGTH + 1), "E302"),
        ("9" + "**9" * MAX_DEPTH + "**9", "E302"),
        ("tpr" + "*tpr**2" * (MAX_OPERATORS // 2) + "*2", "E302"),
        ("(" * 2000, "E302"),
        ("[" * 2000, "E301"),
    ],
)
def test_bounds_are_faults_and_quick(text: str, code: str) -> None:
    begun = time.process_time()
    for read in (parse_constraint, parse_expression):
        with pytest.raises(FaultError) as raised:
            read(text)
        assert [fault.code for fault in raised.value.faults] == [code]
    assert time.process_time() - begun < 1


def test_the_bounds_are_reached_but_not_passed() -> None:
    assert parse_expression("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH) == A
    assert str(parse_expression("a" + " + a" * MAX_OPERATORS)).count("+") == MAX_OPERATORS
    assert len(parse_constraint("a" + " <= 1" * 300).ops) == 300
    assert fault_under("(" * MAX_DEPTH + "(«a»)" + ")" * MAX_DEPTH, parse_expression).code == "E302"


SHARDS = st.sampled_from(
    [
        *"()[],@%=<>+-*/^'\"\\ .#$\0é²",
        *["<=", ">=", "!=", "==", "**", "tpr", "by", "max", "1e3", "5%"],
    ]
)


@given(st.lists(SHARDS, max_size=25).map("".join) | st.text(max_size=30))
@settings(max_examples=100)
def test_garbage_raises_nothing_but_faults_inside_the_text(text: str) -> None:
    for read in (parse_constraint, parse_expression, parse_conditions):
        try:
            read(text)
        except FaultError as error:
            for fault in error.faults:
                assert fault.span is not None
                assert 0 <= fault.span.start < fault.span.end <= max(len(text), 1)

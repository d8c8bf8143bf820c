"""Random trees, texts and expressions of the rule language."""

from __future__ import annotations

from hypothesis import strategies as st
from oracles.goals import evaluate

from ratecli.errors import FaultError
from ratecli.rates.analysis import Goal, constraint_goal
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.resolve import constraint_differences, resolve, violation_expression
from ratecli.rates.scope import Scope
from ratecli.rates.syntax import Condition

OPERATORS = ["+", "-", "*", "/", "**"]
EXPONENTS = ["2", "3", "0.5", "1.5", "-1", "-2", "-0.5", "0"]
WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["Female", "New York", ">50K", 'say "no"', "a\\b", "30"]
)
COLUMNS = WORDS | st.text(min_size=1, max_size=6) | st.sampled_from(["hours-per-week", "c_charge"])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
CONDITIONS = st.builds(
    Condition,
    COLUMNS,
    st.sampled_from(["=", "!="]),
    st.lists(TEXTS | FINITE.map(repr), min_size=1, max_size=3).map(tuple),
) | st.builds(Condition, COLUMNS, st.sampled_from(["<", "<=", ">", ">="]), st.tuples(FINITE))


def _spaced(*parts: str | st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    gap = st.sampled_from(["", " ", "  ", "\t"])
    woven = [
        piece for part in parts for piece in (gap, st.just(part) if isinstance(part, str) else part)
    ]
    return st.tuples(*woven, gap).map("".join)


_SLICES = st.sampled_from(
    ["[women]", "[ sex = F , age>=30 ]", "[city='New York']", '[job != ("a b", c)]@test', "@ train"]
)
_ATOMS = st.sampled_from(
    ["5%", ".5", "1e-3", "2.", "12.5 %", "tpr", "kappa", "f_score(2)"]
) | _SLICES.map(lambda text: f"tpr{text}")
TEXTS_OF_VALUES = st.recursive(
    _ATOMS,
    lambda parts: (
        _spaced(parts, st.sampled_from(OPERATORS), parts)
        | _spaced("(", parts, ")")
        | _spaced("-", parts)
        | _spaced("max", "(", parts, ",", parts, ")")
        | _spaced("max_gap", "(", parts, ",", "by", "=", "sex", ")")
        | _spaced("mean", "(", parts, ",", "by", "=", "(", "sex", ",", "'a b'", ")", ")")
    ),
    max_leaves=8,
)
"""Well-formed text with blanks and brackets wherever the grammar lets them stand."""

_LEAVES = ["tpr", "fpr[a]", "positive_rate", "error", "base_rate", "0.25", "2", "1"]
_RATIOS = ["precision", "f1", "wins / losses", "f_score(2)"]


def _arithmetic(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(parts, parts)
    return (
        st.tuples(parts, st.sampled_from("+-*/"), parts).map(lambda p: f"({p[0]} {p[1]} {p[2]})")
        | parts.map(lambda text: f"-({text})")
        | st.tuples(parts, st.sampled_from(EXPONENTS)).map(lambda p: f"({p[0]}) ** {p[1]}")
        | st.tuples(st.sampled_from(["abs", "exp", "sqrt", "log", "max", "rms"]), parts).map(
            lambda p: f"{p[0]}({p[1]})"
        )
        | st.tuples(
            st.sampled_from(["max", "min", "rms", "kl", "geo_mean", "harmonic_mean"]), pairs
        ).map(lambda p: f"{p[0]}({', '.join(p[1])})")
    )


SCOPE = Scope(
    datasets=frozenset({"d1"}),
    groups={"a": (Condition("g", "=", ("a",)),), "b": (Condition("g", "=", ("b",)),)},
)


def expression(text: str) -> Expression:
    return resolve(parse_expression(text), SCOPE)


def goal(text: str, scope: Scope = SCOPE) -> Goal:
    parts = constraint_differences(parse_constraint(text), scope)
    return constraint_goal("rule", text, parts, violation_expression(parts))


def codes(error: FaultError) -> set[str]:
    return {fault.code for fault in error.faults}


def _defined(text: str) -> Expression | None:
    try:
        return expression(text)
    except FaultError as error:
        if codes(error) != {"E311"}:
            raise
        return None


EXPRESSIONS = (
    st.recursive(st.sampled_from(_LEAVES + _RATIOS), _arithmetic, max_leaves=7)
    .map(_defined)
    .filter(lambda node: node is not None)
)
"""Expressions over rates; where one is not defined (a division by zero) another is drawn."""


def value(node: Expression, rates: dict[Leaf, float]) -> float:
    return evaluate(node, rates)


_CONVEX_TEXT = (
    "kl(0.2, tpr); kl(base_rate, tpr); kl(tpr, fpr); kl(0.2, 0.5 * tpr + 0.5 * fpr); "
    "rms(tpr, fpr, 1); exp(tpr - fpr); exp(kl(0.2, tpr)); abs(tpr - fpr); "
    "-geo_mean(tpr, fpr); -harmonic_mean(tpr, fpr); -sqrt(1 - tpr); -log(tpr + 0.1); "
    "-sqrt(geo_mean(tpr, fpr)); max(tpr, fpr, 0.3) + 2 * rms(tpr); -min(tpr, -exp(fpr)); "
    "(tpr - fpr) * (tpr - fpr); rms(exp(tpr), kl(0.5, fpr)); "
    "kl(0.2, tpr) / 3 - sqrt(fpr) / 2; (tpr - fpr) ** 2; (tpr - 0.5) ** 4 + tpr ** 3; "
    "(tpr + fpr) ** 1.5; -((tpr + fpr) ** 0.5); (tpr + 1) ** -2; -((fpr - 1) ** 3); "
    "kl(0.2, tpr) ** 2; exp(tpr) ** 3; -((-exp(tpr)) ** 3); "
    "kl(0.3, tpr) + kl(base_rate, fpr); 1 - g_mean; 1 - h_mean; "
    "max(exp(tpr), kl(0.5, fpr)) - g_mean"
)
CONVEX = _CONVEX_TEXT.split("; ")
"""Expressions that are known to be convex."""

"""Shapes, pieces, curvature, monotonicity, directions, ranges and tangents of goals."""

from __future__ import annotations

import math

import full_scope
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles.goals import tangent, values
from rule_strategies import CONVEX, EXPRESSIONS, expression, goal, value

from ratecli.rates import expression as ex
from ratecli.rates.analysis import (
    MAX_PIECES,
    Curvature,
    Shape,
    curvature,
    interval,
    monotonicity,
    objective_goal,
    pieces,
    shape,
)
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.matrix import Predictions, measure
from ratecli.rates.metrics import Direction, direction
from ratecli.rates.parser import parse_expression
from ratecli.rates.sample import Sample
from ratecli.rates.table import METRICS

Rates = dict[Leaf, float]
SEEDS = st.integers(0, 10**6)


def drawn(node: Expression, seed: int, count: int) -> list[Rates]:
    """Random rates of a tree, some at the ends of their range."""
    rng, leaves = np.random.default_rng(seed), ex.leaves(node)
    return [
        {leaf: float(rng.choice([0, 1, *rng.random(4)])) for leaf in leaves} for _ in range(count)
    ]


def close(a: float, b: float) -> float:
    return 1e-7 * (1 + abs(a) + abs(b))


RULES_BY_SHAPE = {
    Shape.AFFINE: (
        "base_rate <= positive_rate <= 2 * base_rate; tpr ** -1 <= 2; tpr ** 0 * fpr ** 1 <= 0.2"
    ),
    Shape.CONVEX: "q_mean >= 0.7; (tpr[a] - tpr[b]) ** 2 <= 0.01",
    Shape.RATIO_SUM: (
        "max_gap(precision, by=sex) <= 0.05; precision >= tpr; min_ratio(precision, by=sex) >= 0.8; "
        "f1[a] / tpr <= 1.2"
    ),
    Shape.SMOOTH: (
        "g_mean <= 0.7; tpr * fpr <= 0.2; kl(0.2, tpr) >= 0.01; "
        "(tpr[a] - tpr[b]) ** 3 <= 0.01; tpr[a] * tpr[b] ** -1 >= 0.8; "
        "precision * tpr >= 0.2; mcc >= 0.3; sqrt(tpr * tnr) >= 0.5; min(mcc, by=sex) >= 0.1; "
        "abs(tpr * fpr) <= 0.1; tpr * abs(0.1 - 0.4) * fpr <= 0.1; tpr / (fpr - 0.5) <= 1"
    ),
    Shape.OTHER: "tpr * abs(fpr - 0.1) <= 0.1; max(mcc, by=sex) >= 0.5; tpr * max_gap(fpr, by=sex) <= 1",
    Shape.RANKING: "roc_auc >= 0.8; pr_auc[a] - tpr >= 0; roc_auc - mse >= 0.8",
    Shape.QUADRATIC: "mse <= 0.1; mse[a] + 2 * mse[b] <= 3 * mean_error; abs(mean_error) <= 0.1",
    Shape.ESTIMATE: (
        "log_loss[a] <= 2 * log_loss[b]; abs(mean_error) + error <= 0.1; mse[a] <= mse[b]; "
        "sqrt(mse) <= 1; max_gap(mse, by=sex) <= 0.1; mse[a] / mse[b] <= 2"
    ),
}


@pytest.mark.parametrize("expected", RULES_BY_SHAPE)
def test_shapes_of_rules(expected):
    for rule in RULES_BY_SHAPE[expected].split("; "):
        assert goal(rule).shape is expected, rule


OBJECTIVES_BY_SHAPE = {
    Shape.AFFINE: "error; mean(error, by=sex)",
    Shape.CONVEX: (
        "kl(base_rate, positive_rate[a]) + kl(base_rate, positive_rate[b]); fpr * fpr + fnr * fnr"
    ),
    Shape.RATIO: "-f1; 1 - precision",
    Shape.RATIO_SUM: "-f1[a] - f1[b]; error - f1; 1 - mean(precision, by=race)",
    Shape.SMOOTH: (
        "-mcc; -tpr * tnr; -min(mcc, by=sex); max_gap(mcc, by=sex); log(tpr); 1 - f1 - tpr * tnr; "
        "max_gap(tpr, by=sex) - mcc; -mean(mcc, by=sex) + kl(0.3, positive_rate)"
    ),
    Shape.OTHER: "-max(mcc, by=sex); tpr * abs(fpr - 0.1)",
    Shape.QUADRATIC: "mse; mse[a] + mse[b] - mean_error",
    Shape.ESTIMATE: "-mse; -log_loss; max(mse[a], mse[b])",
    Shape.RANKING: "-roc_auc",
}


@pytest.mark.parametrize("expected", OBJECTIVES_BY_SHAPE)
def test_shapes_of_objectives(expected):
    for objective in OBJECTIVES_BY_SHAPE[expected].split("; "):
        found = objective_goal(objective, expression(objective))
        assert found.shape is expected, objective
        assert found.pieces == (found.expression,)


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=50)
def test_the_largest_piece_is_the_expression(node, seed):
    parts = pieces(node)
    for rates in drawn(node, seed, 3):
        whole = value(node, rates)
        found = [value(part, rates) for part in parts]
        if math.isfinite(whole) and all(map(math.isfinite, found)):
            assert max(found) == pytest.approx(whole, rel=1e-9, abs=1e-9)


RULES = st.tuples(EXPRESSIONS, st.sampled_from(["<=", ">="]), st.floats(0, 1)).map(
    lambda part: f"{ex.to_text(part[0])} {part[1]} {part[2]}"
)


@given(RULES, SEEDS)
@example("precision[a] / precision[b] >= 0.8", 1)
@example("1.5 * f1[a] / precision - 0.2 <= 1", 2)
@settings(max_examples=50)
def test_a_rule_is_satisfied_exactly_if_all_its_pieces_are(rule, seed):
    found = goal(rule)
    for rates in drawn(found.expression, seed, 3):
        whole = value(found.expression, rates)
        parts = [value(part, rates) for part in found.pieces]
        if not any(map(math.isnan, (whole, *parts))) and min(map(abs, parts)) > 1e-9:
            assert (whole <= 0) == (max(parts) <= 0)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("max(tpr, max(fpr, abs(fnr - tnr)))", 4),
        ("max(tpr, fpr) + 2 * abs(fnr - tnr)", 4),
        ("max(tpr + max(fpr, fnr), tnr)", 3),
        ("-max(tpr, fpr)", 1),
        ("-min(tpr, fpr)", 2),
    ],
)
def test_number_of_pieces_of_nested_choices(text, count):
    assert len(pieces(expression(text))) == count


@pytest.mark.parametrize("terms", [10, 12, 40])
def test_expressions_with_too_many_pieces_are_not_split(terms):
    node = expression(" + ".join(["max(max(tpr, fpr), max(fnr, tnr))"] * terms))
    assert 4**terms > MAX_PIECES
    assert pieces(node) == (node,)


@pytest.mark.parametrize("text", CONVEX)
def test_known_convex_and_concave(text):
    node = expression(text)
    assert curvature(node) is Curvature.CONVEX
    assert curvature(ex.negate(node)) is Curvature.CONCAVE
    assert shape(node) is Shape.CONVEX


_NEITHER_TEXT = (
    "tpr * fpr; tpr / fpr; kl(0.2, tpr + fpr); kl(0.2, exp(tpr) / 3); sqrt(tpr - fpr); "
    "sqrt(exp(tpr)); exp(sqrt(tpr)); abs(exp(tpr) - 2); exp(tpr) + sqrt(fpr); "
    "rms(exp(tpr) - 2, fpr); tpr * (fpr - fpr); (tpr - fpr) ** 3; (tpr - fpr) ** 0.5; "
    "(exp(tpr) - 2) ** 2; sqrt(tpr) ** 3; roc_auc"
)
NEITHER = _NEITHER_TEXT.split("; ")
"""Expressions of unknown curvature; `kl` is clipped and roots are undefined outside their domain."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 - 3 * tpr", Curvature.AFFINE),
        ("tpr - tpr", Curvature.AFFINE),
        ("exp(0.3)", Curvature.CONSTANT),
        *((text, Curvature.UNKNOWN) for text in NEITHER),
    ],
)
def test_affine_and_unknown_curvature(text, expected):
    assert curvature(expression(text)) is expected


@given(EXPRESSIONS | st.sampled_from(CONVEX).map(expression), SEEDS)
@settings(max_examples=30)
def test_curvature_satisfies_jensens_inequality(node, seed):
    found = curvature(node)
    assume(found is not Curvature.UNKNOWN)
    for one, other in zip(drawn(node, seed, 4), drawn(node, seed + 1, 4), strict=True):
        share = np.random.default_rng(seed).random()
        between = {leaf: share * one[leaf] + (1 - share) * other[leaf] for leaf in one}
        ends = share * value(node, one) + (1 - share) * value(node, other)
        middle = value(node, between)
        if not (math.isfinite(ends) and math.isfinite(middle)):
            continue
        if found is not Curvature.CONCAVE:
            assert middle <= ends + close(middle, ends)
        if found is not Curvature.CONVEX:
            assert middle >= ends - close(middle, ends)


def test_analysis_of_a_long_product_ends():  # twice the work for each factor would not
    for op in "*/":
        node = expression(f" {op} ".join(["tpr"] * 60))
        assert curvature(node) is Curvature.UNKNOWN
        assert shape(node) is Shape.SMOOTH
        assert interval(node)[0] >= 0
        assert set(monotonicity(node)) == {expression("tpr")}


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("tpr - 2 * fpr", {"tpr": 1, "fpr": -1}),
        ("exp(tpr) - sqrt(fpr) + tpr / fpr + tpr * (1 - fpr)", {"tpr": 1, "fpr": -1}),
        ("tpr ** 2 - fpr ** 0.5 + (tpr - 0.5) ** 3 + g_mean", {"tpr": 1, "fpr": -1, "tnr": 1}),
        ("abs(tpr - 2) + tpr / (fpr - 1.5)", {"tpr": -1, "fpr": -1}),
        ("rms(tpr, fpr - 1)", {"tpr": 1, "fpr": -1}),
        ("tpr * (fpr - 0.5)", {"tpr": 0, "fpr": 1}),
        ("tpr * (1 - tpr)", {"tpr": 0}),
        ("(tpr - 1) / (1 + fpr)", {"tpr": 1, "fpr": 1}),
        ("tpr / (fpr - 0.5)", {"tpr": 0, "fpr": 0}),
        ("(tpr - 1) ** 2 + (fpr - 0.5) ** 2", {"tpr": -1, "fpr": 0}),
        ("(tpr + 1) ** -2 + (fpr - 2) ** -3", {"tpr": -1, "fpr": -1}),
        ("kl(0.2, tpr)", {"tpr": 0}),
        ("q_mean", {"fpr": -1, "fnr": -1}),
        ("tpr - fpr + tpr", {"tpr": 1, "fpr": -1}),
        ("tpr - (tpr + tpr)", {"tpr": 0}),
    ],
)
def test_known_monotonicity(text, signs):
    found = {leaf.rate.name: sign for leaf, sign in monotonicity(expression(text)).items()}
    assert found == signs


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=40)
def test_monotonicity_holds_at_sampled_rates(node, seed):
    signs = monotonicity(node)
    assert set(signs) == set(ex.leaves(node))
    rng = np.random.default_rng(seed)
    for rates in drawn(node, seed, 3):
        here = value(node, rates)
        for leaf, sign in signs.items():
            there = value(node, rates | {leaf: rng.uniform(rates[leaf], 1)})
            if sign and math.isfinite(here) and math.isfinite(there):
                assert sign * (there - here) >= -close(here, there)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("tpr - fpr", (-1, 1)),
        ("tpr - tpr", (0, 0)),
        ("harmonic_mean(tpr, wins / losses)", (0, 2)),
        ("geo_mean(0 * tpr, wins / losses)", (-math.inf, math.inf)),
        ("precision", (0, 1)),
        ("win_loss_ratio", (0, math.inf)),
        ("tpr / (fpr + 0.5)", (0, 2)),
        ("tpr / (1 - fpr)", (0, math.inf)),
        ("tpr * (fpr - 0.5)", (-0.5, 0.5)),
        ("log(-tpr) - log(-fpr)", (-math.inf, math.inf)),
        ("max_gap(f1, by=sex)", (-1, 1)),
        ("mse", (0, math.inf)),
        ("mean_error", (-math.inf, math.inf)),
        ("(tpr - 0.5) * (tpr - 0.5)", (0, 0.25)),
        ("tpr / (fpr - 1)", (-math.inf, math.inf)),  # tpr / 0 counts as positive
        ("(tpr - 1) ** -2", (1, math.inf)),
    ],
)
def test_known_ranges(text, ends):
    assert interval(expression(text)) == pytest.approx(ends)


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=40)
def test_ranges_contain_sampled_values(node, seed):
    low, high = interval(node)
    assert low <= high
    for rates in drawn(node, seed, 5):
        found = value(node, rates)
        if not math.isnan(found):
            assert found >= low or math.isclose(found, low, rel_tol=1e-9, abs_tol=1e-9)
            assert found <= high or math.isclose(found, high, rel_tol=1e-9, abs_tol=1e-9)


SMOOTH = ["(tpr - fpr) ** 3", "f1", "precision / tpr", "tpr * fpr", "1 - f_score(2)"]
UNIT = st.floats(0, 1)


def at(text: str, rates: np.ndarray):
    node = expression(text)
    index = {leaf: k for k, leaf in enumerate(ex.leaves(node))}
    return node, index, rates[: len(index)]


@pytest.mark.parametrize("text", CONVEX)
@given(st.lists(UNIT, min_size=8, max_size=8))
def test_tangents_of_convex_expressions_are_lower_bounds(text, chosen):
    node, index, here = at(text, np.array(chosen[:4]))
    there = np.array(chosen[4:])[: len(index)]
    assert curvature(node) is Curvature.CONVEX
    line = tangent(node, here, index)
    (above,) = values(node, there[:, None], index)
    # the clipping of kl makes it flat, not convex, within 1e-10 of the ends
    assert line.value + line.slopes @ (there - here) <= above + 1e-9 + 1e-6 * abs(above)


@pytest.mark.parametrize("text", [*CONVEX, *SMOOTH])
def test_slopes_are_difference_quotients(text):
    rng = np.random.default_rng(0)
    for _ in range(20):
        node, index, here = at(text, rng.uniform(0.2, 0.8, 4))
        line = tangent(node, here, index)
        near = here[:, None] + 1e-6 * np.hstack([np.eye(len(here)), -np.eye(len(here))])
        up, down = np.split(values(node, near, index), 2)
        np.testing.assert_allclose((up - down) / 2e-6, line.slopes, atol=1e-5)


@pytest.mark.parametrize("text", [*CONVEX, *SMOOTH])
@given(st.lists(UNIT, min_size=4, max_size=4))
@settings(max_examples=8, deadline=None)
def test_tangents_touch_the_values(text, chosen):
    node, index, here = at(text, np.clip(chosen, 0.01, 0.99))
    touched = tangent(node, here, index).value
    (exact,) = values(node, here[:, None], index)
    assert touched == pytest.approx(exact)


@pytest.mark.parametrize("name", ["max", "min", "sum"])
def test_functions_take_more_arguments_than_numpys_limit_of_64(name):
    """As the largest of the gaps between 9 groups in two rates, 144 differences."""
    (leaf,), rates = ex.leaves(expression("tpr")), np.array([[0.25, 0.75]])
    terms = (ex.Apply("product", (ex.Constant(float(k)), leaf)) for k in range(1, 101))
    node = ex.Apply(name, tuple(terms))
    index, factor = {leaf: 0}, {"max": 100, "min": 1, "sum": 5050}[name]
    np.testing.assert_allclose(values(node, rates, index), factor * rates[0])
    line = tangent(node, rates[:, 0], index)
    assert (line.value, line.slopes[0]) == pytest.approx((factor / 4, factor))


ROWS = 16


def of(text: str) -> Direction:
    return direction(parse_expression(text), {"sign": (-1, 1), "loss": (-2, -1)})


DIRECTIONS = {
    "low": (
        "error[women]@validation; kappa * error; error / of(unconstrained, error); "
        "abs(tpr[women] - tpr[men]); max_gap(positive_rate, by=sex); "
        "kl(base_rate, positive_rate[women]); imbalance(by=sex); sqrt(error) ** 2; mse; "
        "tpr * loss; tpr / -2; tpr ** -1; 1 / tpr; -tpr; error ** 0.5 / 2; abs(error); abs(tpr - 1); "
        "(tpr - 1) ** 2; (tpr[women] - tpr[men]) ** 2; tpr * -k; tpr ** -k; power(tpr, -1); "
        "error * of(unconstrained, error); max(1 / tpr, error); -(-error); 1 - 2 * tpr; "
        "abs(mean_error); mean_error ** 2; (mcc - 0.9) ** 2"
    ),
    "high": "recall[d2]; 1 - error; -2 * error; min_ratio(positive_rate, by=sex); f_score(2); auc; "
    "error / -2; error ** -2; 1 / error; -error; 2 - error; abs(tpr); (-tpr) * (-tnr); -tpr * -2; "
    "1 / (1 / tpr); (tpr ** 2) ** 3; (tpr ** -1) ** -1; (fnr - 1) ** 2; -(1 / tpr); tpr / 2 ** -1; "
    "exp(-error); log(tpr); 1 / (1 - tpr); f1 * recall",
    "either": (
        "error + accuracy; positive_rate[women] / positive_rate[men]; tpr[women] - tpr[men]; "
        "mean_error; churn; (tpr - fpr) * tnr; tpr ** sign; sign * tpr; tpr / tpr; 1 / (tpr - 0.5); "
        "mcc ** 2; abs(mcc); (-2 * mcc) ** 4"
    ),
    "fixed": "3; -k ** 2; of(unconstrained, error) * 2; error ** 0; error * 0",
}


@pytest.mark.parametrize("expected", DIRECTIONS)
def test_directions(expected):
    for text in DIRECTIONS[expected].split("; "):
        assert of(text) == expected, text


DECIDED = [
    name for name in METRICS
    if name not in {"roc_auc", "pr_auc", "mean_error", "mse", "log_loss", "f_score", "share"}
    and not {"value", "return", "weight", "share"}.intersection(name.split("_"))
]  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_a_corrected_decision_moves_a_metric_in_its_direction(name):
    rng = np.random.default_rng(3)
    moves = set[str]()
    for _ in range(4):
        label, deployed = rng.integers(0, 2, (2, ROWS)).astype(float)
        decisions = rng.integers(0, 2, ROWS).astype(float)
        before = number(name, label, deployed, decisions)
        for row in np.flatnonzero(decisions != label):
            decisions[row] = label[row]
            after = number(name, label, deployed, decisions)
            moves |= {"up"} if after > before + 1e-12 else set()
            moves |= {"down"} if after < before - 1e-12 else set()
            before = after
    expected = {"low": {"down"}, "high": {"up"}, "either": {"up", "down"}, "fixed": set()}
    assert moves == expected[of(name)]


def number(name, label, deployed, decisions) -> float:
    names = {"columns": {}, "dataset": np.full(ROWS, "d1"), "part": np.full(ROWS, "train")}
    sample = Sample(label=label, deployed=deployed, weight=np.ones(ROWS), **names)
    found = measure([full_scope.value(name)], sample, "train", Predictions(*[decisions] * 3))[0]
    return math.nan if math.isinf(found) else found

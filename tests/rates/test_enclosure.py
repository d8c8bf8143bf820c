"""Intervals of expressions given confidence limits: their values, slopes and needed limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from full_scope import FULL
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rule_strategies import EXPRESSIONS, SCOPE, expression, value

from ratecli.rates import expression as ex
from ratecli.rates.analysis import interval
from ratecli.rates.expression import Apply, Expression, Leaf
from ratecli.rates.functions import REAL_LINE, Interval
from ratecli.rates.parser import parse_constraint
from ratecli.rates.rate_function import ARRAY_FUNCTIONS, RateFunction
from ratecli.rates.resolve import constraint_differences, violation_expression
from ratecli.rates.sample import Floats

SEEDS = st.integers(0, 2**32 - 1)


def compiled(node: Expression) -> RateFunction:
    return RateFunction.of([node], {leaf: k for k, leaf in enumerate(ex.leaves(node))})


def pairs(limits: Floats) -> list[Interval]:
    """The interval of each rate, given the lower and upper limits (2 K,) of each in turn."""
    return [(low, high) for low, high in limits.reshape(-1, 2).tolist()]


def up(node: Expression, limits: Floats) -> Interval:
    return compiled(node).interval(pairs(limits))


def slopes_of(node: Expression, limits: Floats) -> Floats:
    return compiled(node).upper(pairs(limits))[1].ravel()


def drawn(node: Expression, seed: int) -> Floats:
    """(2 K,) limits within [0, 1], some at its ends."""
    rng = np.random.default_rng(seed)
    ends = rng.choice([0.0, 1.0, *rng.random(6)], (len(ex.leaves(node)), 2))
    return np.sort(ends, axis=1).ravel()


def by_leaf(node: Expression, point: Floats) -> dict[Leaf, float]:
    return dict(zip(ex.leaves(node), point.tolist(), strict=True))


def needed_limits(node: Expression) -> list[int]:
    ends = compiled(node).needed_ends([leaf.rate.range for leaf in ex.leaves(node)])
    return sorted(2 * k + (side > 0) for k, side in ends)


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=40, deadline=None)
def test_an_enclosure_contains_the_values_within_the_limits(node, seed):
    limits = drawn(node, seed)
    least, most = up(node, limits)
    assert least <= most
    rng = np.random.default_rng(seed)
    low, high = limits[::2], limits[1::2]
    for share in (0, 1, *rng.random((4, len(low)))):
        here = value(node, by_leaf(node, low + share * (high - low)))
        if math.isfinite(here):
            room = 1e-9 * (1 + abs(here))
            assert least - room <= here <= most + room


ONCE = st.recursive(
    st.just("?") | st.sampled_from(["0.5", "2"]),
    lambda parts: (
        st.tuples(parts, st.sampled_from("+-*"), parts).map(" ".join).map("({})".format)
        | st.tuples(parts, parts).map(lambda p: f"{p[0]} / (1 + exp({p[1]}))")
        | st.tuples(parts, parts).map(lambda p: f"max({p[0]}, {p[1]})")
        | st.tuples(parts, parts).map(lambda p: f"min({p[0]}, {p[1]})")
        | parts.map("({}) ** 3".format)
    ),
    max_leaves=6,
)  # fmt: skip
NAMES = ["tpr", "fpr", "error", "positive_rate", "tpr[a]", "fpr[a]"]


@given(ONCE, SEEDS)
@settings(max_examples=50, deadline=None)
def test_ends_are_attained_if_no_rate_occurs_twice(text, seed):
    """They are attained at corners, because these operations are monotone in each operand."""
    for name in NAMES:
        text = text.replace("?", name, 1)
    node = expression(text)
    limits = drawn(node, seed)
    corners = itertools.product(*limits.reshape(-1, 2))
    values = [value(node, by_leaf(node, np.array(corner))) for corner in corners]
    assume(all(map(math.isfinite, values)))
    assert up(node, limits) == pytest.approx((min(values), max(values)), rel=1e-12)


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=40, deadline=None)
def test_an_enclosure_of_a_point_is_the_value(node, seed):
    point = drawn(node, seed)[::2]
    rates = by_leaf(node, point)
    assume(all(math.isfinite(value(part, rates)) for part in ex.walk(node)))
    here = value(node, rates)
    found = up(node, np.repeat(point, 2))
    clips = any(isinstance(part, Apply) and part.function == "kl" for part in ex.walk(node))
    assert found == pytest.approx((here, here), rel=1e-12, abs=1e-12) or (
        clips and found == REAL_LINE
    )


def test_a_node_that_is_an_input_is_not_looked_into():
    gap = expression("tpr[a] - tpr[b]")

    def bounded(text: str) -> RateFunction:
        return RateFunction.of([expression(text)], {gap: 0})

    found = bounded("abs(tpr[a] - tpr[b]) - 0.05")
    assert found.interval([(-0.3, 0.1)]) == (-0.05, 0.25)
    value, slopes = found.upper([(-0.3, 0.1)])
    assert (value, slopes.tolist()) == (0.25, [[-1.0, 0.0]])
    below = bounded("0.05 - abs(tpr[a] - tpr[b])")
    assert not below.upper([(-0.3, 0.1)])[1].any()  # 0 is between the limits
    assert below.needed_ends([(-1.0, 1.0)]) == {(0, -1), (0, 1)}


@pytest.mark.parametrize(
    ("text", "limits", "ends"),
    [
        ("(tpr - 0.5) * (tpr - 0.5)", [0.25, 1.0], (0, 0.25)),
        ("tpr / (tpr + fpr)", [0.25, 0.5, 0.25, 0.5], (0.25, 1.0)),
        ("tpr / (fpr - 0.5)", [0.1, 0.2, 0.4, 0.6], REAL_LINE),
        ("tpr * 2", [math.nan, 1.0], REAL_LINE),
    ],
)
def test_known_enclosures(text, limits, ends):
    assert up(expression(text), np.array(limits)) == ends


def _is_steep(node: Expression, limits: Floats) -> bool:
    """Whether a slope is taken at a nearby point because it is infinite at the end of a domain."""
    for part in ex.walk(node):
        if isinstance(part, Apply):
            index = {leaf: k for k, leaf in enumerate(ex.leaves(node))}
            trees = [RateFunction.of([child], index) for child in part.arguments]
            inside = [each.interval(pairs(limits)) for each in trees]
            for end in part.operation.ends(inside):
                point = tuple(x for x, _ in end.point)
                near = ARRAY_FUNCTIONS[part.function].near
                if point and tuple(near(np.array(point)).tolist()) != point:
                    return True
    return False


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=40, deadline=None)
def test_slopes_are_difference_quotients(node, seed):
    node = ex.negate(node) if seed % 2 else node
    rng = np.random.default_rng(seed)
    limits = np.sort(rng.uniform(0.1, 0.9, (len(ex.leaves(node)), 2)), axis=1).ravel()
    assume(not _is_steep(node, limits))
    (high, slopes), step = compiled(node).upper(pairs(limits)), 1e-6
    for k, slope in enumerate(slopes.ravel()):
        moved = step * np.eye(len(limits))[k]
        (_, more), (_, less) = up(node, limits + moved), up(node, limits - moved)
        if not math.isfinite(high):
            assert slope == 0
            continue
        one, other = (more - high) / step, (high - less) / step
        if abs(one - other) <= 1e-4 * (1 + abs(one)):  # not at a kink
            assert slope == pytest.approx(one, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "limits", "slopes"),
    [
        ("tpr / fpr", [0.25, 0.5, 0.25, 0.5], [0, 4, -8, 0]),
        ("tpr / fpr", [0.25, 0.5, 0, 0.5], [0, 0, 0, 0]),  # infinite
        ("(tpr - 0.5) ** 2", [0.25, 1], [0, 1]),
        ("(tpr - 0.5) ** 2", [0, 0.75], [-1, 0]),
        ("-abs(tpr - 0.5)", [0.25, 1], [0, 0]),
        ("-abs(tpr - 0.5)", [0.75, 1], [-1, 0]),
        ("max(tpr, fpr, 0.2)", [0.5, 0.75, 0, 0.5], [0, 1, 0, 0]),
        ("sqrt(tpr - 0.5)", [0.5, 0.75], [0, 1]),
        ("sqrt(tpr - 0.5)", [0.25, 0.75], [0, 0]),  # may have no value
        ("tpr * (fpr - 0.5)", [0.25, 0.5, 0, 0.75], [0, 0.25, 0, 0.5]),
        ("tpr - fpr + tpr", [0.25, 0.5, 0.25, 0.5], [0, 2, -1, 0]),
    ],
)
def test_slopes_of_upper_ends(text, limits, slopes):
    assert slopes_of(expression(text), np.array(limits, dtype=float)) == pytest.approx(slopes)


# sides

BOTH = {1, -1}


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        ("min_ratio(positive_rate, by=sex) >= 0.8", [BOTH, BOTH]),
        ("positive_rate[a] >= 0.8 * positive_rate[b]", [{1}, {-1}]),
        ("tpr[a] * tpr[b] <= 0.5", [{1}, {1}]),
        ("tpr[a] * (tpr[b] - 0.5) <= 0.5", [BOTH, {1}]),
        ("(tpr - 0.5) ** 2 <= 0.1", [BOTH]),
        ("1 / (tpr - 2) <= 0.1", [{-1}]),
        ("1 / (tpr - 0.5) <= 0.1", [BOTH]),
        ("abs(tpr + 1) <= 1.5", [{1}]),
        ("min(tpr, fpr) >= 0.1", [{-1}, {-1}]),
        ("0.5 * fpr <= 2 * fpr - tpr", [{-1}, {1}]),
        ("kl(0.3, tpr) <= 0.1", [BOTH]),
        ("sqrt(tpr - 0.5) <= 0.1", [BOTH]),
        ("(tpr - 0.5) ** 0.5 <= 0.1", [BOTH]),
    ],
)
def test_limits_that_an_upper_end_depends_on(rule, needed):
    scope = FULL if "by=" in rule else SCOPE
    node = violation_expression(constraint_differences(parse_constraint(rule), scope))
    expected = [2 * k + (side > 0) for k, sides in enumerate(needed) for side in sides]
    assert needed_limits(node) == sorted(expected)


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=50, deadline=None)
def test_an_upper_end_depends_on_no_other_limits(node, seed):
    limits = drawn(node, seed)
    assume(limits[1::2].all())  # division by a rate that is surely 0 may give any number
    loose = np.tile([0.0, 1.0], len(limits) // 2)
    kept = np.isin(np.arange(len(limits)), needed_limits(node))
    assert (kept[::2] | kept[1::2]).all()
    whole, part = up(node, limits), up(node, np.where(kept, limits, loose))
    assert part[1] == whole[1]
    assert not np.array(slopes_of(node, np.where(kept, limits, loose)))[~kept].any()


@pytest.mark.parametrize("text", ["tpr / (fpr + 0.5)", "max(tpr, 0.5) - fpr ** 2", "kl(0.3, tpr)"])
def test_the_enclosure_at_the_loosest_limits_is_the_interval(text):
    node = expression(text)
    assert up(node, np.tile([0.0, 1.0], len(ex.leaves(node)))) == interval(node)

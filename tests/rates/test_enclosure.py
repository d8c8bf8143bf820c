"""Intervals on the way up a tree: what they hold, how their ends move, which ends are needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from full_scope import FULL
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rule_strategies import EXPRESSIONS, SCOPE, expression, value

from ratecli.rates import expression as ex
from ratecli.rates.affine import affine
from ratecli.rates.analysis import interval
from ratecli.rates.enclosure import (
    AffineEnd,
    BoundedEnds,
    Enclosure,
    InclusionFunction,
    needed_sides,
)
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.interval import REAL_LINE, Interval
from ratecli.rates.parser import parse_constraint
from ratecli.rates.resolve import constraint_differences, violation_expression
from ratecli.rates.sample import Floats

SEEDS = st.integers(0, 2**32 - 1)


def up(node: Expression, limits: Floats) -> Enclosure:
    """The root's ends; limits (2 K,) are the lower and upper one of each rate in turn."""
    return InclusionFunction.of(node, by_rate(node), len(limits))(limits)


def by_rate(node: Expression) -> Callable[[Expression], BoundedEnds | None]:
    found = {
        leaf: (AffineEnd(0, 2 * k), AffineEnd(0, 2 * k + 1))
        for k, leaf in enumerate(ex.leaves(node))
    }
    return lambda part: found.get(part) if isinstance(part, Leaf) else None


def drawn(node: Expression, seed: int) -> Floats:
    """(2 K,) limits within [0, 1], some at its ends."""
    rng = np.random.default_rng(seed)
    ends = rng.choice([0.0, 1.0, *rng.random(6)], (len(ex.leaves(node)), 2))
    return np.sort(ends, axis=1).ravel()


def by_leaf(node: Expression, point: Floats) -> dict[Leaf, float]:
    return dict(zip(ex.leaves(node), point.tolist(), strict=True))


def need(node: Expression) -> dict[str, set[int]]:
    found = needed_sides(node, lambda part: str(part) if isinstance(part, Leaf) else None)
    return {str(name): set(ends) for name, ends in found.items()}


# intervals


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=80, deadline=None)
def test_an_enclosure_holds_the_values_at_all_rates_within_the_limits(
    node: Expression, seed: int
) -> None:
    limits = drawn(node, seed)
    found = up(node, limits)
    assert found.low <= found.high
    rng = np.random.default_rng(seed)
    low, high = limits[::2], limits[1::2]
    for share in (0, 1, *rng.random((4, len(low)))):
        here = value(node, by_leaf(node, low + share * (high - low)))
        if math.isfinite(here):
            room = 1e-9 * (1 + abs(here))
            assert found.low - room <= here <= found.high + room


ONCE = st.recursive(
    st.just("?") | st.sampled_from(["0.5", "2"]),
    lambda parts: (
        st.tuples(parts, st.sampled_from("+-*"), parts).map(" ".join).map("({})".format)
        | st.tuples(parts, parts).map(lambda p: f"{p[0]} / (1 + exp({p[1]}))")
        | st.tuples(st.sampled_from(["max", "min"]), parts, parts).map(lambda p: f"{p[0]}({p[1]}, {p[2]})")
        | parts.map("({}) ** 3".format)
    ),
    max_leaves=6,
)  # fmt: skip
NAMES = ["tpr", "fpr", "error", "positive_rate", "tpr[a]", "fpr[a]"]


@given(ONCE, SEEDS)
@settings(max_examples=100, deadline=None)
def test_ends_are_reached_where_no_rate_occurs_twice(text: str, seed: int) -> None:
    """At corners, as these operations grow or fall in each part while the others stand still."""
    for name in NAMES:
        text = text.replace("?", name, 1)
    node = expression(text)
    limits = drawn(node, seed)
    corners = itertools.product(*limits.reshape(-1, 2))
    values = [value(node, by_leaf(node, np.array(corner))) for corner in corners]
    assume(all(map(math.isfinite, values)))
    found = up(node, limits)
    assert (found.low, found.high) == pytest.approx((min(values), max(values)), rel=1e-12)


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=80, deadline=None)
def test_an_enclosure_of_points_is_the_value(node: Expression, seed: int) -> None:
    point = drawn(node, seed)[::2]
    rates = by_leaf(node, point)
    assume(all(math.isfinite(value(part, rates)) for part in ex.walk(node)))
    here = value(node, rates)
    found = up(node, np.repeat(point, 2))
    clips = any(isinstance(part, ex.Apply) and part.function == "kl" for part in ex.walk(node))
    assert (found.low, found.high) == (here, here) or (clips and _ends(found) == REAL_LINE)


def test_what_is_known_as_a_whole_is_not_looked_into() -> None:
    node = expression("abs(tpr[a] - tpr[b]) - 0.05")
    gap = affine(expression("tpr[a] - tpr[b]"))
    ends = AffineEnd(0, 0), AffineEnd(0, 1)
    bounded = InclusionFunction.of(node, lambda part: ends if affine(part) == gap else None, 2)
    found = bounded(np.array([-0.3, 0.1]))
    assert (found.low, found.high) == (-0.05, 0.25)
    assert found.high_slopes.tolist() == [-1.0, 0.0]
    below = InclusionFunction.of(
        ex.negate(node), lambda part: ends if affine(part) == gap else None, 2
    )
    assert below(np.array([-0.3, 0.1])).high_slopes.tolist() == [0.0, 0.0]  # 0 lies between
    assert needed_sides(node, lambda part: "gap" if affine(part) == gap else None) == {
        "gap": frozenset({1, -1})
    }


def test_what_is_not_known_lies_anywhere_in_its_range() -> None:
    found = InclusionFunction.of(expression("2 * tpr - roc_auc + 1"), lambda _: None, 0)(
        np.zeros(0)
    )
    assert (found.low, found.high) == (0, 3)
    assert found.high_slopes.shape == (0,)
    unknown = InclusionFunction.of(expression("mse - tpr"), lambda _: None, 1)(np.zeros(1))
    assert (unknown.low, unknown.high) == (-1, math.inf)


def test_a_product_of_equals_is_a_square_and_repeats_are_one_quantity() -> None:
    square = up(expression("(tpr - 0.5) * (tpr - 0.5)"), np.array([0.25, 1.0]))
    assert (square.low, square.high) == (0, 0.25)
    ratio = up(expression("tpr / (tpr + fpr)"), np.array([0.25, 0.5, 0.25, 0.5]))
    assert (ratio.low, ratio.high) == (0.25, 1.0)
    assert up(expression("tpr / (fpr - 0.5)"), np.array([0.1, 0.2, 0.4, 0.6])).high == math.inf
    lost = up(expression("tpr * 2"), np.array([math.nan, 1.0]))
    assert (lost.low, lost.high) == REAL_LINE


@pytest.mark.parametrize("text", ["sqrt(tpr - 0.5)", "log(tpr - 0.5)", "(tpr - 0.5) ** 1.5"])
def test_what_may_have_no_value_may_have_any(text: str) -> None:
    node = expression(text)
    assert _ends(up(node, np.array([0.25, 0.75]))) == REAL_LINE
    assert up(node, np.array([0.5, 0.75])).high == pytest.approx(
        value(node, by_leaf(node, np.array([0.75])))
    )


# slopes


def _steep(node: Expression, limits: Floats) -> bool:
    """Whether a slope is that of a point near by, as there is none at the end of a domain."""
    look = by_rate(node)
    for part in ex.walk(node):
        operation = ex.operation(part)
        if operation:
            trees = [InclusionFunction.of(child, look, len(limits)) for child in ex.operands(part)]
            inside = [tree(limits) for tree in trees]
            ends = operation.ends([(each.low, each.high) for each in inside])
            points = [end.point.at for end in ends if end.point]
            if any(tuple(operation.near(*point)) != point for point in points):
                return True
    return False


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=80, deadline=None)
def test_slopes_are_difference_quotients(node: Expression, seed: int) -> None:
    """Of upper ends; a lower end is the upper one of the negative."""
    node = ex.negate(node) if seed % 2 else node
    rng = np.random.default_rng(seed)
    limits = np.sort(rng.uniform(0.1, 0.9, (len(ex.leaves(node)), 2)), axis=1).ravel()
    assume(not _steep(node, limits))
    found, step = up(node, limits), 1e-6
    for k, slope in enumerate(found.high_slopes):
        moved = step * np.eye(len(limits))[k]
        more, less = up(node, limits + moved).high, up(node, limits - moved).high
        if not math.isfinite(found.high):
            assert slope == 0
            continue
        one, other = (more - found.high) / step, (found.high - less) / step
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
def test_slopes_of_upper_ends(text: str, limits: list[float], slopes: list[float]) -> None:
    found = up(expression(text), np.array(limits, dtype=float))
    assert found.high_slopes == pytest.approx(slopes)


# sides

BOTH = {1, -1}


@pytest.mark.parametrize(
    ("rule", "needed"),
    [
        ("abs(mean_error[a] - mean_error[b]) <= 0.05", [BOTH, BOTH]),
        ("mse <= 2.0", [{1}]),
        ("tpr >= 0.88", [{-1}]),
        ("positive_rate[a] - positive_rate[b] <= 0.1", [{1}, {-1}]),
        ("fpr + fnr <= 0.5", [{1}, {1}]),
        ("min_ratio(positive_rate, by=sex) >= 0.8", [BOTH, BOTH]),
        ("abs(fnr[a] - fnr[b]) + abs(fpr[a] - fpr[b]) <= 0.35", [BOTH] * 4),
        ("max_gap(positive_rate, by=sex) <= 0.1", [BOTH, BOTH]),
        ("2 * positive_rate <= 1", [{1}]),
        ("0.3 <= positive_rate", [{-1}]),
        ("positive_rate[a] / positive_rate[b] <= 1.25", [{1}, {-1}]),
        ("positive_rate[a] >= 0.8 * positive_rate[b]", [{1}, {-1}]),
        ("tpr[a] * tpr[b] <= 0.5", [{1}, {1}]),
        ("tpr[a] * (tpr[b] - 0.5) <= 0.5", [BOTH, {1}]),
        ("(tpr - 0.5) ** 2 <= 0.1", [BOTH]),
        ("tpr ** 2 <= 0.1", [{1}]),
        ("(tpr - 0.5) ** 3 <= 0.1", [{1}]),
        ("tpr * tpr <= 0.1", [{1}]),
        ("1 / (tpr - 2) <= 0.1", [{-1}]),
        ("1 / (tpr - 0.5) <= 0.1", [BOTH]),
        ("abs(tpr + 1) <= 1.5", [{1}]),
        ("min(tpr, fpr) >= 0.1", [{-1}, {-1}]),
        ("exp(tpr) - log(fpr) <= 0.1", [{1}, {-1}]),
        ("0.5 * fpr <= 2 * fpr - tpr", [BOTH, {1}]),
        ("kl(0.3, tpr) <= 0.1", [BOTH]),
        ("sqrt(tpr) <= 0.1", [{1}]),
        ("sqrt(tpr - 0.5) <= 0.1", [BOTH]),
        ("fpr * tpr ** 0.5 <= 0.1", [{1}, {1}]),
        ("(tpr - 0.5) ** 0.5 <= 0.1", [BOTH]),
    ],
)
def test_sides_that_are_needed(rule: str, needed: list[set[int]]) -> None:
    scope = FULL if "by=" in rule else SCOPE
    node = violation_expression(constraint_differences(parse_constraint(rule), scope))
    assert [*need(node).values()] == needed


@given(EXPRESSIONS, SEEDS)
@settings(max_examples=100, deadline=None)
def test_limits_that_are_not_needed_do_not_count(node: Expression, seed: int) -> None:
    limits = drawn(node, seed)
    assume(limits[1::2].all())  # what is divided by a rate that is surely 0 may be anything at all
    loose = np.tile([0.0, 1.0], len(limits) // 2)
    needed = need(node)
    assert list(needed) == [str(leaf) for leaf in ex.leaves(node)]
    kept = np.array([end in ends for ends in needed.values() for end in (-1, 1)], dtype=bool)
    whole, part = up(node, limits), up(node, np.where(kept, limits, loose))
    assert part.high == whole.high
    assert not part.high_slopes[~kept].any()


def test_a_range_is_that_of_the_limits_at_the_ranges() -> None:
    """But for parts that occur twice, which only a range knows of."""
    for text in ("tpr / (fpr + 0.5)", "max(tpr, 0.5) - fpr ** 2", "kl(0.3, tpr)"):
        node = expression(text)
        found = up(node, np.tile([0.0, 1.0], len(ex.leaves(node))))
        assert _ends(found) == interval(node)


def _ends(found: Enclosure) -> Interval:
    return found.low, found.high

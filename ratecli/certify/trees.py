"""Plan which confidence bounds a safety test of a goal needs, and record the resulting tree.

The quantities in a tree are bounded by confidence limits, which interval arithmetic propagates to
the root. All limits of a tree hold simultaneously with probability at least 1 minus the sum of
their deltas (Boole), and if they do, the upper end of the root is at least its true value. Only the
sides that the upper end of the root needs are bounded, each distinct one once.

With the method `pieces`, a goal is a maximum of trees, and each tree gets the whole delta for its
own bounds. This is sound although all limits hold simultaneously with a smaller probability: the
goal's true value is that of one tree, the largest. The largest upper end is below the true value
only if the upper end of that tree is, which has probability at most delta. This is the
intersection-union test (Berger 1982, "Multiparameter hypothesis testing and acceptance sampling",
Technometrics 24, theorem 1): if a goal is violated, so is one of its trees, and the goal passes
only if that tree passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ratecli.certify.forms import has_joint_bound
from ratecli.certify.safety_test import SafetyMethod, SafetyTestSpec
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates import syntax
from ratecli.rates.affine import Affine, affine
from ratecli.rates.analysis import Goal
from ratecli.rates.enclosure import AffineEnd, BoundedEnds, InclusionFunction, needed_sides
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import POWER
from ratecli.rates.interval import Interval
from ratecli.rates.matrix import RateMatrix

RATIO_DIGITS = 12
"""Forms are multiples of one quantity if their coefficient ratios agree to this many digits."""
COEFFICIENT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class OneSidedBound:
    """A one-sided bound on a quantity for one tree: upper (sign 1) or lower (sign -1)."""

    quantity: int
    sign: int
    delta: float
    tree: int = 0


@dataclass(frozen=True)
class BoundedNode:
    """A node that is bounded as a whole: `factor * quantity + constant`, factor not 0."""

    quantity: int
    factor: float
    constant: float


@dataclass(frozen=True)
class GoalTestPlan:
    """The confidence bounds that a safety test of a goal needs, and how to combine them.

    Attributes
    ----------
    quantities
        What is bounded: affine combinations of rates with constant 0.
    trees
        P expressions; the goal holds if all of them are at most 0. There is one tree, except with
        the method `pieces`.
    asked
        B one-sided bounds. The deltas of one tree's bounds add up to at most the constraint's
        delta.
    places
        Nodes of the trees that are bounded as one quantity.
    """

    goal: Goal
    quantities: tuple[Affine, ...]
    trees: tuple[Expression, ...]
    asked: tuple[OneSidedBound, ...]
    places: Mapping[Expression, BoundedNode] = field(repr=False)

    def upper(self, limits: Array) -> tuple[Array, Array]:
        """Return the upper end of each tree (P,) and its slopes in the limits (P, B).

        `limits` (B,) are the confidence limits of `asked`, each upper or lower by its sign.
        """
        found = [root(limits) for root in self._roots]
        ends = np.array([each.high for each in found])
        slopes = np.array([each.high_slopes for each in found])
        return ends, slopes.reshape(len(found), len(self.asked))

    def inclusion(self, node: Expression, tree: int) -> InclusionFunction:
        """Return the interval of a tree's node as a function of the limits.

        An end without a bound in `asked` is the end of the quantity's range.
        """

        def known(part: Expression) -> BoundedEnds | None:
            place = self.places.get(part)
            return None if place is None else self._bounded(place, tree)

        return InclusionFunction.of(node, known, len(self.asked))

    @cached_property
    def _roots(self) -> Sequence[InclusionFunction]:
        return [self.inclusion(node, tree) for tree, node in enumerate(self.trees)]

    @cached_property
    def _numbers(self) -> Mapping[tuple[int, int, int], int]:
        """Index of each bound in `asked`, by tree, quantity and sign."""
        return {(each.tree, each.quantity, each.sign): b for b, each in enumerate(self.asked)}

    @cached_property
    def _ranges(self) -> Sequence[Interval]:
        return [form.range() for form in self.quantities]

    def _bounded(self, place: BoundedNode, tree: int) -> BoundedEnds:
        def reach(sign: int, farthest: float) -> AffineEnd:
            b = self._numbers.get((tree, place.quantity, sign))
            if b is not None:
                return AffineEnd(place.constant, b, place.factor)
            return AffineEnd(place.factor * farthest + place.constant)

        low, high = self._ranges[place.quantity]
        ends = reach(-1, low), reach(1, high)
        return ends if place.factor > 0 else ends[::-1]

    def values(self, value_of: Callable[[Expression], float]) -> list[float]:
        """Return (P,) values of the trees themselves, NaN where they are undefined."""
        return [ex.evaluate(tree, value_of) for tree in self.trees]


def plan_goal_test(
    goal: Goal,
    promise: SafetyTestSpec,
    rates: RateMatrix,
    shares: Sequence[float] | None = None,
    candidate: RateMatrix | None = None,
) -> GoalTestPlan:
    """Return the bounds that a goal needs, dividing the delta of each tree equally among them.

    Parameters
    ----------
    rates
        Rates on the tested rows (or similar rows), which determine which rates have a joint bound.
    candidate
        Rates on at least as many other rows, which must agree. Two groups may have a share r of all
        rows in common although they have none in common among the n tested rows. If such groups are
        treated as disjoint, a violated goal passes with a probability of at most (1 + r)^n delta,
        because the likelihood of the rows is at most that factor times the likelihood of n rows of
        disjoint groups with these rates. The probability that m other rows show no common row
        either is (1 - r)^m, and the product is at most delta if m >= n.
    shares
        (B,) the share of the constraint's delta for each bound, in place of equal shares. The
        shares of each tree must add up to at most 1.

    Raises
    ------
    FaultError
        E308 if the goal contains a metric without a known bound; E411 for weighted rows.
    """
    _check_measurable(goal)
    whole = goal.pieces if promise.method == "pieces" else (goal.expression,)
    trees = tuple(dict.fromkeys(ex.transform(tree, _gather_affine_terms) for tree in whole))
    seen = [rates] if candidate is None else [rates, candidate]
    quantities = _find_quantities(trees, promise.method, seen)
    needed = [_needed_bounds(tree, quantities.places) for tree in trees]
    delta = promise.delta[goal.name]
    asked = [
        OneSidedBound(quantity, sign, delta / len(bounds), p)
        for p, bounds in enumerate(needed)
        for quantity, sign in bounds
    ]
    if shares is not None:
        asked = [
            OneSidedBound(each.quantity, each.sign, delta * share, each.tree)
            for each, share in zip(asked, shares, strict=True)
        ]
    return GoalTestPlan(goal, tuple(quantities.forms), trees, tuple(asked), quantities.places)


def _check_measurable(goal: Goal) -> None:
    for part in ex.walk(goal.expression):
        if isinstance(part, ex.RankingMeasure | ex.Disclosure | ex.AlgorithmMetric):
            message = (
                f"'{goal.name}' speaks of '{ex.to_text(part)}', "
                "which no confidence bound is known for"
            )
            help_ = "take rates, or turn the test off: 'safety: false'"
            raise FaultError(Diagnostic("E308", message, help_, part.span))


def _gather_affine_terms(node: Expression) -> Expression | None:
    """Merge the affine terms of a node, each rate once; None to continue in its children."""
    form = affine(node)
    if form is not None:
        return form.expression()
    if not isinstance(node, ex.Sum):
        return None
    forms = [affine(term) for term in node.terms]
    total = sum((form for form in forms if form), Affine({}))
    others = [
        ex.transform(term, _gather_affine_terms)
        for term, form in zip(node.terms, forms, strict=True)
        if form is None
    ]
    rest = [total.expression()] if total.coefficients or total.constant else []
    terms = (*others, *rest)
    return terms[0] if len(terms) == 1 else ex.Sum(terms, node.span)


@dataclass
class _Quantities:
    """Quantities collected from trees, and the nodes where they occur."""

    forms: list[Affine] = field(default_factory=list)
    places: dict[Expression, BoundedNode] = field(default_factory=dict)
    _known: dict[frozenset[tuple[Leaf, float]], int] = field(default_factory=dict)

    def put(self, node: Expression, form: Affine) -> None:
        """Add a node; forms that are multiples of each other share one quantity."""
        # Divide by the largest coefficient to avoid overflow; break ties deterministically.
        most = max(map(abs, form.coefficients.values()))
        large = (
            leaf
            for leaf, c in form.coefficients.items()
            if abs(c) >= (1 - COEFFICIENT_TOLERANCE) * most
        )
        first = min(large, key=str)
        unit = form.coefficients[first]
        key = frozenset(
            (leaf, float(f"{value / unit:.{RATIO_DIGITS}g}"))
            for leaf, value in form.coefficients.items()
        )
        if key not in self._known:
            self._known[key] = len(self.forms)
            own = dict(form.coefficients) if len(key) > 1 else {first: 1.0}
            self.forms.append(Affine(own))
        k = self._known[key]
        factor = unit / self.forms[k].coefficients[first]
        self.places[node] = BoundedNode(k, factor, form.constant)


def _find_quantities(
    trees: Iterable[Expression], method: SafetyMethod, seen: Sequence[RateMatrix]
) -> _Quantities:
    found = _Quantities()

    def look(node: Expression) -> None:
        form = affine(node)
        if method == "leaves":
            whole = isinstance(node, Leaf)
        else:
            whole = form is not None and all(has_joint_bound(form, rates) for rates in seen)
        if form is not None and form.coefficients and whole:
            found.put(node, form)
            return
        for child in ex.children(node):
            look(child)

    for tree in trees:
        look(tree)
    return found


def _needed_bounds(
    tree: Expression, places: Mapping[Expression, BoundedNode]
) -> list[tuple[int, int]]:
    """Return the (quantity, sign) of each bound that a tree's upper end needs, in fixed order."""

    def known(node: Expression) -> tuple[int, int] | None:
        place = places.get(node)
        return None if place is None else _quantity_direction(place)

    wanted = needed_sides(tree, known)
    found = {
        (quantity, way * sign)
        for quantity, way in set(map(_quantity_direction, places.values()))
        for sign in wanted.get((quantity, way), ())
    }
    return sorted(found, key=lambda each: (each[0], -each[1]))


def _quantity_direction(place: BoundedNode) -> tuple[int, int]:
    """Return a quantity and whether the node increases (1) or decreases (-1) in it."""
    return place.quantity, 1 if place.factor > 0 else -1


MAX_RECORDED_TREES = 12
"""How many trees of a maximum are recorded: the ones with the largest upper ends."""

TreeRecord = dict[str, Any]


def json_number(value: float) -> float | str:
    """Return a finite number as it is and any other as its name, since JSON cannot express it."""
    return float(value) if math.isfinite(value) else str(float(value))


@dataclass(frozen=True)
class GoalTreeRecorder:
    """Builds the record of a tested goal from which reports draw its tree.

    Attributes
    ----------
    limits
        (B,) the confidence limits.
    estimates
        For each quantity, its value on the tested rows.
    rows
        For each quantity, the number of rows of each of its parts.
    bounds
        For each quantity, the name of the confidence bound.
    """

    tested: GoalTestPlan
    limits: Array
    estimates: Sequence[float]
    rows: Sequence[Sequence[int]]
    bounds: Sequence[str]

    def node(self) -> TreeRecord:
        """Return the tree, or the maximum of several trees; each node with its interval."""
        ends = self.tested.upper(self.limits)[0].tolist()
        trees = [_TreeRecorder(self, p) for p in range(len(ends))]
        if len(trees) == 1:
            return trees[0].node(self.tested.trees[0])
        order = sorted(range(len(ends)), key=lambda p: -ends[p])
        kept, others = sorted(order[:MAX_RECORDED_TREES]), order[MAX_RECORDED_TREES:]
        children = [trees[p].node(self.tested.trees[p]) for p in kept]
        lows = [trees[p].interval(self.tested.trees[p])[0] for p in range(len(ends))]
        if others:
            inside = max(lows[p] for p in others), max(ends[p] for p in others)
            children.append(_node(f"{len(others)} others, all less", inside))
        return _node("max", (max(lows), max(ends)), *children)


@dataclass(frozen=True)
class _TreeRecorder:
    picture: GoalTreeRecorder
    tree: int

    def interval(self, node: Expression) -> Interval:
        found = self.picture.tested.inclusion(node, self.tree)(self.picture.limits)
        return found.low, found.high

    def node(self, node: Expression) -> TreeRecord:
        place = self.picture.tested.places.get(node)
        if place is not None:
            return self._placed(place)
        inside = self.interval(node)
        match node:
            case ex.Constant(value=value):
                return _node(syntax.number_text(value), inside)
            case ex.Sum(terms=(*first, last)):
                rest = first[0] if len(first) == 1 else ex.Sum(tuple(first))
                if _negative(last):
                    return _node("-", inside, self.node(rest), self._negated(last))
                return _node("+", inside, self.node(rest), self.node(last))
            case ex.Product(left=ex.Constant(value=-1.0), right=right):
                return _node("-", inside, self.node(right))
            case ex.Product():
                return _node("*", inside, *map(self.node, ex.children(node)))
            case ex.Quotient():
                return _node("/", inside, *map(self.node, ex.children(node)))
            case ex.Apply(function=name):
                text = "**" if name == POWER else name
                return _node(text, inside, *map(self.node, ex.children(node)))
            case _:
                return _node(ex.to_text(node), inside)

    def _negated(self, node: Expression) -> TreeRecord:
        place = self.picture.tested.places.get(node)
        if place is None:
            return self.node(ex.negate(node))
        return self._placed(BoundedNode(place.quantity, -place.factor, -place.constant))

    def _placed(self, place: BoundedNode) -> TreeRecord:
        """Return `factor * quantity + constant`, written out unless it is the quantity itself."""
        size, shift = abs(place.factor), place.constant
        (low, high), _ = self._limits(place.quantity)
        node = self._quantity(place.quantity)
        if size != 1:
            low, high = size * low, size * high
            node = _node("*", (low, high), _constant(size), node)
        if place.factor < 0 and shift > 0:
            return _node("-", (shift - high, shift - low), _constant(shift), node)
        if place.factor < 0:
            low, high = -high, -low
            node = _node("-", (low, high), node)
        if not shift:
            return node
        sign = "-" if shift < 0 else "+"
        return _node(sign, (low + shift, high + shift), node, _constant(abs(shift)))

    def _limits(self, k: int) -> tuple[Interval, list[float | None]]:
        """Return the ends of a quantity, and the delta of each end that has a bound."""
        ends = list(self.picture.tested.quantities[k].range())
        deltas: list[float | None] = [None, None]
        for limit, asked in zip(self.picture.limits, self.picture.tested.asked, strict=True):
            if (asked.tree, asked.quantity) == (self.tree, k):
                side = 0 if asked.sign < 0 else 1
                ends[side], deltas[side] = float(limit), asked.delta
        return (ends[0], ends[1]), deltas

    def _quantity(self, k: int) -> TreeRecord:
        ends, deltas = self._limits(k)
        picture = self.picture
        return _node(ex.to_text(picture.tested.quantities[k].expression()), ends) | {
            "estimate": json_number(picture.estimates[k]),
            "rows": list(picture.rows[k]),
            "delta": deltas,
            "bound": picture.bounds[k],
        }


def _node(text: str, inside: Interval, *children: TreeRecord) -> TreeRecord:
    return {"text": text, "interval": list(map(json_number, inside)), "children": list(children)}


def _constant(value: float) -> TreeRecord:
    return _node(syntax.number_text(value), (value, value))


def _negative(term: Expression) -> bool:
    match term:
        case ex.Constant(value=value) | ex.Product(left=ex.Constant(value=value)):
            return value < 0
        case _:
            return False

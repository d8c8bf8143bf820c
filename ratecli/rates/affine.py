"""Normal forms of expressions: affine combinations of rates, and sums of ratios of them.

Clearing a denominator is sound if it cannot be negative. Rates lie in [0, 1], so sums of rates with
positive coefficients are never negative. `N / D <= c` becomes `N - c D <= 0`; where N = D = 0, the
ratio is undefined and the affine form holds with equality.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ratecli.rates import expression as ex
from ratecli.rates.expression import JOINT_RATE, POSITIVE_RATE, Apply, Disclosure, Expression, Leaf
from ratecli.rates.functions import PRODUCT, SUM, Interval
from ratecli.rates.syntax import Condition, parse_number

Ray = tuple[Leaf, ...]
"""Rates that can all be 1 while all others of their bundle are 0."""


@dataclass(frozen=True)
class Affine:
    """`sum of coefficient * rate + constant`, coefficients non-zero."""

    coefficients: Mapping[Leaf, float]
    constant: float = 0.0

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.coefficients)
        for leaf, coefficient in other.coefficients.items():
            total[leaf] = total.get(leaf, 0.0) + coefficient
        kept = {leaf: value for leaf, value in total.items() if value}
        return Affine(kept, self.constant + other.constant)

    def __mul__(self, factor: float) -> Affine:
        scaled = {leaf: factor * value for leaf, value in self.coefficients.items() if factor}
        return Affine(scaled, factor * self.constant)

    @property
    def key(self) -> Hashable:
        """What equal forms have in common."""
        return frozenset(self.coefficients.items()), self.constant

    def range(self) -> Interval:
        """Return the minimum and maximum over all possible rates (see `group_by_joint_bound`)."""
        terms = (self._bundle_range(rays) for rays in group_by_joint_bound(self.coefficients))
        return SUM(*terms, (self.constant, self.constant))

    def sum_over(self, ray: Ray) -> float:
        """Return the sum of the coefficients of a ray's rates."""
        return sum(self.coefficients.get(leaf, 0.0) for leaf in ray)

    def _bundle_range(self, rays: Sequence[Ray]) -> Interval:
        """Return the range of the terms of one bundle."""
        sums = [self.sum_over(ray) for ray in rays]
        if len(rays) == 1:
            return PRODUCT((sums[0],) * 2, rays[0][0].rate.range)
        return min(0.0, *sums), max(0.0, *sums)

    def expression(self) -> Expression:
        terms = (ex.multiply(ex.Constant(c), leaf) for leaf, c in self.coefficients.items())
        return ex.add(*terms, ex.Constant(self.constant))


def group_by_joint_bound(leaves: Iterable[Leaf]) -> list[list[Ray]]:
    """Group rates into bundles: the possible values of a bundle are mixtures of 0 and its rays.

    Joint rates of disjoint slices and the positive rate of all rows form a bundle, because the
    former add up to at most the latter. Every other rate is a bundle of its own.
    """
    bundles = dict[object, list[Ray]]()
    for leaf in sorted(dict.fromkeys(leaves), key=lambda leaf: leaf.rate == JOINT_RATE):
        key = leaf.over, leaf.split
        if leaf.rate == POSITIVE_RATE:
            bundles[key] = [(leaf,)]
        elif leaf.rate == JOINT_RATE and all(
            _are_disjoint(leaf, other)
            for ray in bundles.setdefault(key, [()])
            for other in ray
            if other.rate == JOINT_RATE
        ):
            bundles[key].append((leaf, *bundles[key][0]))
        else:
            bundles[leaf] = [(leaf,)]
    return list(bundles.values())


def _are_disjoint(one: Leaf, other: Leaf) -> bool:
    """Whether two slices have no row in common, judging by their conditions alone."""
    return any(
        a.column == b.column
        and a.op == b.op == "="
        and not _condition_values(a) & _condition_values(b)
        for a in one.where.conditions
        for b in other.where.conditions
        if isinstance(a, Condition) and isinstance(b, Condition)
    )


def _condition_values(condition: Condition) -> set[str | float]:
    """Return the values of a condition, with texts of numbers converted to numbers."""
    return {
        value if math.isnan(parse_number(value)) else parse_number(value)
        for value in condition.values
    }


@dataclass(frozen=True)
class RatioTerm:
    """`numerator / denominator`, where the denominator is never negative."""

    numerator: Affine
    denominator: Affine

    def range(self) -> Interval:
        """Return bounds on the quotient: its extremes over the rays of all rates."""
        top, bottom = self.numerator, self.denominator
        leaves = {*top.coefficients, *bottom.coefficients}
        terms = [
            (top.sum_over(ray), bottom.sum_over(ray))
            for rays in group_by_joint_bound(leaves)
            for ray in rays
        ]
        terms += [(top.constant, bottom.constant)]
        if any(d < 0 for _, d in terms) or any(leaf.rate.range[0] < 0 for leaf in leaves):
            return -math.inf, math.inf
        quotients = [n / d if d else math.copysign(math.inf, n) for n, d in terms if n or d]
        return min(quotients, default=-math.inf), max(quotients, default=math.inf)


@dataclass(frozen=True)
class RatioSum:
    """`affine + sum of ratios`, with one ratio for each denominator."""

    affine: Affine
    ratios: tuple[RatioTerm, ...] = ()

    @property
    def fraction(self) -> tuple[Affine, Affine] | None:
        """Numerator and denominator of the sum, None if it is not one ratio plus a number."""
        if not self.ratios:
            return self.affine, Affine({}, 1.0)
        if len(self.ratios) > 1 or self.affine.coefficients:
            return None
        (ratio,) = self.ratios
        constant = ratio.denominator * self.affine.constant
        return ratio.numerator + constant, ratio.denominator

    def terms(self) -> dict[Hashable, tuple[float, Interval]]:
        """Return the coefficient and the range of each rate and each ratio, by what identifies it.

        Equal ratios of several sums have the same key, up to rounding of a common factor.
        """
        found: dict[Hashable, tuple[float, Interval]] = {
            leaf: (factor, leaf.rate.range) for leaf, factor in self.affine.coefficients.items()
        }
        for ratio in self.ratios:
            top = ratio.numerator
            factor = next(iter(top.coefficients.values()), top.constant) or 1.0
            unit = replace(ratio, numerator=top * (1 / factor))
            found[unit.numerator.key, unit.denominator.key] = factor, unit.range()
        return found


def affine(node: Expression) -> Affine | None:
    """Return the affine form of an expression, None if it is not affine."""
    form = ratio_sum(node)
    return form.affine if form is not None and not form.ratios else None


def ratio_sum(node: Expression) -> RatioSum | None:
    """Return an expression as an affine part plus ratios of affine forms, None if it is not one."""
    match node:
        case ex.Constant(value):
            return RatioSum(Affine({}, value))
        case Leaf():
            return RatioSum(Affine({node: 1.0}))
        case Apply("sum", terms):
            parts = [ratio_sum(term) for term in terms]
            return None if None in parts else _sum_forms(part for part in parts if part)
        case Apply("product", (ex.Constant(factor), right)):
            form = ratio_sum(right)
            return None if form is None else _scaled(form, factor)
        case Apply("quotient", (numerator, denominator)):
            return _quotient(affine(numerator), affine(denominator))
        case _:
            return None


def _quotient(top: Affine | None, bottom: Affine | None) -> RatioSum | None:
    if top is None or bottom is None or bottom.range()[0] < 0:
        return None
    return RatioSum(Affine({}), (RatioTerm(top, bottom),))


def _scaled(form: RatioSum, factor: float) -> RatioSum:
    ratios = (replace(ratio, numerator=ratio.numerator * factor) for ratio in form.ratios)
    return RatioSum(form.affine * factor, tuple(ratios))


def _sum_forms(parts: Iterable[RatioSum]) -> RatioSum:
    total, ratios = Affine({}), list[RatioTerm]()
    for part in parts:
        total += part.affine
        for ratio in part.ratios:
            same = [i for i, r in enumerate(ratios) if r.denominator == ratio.denominator]
            if same:
                other = ratios[same[0]]
                ratios[same[0]] = replace(other, numerator=other.numerator + ratio.numerator)
            else:
                ratios.append(ratio)
    kept = (r for r in ratios if r.numerator.coefficients or r.numerator.constant)
    return RatioSum(total, tuple(kept))


def clear_denominators(node: Expression) -> Affine | None:
    """Return an affine form that is at most 0 exactly where `node` is, or None if there is none."""
    form = ratio_sum(node)
    fraction = form and form.fraction
    return fraction[0] if fraction else None


@dataclass(frozen=True)
class Balance:
    """A positive multiple of `sqrt(sum of (share of group k - target k) ** 2)`.

    Attributes
    ----------
    groups
        `joint_rate` of K slices; a group's share is its quotient by `positive_rate` of all rows.
    target
        The K target shares.
    """

    groups: tuple[Leaf, ...]
    target: tuple[float, ...]


def balance(node: Expression) -> Balance | None:
    """Return an `rms` of shares minus targets as a `Balance`, None for other expressions."""
    match node:
        case Apply("product", (ex.Constant(factor), right)) if factor > 0:
            return balance(right)
        case Apply("rms", parts):
            terms = [term for part in parts if (term := _share_difference(part))]
            if len(terms) == len(parts) and len({_denominator(leaf) for leaf, _ in terms}) == 1:
                return Balance(*zip(*terms, strict=True))
    return None


def _share_difference(node: Expression) -> tuple[Leaf, float] | None:
    """Match `share of a group - t` or its negation: return the group and t, or None."""
    form = ratio_sum(node)
    top, bottom = (form and form.fraction) or (Affine({}), Affine({}))
    groups = [leaf for leaf in top.coefficients if leaf.rate == JOINT_RATE]
    if len(groups) != 1 or top.constant or bottom.constant:
        return None
    (group,) = groups
    total = _denominator(group)
    if set(bottom.coefficients) != {total} or not set(top.coefficients) <= {group, total}:
        return None
    scale = top.coefficients[group]
    if abs(scale) != bottom.coefficients[total]:
        return None
    return group, -top.coefficients.get(total, 0.0) / scale


def _denominator(group: Leaf) -> Leaf:
    return Leaf(POSITIVE_RATE, group.over, group.split)


def disclosure_bound(piece: Expression) -> tuple[Disclosure, float] | None:
    """Return the node and alpha of `disclosivity(by=...) - alpha`, None for other expressions."""
    match piece:
        case Disclosure():
            return piece, 0.0
        case Apply("sum", (Disclosure() as node, ex.Constant(value))):
            return node, -value
        case _:
            return None

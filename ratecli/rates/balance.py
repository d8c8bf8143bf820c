"""Normal forms of goals of balance and of disclosivity (Deng, Diana, Kearns, Roth 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ratecli.rates import expression as ex
from ratecli.rates.affine import RatioTerm, ratio_sum
from ratecli.rates.expression import Disclosure, Expression, Leaf
from ratecli.rates.functions import POWER
from ratecli.rates.templates import JOINT_RATE, POSITIVE_RATE

FACTOR_TOLERANCE = 1e-12
"""How far, relative to each other, factors of shares may differ by rounding."""


@dataclass(frozen=True)
class Balance:
    """`factor * sqrt(sum of (share of group k - target k) ** 2)`, factor positive.

    Attributes
    ----------
    groups
        `joint_rate` of K slices; a share is its quotient by `positive_rate` of all rows.
    target
        K shares that are aimed at.
    """

    groups: tuple[Leaf, ...]
    target: tuple[float, ...]
    factor: float


def balance(node: Expression) -> Balance | None:
    """An expression as a distance of shares from their targets, None if it is none.

    Written as `rms` of differences, or as the square root of a sum of their squares.
    """
    match node:
        case ex.Product(left=ex.Constant(value=factor), right=right) if factor > 0:
            found = balance(right)
            return found and Balance(found.groups, found.target, factor * found.factor)
        case ex.Apply(function="rms", arguments=parts):
            return _distance(parts, 1 / math.sqrt(len(parts)))
        case ex.Apply(function="sqrt", arguments=(ex.Sum(terms=terms),)):
            parts = tuple(part for term in terms if (part := _squared_base(term)) is not None)
            return _distance(parts, 1.0) if len(parts) == len(terms) else None
        case _:
            return None


def _squared_base(node: Expression) -> Expression | None:
    match node:
        case ex.Apply(function=name, arguments=(base, ex.Constant(value=2.0))) if name == POWER:
            return base
        case ex.Product(left=left, right=right) if left == right:
            return left
        case _:
            return None


def _distance(parts: tuple[Expression, ...], factor: float) -> Balance | None:
    """The root of the sum of the parts' squares, times a factor."""
    found = [_share_difference(part) for part in parts]
    terms = [each for each in found if each is not None]
    if len(terms) < len(found) or len({_denominator(leaf) for leaf, _, _ in terms}) != 1:
        return None
    size = abs(terms[0][1])
    if any(not math.isclose(abs(each), size, rel_tol=FACTOR_TOLERANCE) for _, each, _ in terms):
        return None
    groups = tuple(leaf for leaf, _, _ in terms)
    return Balance(groups, tuple(target for _, _, target in terms), factor * size)


def _share_difference(node: Expression) -> tuple[Leaf, float, float] | None:
    """A group, and c and t of `c * (share of the group - t)`, None where the node is not that."""
    form = ratio_sum(node)
    if form is None or form.affine.coefficients or len(form.ratios) != 1:
        return None
    (ratio,) = form.ratios
    groups = [leaf for leaf in ratio.numerator.coefficients if leaf.rate == JOINT_RATE]
    if len(groups) != 1 or not _is_share(ratio, groups[0]):
        return None
    (group,) = groups
    whole = _denominator(group)
    unit = ratio.weight / ratio.denominator.coefficients[whole]
    scale = unit * ratio.numerator.coefficients[group]
    shift = unit * ratio.numerator.coefficients.get(whole, 0.0) + form.affine.constant
    return group, scale, -shift / scale


def _is_share(ratio: RatioTerm, group: Leaf) -> bool:
    """Whether a ratio is of a group's joint rate and the rate of all rows only, over the latter."""
    whole, top, bottom = _denominator(group), ratio.numerator, ratio.denominator
    return (
        not (bottom.constant or top.constant)
        and set(bottom.coefficients) == {whole}
        and set(top.coefficients) <= {group, whole}
    )


def _denominator(group: Leaf) -> Leaf:
    return Leaf(POSITIVE_RATE, group.over, group.split)


def disclosure_bound(piece: Expression) -> tuple[Disclosure, float] | None:
    """The node and alpha of what is at most 0 where `disclosivity(by=...) <= alpha`, else None."""
    match piece:
        case Disclosure():
            return piece, 0.0
        case ex.Sum(terms=(Disclosure() as node, ex.Constant(value=value))):
            return node, -value
        case _:
            return None

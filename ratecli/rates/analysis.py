"""Classify goals by the kind of optimization problem they pose.

The module also bounds expressions and finds in which rates they are monotone. The class of a goal
is derived from the expression tree by the rules of disciplined convex programming. Curvature refers
to the rates, which are linear in randomized decisions. Each node contributes local facts, and one
composition rule does the rest: a convex function is convex in its arguments if each of them is
affine, or convex where the function increases, or concave where it decreases.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from ratecli.rates import expression as ex
from ratecli.rates.affine import (
    Affine,
    affine,
    balance,
    clear_denominators,
    disclosure_bound,
    ratio_sum,
)
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.interval import REAL_LINE, Interval

NameT = TypeVar("NameT", bound=Hashable)

MAX_PIECES = 2000


NodeFacts = tuple[Interval, Sequence[int]]
"""The interval of an expression, and its direction (1, -1 or 0) in each of its operands."""


class Shape(StrEnum):
    """Classes of goals, from easiest to hardest; a solver states which ones it supports.

    The first six are goals of decisions only. `BALANCE` is a distance of shares among the positive
    decisions from target shares (`rates.affine`), as an objective; a constraint on it is `OTHER`.
    `ESTIMATE` is any goal with estimates of the label (mean_error, mse, log_loss). `DISCLOSURE` is
    a constraint `disclosivity(by=...) <= alpha` and nothing else. `RANKING` goals use scores
    (roc_auc, pr_auc), which are not means over rows. `REPORTED` goals use a disclosivity in any
    other way.
    """

    AFFINE = "affine"
    CONVEX = "convex"
    RATIO = "ratio"
    RATIO_SUM = "sum of ratios"
    BALANCE = "balance"
    OTHER = "other"
    ESTIMATE = "estimate"
    DISCLOSURE = "disclosure"
    RANKING = "ranking"
    REPORTED = "reported only"


MEASURABLE_SHAPES = frozenset(Shape) - {Shape.DISCLOSURE, Shape.RANKING, Shape.REPORTED}
"""Classes of goals that are functions of means over rows."""
PROGRAM_SHAPES = frozenset({Shape.AFFINE, Shape.CONVEX, Shape.RATIO, Shape.RATIO_SUM})
"""Classes of goals that programs over rates can express."""


class Curvature(StrEnum):
    CONSTANT = "constant"
    AFFINE = "affine"
    CONVEX = "convex"
    CONCAVE = "concave"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Goal:
    """An objective, or a constraint as expressions that must be at most 0, ready for solvers.

    Attributes
    ----------
    expression
        What is measured: the objective, or the violation of the constraint.
    pieces
        For a constraint, expressions that must all be at most 0 (`max`, `abs` and templates taken
        apart, denominators cleared where that is sound). For an objective, the objective itself.
    shape
        The hardest class among the pieces.
    """

    name: str
    text: str
    expression: Expression
    pieces: tuple[Expression, ...]
    shape: Shape

    @property
    def ratios(self) -> tuple[ex.Quotient, ...]:
        """The ratios in `expression` that can be 0 / 0.

        If one of them is, the constraint counts as violated, although its pieces, whose
        denominators may have been cleared, are then at most 0.
        """
        return tuple(vanishing_ratios(self.expression))


def objective_goal(text: str, node: Expression) -> Goal:
    return Goal("objective", text, node, (node,), shape(node))


def constraint_goal(
    name: str, text: str, differences: tuple[Expression, ...], whole: Expression
) -> Goal:
    """Build a goal from differences that must be at most 0 (`resolve.constraint_differences`)."""
    parts = tuple(part for difference in differences for part in pieces(difference))
    normal = tuple(
        form.expression() if (form := clear_denominators(part)) else part for part in parts
    )
    found = max((_constraint_shape(part) for part in normal), key=list(Shape).index)
    if found is Shape.DISCLOSURE and len(normal) > 1:
        found = Shape.REPORTED
    return Goal(name, text, whole, normal, found)


def _constraint_shape(piece: Expression) -> Shape:
    """Return the class of an expression that must be at most 0."""
    if disclosure_bound(piece) is not None:
        return Shape.DISCLOSURE
    found = shape(piece)
    return Shape.OTHER if found is Shape.BALANCE else found


def pieces(node: Expression) -> tuple[Expression, ...]:
    """Return expressions that are all at most 0 exactly where `node` is.

    `max(a, b) + c <= 0` becomes `a + c <= 0` and `b + c <= 0`; the same works for `-min`, `abs` and
    positive multiples. If there were more than `MAX_PIECES`, the node is returned unsplit.
    """
    found = _maximum_alternatives(node, 1.0)
    return found if len(found) <= MAX_PIECES else (node,)


def _maximum_alternatives(node: Expression, factor: float) -> tuple[Expression, ...]:
    """Return expressions whose maximum is `factor * node`, at most `MAX_PIECES` + 1 of them."""
    options: Iterable[Expression]
    match node:
        case ex.Sum(terms=terms):
            choices = itertools.product(*(_maximum_alternatives(term, factor) for term in terms))
            options = (ex.add(*choice, span=node.span) for choice in choices)
        case ex.Product(left=ex.Constant(value=value), right=right):
            return _maximum_alternatives(right, factor * value)
        case ex.Apply(function="abs", arguments=(argument,)) if factor > 0:
            options = (
                *_maximum_alternatives(argument, factor),
                *_maximum_alternatives(argument, -factor),
            )
        case ex.Apply(function=name) if name == ("max" if factor > 0 else "min"):
            options = (
                part for child in node.arguments for part in _maximum_alternatives(child, factor)
            )
        case _:
            options = (ex.multiply(ex.Constant(factor), node, node.span),)
    return tuple(itertools.islice(options, MAX_PIECES + 1))


def shape(node: Expression) -> Shape:
    """Return the class of an expression that is to be minimized."""
    parts = [*ex.measured_nodes(node)]
    if any(isinstance(part, ex.Disclosure) for part in parts):
        return Shape.REPORTED
    if any(isinstance(part, ex.RankingMeasure) for part in parts):
        return Shape.RANKING
    if any(isinstance(part, Leaf) and part.rate.of != "decision" for part in parts):
        return Shape.ESTIMATE
    form = ratio_sum(node)
    if form is not None and not form.ratios:
        return Shape.AFFINE
    if curvature(node) is Curvature.CONVEX:
        return Shape.CONVEX
    if form is not None:
        alone = len(form.ratios) == 1 and not form.affine.coefficients
        return Shape.RATIO if alone else Shape.RATIO_SUM
    return Shape.OTHER if balance(node) is None else Shape.BALANCE


def interval(node: Expression) -> Interval:
    """Return bounds on an expression over all possible rates.

    `of(...)` and expressions that are not defined everywhere may be any number.
    """
    if isinstance(node, ex.Constant):
        return node.value, node.value
    return _range(node, [interval(part) for part in ex.operands(node)])


def _range(node: Expression, inside: Sequence[Interval]) -> Interval:
    """Return bounds on an expression, given the intervals of its operands."""
    form = affine(node)
    if form is not None:
        return form.range()
    operation = ex.operation(node)
    if operation is None:
        return (0.0, 1.0) if isinstance(node, ex.RankingMeasure | ex.Disclosure) else REAL_LINE
    low, high = (end.value for end in operation.certain(inside))
    ratio = ratio_sum(node) if isinstance(node, ex.Quotient) else None
    alone = ratio.ratios[0].range() if ratio else REAL_LINE
    return max(low, alone[0]), min(high, alone[1])


def vanishing_ratios(node: Expression) -> Iterator[ex.Quotient]:
    """Return each ratio of the expression whose denominator can be 0."""
    ratios = (part for part in ex.walk(node) if isinstance(part, ex.Quotient))
    yield from dict.fromkeys(part for part in ratios if interval(part.denominator)[0] <= 0)


def curvature(node: Expression) -> Curvature:
    """Return the curvature of an expression in the rates."""
    match node:
        case ex.Constant() | ex.AlgorithmMetric():
            return Curvature.CONSTANT
        case Leaf():
            return Curvature.AFFINE
    operation = ex.operation(node)
    inner = [curvature(part) for part in ex.operands(node)]
    if operation is None or Curvature.UNKNOWN in inner:
        return Curvature.UNKNOWN
    if all(part is Curvature.CONSTANT for part in inner):
        return Curvature.CONSTANT
    ranges = [interval(part) for part in ex.operands(node)]
    turned = map(_turned, inner, operation.directions(ranges))
    return _sum(_own_curvature(node, inner, ranges), *turned)


def _own_curvature(
    node: Expression, inner: Sequence[Curvature], ranges: Sequence[Interval]
) -> Curvature:
    """Return the curvature of a node's operation in its operands."""
    match node:
        case ex.Sum():
            return Curvature.AFFINE
        case ex.Product(left=left, right=right):
            if left == right:
                return Curvature.CONVEX
            return Curvature.AFFINE if Curvature.CONSTANT in inner else Curvature.UNKNOWN
        case ex.Apply():
            function = FUNCTIONS[node.function]
            bend = function.bend(ranges)
            # `kl` clips outside its domain
            known = bend != "either" and function.operation.defined(ranges)
            return Curvature(bend) if known else Curvature.UNKNOWN
        case _:
            return Curvature.UNKNOWN


def _sum(*parts: Curvature) -> Curvature:
    bent = set(parts) - {Curvature.CONSTANT, Curvature.AFFINE}
    if len(bent) > 1:
        return Curvature.UNKNOWN
    return bent.pop() if bent else max(parts, key=list(Curvature).index)


def _turned(inner: Curvature, direction: int) -> Curvature:
    """Return the curvature of an operation that is monotone in an operand of a given curvature."""
    if inner in {Curvature.CONSTANT, Curvature.AFFINE} or direction > 0:
        return inner
    turned = {Curvature.CONVEX: Curvature.CONCAVE, Curvature.CONCAVE: Curvature.CONVEX}
    return turned.get(inner, inner) if direction < 0 else Curvature.UNKNOWN


def monotonicity(node: Expression) -> dict[Leaf, int]:
    """Return for each rate whether the expression increases (1) or decreases (-1) in it, else 0."""
    return monotonicity_in(node, lambda part: part if isinstance(part, Leaf) else None, _node_facts)


def _node_facts(node: Expression, inside: Sequence[Interval]) -> NodeFacts:
    operation = ex.operation(node)
    return _range(node, inside), operation.directions(inside) if operation else ()


def monotonicity_in(
    node: Expression,
    named: Callable[[Expression], NameT | None],
    facts: Callable[[Expression, Sequence[Interval]], NodeFacts],
) -> dict[NameT, int]:
    """Like `monotonicity`, but in the nodes that `named` returns a name for.

    `named` is called for parents first and skips the operands of a named node. `facts` returns the
    interval and directions of a node, given the intervals of its operands.
    """

    def signs(node: Expression) -> tuple[Interval, dict[NameT, int]]:
        name = named(node)
        if name is not None:
            return interval(node), {name: 1}
        inner = [signs(part) for part in ex.operands(node)]
        own, directions = facts(node, [each for each, _ in inner])
        return own, _combine_directions(directions, [found for _, found in inner])

    return signs(node)[1]


def _combine_directions(
    directions: Sequence[int], parts: Sequence[dict[NameT, int]]
) -> dict[NameT, int]:
    """Combine the directions of a node with those inside its operands; 0 where they disagree."""
    total: dict[NameT, int] = {}
    for direction, signs in zip(directions, parts, strict=True):
        for name, own in signs.items():
            turned = direction * own
            total[name] = turned if total.get(name, turned) == turned else 0
    return total


def find_two_sided_rate(node: Expression) -> tuple[Expression, Leaf] | None:
    """Return a part of a minimized expression and a rate that it penalizes both above and below.

    Return None if every part that is not a sum of ratios is monotone in each of its rates. A
    divergence from a share that decisions cannot change does not count: it is a sum of two
    logarithms, one decreasing in the positive share and one decreasing in the negative share.
    """
    if ratio_sum(node) is not None:
        return None
    match node:
        case ex.Sum(terms=terms):
            return next((found for term in terms if (found := find_two_sided_rate(term))), None)
        case ex.Product(left=ex.Constant(), right=right):
            return find_two_sided_rate(right)
        case ex.Apply(function="kl", arguments=(share, _)) if not _depends_on_decisions(share):
            return None
    both = (leaf for leaf, sign in monotonicity(node).items() if sign == 0)
    return next(((node, leaf) for leaf in both), None)


def _depends_on_decisions(node: Expression) -> bool:
    """Whether decisions affect the value of an expression."""
    return any(leaf.rate.yes != leaf.rate.no for leaf in ex.leaves(node))


def affine_pieces(goal: Goal) -> tuple[Affine, ...]:
    """Return the pieces of an affine goal in normal form.

    Raises
    ------
    ValueError
        If a piece is not affine.
    """
    forms = tuple(affine(piece) for piece in goal.pieces)
    if None in forms:
        raise ValueError(f"{goal.name} is {goal.shape}, not affine: {goal.text}")
    return tuple(form for form in forms if form is not None)

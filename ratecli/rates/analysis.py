"""Classify goals by the kind of optimization problem they pose.

The class of a goal is derived from the expression tree by the rules of disciplined convex
programming. Curvature refers to the rates, which are linear in randomized decisions. Each node
contributes local facts, and one composition rule does the rest: a convex function is convex in its
arguments if each of them is affine, or convex where the function increases, or concave where it
decreases.

The module also finds in which rates an expression is monotone, and bounds expressions over all
possible rates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Flag, StrEnum
from functools import cached_property, lru_cache, reduce
from operator import and_

from ratecli.rates import expression as ex
from ratecli.rates.affine import (
    Affine,
    affine,
    balance,
    clear_denominators,
    disclosure_bound,
    ratio_sum,
)
from ratecli.rates.expression import Apply, Expression, Leaf
from ratecli.rates.functions import PRODUCT, REAL_LINE, Interval

MAX_PIECES = 2000
"""Largest number of parts that a maximum of sums is split into."""


class Shape(StrEnum):
    """Classes of goals, from easiest to hardest; a solver states which ones it supports.

    The first seven are goals of decisions only. `BALANCE` is a distance of shares among the
    positive decisions from target shares (`rates.affine`), as an objective; a constraint on it is
    `OTHER`. `SMOOTH` is a sum of convex functions, ratios, and largest values of functions without
    kinks, such as a product of rates: as an objective, it has a local optimum without certificate.
    `QUADRATIC` is a sum of `mse`, none of them subtracted, and of `mean_error`: convex in the
    estimates of the label. `ESTIMATE` is any other goal of estimates (mean_error, mse, log_loss).
    `DISCLOSURE` is a constraint `disclosivity(by=...) <= alpha` and nothing else. `RANKING` goals
    use scores (roc_auc, pr_auc), which are not means over rows. `REPORTED` goals use a disclosivity
    in any other way.
    """

    AFFINE = "affine"
    CONVEX = "convex"
    RATIO = "ratio"
    RATIO_SUM = "sum of ratios"
    BALANCE = "balance"
    SMOOTH = "smooth"
    OTHER = "other"
    QUADRATIC = "quadratic"
    ESTIMATE = "estimate"
    DISCLOSURE = "disclosure"
    RANKING = "ranking"
    REPORTED = "reported only"


MEASURABLE_SHAPES = frozenset(Shape) - {Shape.DISCLOSURE, Shape.RANKING, Shape.REPORTED}
"""Classes of goals that are functions of means over rows."""
PROGRAM_SHAPES = frozenset({Shape.AFFINE, Shape.CONVEX, Shape.RATIO, Shape.RATIO_SUM})
"""Classes of goals that programs over rates can express."""
SEARCHED_SHAPES = PROGRAM_SHAPES | {Shape.SMOOTH}
"""Classes of objectives that a search over a hull of rates can minimize."""
KINKED = frozenset({"abs", "max", "min", "rms"})
"""Functions without a slope at some points inside their domain."""


class Curvature(Flag):
    """The known properties of an expression; a sum has those that all its terms share."""

    UNKNOWN = EITHER = 0  # "either" in `rates.functions`
    CONVEX = 1
    CONCAVE = 2
    AFFINE = CONVEX | CONCAVE
    CONSTANT = AFFINE | 4

    def turned(self, direction: int) -> Curvature:
        """Return the curvature after a function that increases (1), decreases (-1) or neither."""
        if direction > 0 or Curvature.AFFINE in self:
            return self
        swapped = {Curvature.CONVEX: Curvature.CONCAVE, Curvature.CONCAVE: Curvature.CONVEX}
        return swapped.get(self, self) if direction else Curvature.UNKNOWN


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
        The hardest class among the pieces. A constraint is also affine if some pieces are sums of
        maxima of affine forms (see `affine_maxima`).
    """

    name: str
    text: str
    expression: Expression
    pieces: tuple[Expression, ...]
    shape: Shape

    @cached_property
    def undefined_part(self) -> Expression:
        """The expression if it has a ratio that can be 0 / 0, else 0.

        Where it is undefined, the constraint counts as violated, although its pieces, whose
        denominators may have been cleared, are then at most 0.
        """
        quotients = (
            part.arguments[1]
            for part in ex.walk(self.expression)
            if isinstance(part, Apply) and part.function == "quotient"
        )
        vanishes = any(interval(denominator)[0] <= 0 for denominator in quotients)
        return self.expression if vanishes else ex.Constant(0.0)


def objective_goal(text: str, node: Expression) -> Goal:
    return Goal("objective", text, node, (node,), shape(node))


@lru_cache(maxsize=1024)  # many sweep points and algorithms have the same constraint
def constraint_goal(
    name: str, text: str, differences: tuple[Expression, ...], whole: Expression
) -> Goal:
    """Build a goal from differences that must be at most 0 (`resolve.constraint_differences`)."""
    parts = tuple(part for difference in differences for part in pieces(difference))
    normal = tuple(map(_without_denominator, parts))
    found = max((_constraint_shape(part) for part in normal), key=list(Shape).index)
    if found is Shape.DISCLOSURE and len(normal) > 1:
        found = Shape.REPORTED
    return Goal(name, text, whole, normal, found)


def _without_denominator(piece: Expression) -> Expression:
    """Return an expression that is at most 0 where the piece is, simpler if possible.

    A ratio of affine forms becomes affine, and `c + k X / Y` with ratios X and Y, such as those of
    precision, becomes `c Y + k X` if Y is never negative.
    """
    form = clear_denominators(piece)
    if form is not None:
        return form.expression()
    terms = ex.terms(piece)
    constant = sum(term.value for term in terms if isinstance(term, ex.Constant))
    match [term for term in terms if not isinstance(term, ex.Constant)]:
        case [Apply("quotient", (top, bottom))]:
            factor = 1.0
        case [Apply("product", (ex.Constant(factor), Apply("quotient", (top, bottom))))]:
            pass
        case _:
            return piece
    if interval(bottom)[0] < 0:
        return piece
    parts = ((constant, bottom), (factor, top))
    product = ex.add(*(ex.multiply(ex.Constant(k), part) for k, part in parts), span=piece.span)
    simpler = ratio_sum(product) is not None or curvature(product) is Curvature.CONVEX
    return product if simpler else piece


def _constraint_shape(piece: Expression) -> Shape:
    """Return the class of an expression that must be at most 0."""
    if disclosure_bound(piece) is not None:
        return Shape.DISCLOSURE
    found = shape(piece)
    if found is Shape.CONVEX and affine_maxima(piece) is not None:
        return Shape.AFFINE
    return Shape.OTHER if found is Shape.BALANCE else found


def pieces(node: Expression) -> tuple[Expression, ...]:
    """Return expressions that are all at most 0 exactly where `node` is.

    `max(a, b) + c <= 0` becomes `a + c <= 0` and `b + c <= 0`; the same works for `-min`, `abs` and
    positive multiples. A sum of two maxima of many parts is not split if it is convex: that would
    take all pairs of their parts. If there were more than `MAX_PIECES`, the node is returned
    unsplit.
    """
    found = _maximum_alternatives(compare_in_pairs(node), 1.0)
    return found if len(found) <= MAX_PIECES else (node,)


MAX_PAIRED = 8
"""Up to so many groups are compared in pairs, whose differences have the tightest bounds."""


def compare_in_pairs(node: Expression) -> Expression:
    """Write comparisons of the largest and the smallest of few groups as those of all pairs.

    `max(a, b) - min(a, b)` becomes the largest difference of two of them, and `min(a, b) / max(a,
    b)` the smallest ratio.
    """

    def change(part: Expression) -> Expression | None:
        match part:
            case Apply("quotient", (Apply("min", groups), Apply("max", same))) if groups == same:
                if len(groups) <= MAX_PAIRED:
                    ratios = ex.compare_pairs(ex.divide, groups, part.span)
                    return ex.apply("min", ratios, part.span)
            case Apply("sum", terms):
                return _with_largest_gaps(list(terms))
        return None

    return ex.transform(node, change)


def _with_largest_gaps(terms: list[Expression]) -> Expression | None:
    """Return a sum with all pairs of groups in place of each gap among few groups, None if none."""
    found = list[Expression]()
    for term in tuple(terms):
        factor, groups = ex.Constant(1.0), tuple[Expression, ...]()
        match term:
            case Apply("max", groups):
                pass
            case Apply("product", (ex.Constant() as factor, Apply("max", groups))):
                pass
        smallest = ex.negate(ex.multiply(factor, Apply("min", groups)))
        if 1 < len(groups) <= MAX_PAIRED and smallest in terms:
            terms.remove(term)
            terms.remove(smallest)
            gaps = ex.compare_pairs(ex.subtract, groups, term.span)
            found.append(ex.multiply(factor, ex.apply("max", gaps, term.span), term.span))
    return ex.add(*map(compare_in_pairs, terms), *found) if found else None


def _maximum_alternatives(node: Expression, factor: float) -> tuple[Expression, ...]:
    """Return expressions whose maximum is `factor * node`, at most `MAX_PIECES` + 1 of them."""
    options: Iterable[Expression]
    match node:
        case Apply("sum", terms):
            parts = [_maximum_alternatives(term, factor) for term in terms]
            whole = ex.multiply(ex.Constant(factor), node, node.span)
            many = sum(len(part) > MAX_PAIRED for part in parts) > 1
            if many and curvature(whole) is Curvature.CONVEX:
                return (whole,)
            choices = itertools.product(*parts)
            options = (ex.add(*choice, span=node.span) for choice in choices)
        case Apply("product", (ex.Constant(value), right)):
            return _maximum_alternatives(right, factor * value)
        case Apply("abs", (argument,)) if factor > 0:
            options = (
                *_maximum_alternatives(argument, factor),
                *_maximum_alternatives(argument, -factor),
            )
        case Apply(name) if name == ("max" if factor > 0 else "min"):
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
        return Shape.QUADRATIC if nonquadratic_part(node) is None else Shape.ESTIMATE
    form = ratio_sum(node)
    if form is not None and not form.ratios:
        return Shape.AFFINE
    if curvature(node) is Curvature.CONVEX:
        return Shape.CONVEX
    if form is not None:
        alone = len(form.ratios) == 1 and not form.affine.coefficients
        return Shape.RATIO if alone else Shape.RATIO_SUM
    if balance(node) is not None:
        return Shape.BALANCE
    smooth = (_is_smooth(part) for term in nonconvex_terms(node) for part in pieces(term))
    return Shape.SMOOTH if all(smooth) else Shape.OTHER


def nonconvex_terms(node: Expression) -> list[Expression]:
    """Return the terms of a sum that are neither convex nor sums of ratios of rates."""
    return [
        term
        for term in ex.terms(node)
        if ratio_sum(term) is None and Curvature.CONVEX not in curvature(term)
    ]


def _is_smooth(node: Expression) -> bool:
    """Whether an expression has slopes wherever it is defined and not at an end of its domain."""
    kinks = (part for part in ex.walk(node) if isinstance(part, Apply) and part.function in KINKED)
    return all(curvature(part) is Curvature.CONSTANT for part in kinks)


def nonquadratic_part(node: Expression) -> Expression | None:
    """Return why an expression is not `Shape.QUADRATIC`: a subtracted `mse`, or another part.

    None if it is a sum of `mse`, none of them subtracted, and of `mean_error`.
    """
    form = affine(node)
    if form is None:
        parts = ex.terms(node)
        found = (nonquadratic_part(part) for part in parts if part is not node)
        return next((part for part in found if part), node)
    for leaf, coefficient in form.coefficients.items():
        convex = leaf.rate.of == "error" or (leaf.rate.of == "squared_error" and coefficient > 0)
        if not convex:
            return leaf
    return None


def interval(node: Expression) -> Interval:
    """Return bounds on an expression over all possible rates.

    `of(...)` and expressions that are not defined everywhere may be any number.
    """
    if isinstance(node, ex.Constant):
        return node.value, node.value
    form = affine(node)
    if form is not None:
        return form.range()
    if not isinstance(node, Apply):
        return (0.0, 1.0) if isinstance(node, ex.RankingMeasure | ex.Disclosure) else REAL_LINE
    low, high = node.operation.certain(_intervals(node))
    ratio = ratio_sum(node) if node.function == "quotient" else None
    alone = ratio.ratios[0].range() if ratio else REAL_LINE
    return max(low.value, alone[0]), min(high.value, alone[1])


def _intervals(node: Apply) -> list[Interval]:
    return [interval(part) for part in node.arguments]


def curvature(node: Expression) -> Curvature:
    """Return the curvature of an expression in the rates."""
    match node:
        case ex.Constant() | ex.AlgorithmMetric():
            return Curvature.CONSTANT
        case Leaf():
            return Curvature.AFFINE
    if not isinstance(node, Apply):
        return Curvature.UNKNOWN
    inner = list(map(curvature, node.arguments))
    if Curvature.UNKNOWN in inner:
        return Curvature.UNKNOWN
    if all(part is Curvature.CONSTANT for part in inner):
        return Curvature.CONSTANT
    ranges = _intervals(node)
    scaled = node.operation is PRODUCT and Curvature.CONSTANT in inner
    own = Curvature.AFFINE if scaled else Curvature[node.operation.bend(ranges).upper()]
    turned = map(Curvature.turned, inner, node.operation.directions(ranges))
    return reduce(and_, turned, own)


def monotonicity(node: Expression) -> dict[Leaf, int]:
    """Return for each rate whether the expression increases (1) or decreases (-1) in it, else 0."""
    if isinstance(node, Leaf):
        return {node: 1}
    total: dict[Leaf, int] = {}
    if isinstance(node, Apply):
        directions = node.operation.directions(_intervals(node))
        for direction, part in zip(directions, node.arguments, strict=True):
            for leaf, own in monotonicity(part).items():
                turned = direction * own
                total[leaf] = turned if total.get(leaf, turned) == turned else 0
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
        case Apply("sum", terms):
            return next((found for term in terms if (found := find_two_sided_rate(term))), None)
        case Apply("product", (ex.Constant(), right)):
            return find_two_sided_rate(right)
        case Apply("kl", (share, _)) if not _depends_on_decisions(share):
            return None
    both = (leaf for leaf, sign in monotonicity(node).items() if sign == 0)
    return next(((node, leaf) for leaf in both), None)


def _depends_on_decisions(node: Expression) -> bool:
    """Whether decisions affect the value of an expression."""
    return any(leaf.rate.yes != leaf.rate.no for leaf in ex.leaves(node))


def affine_maxima(piece: Expression) -> tuple[tuple[Affine, ...], ...] | None:
    """Return lists of affine forms such that the piece is the sum of the lists' maxima.

    The first list has one form: the affine part. None if the piece is no such sum.
    """
    rest, maxima = Affine({}), list[tuple[Affine, ...]]()
    for term in ex.terms(compare_in_pairs(piece)):
        forms = tuple(affine(part) for part in _maximum_alternatives(term, 1.0))
        known = tuple(form for form in forms if form is not None)
        if len(known) < len(forms):
            return None
        if len(forms) == 1:
            rest += known[0]
        else:
            maxima.append(known)
    return (rest,), *maxima


def count_affine_pieces(goal: Goal) -> int:
    """Return the number of `affine_pieces` of an affine goal."""
    return sum(math.prod(map(len, affine_maxima(piece) or ())) for piece in goal.pieces)


def split_goal(goal: Goal, most: int = MAX_PIECES) -> Goal:
    """Split an affine goal into at most `most` affine pieces; return other goals unchanged."""
    if goal.shape is not Shape.AFFINE or count_affine_pieces(goal) > most:
        return goal
    return replace(goal, pieces=tuple(form.expression() for form in affine_pieces(goal)))


def affine_pieces(goal: Goal) -> tuple[Affine, ...]:
    """Return affine forms that are all at most 0 exactly where an affine goal's pieces are.

    A sum of two maxima has a form for each pair of their parts.

    Raises
    ------
    ValueError
        If a piece is not affine.
    """
    found = list[Affine]()
    for maxima in map(affine_maxima, goal.pieces):
        if maxima is None:
            raise ValueError(f"{goal.name} is {goal.shape}, not affine: {goal.text}")
        forms = [sum(choice, Affine({})) for choice in itertools.product(*maxima)]
        found += [form for form in forms if form.coefficients or len(forms) == 1]
    return tuple(found)

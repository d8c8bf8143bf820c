"""Goals as functions of K rates, and points of rate space whose hull is searched.

Goals are sums of linear terms, fractions and convex terms; objectives may have smooth terms, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.affine import Affine, RatioTerm, ratio_sum
from ratecli.rates.analysis import Curvature, affine_maxima, curvature, nonconvex_terms, pieces
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.matrix import RowKinds
from ratecli.rates.rate_function import RateFunction
from ratecli.solvers.problem import Problem

RateIndex = dict[Leaf, int]

ROUNDING = 1e-12
MAX_RANGE = 1e6
"""Infinite ends of the ranges of fractions are replaced by this value."""
UNDEFINED_RATIO_REASON = (
    "for the best mixture, a ratio in a constraint is 0 / 0, such as the precision where nobody is "
    "selected: also require positive decisions, such as a recall, or use another objective"
)
"""Why the best point of a hull is not a solution although it satisfies the constraints after they
were multiplied by their denominators.
"""


@dataclass(frozen=True)
class LinearTerm:
    """`slopes @ r + constant`, slopes (K,)."""

    slopes: Array
    constant: float

    def at(self, rates: Array) -> Array:
        """Return the values at rates (K,) or (K, T)."""
        return self.slopes @ rates + self.constant

    def reach(self) -> tuple[float, float]:
        """Return the smallest and largest value over all rates in [0, 1]."""
        up, down = np.maximum(self.slopes, 0.0).sum(), np.minimum(self.slopes, 0.0).sum()
        return self.constant + float(down), self.constant + float(up)

    def part(self, side: float) -> LinearTerm:
        """Return the terms with the sign of `side`, times it: none of them is negative."""
        signed = np.maximum(self.vector * side, 0.0)
        return LinearTerm(signed[:-1], float(signed[-1]))

    @property
    def vector(self) -> Array:
        """(K + 1,) slopes and constant."""
        return np.append(self.slopes, self.constant)

    def __add__(self, other: LinearTerm | float) -> LinearTerm:
        if not isinstance(other, LinearTerm):
            return LinearTerm(self.slopes, self.constant + other)
        return LinearTerm(self.slopes + other.slopes, self.constant + other.constant)

    def __mul__(self, factor: float) -> LinearTerm:
        return LinearTerm(factor * self.slopes, factor * self.constant)


@dataclass(frozen=True)
class Fraction:
    """`top / bottom` with a nonnegative bottom; `range` contains its values for all decisions."""

    top: LinearTerm
    bottom: LinearTerm
    range: tuple[float, float] = (-np.inf, np.inf)

    def at(self, rates: Array) -> Array:
        """Return the values at rates (K,) or (K, T); NaN for 0 / 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.divide(self.top.at(rates), self.bottom.at(rates)))

    def in_terms_of(self, other: Fraction) -> tuple[float, float] | None:
        """Return share and constant if it equals `share * other + constant`, else None."""
        mine, top, bottom = self.top.vector, other.top.vector, other.bottom.vector
        if not np.allclose(self.bottom.vector, bottom, atol=ROUNDING):
            return None
        (share, constant), *_ = np.linalg.lstsq(np.stack([top, bottom], axis=1), mine)
        same = np.allclose(share * top + constant * bottom, mine, atol=ROUNDING)
        return (float(share), float(constant)) if same else None

    def tangent(self, rates: Array) -> LinearTerm:
        """Return the tangent at `rates` (K,)."""
        value, bottom = float(self.at(rates)), float(self.bottom.at(rates))
        return (self.top + self.bottom * -value) * float(np.divide(1.0, bottom)) + value


@dataclass(frozen=True)
class CurvedTerm:
    """The largest of some functions of the rates: lines, a convex one, or smooth ones.

    `expressions` are what it was made of: those that are smooth, or one that is convex.
    """

    function: RateFunction
    expressions: tuple[Expression, ...] = ()

    @classmethod
    def convex(cls, expression: Expression, index: RateIndex) -> CurvedTerm:
        """Return a convex expression, as lines if it is their maximum."""
        maxima, parts = affine_maxima(expression), [expression]
        if maxima is not None and len(maxima) == 2:
            (rest,), forms = maxima
            parts = [(rest + form).expression() for form in forms]
        return cls(RateFunction.of(parts, index), (expression,))

    @cached_property
    def lines(self) -> list[LinearTerm]:
        """The lines whose maximum it is; empty if it is curved."""
        if self.function.steps:
            return []
        table = self.function.table[self.function.roots]
        return [LinearTerm(row[:-1], float(row[-1])) for row in table]

    def at(self, rates: Array) -> Array:
        """Return the values at rates (K,) or (K, T)."""
        return np.asarray(self.function.values(rates).max(axis=0))

    def tangents(self, rates: Array) -> list[LinearTerm]:
        """Return the tangent of each function at `rates` (see `RateFunction.tangents`)."""
        pairs = zip(*self.function.tangents(rates), strict=True)
        return self.lines or [
            LinearTerm(slopes, float(value - slopes @ rates)) for value, slopes in pairs
        ]

    def tangent(self, rates: Array) -> LinearTerm:
        """Return that of the largest function."""
        tangents = self.tangents(rates)
        if len(tangents) == 1:
            return tangents[0]
        return tangents[int(np.argmax(self.function.values(rates)))]


@dataclass(frozen=True)
class ProgramForm:
    """`line + shares @ fractions + sum of curves`: an objective, or a constraint to be at most 0.

    `shares` (M,) refer to the program's fractions. Only objectives have `smooth` terms, which are
    added; they have no fractions then.
    """

    line: LinearTerm
    shares: Array
    curves: tuple[CurvedTerm, ...] = ()
    smooth: tuple[CurvedTerm, ...] = ()

    def leaves(self) -> list[Leaf]:
        """Return the rates in curved and smooth terms."""
        return ex.leaves(*(each for c in (*self.curves, *self.smooth) for each in c.expressions))

    @cached_property
    def fractions(self) -> list[int]:
        """Indices of the fractions that it contains."""
        return [int(m) for m in np.flatnonzero(self.shares)]

    @property
    def is_fractions(self) -> bool:
        """Whether it consists of fractions and a constant only."""
        return bool(self.shares.any()) and not self.curves and not self.line.slopes.any()


@dataclass(frozen=True)
class RateProgram:
    """Minimize the objective with every constraint at most 0, over a set of rates (K,).

    Attributes
    ----------
    fractions
        The M fractions that occur, each once.
    owners
        (J,) names of the goals that the constraints are pieces of.
    index
        The index of each of the K rates.
    written
        The constraints as written that can be undefined (see `Goal.undefined_part`).
    """

    objective: ProgramForm
    constraints: tuple[ProgramForm, ...]
    fractions: tuple[Fraction, ...]
    owners: tuple[str, ...]
    index: RateIndex
    written: RateFunction | None = None

    @classmethod
    def of(cls, problem: Problem) -> RateProgram:
        """Return the program of a problem.

        Raises
        ------
        ValueError
            If a constraint is neither convex, nor a sum of ratios, nor a sum of both.
        """
        index = problem.rates.index()
        aim, smooth = _without_smooth_terms(problem.objective.expression, index)
        fractions = list[Fraction]()
        parts = [_split_form(node, index, fractions) for node in (aim, *problem.pieces)]
        count, written = range(len(fractions)), [g.undefined_part for g in problem.constraints]
        objective, *constraints = (
            ProgramForm(line, np.array([shares.get(m, 0.0) for m in count]), curves)
            for line, shares, curves in parts
        )
        return cls(
            replace(objective, smooth=smooth),
            tuple(_cleared(form, fractions) for form in constraints),
            tuple(fractions),
            tuple(problem.piece_owners),
            index,
            problem.function(*(part for part in written if not isinstance(part, ex.Constant))),
        )

    def value(self, form: ProgramForm, rates: Array) -> Array:
        """Return the values of a form at rates (K,) or (K, T); NaN where it is undefined."""
        found = form.line.at(rates)
        with np.errstate(invalid="ignore"):  # the difference of two infinite ratios
            for m in form.fractions:
                found = found + form.shares[m] * self.fractions[m].at(rates)
            for curve in form.curves:
                found = found + curve.at(rates)
            for term in form.smooth:
                found = found + term.at(rates)
        return found

    def constraint_values(self, rates: Array) -> Array:
        """Return the values (J,) of the constraints at rates (K,)."""
        return np.array([float(self.value(form, rates)) for form in self.constraints])

    def excess(self, rates: Array) -> Array:
        """Return the largest constraint at rates (K,) or (K, T).

        Minus infinity if there are no constraints, infinite where one is undefined. Constraints
        that were multiplied by a denominator are defined everywhere (see `missed`).
        """
        table, shares, curved = self._flat_and_curved
        points = rates.reshape(len(rates), -1)
        found = table[:, :-1] @ points + table[:, -1:]
        with np.errstate(invalid="ignore"):  # the difference of two infinite ratios
            for fraction, own in zip(self.fractions, shares.T, strict=True):
                if own.any():
                    found[own != 0] += own[own != 0, None] * fraction.at(points)
        worst = found.max(axis=0, initial=-np.inf).reshape(rates.shape[1:])  # NaN if any is
        worst = reduce(np.maximum, (self.value(form, rates) for form in curved), worst)
        return np.where(np.isnan(worst), np.inf, worst)

    @cached_property
    def _flat_and_curved(self) -> tuple[Array, Array, list[ProgramForm]]:
        """Lines (J, K + 1) and shares (J, M) of the constraints without curves, and the others."""
        flat = [form for form in self.constraints if not form.curves]
        lines = [form.line.vector for form in flat]
        shape = len(flat), len(self.objective.line.vector)
        shares = np.array([form.shares for form in flat]).reshape(len(flat), len(self.fractions))
        curved = [form for form in self.constraints if form.curves]
        return np.array(lines).reshape(shape), shares, curved

    def missed(self, rates: Array, room: float = 0.0) -> Array:
        """Return by how much rates (K,) or (K, T) violate the worst constraint beyond `room`.

        0 if no constraint is violated; infinite where a constraint as written is undefined.
        """
        found = np.maximum(self.excess(rates) - room, 0.0)
        if self.written is None:
            return found
        unknown = np.isnan(self.written.values(rates)).any(axis=0)
        return np.where(unknown, np.inf, found)

    def cost(self, rates: Array) -> Array:
        """Return the objective at rates (K,) or (K, T), infinite where it is undefined.

        A smooth objective has no slopes where it is infinite, so that it counts as undefined there.
        """
        found = self.value(self.objective, rates)
        if self.objective.smooth:
            return np.where(np.isfinite(found), found, np.inf)
        return np.nan_to_num(found, nan=np.inf)

    def best_point(self, rates: Array, room: float) -> tuple[tuple[float, float], int]:
        """Return the best of T points (K, T): its violation beyond `room`, its cost, its index.

        The points are compared by their violation, then by their cost.
        """
        missed, costs = self.missed(rates, room), self.cost(rates)
        least = np.flatnonzero(missed == missed.min())
        k = int(least[np.argmin(costs[least])])
        return (float(missed[k]), float(costs[k])), k

    @property
    def single(self) -> Fraction | None:
        """The fraction of an objective that has no other terms but a constant, if it is one."""
        aim = self.objective
        alone = aim.is_fractions and len(aim.fractions) == 1 and not aim.smooth
        return self.fractions[aim.fractions[0]] if alone else None

    @property
    def is_affine(self) -> bool:
        """Whether the objective and all constraints are linear."""
        forms = (self.objective, *self.constraints)
        return not any(each.fractions or each.curves or each.smooth for each in forms)

    @cached_property
    def is_convex(self) -> bool:
        """Whether linear programs and tangents are enough: see `hull.master`."""
        aim = self.objective
        easy = self.single is not None or not (aim.fractions or aim.smooth)
        return easy and not any(form.fractions for form in self.constraints)

    def linearized(self, rates: Array) -> RateProgram | None:
        """Return the program with the tangents at `rates` (K,) of all terms that are not convex.

        An objective that is a single fraction stays as it is. Return None if a tangent is
        undefined.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            tangents = [fraction.tangent(rates) for fraction in self.fractions]
        lines = list[LinearTerm]()

        def flat(form: ProgramForm) -> ProgramForm:
            line, curves = form.line, form.curves
            for m in form.fractions:
                line += tangents[m] * float(form.shares[m])
            for term in form.smooth:
                some = term.tangents(rates)
                if len(some) == 1:
                    line += some[0]
                else:
                    curves += (CurvedTerm(RateFunction.affine(s.vector for s in some)),)
                lines.extend(some)
            lines.append(line)
            return ProgramForm(line, 0.0 * form.shares, curves)

        aim = self.objective if self.single else flat(self.objective)
        found = replace(self, objective=aim, constraints=tuple(map(flat, self.constraints)))
        return found if all(np.isfinite(line.vector).all() for line in lines) else None

    def relaxed(self) -> RateProgram:
        """Return a convex program whose optimum is nowhere above that of this one.

        Each fraction of a constraint is replaced by the end of its range that the constraint
        prefers, and so are those of an objective with other terms. Smooth terms are left out.
        """

        def bound(form: ProgramForm) -> ProgramForm:
            ends = (form.shares[m] * np.array(self.fractions[m].range) for m in form.fractions)
            least = sum(float(each.min()) for each in ends)
            return ProgramForm(form.line + max(least, -MAX_RANGE), 0.0 * form.shares, form.curves)

        aim = self.objective if self.single else bound(self.objective)
        return replace(self, objective=aim, constraints=tuple(map(bound, self.constraints)))

    def loosened(self, by: float) -> RateProgram:
        """Return the program with constraints that must be at most `by` instead of 0."""
        loose = (replace(form, line=form.line + -by) for form in self.constraints)
        return replace(self, constraints=tuple(loose))


def _cleared(form: ProgramForm, fractions: list[Fraction]) -> ProgramForm:
    """Return a constraint on a single fraction multiplied by its denominator; others unchanged."""
    if not form.is_fractions or len(form.fractions) > 1:
        return form
    (m,) = form.fractions
    top, bottom = fractions[m].top * float(form.shares[m]), fractions[m].bottom
    return ProgramForm(top + bottom * form.line.constant, 0.0 * form.shares)


def _without_smooth_terms(
    node: Expression, index: RateIndex
) -> tuple[Expression, tuple[CurvedTerm, ...]]:
    """Return the affine and convex terms of an objective, and the others as smooth terms.

    There are no smooth terms if all others are sums of ratios.
    """
    if not nonconvex_terms(node):
        return node, ()
    easy = [t for t in ex.terms(node) if Curvature.CONVEX in curvature(t)]
    others = (pieces(term) for term in ex.terms(node) if term not in easy)
    return ex.add(*easy), tuple(CurvedTerm(RateFunction.of(x, index), x) for x in others)


def _split_form(
    node: Expression, index: RateIndex, known: list[Fraction]
) -> tuple[LinearTerm, dict[int, float], tuple[CurvedTerm, ...]]:
    """Return the linear term, the shares of `known` fractions and the convex terms of a goal.

    Fractions that are not multiples of known ones are added to `known`.
    """
    others = [term for term in ex.terms(node) if ratio_sum(term) is None]
    if unknown := [term for term in others if curvature(term) is not Curvature.CONVEX]:
        raise ValueError(f"{ex.to_text(unknown[0])} is neither convex nor a sum of ratios")
    # ratios stay together so that those with equal denominators are merged
    ratios = ratio_sum(ex.add(*(term for term in ex.terms(node) if term not in others)))
    assert ratios is not None
    line, shares = linear_term_of(ratios.affine, index), dict[int, float]()
    for ratio in ratios.ratios:
        m, share, constant = _find_fraction(_make_fraction(ratio, index), known)
        shares[m] = shares.get(m, 0.0) + share
        line += constant
    return line, shares, tuple(CurvedTerm.convex(term, index) for term in others)


def _find_fraction(fraction: Fraction, known: list[Fraction]) -> tuple[int, float, float]:
    """Return index, share and constant that express a fraction by a known one."""
    for m, other in enumerate(known):
        found = fraction.in_terms_of(other)
        if found is not None:
            return m, *found
    known.append(fraction)
    return len(known) - 1, 1.0, 0.0


def _make_fraction(ratio: RatioTerm, index: RateIndex) -> Fraction:
    top, bottom = (linear_term_of(part, index) for part in (ratio.numerator, ratio.denominator))
    return Fraction(top, bottom, ratio.range())


def linear_term_of(form: Affine, index: RateIndex) -> LinearTerm:
    """Return an affine form as a linear term."""
    slopes = np.zeros(len(index))
    for leaf, coefficient in form.coefficients.items():
        slopes[index[leaf]] = coefficient
    return LinearTerm(slopes, form.constant)


@dataclass(frozen=True)
class RatePoints:
    """Blocks of points: one point of each block is chosen at random, and the rates are their sum.

    Classifiers are points of a single block. The possible thresholds of a group form a block of
    their own, because each group adds its part to the rates.

    Attributes
    ----------
    points
        (K, T) what each point adds to the rates.
    block
        (T,) the block of each point, 0 to the number of blocks - 1, ascending.
    origin
        (K,) the rates before anything is added.
    """

    points: Array
    block: NDArray[np.intp]
    origin: Array

    @classmethod
    def classifiers(cls, rates: Array) -> RatePoints:
        """Return the points of T classifiers with rates (K, T)."""
        return cls(rates, np.zeros(rates.shape[1], dtype=np.intp), np.zeros(len(rates)))

    @classmethod
    def decisions(cls, kinds: RowKinds) -> RatePoints:
        """Return the points of all decisions on the given rows, random ones included.

        Each kind of row is a block, with a share of positive decisions.
        """
        all_yes = kinds.slopes * kinds.totals
        points = np.stack([np.zeros_like(all_yes), all_yes], axis=2).reshape(len(all_yes), -1)
        block = np.repeat(np.arange(kinds.count), 2)
        return cls(points, block, np.nan_to_num(kinds.matrix.c))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return int(self.block[-1]) + 1

    @property
    def middle(self) -> Array:
        """(K,) the rates if all points of a block have equal chances."""
        sizes = np.bincount(self.block)
        return np.asarray(self.origin + self.points @ (1 / sizes[self.block]))

    def range(self, line: LinearTerm) -> tuple[float, float]:
        """Return the smallest and largest value of a line over the hull."""
        values, starts = line.slopes @ self.points, np.flatnonzero(np.diff(self.block, prepend=-1))
        low, high = (ends.reduceat(values, starts).sum() for ends in (np.minimum, np.maximum))
        start = float(line.at(self.origin))
        return start + float(low), start + float(high)

"""The best point of a hull: linear programs, tangents, and steps to better points.

A program with affine and convex goals is solved exactly: curves are bounded from below by tangents,
which are added until none lies above its height (Kelley 1960). If the objective is a single
fraction, weights are scaled until its denominator is 1, and its numerator is minimized (Charnes and
Cooper 1962).

All other terms, such as sums and comparisons of fractions, are replaced by their tangents at a
point. The optimum of that program within a box around the point is a step; a line search towards it
finds the next point. This is sequential linear programming with a trust region (Fletcher and Sainz
de la Maza 1989). The best result of searches from several starts is returned: no small step within
the hull improves it, to first order. There may be a better point elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from ratecli.models.base import Array
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.hull.forms import (
    MAX_RANGE,
    Fraction,
    LinearTerm,
    ProgramForm,
    RatePoints,
    RateProgram,
)
from ratecli.solvers.hull.simplex import solve_linear_program

MAX_EXCESS = 5e-7
"""Largest excess at which a constraint counts as satisfied."""
MIN_DENOMINATOR_SHARE = 1e-3
"""Minimum allowed value of a denominator, relative to its maximum."""
CURVE_TOLERANCE = 1e-8
"""How far a curve may lie above its tangents, in its own units."""
MAX_TANGENT_ROUNDS = 60
SLACK = 1e-9
"""Constraints that only a point of least violation satisfies are loosened by this much."""
STARTS, SEARCHES = 16, 3
"""Number of directions whose extreme points are tried, and of the best from which to search."""
HARD_STARTS = 4
"""Number of directions, and of levels, if comparisons of ratios are constraints, which most starts
violate. In 540 random problems branch and bound found one better point, by .001.
"""
SMOOTH_FACTOR = 4
"""How many times as many starts and searches there are for smooth objectives."""
FRUGAL_STARTS, FRUGAL_SEARCHES = 8, 2
"""Maximum number of starts and of searches for one call of many."""
MAX_STEPS = 100
MAX_CORRECTIONS = 6
"""Number of programs for one step, each with tangents moved by their errors at the last optimum."""
MIN_REACH = 1e-6
"""Half the width of the smallest box, relative to the ranges of the rates."""
EXACT_REACH = 1e-8
"""The same for the box in which a point with few positive weights is searched at the end."""
LINE_POINTS, LINE_ROUNDS = 33, 4
"""Number of points on a line, and of rounds, each between the neighbours of the best point."""
SAME_VALUE, DIGITS = 1e-9, 9
"""Objectives that differ by no more than this are equal."""
FLAT_DIRECTION = 1e-9
"""Directions in which points vary by at most this part of the largest variation are ignored."""

Tangents = Sequence[tuple[int, LinearTerm]]
"""The number of a curve and one of its tangents each."""


@dataclass(frozen=True)
class HullOptimum:
    """The best point of the hull, or the one of least violation.

    Attributes
    ----------
    weights, rates
        (T,) chances, with sum 1 in each block, and (K,) rates.
    value, bound
        Its objective, and a lower bound on that of all feasible points of the hull. For a point of
        least violation, its largest constraint and a bound on that.
    prices
        (K,) slopes of the Lagrangian there: a point whose rates cost less improves it.
    multipliers
        (J,) multipliers of the constraints.
    tangents
        Tangents of the program's curves, for a program over more points.
    feasible
        Whether it satisfies the constraints.
    first_order_gap
        For a local optimum, by how much the tangents of the goals promise to improve the objective
        at another point of the hull. NaN if the bound proves that it is optimal.
    """

    weights: Array
    rates: Array
    value: float
    bound: float
    prices: Array
    multipliers: Array
    tangents: Tangents
    feasible: bool
    first_order_gap: float = np.nan

    @property
    def left(self) -> float:
        """How much the objective may still improve, to first order for a local optimum."""
        proven = np.isnan(self.first_order_gap)
        return self.value - self.bound if proven else self.first_order_gap


class Master:
    """The linear program of a convex program over some points.

    It has a column for each point, for each curve its height above a lower bound, and if `elastic`
    the largest constraint, which is then the objective. Its rows are the objective, the line that
    is 1, equal weights of all blocks, the constraints, lower bounds of denominators, hard `limits`
    (L, K + 1) that must be at most 0, given by their slopes and constants, and tangents of curves.

    Attributes
    ----------
    curves
        The convex terms of the constraints, then those of the objective.
    tangents
        Their tangents so far.
    """

    def __init__(
        self,
        program: RateProgram,
        points: RatePoints,
        tangents: Tangents = (),
        *,
        elastic: bool = False,
        limits: Array | None = None,
        floor: float = MIN_DENOMINATOR_SHARE,
    ) -> None:
        self.program, self.points, self.elastic = program, points, elastic
        aim, count, single = program.objective, len(program.constraints), program.single
        if elastic:
            aim, single = replace(aim, line=aim.line * 0.0, curves=()), None
        objective = aim.line if single is None else single.top * float(aim.shares.sum())
        self._constant = 0.0 if single is None else aim.line.constant
        floors = [f.bottom * -1.0 + floor * points.range(f.bottom)[1] for f in program.fractions]
        lines = [objective, *(form.line for form in program.constraints), *floors]
        table = np.stack([line.vector for line in lines])
        self._lines = table if limits is None else np.vstack([table, limits])
        self._one = (aim.line * 0.0 + 1.0 if single is None else single.bottom).vector
        forms = [*enumerate(program.constraints, 1), (0, aim)]
        owned = [(row, curve) for row, form in forms for curve in form.curves]
        self.curves, known = [curve for _, curve in owned], {k for k, _ in tangents}
        self.tangents = [*tangents]
        for k, curve in enumerate(self.curves):
            if k not in known:
                self.tangents += [(k, t) for t in curve.lines or [curve.tangent(points.middle)]]
        first = dict(reversed(self.tangents))
        self._least = np.array([points.range(first[k])[0] for k in range(len(self.curves))])
        # what heights and the largest constraint add to each row
        self._heights = np.zeros((len(self._lines), len(owned) + elastic))
        self._heights[[row for row, _ in owned], np.arange(len(owned))] = 1.0
        if elastic:
            self._heights[0, -1] = 1.0
            self._heights[1 : 1 + count, -1] = -1.0
        # (K + 1, T) factors of a line's slopes and constant; the first block has the origin
        self._members = 1.0 * (points.block == np.arange(points.blocks)[:, None])
        head = self._members[0]
        self._points = np.vstack([points.points + np.outer(points.origin, head), head])

    def solve(self) -> HullOptimum | None:
        """Return the optimum, None if no point satisfies the constraints.

        If `elastic`, it is the point of least violation; negative violations count as 0.

        Raises
        ------
        ArithmeticError
            If a linear program cannot be solved.
        """
        count, least = self._points.shape[1], self._least
        balance = self._members[1:] - self._members[0]
        for _ in range(MAX_TANGENT_ROUNDS):
            lines, heights = self._rows()
            table = np.hstack([lines @ self._points, heights])
            equal = np.pad(balance, ((0, 0), (0, heights.shape[1])))
            table = np.vstack([table[:2], equal, table[2:]])
            found = solve_linear_program(table, 1 + len(balance))
            if found is None:
                return None
            scale = float(self._members[0] @ found.x[:count])
            weights = found.x[:count] / scale
            rates = self.points.points @ weights + self.points.origin
            high = least + found.x[count : count + len(least)] / scale + CURVE_TOLERANCE
            tangents = [(k, curve.tangent(rates)) for k, curve in enumerate(self.curves)]
            above = [(k, t) for k, t in tangents if t.at(rates) > high[k]]
            if not above:
                break
            self.tangents += above
        assert found is not None
        duals = np.delete(found.duals, slice(1, 1 + len(balance))) * scale
        program, value = self.program, self.program.excess if self.elastic else self.program.cost
        return HullOptimum(
            weights,
            rates,
            float(value(rates)),
            float(found.duals[0]) + self._constant,
            (lines[0] * scale - duals @ lines[1:])[:-1],
            -duals[1 : 1 + len(program.constraints)],
            self.tangents,
            not self.elastic,
        )

    def _rows(self) -> tuple[Array, Array]:
        """Return the lines (R, K + 1) of the rows, and what heights add to them."""
        numbers = np.array([k for k, _ in self.tangents], dtype=np.intp)
        below = np.zeros((len(numbers), self._heights.shape[1]))
        below[np.arange(len(numbers)), numbers] = -1.0
        tangents = np.array([t.vector for _, t in self.tangents]).reshape(-1, len(self._one))
        lines, heights = np.vstack([self._lines, tangents]), np.vstack([self._heights, below])
        lines[:, -1] += heights[:, : len(self._least)] @ self._least
        return np.insert(lines, 1, self._one, axis=0), np.insert(heights, 1, 0.0, axis=0)


def best_in_hull(
    program: RateProgram,
    points: RatePoints,
    gap: float,
    tangents: Tangents = (),
    *,
    frugal: bool = False,
    near: Array | None = None,
) -> HullOptimum | None:
    """Return the best point of a hull, or the point of least violation if none is feasible.

    If the program is not convex, the point is a local optimum: the best end of several searches,
    each until a step promises to improve the objective by no more than about `gap`. One of them
    starts from the weights `near` of the first points, if given; a `frugal` call has few. None if
    the goals are undefined at all points that were tried.
    """
    if not program.is_convex:
        return _Search(program, points, gap, tangents).best(near, frugal=frugal)
    found = solution(Master(program, points, tangents))
    if found is not None:
        return found
    nearest = solution(Master(program, points, tangents, elastic=True))
    if nearest is None or nearest.value > MAX_EXCESS:
        return nearest
    loose = program.loosened(max(nearest.value, 0.0) + SLACK)
    return solution(Master(loose, points, tangents)) or nearest


def min_violation(program: RateProgram, kinds: RowKinds) -> tuple[float, Array | None]:
    """Return a lower bound of the largest constraint under any decisions on the rows.

    Above 0, it proves that no decisions satisfy all constraints. It is the least possible value if
    the constraints are convex. Denominators may be 0: ratios have any value there.

    Also return the rates (K,) of the decisions with the smallest violation found, if any.
    """
    points = RatePoints.decisions(kinds)
    found = solution(Master(program.relaxed(), points, elastic=True, floor=0.0))
    if found is None:
        return 0.0, None
    search = _Search(program, points, CURVE_TOLERANCE, ())
    if search.is_hard:
        return found.bound, search.descend(search.at(found.weights, elastic=True)).rates
    return found.bound, found.rates


def fraction_range(fraction: Fraction, points: RatePoints) -> tuple[float, float]:
    """Return the smallest and largest value of a fraction over the hull, or bounds on them.

    With a single block, the fraction of a mixture lies between those of its points; with several
    blocks, numerator and denominator are bounded separately.
    """
    low, high = max(fraction.range[0], -MAX_RANGE), min(fraction.range[1], MAX_RANGE)
    if points.blocks == 1:
        each = fraction.at(points.points + points.origin[:, None])
    else:
        top, bottom = points.range(fraction.top), points.range(fraction.bottom)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.divide.outer(top, bottom).ravel()
    each = each[~np.isnan(each)]
    return max(low, float(each.min(initial=high))), min(high, float(each.max(initial=low)))


def solution(master: Master) -> HullOptimum | None:
    try:
        return master.solve()
    except ArithmeticError:
        return None


class _Search:
    """Searches for local optima of a program that is not convex.

    A point whose `feasible` is false is compared with others by its largest constraint.

    Attributes
    ----------
    boxed
        The unit vector (K,) and the range of each rate that varies and that occurs in terms which
        are replaced by their tangents.
    is_hard
        Whether a constraint is not convex.
    bound
        A lower bound on the objective, or on the violation if that cannot be 0.
    """

    def __init__(
        self, program: RateProgram, points: RatePoints, gap: float, tangents: Tangents
    ) -> None:
        self.program, self.points, self.gap, self.tangents = program, points, gap, [*tangents]
        self.is_hard = any(form.fractions for form in program.constraints)
        self.bound = -np.inf
        used = np.zeros(len(points.origin), dtype=bool)
        smooth = replace(program.objective, curves=()).leaves()
        used[[program.index[leaf] for leaf in smooth]] = True
        for fraction in program.fractions:
            used |= (fraction.top.slopes != 0) | (fraction.bottom.slopes != 0)
        units = np.eye(len(used))[used]
        ranges = [points.range(LinearTerm(unit, 0.0)) for unit in units]
        self.boxed = [
            (unit, high - low)
            for unit, (low, high) in zip(units, ranges, strict=True)
            if high > low
        ]

    def best(self, near: Array | None, *, frugal: bool) -> HullOptimum | None:
        """Return the best end of all searches, one of them from the weights `near`."""
        count, most = HARD_STARTS if self.is_hard else STARTS, SEARCHES
        smooth = bool(self.program.objective.smooth)
        if smooth:
            count, most = SMOOTH_FACTOR * count, SMOOTH_FACTOR * most
        if frugal:
            count, most = min(count, FRUGAL_STARTS), min(most, FRUGAL_SEARCHES)
        starts = dict[tuple[float, float], HullOptimum]()
        for weights in self._starts(near, count):
            point = self.at(weights, elastic=True)
            key = max(point.value, MAX_EXCESS), float(self.program.cost(point.rates))
            starts[tuple(np.round(key, DIGITS))] = point
        found = list[HullOptimum]()
        for key in sorted(starts):
            found.append(self._satisfying(starts[key]))
            if sum(each.feasible for each in found) == most and not smooth:
                break
        known = [each for each in found if each.feasible] or found
        defined = sorted((e for e in known if e.value < np.inf), key=attrgetter("value"))
        if not defined:
            return known[0] if known and known[0].feasible else None
        ends = [self.descend(each) for each in defined[:most]]
        return self._priced(min(ends, key=attrgetter("value")))

    def _starts(self, near: Array | None, count: int) -> list[Array]:
        """Return weights of points that satisfy the relaxed constraints, if there are any."""
        relaxed, starts = self.program.relaxed(), list[Array]()
        slopes = self._directions(count)
        aims = [self._line(each) for each in (slopes[:count] if self.is_hard else slopes)]
        if not self.program.objective.smooth:
            aims.insert(0, relaxed.objective)
        for aim in aims:
            found = self._solved(replace(relaxed, objective=aim))
            if found is None:
                continue
            if aim is relaxed.objective:
                self.bound = found.bound
            starts.append(found.weights)
        if not starts:
            nearest = self._solved(relaxed, elastic=True)
            self.bound = -np.inf if nearest is None else nearest.bound
            return [] if nearest is None else [nearest.weights]
        if near is not None:
            starts.append(np.pad(near, (0, len(starts[0]) - len(near))))
        middle = np.mean(starts, axis=0)
        if not self.is_hard:
            return starts + [0.5 * (middle + weights) for weights in (middle, *starts)]
        return [*starts, middle, *self._alike(count)]

    def _alike(self, count: int) -> Iterator[Array]:
        """Yield weights of points at which all fractions of constraints have about equal values."""
        used = sorted({m for form in self.program.constraints for m in form.fractions})
        fractions = [self.program.fractions[m] for m in used]
        none = self._line(0.0 * self.points.origin)
        ends = np.array([fraction_range(each, self.points) for each in fractions])
        for level in np.linspace(ends.min(), ends.max(), count):
            lines = [each.top + each.bottom * -float(level) for each in fractions]
            forms = [replace(none, line=line * sign) for line in lines for sign in (1.0, -1.0)]
            program = replace(self.program, objective=none, constraints=tuple(forms))
            found = solution(Master(program, self.points, elastic=True))
            if found is not None:
                yield found.weights

    def _directions(self, count: int) -> Array:
        """Return slopes (S, K) of directions among the boxed rates, well spread.

        They are spread evenly after the points were scaled to vary equally in all directions.
        """
        if not self.boxed:
            return np.zeros((1, len(self.points.origin)))
        block = self.points.block
        members = 1.0 * (block == np.arange(self.points.blocks)[:, None])
        units = np.array([unit for unit, _ in self.boxed])
        own = units @ self.points.points
        means = own @ (members / members.sum(axis=1, keepdims=True)).T
        axes, sizes, _ = np.linalg.svd(own - means[:, block], full_matrices=False)
        rank = int((sizes > FLAT_DIRECTION * sizes.max(initial=0.0)).sum())
        if rank == 2:
            angles = 2 * np.pi * np.arange(count) / count
            spread = np.stack([np.cos(angles), np.sin(angles)])
        else:
            spread = np.random.default_rng(0).normal(size=(rank, count))
            spread = np.hstack(
                [np.eye(rank), -np.eye(rank), spread / np.linalg.norm(spread, axis=0)]
            )
        return np.asarray((axes[:, :rank] / sizes[:rank] @ spread).T @ units)

    def _line(self, slopes: Array) -> ProgramForm:
        return ProgramForm(LinearTerm(slopes, 0.0), 0.0 * self.program.objective.shares)

    def _solved(
        self, program: RateProgram, *, elastic: bool = False, limits: Array | None = None
    ) -> HullOptimum | None:
        """Return the optimum of a convex program, and keep the tangents of curves that it shares.

        These are the curves of the constraints and, if its objective has all of them, of the
        objective.
        """
        forms = (*self.program.constraints, self.program.objective)
        if elastic or len(program.objective.curves) < len(forms[-1].curves):
            forms = forms[:-1]
        shared = sum(len(form.curves) for form in forms)
        own = [each for each in self.tangents if each[0] < shared]
        found = solution(Master(program, self.points, own, elastic=elastic, limits=limits))
        if found is not None:
            rest = [each for each in self.tangents if each[0] >= shared]
            self.tangents = [each for each in found.tangents if each[0] < shared] + rest
        return found

    def at(self, weights: Array, *, elastic: bool) -> HullOptimum:
        """Return the point with some weights, its value infinite if a goal is undefined there.

        If not `elastic`, it is also infinite if a constraint is violated.
        """
        rates = np.asarray(self.points.points @ weights + self.points.origin)
        value, none = float(self._values(rates, elastic=elastic)), np.zeros(0)
        return HullOptimum(weights, rates, value, -np.inf, none, none, (), not elastic)

    def _values(self, rates: Array, *, elastic: bool) -> Array:
        """Return the values at rates (K,) or (K, T) by which points are compared."""
        excess = self.program.excess(rates)
        if elastic:
            return excess
        return np.where(excess <= MAX_EXCESS, self.program.cost(rates), np.inf)

    def _satisfying(self, point: HullOptimum) -> HullOptimum:
        """Return the point or, if it violates a constraint, a better one."""
        if point.value > MAX_EXCESS:
            point = self.descend(point)
        return point if point.value > MAX_EXCESS else self.at(point.weights, elastic=False)

    def descend(self, point: HullOptimum) -> HullOptimum:
        """Return the end of a search from a point."""
        gap = 0.5 * self.gap if point.feasible else min(0.5 * self.gap, 0.1 * MAX_EXCESS)
        reach = 1.0
        for _ in range(MAX_STEPS):
            if not point.feasible and point.value <= MAX_EXCESS:
                break
            step = self._step(point, reach)
            if step is None or point.value - step.bound <= gap * reach:
                break
            share, better = self._line_search(point, step)
            point = better if better.value < point.value else point
            reach = min(2 * reach, 1.0) if share > 0.5 else 0.5 * reach
            if reach < MIN_REACH:
                break
        return point

    def _step(self, point: HullOptimum, reach: float = 1.0) -> HullOptimum | None:
        """Return the optimum of the tangents at a point within reach, if there is one.

        If it violates a constraint because tangents are not exact, they are moved by their error
        there (second-order correction: Fletcher 1982).
        """
        elastic, limits = not point.feasible, list[Array]()
        for unit, width in self.boxed if reach < 1 else ():
            limits += [np.append(s, -float(s @ point.rates) - reach * width) for s in (unit, -unit)]
        box = np.stack(limits) if limits else None
        program, step = self.program, None
        flat = corrected = program.linearized(point.rates)
        for _ in range(0 if flat is None else MAX_CORRECTIONS):
            assert flat is not None
            assert corrected is not None
            found = self._solved(corrected, elastic=elastic, limits=box)
            if found is None:
                break
            step = replace(found, bound=found.bound if step is None else step.bound)
            if elastic or program.excess(step.rates) <= MAX_EXCESS:
                break
            errors = program.constraint_values(step.rates) - flat.constraint_values(step.rates)
            pairs = zip(flat.constraints, errors.tolist(), strict=True)
            forms = [replace(form, line=form.line + error) for form, error in pairs]
            corrected = replace(flat, constraints=tuple(forms))
        return step

    def _line_search(self, point: HullOptimum, step: HullOptimum) -> tuple[float, HullOptimum]:
        """Return the best share of the way to a step, and the point there."""
        low, high, elastic = 0.0, 1.0, not point.feasible
        for _ in range(LINE_ROUNDS):
            shares = np.linspace(low, high, LINE_POINTS)
            lines = np.outer(point.rates, 1 - shares) + np.outer(step.rates, shares)
            k = int(np.argmin(self._values(lines, elastic=elastic)))
            low, high = shares[max(k - 1, 0)], shares[min(k + 1, LINE_POINTS - 1)]
        share = float(shares[k])
        weights = (1 - share) * point.weights + share * step.weights
        return share, self.at(weights, elastic=elastic)

    def _priced(self, point: HullOptimum) -> HullOptimum:
        """Return a point with prices, and with few positive weights if that is not worse.

        Mixtures of steps have many positive weights.
        """
        basic = self._step(point, EXACT_REACH)
        if basic is not None:
            few = self.at(basic.weights, elastic=not point.feasible)
            point = few if few.value <= point.value + SAME_VALUE else point
        priced, bound = self._step(point), min(self.bound, point.value)
        if priced is None:
            multipliers = np.zeros(len(self.program.constraints))
            point = replace(point, prices=0.0 * point.rates, multipliers=multipliers)
            return replace(point, bound=bound, first_order_gap=np.inf)
        left = np.nan if point.value - bound <= self.gap else max(point.value - priced.bound, 0.0)
        return replace(
            point,
            bound=bound,
            prices=priced.prices,
            multipliers=priced.multipliers,
            tangents=self.tangents,
            first_order_gap=left,
        )

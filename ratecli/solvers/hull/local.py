"""Local optima over a hull of objectives that are smooth, but neither convex nor sums of ratios.

Each step replaces the smooth terms by their tangents at the current point and solves the resulting
linear program in a box around it. A line search towards the solution gives the next point. This is
sequential linear programming with a trust region (Fletcher and Sainz de la Maza 1989).

The best result of searches from several starts is returned. No small step within the hull improves
it, to first order. There may be a better point elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.hull.best import MAX_EXCESS, HullOptimum, Tangents, optimize_over_hull
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RatePoints, RateProgram

STARTS, SEARCHES = 64, 8
"""Number of directions whose extreme points are tried, and of the best from which to search."""
FRUGAL_STARTS, FRUGAL_SEARCHES = 8, 2
"""The same for one search of many."""
SLOW_STARTS, SLOW_SEARCHES = 24, 6
"""The same if comparisons of ratios are constraints, so that each step is a search of its own."""
MAX_STEPS = 100
MIN_REACH = 1e-6
"""Half the width of the smallest box, relative to the ranges of the rates."""
EXACT_REACH = 1e-8
"""The same for the box in which a point with few positive weights is searched at the end."""
LINE_POINTS, LINE_ROUNDS = 33, 4
"""Number of points on a line, and of rounds, each between the neighbours of the best point."""
SAME_VALUE = 1e-9
"""Objectives that differ by no more than this are equal."""
FLAT_DIRECTION = 1e-9
"""Directions in which points vary by at most this part of the largest variation are ignored."""


def best_in_hull(
    program: RateProgram,
    points: RatePoints,
    gap: float,
    tangents: Tangents = (),
    *,
    frugal: bool = False,
    near: Array | None = None,
) -> HullOptimum | None:
    """Return the best point of a hull (`optimize_over_hull`), a local one for smooth objectives.

    A local optimum has no bound, and its value is infinite if the objective is undefined.
    """
    if not program.objective.smooth:
        return optimize_over_hull(program, points, gap, tangents, frugal=frugal, near=near)
    return _LocalSearch(program, points, gap).best(near, frugal=frugal)


class _LocalSearch:
    """Searches over one hull.

    Attributes
    ----------
    boxed
        The unit vector (K,) and the range of each rate that varies and that smooth terms use.
    """

    def __init__(self, program: RateProgram, points: RatePoints, gap: float) -> None:
        self.program, self.points, self.gap = program, points, gap
        units = np.eye(len(program.index))
        used = [units[program.index[leaf]] for leaf in program.objective.smooth_leaves]
        ranges = [points.range(LinearTerm(unit, 0.0)) for unit in used]
        self.boxed = [
            (unit, high - low) for unit, (low, high) in zip(used, ranges, strict=True) if high > low
        ]

    def best(self, near: Array | None, *, frugal: bool) -> HullOptimum | None:
        """Return the best end of all searches, one of them from the weights `near`."""
        count, most = STARTS, SEARCHES
        if any(form.fractions for form in self.program.constraints):
            count, most = SLOW_STARTS, SLOW_SEARCHES
        if frugal:
            count, most = FRUGAL_STARTS, FRUGAL_SEARCHES
        extremes = list[HullOptimum]()
        for slopes in (
            self._directions(count) if self.boxed else np.zeros((1, len(self.program.index)))
        ):
            found = self._optimum(self._line(slopes), ())
            if found is None or not found.feasible:
                return found
            extremes.append(found)
        tried = [found.weights for found in extremes]
        if near is not None:
            tried.append(np.pad(near, (0, len(tried[0]) - len(near))))
        middle = np.mean(tried, axis=0)
        tried += [0.5 * (middle + weights) for weights in (middle, *tried)]
        starts = [self._at(extremes[0], weights) for weights in tried]
        distinct = {round(each.value / SAME_VALUE): each for each in starts if each.value < np.inf}
        chosen = [distinct[key] for key in sorted(distinct)[:most]] or starts[:1]
        return min(map(self._descend, chosen), key=lambda end: end.value)

    def _directions(self, count: int) -> Array:
        """Return slopes (S, K) of directions among the rates that smooth terms use, well spread.

        They are spread evenly after the points were scaled to vary equally in all directions.
        """
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

    def _line(self, slopes: Array, constant: float = 0.0) -> ProgramForm:
        return ProgramForm(LinearTerm(slopes, constant), 0.0 * self.program.objective.shares)

    def _optimum(
        self, objective: ProgramForm, limits: tuple[ProgramForm, ...]
    ) -> HullOptimum | None:
        """Return the best point for another objective, under more constraints."""
        constraints = (*self.program.constraints, *limits)
        owners = (*self.program.owners, *[""] * len(limits))
        program = replace(self.program, objective=objective, constraints=constraints, owners=owners)
        return optimize_over_hull(program, self.points, 0.1 * self.gap, frugal=True)

    def _at(self, near: HullOptimum, weights: Array) -> HullOptimum:
        """Return a point with other weights, its value infinite if it violates a constraint."""
        rates = np.asarray(self.points.points @ weights + self.points.origin)
        value = float(self._values(rates))
        return replace(near, weights=weights, rates=rates, value=value, bound=-np.inf)

    def _values(self, rates: Array) -> Array:
        """Return the objective at rates (K,) or (K, T), infinite where a constraint is violated."""
        allowed = self.program.excess(rates) <= MAX_EXCESS
        return np.where(allowed, self.program.cost(rates), np.inf)

    def _step(self, rates: Array, reach: float = 1.0) -> HullOptimum | None:
        """Return the optimum of the tangents at `rates` within reach, if there is one."""
        objective = self.program.linearized_objective(rates)
        if objective is None:
            return None
        limits = list[ProgramForm]()
        for unit, width in self.boxed if reach < 1 else ():
            for side in (unit, -unit):
                limits.append(self._line(side, -float(side @ rates) - reach * width))
        found = self._optimum(objective, tuple(limits))
        return found if found is not None and found.feasible else None

    def _descend(self, point: HullOptimum) -> HullOptimum:
        """Return the end of a search from a point that satisfies the constraints."""
        reach = 1.0
        for _ in range(MAX_STEPS):
            step = self._step(point.rates, reach)
            if step is None or point.value - step.value <= 0.5 * self.gap * reach:
                break
            share, better = self._line_search(point, step)
            point = better if better.value < point.value else point
            reach = min(2 * reach, 1.0) if share > 0.5 else 0.5 * reach
            if reach < MIN_REACH:
                break
        basic = self._step(point.rates, EXACT_REACH)  # mixes of steps have many positive weights
        if basic is not None:
            basic = self._at(basic, basic.weights)
            point = basic if basic.value <= point.value + SAME_VALUE else point
        priced = self._step(point.rates)
        if priced is None:
            return replace(point, first_order_gap=np.inf)
        left = max(point.value - priced.value, 0.0)
        return replace(
            point, prices=priced.prices, multipliers=priced.multipliers, first_order_gap=left
        )

    def _line_search(self, point: HullOptimum, step: HullOptimum) -> tuple[float, HullOptimum]:
        """Return the best share of the way to a step, and the point there."""
        low, high = 0.0, 1.0
        for _ in range(LINE_ROUNDS):
            shares = np.linspace(low, high, LINE_POINTS)
            lines = np.outer(point.rates, 1 - shares) + np.outer(step.rates, shares)
            k = int(np.argmin(self._values(lines)))
            low, high = shares[max(k - 1, 0)], shares[min(k + 1, LINE_POINTS - 1)]
        share = float(shares[k])
        return share, self._at(point, (1 - share) * point.weights + share * step.weights)

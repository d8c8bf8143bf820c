"""Algorithm 2 of Goh et al. 2016: cutting planes over the multipliers, an SVM inside.

The dual function z(v) = min_w Psi(w, v) is concave. Every w that was seen gives a linear upper
bound of it, and every minimization a value of it. The upper model's own dual is a small linear
program over the columns seen: the mixture q of least objective whose mean constraint values are at
most 0. The objective and the constraints being convex, the mean `W q` does at least as well as the
mixture: a feasible point with a known gap, without which the best column seen would be infeasible
by the square root of the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog

from ratecli.models.base import Array
from ratecli.solvers.majorize.convex import ConvexProblem

FEASIBLE = 1e-9
"""A constraint value (rate units) that counts as at most 0: rounding in sums over the rows."""

Minimize = Callable[[ConvexProblem, Array], Array]


@dataclass(frozen=True)
class Columns:
    """Points seen, W (d, S), and their objective and constraint values (m + 1, S)."""

    W: Array
    values: Array

    @classmethod
    def of(cls, problem: ConvexProblem, W: Array) -> Columns:
        return cls(W, problem.values(W))

    def with_point(self, problem: ConvexProblem, w: Array) -> Columns:
        column = w[:, None]
        values = np.hstack([self.values, problem.values(column)])
        return Columns(np.hstack([self.W, column]), values)

    def keep(self, which: Array) -> Columns:
        return Columns(self.W[:, which], self.values[:, which])


@dataclass(frozen=True)
class Master:
    """Best mixture q (S,) of the columns under prices `ceiling` for excess (m,), and its duals."""

    mixture: Array
    excess: Array
    multipliers: Array
    value: float


@dataclass(frozen=True)
class ConvexSolution:
    """A solution of Problem 3.

    `excess` (m,) is by how much the best point misses each constraint, all 0 if it is feasible;
    `gap` the objective less the best dual value seen (rate units), which is as exact as the SVM.
    """

    w: Array
    value: float
    multipliers: Array
    excess: Array
    gap: float
    minimizations: int
    columns: Columns


@dataclass(frozen=True)
class CuttingPlane:
    """How hard to try: stop at `gap`, after `cuts` SVMs, with multipliers up to `ceiling`."""

    minimize: Minimize
    gap: float
    cuts: int
    ceiling: float

    def solve(self, problem: ConvexProblem, start: Columns, guess: Array) -> ConvexSolution:
        """Minimize `problem`, knowing the columns `start` (evaluated on it) and likely multipliers.

        The box of multipliers grows fourfold while the best mixture exceeds a constraint.
        """
        columns, box = start, max(1.0, 2 * float(guess.max(initial=0.0)))
        lower, center, v = -np.inf, guess, guess
        best: ConvexSolution | None = None
        for count in range(1, self.cuts + 1):
            w = self.minimize(problem, v)
            columns = columns.with_point(problem, w)
            reached = columns.values[0, -1] + v @ columns.values[1:, -1]
            if reached > lower:
                lower, center = reached, v
            plan = master(columns, box)
            while plan.excess.max(initial=0.0) > FEASIBLE and box < self.ceiling:
                box = min(4 * box, self.ceiling)
                plan = master(columns, box)
            best = self._point(problem, columns, plan, lower, count)
            columns = columns.with_point(problem, best.w)
            if best.excess.max(initial=0.0) <= FEASIBLE and best.gap <= self.gap:
                break
            v = choose(columns, plan, lower, center, box)
        assert best is not None
        return replace(best, columns=columns.keep(_useful(columns)))

    def _point(
        self, problem: ConvexProblem, columns: Columns, plan: Master, lower: float, count: int
    ) -> ConvexSolution:
        w = columns.W @ plan.mixture
        values = problem.values(w[:, None])[:, 0]
        excess = np.maximum(values[1:], 0.0)
        excess[excess <= FEASIBLE] = 0.0
        gap = max(float(values[0] - lower), 0.0)
        return ConvexSolution(w, float(values[0]), plan.multipliers, excess, gap, count, columns)


def master(columns: Columns, ceiling: float) -> Master:
    """The linear program dual to the upper model of z(v) on the box [0, ceiling]^m."""
    objective, constraints = columns.values[0], columns.values[1:]
    m, count = constraints.shape
    if m == 0:
        return Master(
            np.eye(count)[np.argmin(objective)], np.zeros(0), np.zeros(0), objective.min()
        )
    found = linprog(
        np.concatenate([objective, np.full(m, ceiling)]),
        A_ub=np.hstack([constraints, -np.eye(m)]),
        b_ub=np.zeros(m),
        A_eq=np.concatenate([np.ones(count), np.zeros(m)])[None, :],
        b_eq=[1.0],
        method="highs-ds",
    )
    if found.status != 0:
        raise ArithmeticError(f"the master program was not solved: {found.message}")
    mixture = np.maximum(found.x[:count], 0.0)
    multipliers = np.maximum(-found.ineqlin.marginals, 0.0)
    return Master(mixture / mixture.sum(), found.x[count:], multipliers, float(found.fun))


def choose(columns: Columns, plan: Master, lower: float, center: Array, box: float) -> Array:
    """Where to cut next (CutChooser, appendix E).

    With one constraint the middle of the multipliers that can still be best, {v: h(v) >= L}
    (center of mass); with more, halfway between the best multipliers seen and the model's maximum.
    """
    if len(plan.multipliers) != 1:
        return 0.5 * (center + plan.multipliers)
    low, high = 0.0, box
    for value, slope in columns.values.T:
        # value + slope v >= lower
        if slope > 0:
            low = max(low, (lower - value) / slope)
        elif slope < 0:
            high = min(high, (lower - value) / slope)
    return np.array([max(0.5 * (low + high), 0.0)]) if low < high else plan.multipliers


def _useful(columns: Columns, most: int = 24) -> Array:
    """The newest columns: the next problem starts from them."""
    return np.arange(max(0, columns.W.shape[1] - most), columns.W.shape[1])

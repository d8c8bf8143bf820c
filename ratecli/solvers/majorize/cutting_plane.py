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
from ratecli.solvers.liblinear import Fit
from ratecli.solvers.majorize.convex import ConvexProblem

FEASIBLE = 1e-8
"""A constraint value (rate units) that counts as at most 0: rounding in sums over the rows."""

ROUGH = 0.1
"""Relative accuracy of a best compromise, when no point meets the constraints."""

MEMORY = 48
"""Newest columns kept: the next problem starts from them."""

PROGRAM = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Well below `FEASIBLE`, so that what every step may add to a violation stays below it too."""

Minimize = Callable[[ConvexProblem, Array], Fit]


def excess(values: Array) -> Array:
    """By how much constraint values miss 0, up to rounding."""
    return np.where(values > FEASIBLE, values, 0.0)


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

    def newest(self, most: int) -> Columns:
        return Columns(self.W[:, -most:], self.values[:, -most:])


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

    Attributes
    ----------
    excess
        (m,) by how much the best point misses each constraint, all 0 if it is feasible.
    gap
        The objective, with excess at the price of the box, less the best dual value seen (rate
        units): certified where the SVM is, else as exact as its tolerance.
    converged
        Whether every SVM was solved to its tolerance.
    """

    w: Array
    value: float
    multipliers: Array
    excess: Array
    gap: float
    minimizations: int
    converged: bool
    columns: Columns

    @property
    def feasible(self) -> bool:
        return not self.excess.any()


@dataclass(frozen=True)
class CuttingPlane:
    """How hard to try.

    Attributes
    ----------
    minimize
        The SVM at given multipliers.
    gap
        Where to stop.
    cuts
        Most SVMs.
    ceiling
        Largest multiplier.
    hopeless
        An objective that no point worth having has: a dual value above it ends the search.
    """

    minimize: Minimize
    gap: float
    cuts: int
    ceiling: float
    hopeless: float

    def solve(self, problem: ConvexProblem, start: Columns, guess: Array) -> ConvexSolution:
        """Minimize `problem`, knowing the columns `start` (evaluated on it) and likely multipliers.

        The box of multipliers is also the price of excess. It grows fourfold when the best
        compromise at that price is known roughly and still exceeds a constraint.
        """
        box = min(max(1.0, 2 * float(guess.max(initial=0.0))), self.ceiling)
        v = np.minimum(guess, box)
        columns, lower, center, converged = start, -np.inf, v, True
        best: ConvexSolution | None = None
        for count in range(1, self.cuts + 1):
            fit = self.minimize(problem, v)
            converged &= fit.converged
            columns = columns.with_point(problem, fit.weights)
            reached = fit.lower
            if reached is None:
                reached = float(columns.values[0, -1] + v @ columns.values[1:, -1])
            if reached > lower:
                lower, center = reached, v
            plan = master(columns, box)
            w = columns.W @ plan.mixture
            columns = columns.with_point(problem, w)
            best = _solution(columns, plan, lower, box, count=count, converged=converged)
            if best.gap <= (self.gap if best.feasible else max(self.gap, ROUGH * abs(lower))):
                if best.feasible or box >= self.ceiling or lower > self.hopeless:
                    break
                box = min(4 * box, self.ceiling)
                plan = master(columns, box)
            v = choose(columns, plan, lower, center, box)
        assert best is not None
        return replace(best, columns=columns.newest(MEMORY))


def _solution(
    columns: Columns, plan: Master, lower: float, box: float, *, count: int, converged: bool
) -> ConvexSolution:
    """The newest column, which is the mean over the mixture `plan`."""
    value, missed = float(columns.values[0, -1]), excess(columns.values[1:, -1])
    gap = max(value + box * float(missed.sum()) - lower, 0.0)
    return ConvexSolution(
        columns.W[:, -1], value, plan.multipliers, missed, gap, count, converged, columns
    )


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
        options=PROGRAM,
    )
    if found.status != 0:
        raise ArithmeticError(f"the master program was not solved: {found.message}")
    mixture = np.maximum(found.x[:count], 0.0)
    multipliers = np.maximum(-found.ineqlin.marginals, 0.0)
    return Master(mixture / mixture.sum(), found.x[count:], multipliers, float(found.fun))


def choose(columns: Columns, plan: Master, lower: float, center: Array, box: float) -> Array:
    """Where to cut next (CutChooser, appendix E).

    With one constraint the middle of the multipliers that can still be best, {v: h(v) >= L}
    (center of mass); with more, halfway between the best multipliers seen and the model's maximum:
    a value below the best one cuts that maximum off, another one is the new best. While no
    mixture is feasible the maximum itself, whose cut says whether a higher price helps.
    """
    if plan.excess.max(initial=0.0) > FEASIBLE:
        return plan.multipliers
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

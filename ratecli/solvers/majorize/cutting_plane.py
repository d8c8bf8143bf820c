"""Algorithm 2 of Goh et al. 2016: cutting planes over the multipliers, with an SVM as inner solver.

The dual function z(v) = min_w Psi(w, v) is concave. Every w evaluated gives a linear upper bound of
it, and every minimization a value of it. The dual of this upper model is a small linear program
over the columns found so far: the mixture q of least objective whose mean constraint values are at
most 0. As objective and constraints are convex, the mean `W q` is at least as good as the mixture.
It is a feasible point with a known gap, whereas the best single column would be infeasible by the
square root of the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.spatial import Delaunay, HalfspaceIntersection, QhullError

from ratecli.models.base import Array
from ratecli.solvers.design_matrix import add_ones_column
from ratecli.solvers.liblinear import fit_liblinear
from ratecli.solvers.majorize.augmented import AugmentedLagrangian, CertifiedSolution
from ratecli.solvers.majorize.convex import (
    COMPROMISE_GAP,
    FEASIBILITY_TOLERANCE,
    ConvexProblem,
    ConvexSolution,
    StoppingRule,
    constraint_excess,
)

LIBLINEAR_TOLERANCE = 1e-3
MAX_LIBLINEAR_PASSES = 20_000


class LagrangianMinimum(NamedTuple):
    """Weights (d,), a lower bound of the minimum or None, and whether the accuracy was reached."""

    w: Array
    lower: float | None
    converged: bool


SvmOptimizer = Callable[[ConvexProblem, Array, float], LagrangianMinimum]
"""(problem without constraints, initial weights, accuracy in the objective's units) -> minimum."""


def newton_svm() -> SvmOptimizer:
    """Return an SVM solver with a certified gap, warm-started from the last fit on as many rows."""
    last: CertifiedSolution | None = None

    def least(problem: ConvexProblem, start: Array, accuracy: float) -> LagrangianMinimum:
        nonlocal last
        if last is not None and len(last.slopes) != len(problem.ramp.rows):
            last = None
        goal = StoppingRule(gap=0.0, ceiling=np.inf, hopeless=np.inf, absolute=accuracy)
        last = AugmentedLagrangian(goal).solve(problem, start, last)
        return LagrangianMinimum(last.w, last.lower, last.converged)

    return least


def liblinear_svm(
    seed: int, tolerance: float = LIBLINEAR_TOLERANCE, passes: int = MAX_LIBLINEAR_PASSES
) -> SvmOptimizer:
    """Return an SVM solver by LIBLINEAR from a cold start, as in the paper.

    LIBLINEAR does not return its dual point, so nothing is certified. In rate units a row costs `c
    max(0, 1/2 - y z)`; with weights twice as large that is `c / 2 max(0, 1 - y z)`, and LIBLINEAR's
    C of the row is `2 c / lambda`.
    """

    def least(problem: ConvexProblem, _: Array, __: float) -> LagrangianMinimum:
        rows, costs = problem.ramp.rows, np.concatenate([problem.up[0], problem.down[0]])
        (used,) = np.nonzero(costs)
        if not len(used):
            return LagrangianMinimum(np.zeros(rows.width), None, converged=True)
        X, signs = rows.X[used % len(rows)], np.where(used < len(rows), -1.0, 1.0)
        X = add_ones_column(X) if rows.biased else X
        weights = costs[used] * 2 / problem.ramp.l2
        found = fit_liblinear(
            "hinge", X, signs, weights, seed=seed, tolerance=tolerance, iterations=passes
        )
        return LagrangianMinimum(found.weights / 2, None, found.converged)

    return least


MAX_EXACT_DIMENSIONS = 4
"""With more multipliers than this, the center of the largest ball inside replaces that of mass."""
MIN_INNER_RADIUS = 1e-9
"""Inner radius, in a body scaled to the unit box, below which the center is not well defined."""


class UpperModel(NamedTuple):
    """Objective and constraint values (m + 1, S) of columns, the box, L, and the maximizer of h."""

    columns: Array
    ceiling: float
    lower: float
    maximizer: Array

    def at(self, v: Array) -> float:
        """Return h(v), the smallest Lagrangian of a column."""
        return float((self.columns[0] + v @ self.columns[1:]).min())


CutChooser = Callable[[UpperModel], Array]


def model_maximizer(model: UpperModel) -> Array:
    """Return the maximizer of the model (E.1, Kelley's method)."""
    return model.maximizer


def center_of_mass(model: UpperModel) -> Array:
    """Return the center of mass of {(v, t): v in the box, L <= t <= h(v)} (E.2).

    A cut through it leaves at most 1 - 1/e of the volume (Gruenbaum 1960), whatever its slope.
    Returns the maximizer if the body has an empty interior.
    """
    A, b = _model_polytope(model)
    m, units = len(model.maximizer), np.eye(len(model.maximizer) + 1)
    ends = np.array([_minimize_linear(s * unit, A, b) for s in (1.0, -1.0) for unit in units])
    low, high = np.diag(ends[: m + 1]), np.diag(ends[m + 1 :])
    size = high - low
    if not (size > 0).all():
        return model.maximizer
    A, b = A * size, b - A @ low
    ball = np.hstack([A, np.linalg.norm(A, axis=1)[:, None]])  # center and radius
    *inside, radius = _minimize_linear(np.append(np.zeros(m + 1), -1.0), ball, b)
    if not radius >= MIN_INNER_RADIUS:
        return model.maximizer
    center = _exact_center(A, b, np.array(inside)) if m <= MAX_EXACT_DIMENSIONS else None
    center = np.array(inside) if center is None else center
    return np.asarray(np.clip(low[:-1] + size[:-1] * center[:-1], 0.0, model.ceiling))


def _model_polytope(model: UpperModel) -> tuple[Array, Array]:
    """Return A and b of the body A x <= b of x = (v, t)."""
    objective, constraints = model.columns[0], model.columns[1:]
    m = len(constraints)
    cuts = np.hstack([-constraints.T, np.ones((len(objective), 1))])
    sides = np.vstack([np.eye(m, m + 1), -np.eye(m + 1)])
    limits = np.concatenate([objective, np.full(m, model.ceiling), np.zeros(m), [-model.lower]])
    return np.vstack([cuts, sides]), limits


def _minimize_linear(slope: Array, A: Array, b: Array) -> Array:
    """Return the minimizer of `slope @ x` over A x <= b; NaN if it was not found."""
    found = linprog(slope, A_ub=A, b_ub=b, bounds=(None, None))
    return np.asarray(found.x) if found.status == 0 else np.full(len(slope), np.nan)


def _exact_center(A: Array, b: Array, inside: Array) -> Array | None:
    """Return the volume-weighted mean of simplices of the corners; None after rounding problems."""
    try:
        corners = HalfspaceIntersection(np.hstack([A, -b[:, None]]), inside).intersections
        simplices = corners[Delaunay(corners).simplices]
    except QhullError:
        return None
    volumes = np.abs(np.linalg.det(simplices[:, 1:] - simplices[:, :1]))
    total = float(volumes.sum())
    return volumes @ simplices.mean(axis=1) / total if total > 0 else None


MAX_KEPT_POINTS = 48
"""Number of newest points kept for the start of the next problem."""

LP_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Well below `FEASIBILITY_TOLERANCE`, so that the violation added by each step is too."""


class MasterSolution(NamedTuple):
    """Best mixture q (S,) of the columns, excess (m,) at `ceiling` per unit, and duals."""

    mixture: Array
    excess: Array
    multipliers: Array
    value: float


@dataclass(frozen=True)
class CutSolution(ConvexSolution):
    """Solution with the newest points (d, S), from which the next problem starts."""

    seen: Array


@dataclass(frozen=True)
class CuttingPlane:
    """Algorithm 2 with at most `cuts` SVMs at multipliers that `chooser` takes from the model."""

    goal: StoppingRule
    svm: SvmOptimizer
    chooser: CutChooser
    cuts: int

    def solve(
        self, problem: ConvexProblem, anchor: Array, before: ConvexSolution | None = None
    ) -> CutSolution:
        """Minimize `problem`.

        The box of multipliers is also the price of excess. It grows fourfold when the best
        compromise at the current price is roughly known and still violates a constraint. An SVM
        only has to be accurate enough that either the best value rises or the model falls by half
        of the distance between them: to (h(v) - L) / 2. At the maximizer this is at least half the
        gap, at a center of mass in m + 1 dimensions 1/(m + 2) of it; the required accuracy is never
        higher than half of that.
        """
        seen, v = anchor[:, None], np.zeros(problem.constraints)
        if isinstance(before, CutSolution):
            seen, v = np.hstack([before.seen, seen]), before.multipliers
        search = _CuttingPlaneRun(problem, self.goal, seen, v)
        for _ in range(self.cuts):
            least = search.tolerance / (2 * problem.constraints + 4)
            accuracy = max((search.model.at(v) - search.lower) / 2, least)
            search.cut(v, self.svm(problem.lagrangian(v), search.W[:, -1], accuracy))
            if search.accurate:
                if search.final:
                    break
                search.widen()
            # at the maximizer, while no mixture is feasible: its cut shows if a higher price helps
            plan = search.plan
            feasible = plan.excess.max(initial=0.0) <= FEASIBILITY_TOLERANCE
            v = self.chooser(search.model) if feasible and len(v) else plan.multipliers
        return search.solution()


class _CuttingPlaneRun:
    """Points W (d, S) with their values (m + 1, S), best dual value, box, and best mixture."""

    def __init__(self, problem: ConvexProblem, goal: StoppingRule, W: Array, v: Array) -> None:
        self.problem, self.goal, self.W = problem, goal, W
        self.values = np.stack([problem.values(w) for w in W.T], axis=1)
        self.lower = float(problem.flat[0] + v @ problem.flat[1:])  # hinges are at least 0
        self.box = min(max(1.0, 2 * float(v.max(initial=0.0))), goal.ceiling)
        self.plan = solve_master(self.values, self.box)
        self.svms, self.certain = 0, True

    def cut(self, v: Array, fit: LagrangianMinimum) -> None:
        """Add the column of the SVM at v, the bound it proves, and the new mixture's column."""
        self._add(fit.w)
        reached = float(self.values[0, -1] + v @ self.values[1:, -1])
        self.lower = max(self.lower, reached if fit.lower is None else fit.lower)
        self.svms, self.certain = self.svms + 1, self.certain and fit.converged
        self.plan = solve_master(self.values, self.box)
        self._add(self.W @ self.plan.mixture)

    def _add(self, w: Array) -> None:
        self.W = np.hstack([self.W, w[:, None]])
        self.values = np.hstack([self.values, self.problem.values(w)[:, None]])

    def widen(self) -> None:
        """Increase the box fourfold, up to the ceiling."""
        self.box = min(4 * self.box, self.goal.ceiling)
        self.plan = solve_master(self.values, self.box)

    @property
    def tolerance(self) -> float:
        """The required gap in the objective's units."""
        return self.goal.tolerance(self.lower, self.problem.ramp.spread)

    @property
    def model(self) -> UpperModel:
        return UpperModel(self.values, self.box, self.lower, self.plan.multipliers)

    @property
    def missed(self) -> Array:
        """(m,) excess of the newest column."""
        return constraint_excess(self.values[1:, -1])

    @property
    def gap(self) -> float:
        """The gap of the newest column, which is the mean over the best mixture."""
        worth = float(self.values[0, -1]) + self.box * float(self.missed.sum())
        return max(worth - self.lower, 0.0)

    @property
    def accurate(self) -> bool:
        """Whether the best point at this price of excess is known accurately enough."""
        rough = COMPROMISE_GAP * abs(self.lower) if self.missed.any() else 0.0
        return self.gap <= max(self.tolerance, rough)

    @property
    def final(self) -> bool:
        """Whether the box need not grow: no excess is left, or a higher price is useless."""
        dear = self.box >= self.goal.ceiling or self.lower > self.goal.hopeless
        return dear or not self.missed.any()

    def solution(self) -> CutSolution:
        converged = self.certain and self.accurate and self.final
        return CutSolution(
            self.W[:, -1].copy(),
            float(self.values[0, -1]),
            self.plan.multipliers,
            self.missed,
            self.lower,
            self.gap,
            self.svms,
            converged,
            self.W[:, -MAX_KEPT_POINTS:].copy(),
        )


def solve_master(values: Array, ceiling: float) -> MasterSolution:
    """Solve the linear program dual to the upper model of z(v) on the box [0, ceiling]^m.

    Columns have the objective and constraint values (m + 1, S).
    """
    objective, constraints = values[0], values[1:]
    m, count = constraints.shape
    if m == 0:
        return MasterSolution(
            np.eye(count)[np.argmin(objective)], np.zeros(0), np.zeros(0), objective.min()
        )
    found = linprog(
        np.concatenate([objective, np.full(m, ceiling)]),
        A_ub=np.hstack([constraints, -np.eye(m)]),
        b_ub=np.zeros(m),
        A_eq=np.concatenate([np.ones(count), np.zeros(m)])[None, :],
        b_eq=[1.0],
        method="highs-ds",
        options=LP_OPTIONS,
    )
    if found.status != 0:
        raise ArithmeticError(f"the master program was not solved: {found.message}")
    mixture = np.maximum(found.x[:count], 0.0)
    multipliers = np.maximum(-found.ineqlin.marginals, 0.0)
    return MasterSolution(mixture / mixture.sum(), found.x[count:], multipliers, float(found.fun))

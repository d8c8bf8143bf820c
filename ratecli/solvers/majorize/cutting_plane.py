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

import numpy as np
from scipy.optimize import linprog
from scipy.spatial import Delaunay, HalfspaceIntersection, QhullError

from ratecli.models.base import Array
from ratecli.solvers.liblinear import add_ones_column, fit_hinge
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


@dataclass(frozen=True)
class LagrangianMinimum:
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
        ramp, up, down = problem.ramp, problem.up[0], problem.down[0]
        pushed, pulled = np.flatnonzero(up), np.flatnonzero(down)
        chosen = np.concatenate([pushed, pulled])
        if not len(chosen):
            return LagrangianMinimum(np.zeros(ramp.rows.width), None, converged=True)
        costs = np.concatenate([up[pushed], down[pulled]])
        signs = np.repeat([-1.0, 1.0], [len(pushed), len(pulled)])
        X = ramp.rows.X[chosen]
        found = fit_hinge(
            add_ones_column(X) if ramp.rows.biased else X,
            signs,
            costs * 2 / ramp.l2,
            seed=seed,
            tolerance=tolerance,
            iterations=passes,
        )
        return LagrangianMinimum(found.weights / 2, None, found.converged)

    return least


MAX_EXACT_DIMENSIONS = 4
"""With up to so many multipliers the center of mass is computed exactly, otherwise sampled."""
SAMPLES_PER_DIMENSION = 200
"""Number of points sampled per dimension."""
MIN_INNER_RADIUS = 1e-9
"""Inner radius, in a body scaled to the unit box, below which the center is not well defined."""


@dataclass(frozen=True)
class UpperModel:
    """Objective and constraint values (m + 1, S) of columns, the box, L, and the maximizer of h."""

    columns: Array
    ceiling: float
    lower: float
    maximizer: Array


CutChooser = Callable[[UpperModel], Array]


def model_maximizer(model: UpperModel) -> Array:
    """Return the maximizer of the model (E.1, Kelley's method)."""
    return model.maximizer


def center_of_mass(model: UpperModel) -> Array:
    """Return the center of mass of {(v, t): v in the box, L <= t <= h(v)} (E.2).

    A cut through it leaves at most 1 - 1/e of the volume (Gruenbaum 1960), whatever its slope.
    Returns the maximizer if the body has an empty interior.
    """
    body = _model_polytope(model)
    low, high = _bounding_box(body, len(model.maximizer) + 1)
    size = high - low
    if not (size > 0).all():
        return model.maximizer
    A, b = body
    A, b = A * size, b - A @ low
    inside, radius = _inscribed_ball(A, b)
    if radius < MIN_INNER_RADIUS:
        return model.maximizer
    center = _exact_center(A, b, inside) if len(size) <= MAX_EXACT_DIMENSIONS + 1 else None
    if center is None:
        center = _sampled_center(A, b, inside)
    v = low[:-1] + size[:-1] * center[:-1]
    return np.clip(v, 0.0, model.ceiling)


def _model_polytope(model: UpperModel) -> tuple[Array, Array]:
    """Return A and b of the body A x <= b of x = (v, t)."""
    objective, constraints = model.columns[0], model.columns[1:]
    m = len(constraints)
    cuts = np.hstack([-constraints.T, np.ones((len(objective), 1))])
    sides = np.vstack([np.eye(m + 1)[:m], -np.eye(m + 1)])
    limits = np.concatenate([objective, np.full(m, model.ceiling), np.zeros(m), [-model.lower]])
    return np.vstack([cuts, sides]), limits


def _bounding_box(body: tuple[Array, Array], size: int) -> tuple[Array, Array]:
    """Return smallest and largest value of each coordinate; equal ones if the body is empty."""
    A, b = body
    ends = np.zeros((2, size))
    for sign, row in zip((1.0, -1.0), ends, strict=True):
        for k in range(size):
            found = linprog(sign * np.eye(size)[k], A_ub=A, b_ub=b, bounds=(None, None))
            if found.status != 0:
                return np.zeros(size), np.zeros(size)
            row[k] = found.x[k]
    return ends[0], ends[1]


def _inscribed_ball(A: Array, b: Array) -> tuple[Array, float]:
    """Return center and radius of the largest ball inside the body."""
    lengths = np.linalg.norm(A, axis=1)
    size = A.shape[1]
    found = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.hstack([A, lengths[:, None]]),
        b_ub=b,
        bounds=[(None, None)] * size + [(0, None)],
    )
    return (found.x[:size], float(found.x[size])) if found.status == 0 else (np.zeros(size), 0.0)


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


def _sampled_center(A: Array, b: Array, inside: Array) -> Array:
    """Return the mean of a reproducible random walk (hit and run; Bertsimas and Vempala 2004)."""
    rng = np.random.default_rng(0)
    size = A.shape[1]
    x, total, count = inside, np.zeros(size), SAMPLES_PER_DIMENSION * size
    for _ in range(count):
        direction = rng.normal(size=size)
        speed, room = A @ direction, np.maximum(b - A @ x, 0.0)
        with np.errstate(divide="ignore"):
            far = float((room[speed > 0] / speed[speed > 0]).min(initial=np.inf))
            back = float((room[speed < 0] / -speed[speed < 0]).min(initial=np.inf))
        x = x + rng.uniform(-back, far) * direction
        total += x
    return np.asarray(total / count)


MAX_KEPT_POINTS = 48
"""Number of newest points kept for the start of the next problem."""

LP_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Well below `FEASIBILITY_TOLERANCE`, so that the violation added by each step is too."""


@dataclass(frozen=True)
class CutColumns:
    """Points W (d, S) with their objective and constraint values (m + 1, S)."""

    W: Array
    values: Array

    @classmethod
    def of(cls, problem: ConvexProblem, W: Array) -> CutColumns:
        return cls(W, np.stack([problem.values(w) for w in W.T], axis=1))

    def with_point(self, problem: ConvexProblem, w: Array) -> CutColumns:
        """Return the columns with the point w added."""
        values = np.hstack([self.values, problem.values(w)[:, None]])
        return CutColumns(np.hstack([self.W, w[:, None]]), values)

    def model(self, v: Array) -> float:
        """Return h(v), the smallest Lagrangian of a column."""
        return float((self.values[0] + v @ self.values[1:]).min())


@dataclass(frozen=True)
class MasterSolution:
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
        columns, v = self._start(problem, anchor, before)
        lower = float(problem.flat[0] + v @ problem.flat[1:])  # hinges are at least 0
        search = _CuttingPlaneRun(problem, self.goal, columns, lower, 2 * float(v.max(initial=0.0)))
        for _ in range(self.cuts):
            least = search.asked / (2 * problem.constraints + 4)
            accuracy = max((search.columns.model(v) - search.lower) / 2, least)
            search.cut(v, self.svm(problem.lagrangian(v), search.columns.W[:, -1], accuracy))
            if search.settled:
                if search.final:
                    break
                search.widen()
            v = self._choose(search.model, search.plan)
        return search.solution()

    def _start(
        self, problem: ConvexProblem, anchor: Array, before: ConvexSolution | None
    ) -> tuple[CutColumns, Array]:
        """Return the anchor and the points of `before` as columns, and likely multipliers."""
        if not isinstance(before, CutSolution):
            return CutColumns.of(problem, anchor[:, None]), np.zeros(problem.constraints)
        seen = np.hstack([before.seen, anchor[:, None]])
        return CutColumns.of(problem, seen), before.multipliers

    def _choose(self, model: UpperModel, plan: MasterSolution) -> Array:
        """Return the next multipliers: the maximizer while no mixture is feasible.

        Its cut shows whether a higher price helps.
        """
        if plan.excess.max(initial=0.0) > FEASIBILITY_TOLERANCE or not len(plan.multipliers):
            return plan.multipliers
        return self.chooser(model)


class _CuttingPlaneRun:
    """Current columns, best dual value and box, and the best mixture of the columns."""

    def __init__(
        self,
        problem: ConvexProblem,
        goal: StoppingRule,
        columns: CutColumns,
        lower: float,
        box: float,
    ) -> None:
        self.problem, self.goal, self.columns, self.lower = problem, goal, columns, lower
        self.box = min(max(1.0, box), goal.ceiling)
        self.plan = solve_master(columns, self.box)
        self.svms, self.certain = 0, True

    def cut(self, v: Array, fit: LagrangianMinimum) -> None:
        """Add the column of the SVM at v, the bound it proves, and the new mixture's column."""
        self.columns = self.columns.with_point(self.problem, fit.w)
        reached = fit.lower
        if reached is None:
            reached = float(self.columns.values[0, -1] + v @ self.columns.values[1:, -1])
        self.lower = max(self.lower, reached)
        self.svms, self.certain = self.svms + 1, self.certain and fit.converged
        self.plan = solve_master(self.columns, self.box)
        self.columns = self.columns.with_point(self.problem, self.columns.W @ self.plan.mixture)

    def widen(self) -> None:
        """Increase the box fourfold, up to the ceiling."""
        self.box = min(4 * self.box, self.goal.ceiling)
        self.plan = solve_master(self.columns, self.box)

    @property
    def asked(self) -> float:
        """The required gap in the objective's units."""
        return self.goal.tolerance(self.lower, self.problem.ramp.spread)

    @property
    def model(self) -> UpperModel:
        return UpperModel(self.columns.values, self.box, self.lower, self.plan.multipliers)

    @property
    def missed(self) -> Array:
        """(m,) excess of the newest column."""
        return constraint_excess(self.columns.values[1:, -1])

    @property
    def gap(self) -> float:
        """The gap of the newest column, which is the mean over the best mixture."""
        worth = float(self.columns.values[0, -1]) + self.box * float(self.missed.sum())
        return max(worth - self.lower, 0.0)

    @property
    def settled(self) -> bool:
        """Whether the best point at this price of excess is known accurately enough."""
        rough = COMPROMISE_GAP * abs(self.lower) if self.missed.any() else 0.0
        return self.gap <= max(self.asked, rough)

    @property
    def final(self) -> bool:
        """Whether the box need not grow: no excess is left, or a higher price is useless."""
        dear = self.box >= self.goal.ceiling or self.lower > self.goal.hopeless
        return dear or not self.missed.any()

    def solution(self) -> CutSolution:
        W, values = self.columns.W, self.columns.values
        converged = self.certain and self.settled and self.final
        return CutSolution(
            W[:, -1].copy(),
            float(values[0, -1]),
            self.plan.multipliers,
            self.missed,
            self.lower,
            self.gap,
            self.svms,
            converged,
            W[:, -MAX_KEPT_POINTS:].copy(),
        )


def solve_master(columns: CutColumns, ceiling: float) -> MasterSolution:
    """Solve the linear program dual to the upper model of z(v) on the box [0, ceiling]^m."""
    objective, constraints = columns.values[0], columns.values[1:]
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

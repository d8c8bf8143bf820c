"""Algorithm 2 of Goh et al. 2016: cutting planes over the multipliers, with an SVM as inner solver.

The dual function z(v) = min_w Psi(w, v) is concave. Every w evaluated gives a linear upper bound of
it, and every minimization a value of it. The dual of this upper model is a small linear program
over the columns found so far: the mixture q of least objective whose mean constraint values are at
most 0. As objective and constraints are convex, the mean `W q` is at least as good as the mixture.
It is a feasible point with a known gap, whereas the best single column would be infeasible by the
square root of the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.spatial import Delaunay, HalfspaceIntersection, QhullError

from ratecli.models.base import Array
from ratecli.solvers.design_matrix import add_ones_column
from ratecli.solvers.hull.simplex import PricedMixture, best_mixture
from ratecli.solvers.liblinear import fit_liblinear
from ratecli.solvers.majorize.augmented import AugmentedLagrangian
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


def fit_svm_by_liblinear(
    problem: ConvexProblem,
    seed: int,
    tolerance: float = LIBLINEAR_TOLERANCE,
    passes: int = MAX_LIBLINEAR_PASSES,
) -> tuple[Array, bool]:
    """Return the weights of an SVM by LIBLINEAR from a cold start, as in the paper.

    The second value is whether the tolerance was reached. LIBLINEAR does not return its dual point,
    so nothing is certified. In rate units a row costs `c max(0, 1/2 - y z)`; with weights twice as
    large that is `c / 2 max(0, 1 - y z)`, and LIBLINEAR's C of the row is `2 c / lambda`.
    """
    rows, costs = problem.ramp.rows, np.concatenate(problem.bounds(np.zeros(0)))
    (used,) = np.nonzero(costs)
    if not len(used):
        return np.zeros(rows.width), True
    X, signs = rows.X[used % len(rows)], np.where(used < len(rows), -1.0, 1.0)
    X = add_ones_column(X) if rows.biased else X
    weights = costs[used] * 2 / problem.ramp.l2
    w, converged = fit_liblinear(
        "hinge", X, signs, weights, seed=seed, tolerance=tolerance, iterations=passes
    )
    return w / 2, converged


MAX_EXACT_DIMENSIONS = 4
"""With more multipliers than this, the center of the largest ball inside replaces that of mass."""
MIN_INNER_RADIUS = 1e-9
"""Inner radius, in a body scaled to the unit box, below which the center is not well defined."""


def center_of_mass(columns: Array, ceiling: float, lower: float, highest: Array) -> Array:
    """Return the center of mass of {(v, t): v in the box, lower <= t <= h(v)} (E.2).

    h(v) is the smallest Lagrangian of a column (m + 1, S), `highest` its maximizer. A cut through
    the center leaves at most 1 - 1/e of the volume (Gruenbaum 1960), whatever its slope. Returns
    the maximizer if the body has an empty interior.
    """
    m, height = len(highest), _model_value(columns, highest) - lower
    if height <= 0:
        return highest
    # A x <= b for x = (v / ceiling, (t - lower) / height)
    cuts = np.insert(-ceiling * columns[1:].T, m, height, axis=1)
    A = np.vstack([cuts, np.eye(m, m + 1), -np.eye(m + 1)])
    b = np.concatenate([columns[0] - lower, np.ones(m), np.zeros(m + 1)])
    ball = np.hstack([A, np.linalg.norm(A, axis=1)[:, None]])  # center and radius
    found = linprog(-np.eye(m + 2)[-1], A_ub=ball, b_ub=b, bounds=(None, None))
    if found.status != 0 or found.x[-1] < MIN_INNER_RADIUS:
        return highest
    center = found.x[:-1]
    if m <= MAX_EXACT_DIMENSIONS:
        center = _exact_center(A, b, center)
    return np.asarray(np.clip(ceiling * center[:-1], 0.0, ceiling))


def _exact_center(A: Array, b: Array, inside: Array) -> Array:
    """Return the volume-weighted mean of simplices; `inside` after rounding problems."""
    try:
        corners = HalfspaceIntersection(np.hstack([A, -b[:, None]]), inside).intersections
        simplices = corners[Delaunay(corners).simplices]
        volumes = np.abs(np.linalg.det(simplices[:, 1:] - simplices[:, :1]))
        return np.average(simplices.mean(axis=1), axis=0, weights=volumes)
    except (QhullError, ZeroDivisionError):
        return inside


def _model_value(columns: Array, v: Array) -> float:
    """Return the smallest Lagrangian at v of columns (m + 1, S)."""
    return float((columns[0] + v @ columns[1:]).min())


MAX_KEPT_POINTS = 48
"""Number of newest points kept for the start of the next problem."""


@dataclass(frozen=True)
class CuttingPlane:
    """Algorithm 2 with at most `cuts` SVMs.

    Their multipliers are the model's center of mass if `centered`, else its maximizer (E.1,
    Kelley's method). SVMs have a certified gap, or with a `seed` are those of LIBLINEAR.
    """

    stopping: StoppingRule
    centered: bool
    cuts: int
    seed: int | None = None

    def solve(
        self, problem: ConvexProblem, anchor: Array, before: ConvexSolution | None = None
    ) -> ConvexSolution:
        """Minimize `problem`.

        The box of multipliers is also the price of excess. It grows fourfold when the best
        compromise at the current price is roughly known and still violates a constraint. An SVM
        only has to be accurate enough that either the best value rises or the model falls by half
        of the distance between them: to (h(v) - L) / 2. At the maximizer this is at least half the
        gap, at a center of mass in m + 1 dimensions 1/(m + 2) of it; the required accuracy is never
        higher than half of that.
        """
        stopping, m, count, certain = self.stopping, problem.constraints, 0, True
        W, v, svm = anchor[:, None], np.zeros(m), None
        if before is not None:
            seen, svm = before.state
            W, v = np.column_stack([seen, anchor]), before.multipliers
        columns = np.stack([problem.values(w) for w in W.T], axis=1)
        lower = float(problem.flat[0] + v @ problem.flat[1:])  # hinges are at least 0
        box = min(max(1.0, 2 * float(v.max(initial=0.0))), stopping.ceiling)
        while True:
            tolerance = stopping.tolerance(lower, problem.ramp.spread)
            accuracy = max((_model_value(columns, v) - lower) / 2, tolerance / (2 * m + 4))
            if self.seed is None:
                exact = AugmentedLagrangian(StoppingRule(gap=0.0, absolute=accuracy))
                svm = exact.solve(problem.lagrangian(v), W[:, -1], svm)
                w, bound, converged = svm.w, svm.lower, svm.converged
                column = problem.values(w)
            else:
                w, converged = fit_svm_by_liblinear(problem.lagrangian(v), self.seed)
                column = problem.values(w)
                bound = float(column[0] + v @ column[1:])
            lower, count, certain = max(lower, bound), count + 1, certain and converged
            W, columns = np.column_stack([W, w]), np.column_stack([columns, column])
            # the mean over the best mixture is the newest point
            plan = solve_master(columns, box)
            W = np.column_stack([W, W @ plan.weights])
            columns = np.column_stack([columns, problem.values(W[:, -1])])
            missed = constraint_excess(columns[1:, -1])
            gap = max(float(columns[0, -1]) + box * float(missed.sum()) - lower, 0.0)
            rough = COMPROMISE_GAP * abs(lower) if missed.any() else 0.0
            accurate = gap <= max(stopping.tolerance(lower, problem.ramp.spread), rough)
            final = box >= stopping.ceiling or lower > stopping.hopeless or not missed.any()
            if count == self.cuts or (accurate and final):
                break
            if accurate:
                box = min(4 * box, stopping.ceiling)
                plan = solve_master(columns, box)
            # at the maximizer, while no mixture is feasible: its cut shows if a higher price helps
            v = plan.multipliers
            if self.centered and m and plan.excess.max() <= FEASIBILITY_TOLERANCE:
                v = center_of_mass(columns, box, lower, v)
        converged = certain and accurate and final
        best, state = (W[:, -1], float(columns[0, -1])), (W[:, -MAX_KEPT_POINTS:], svm)
        return ConvexSolution(*best, plan.multipliers, missed, lower, gap, count, converged, state)


def solve_master(columns: Array, ceiling: float) -> PricedMixture:
    """Solve the linear program dual to the upper model of z(v) on the box [0, ceiling]^m.

    Columns have the objective and constraint values (m + 1, S).
    """
    m = len(columns) - 1
    return best_mixture(columns, np.vstack([np.full(m, ceiling), -np.eye(m)]))

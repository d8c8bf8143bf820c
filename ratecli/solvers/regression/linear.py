"""Linear least squares under convex quadratic constraints, with a duality gap."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.models.linear import LinearRegressor
from ratecli.rates.affine import Affine, affine
from ratecli.rates.expression import Expression, Leaf, to_text
from ratecli.rates.tangent import values
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.problem import Problem, sum_by_goal
from ratecli.solvers.seldonian.score_models import (
    MAX_DENSE_WEIGHTS,
    WhitenedCoordinates,
    label_weights,
    mean_label,
)

SLACK = 1e-9
"""By how much constraints are tightened, in their own units, so that rounding violates none."""
TOLERANCE = 1e-10
"""Accuracy of the interior point method."""
MAX_GAP = 1e-6
"""Largest duality gap of a solution of the tightened constraints, in the objective's unit."""
ELASTIC_WEIGHT = 1e-6
"""Weight of the objective beside the violation, if constraints cannot be satisfied."""
CLIPPED_ROUNDS = 10
"""Maximum number of times that constraints are tightened because estimates are clipped."""
ROUNDING = 1e-12
"""Smaller spreads of labels, relative to their mean, are rounding errors of 0."""
MIN_CURVATURE = 1e-13
"""Smaller eigenvalues, relative to the largest, are rounding errors of 0."""
INFEASIBLE = ("PrimalInfeasible", "AlmostPrimalInfeasible")


@dataclass(frozen=True)
class Quadratic:
    """`v @ matrix @ v + slope @ v + constant`, convex, of coordinates v (D,)."""

    matrix: Array
    slope: Array
    constant: float

    def __add__(self, other: Quadratic) -> Quadratic:
        constant = self.constant + other.constant
        return Quadratic(self.matrix + other.matrix, self.slope + other.slope, constant)

    def __mul__(self, factor: float) -> Quadratic:
        return Quadratic(factor * self.matrix, factor * self.slope, factor * self.constant)

    @cached_property
    def root(self) -> Array:
        """(r, D) an array F with `F.T @ F` the matrix; r is 0 if this is linear."""
        if not self.matrix.any():
            return np.zeros((0, len(self.slope)))
        curvatures, axes = np.linalg.eigh(self.matrix)
        kept = curvatures > MIN_CURVATURE * curvatures[-1]
        return np.asarray(np.sqrt(curvatures[kept])[:, None] * axes[:, kept].T)

    def at(self, v: Array) -> float:
        return float(v @ self.matrix @ v + self.slope @ v + self.constant)

    def minimum(self) -> float:
        """Return the minimum of a strictly convex function."""
        return self.constant - float(self.slope @ np.linalg.solve(self.matrix, self.slope)) / 4


@dataclass(frozen=True)
class Optimum:
    """A point v (D,), the multipliers (m,), and the status of the interior point method."""

    v: Array
    multipliers: Array
    status: str


@dataclass(frozen=True)
class QuadraticProgram:
    """Minimize the objective with each of m constraints at most 0."""

    objective: Quadratic
    constraints: Sequence[Quadratic]

    def solve(self, by: Array, elastic: Array | None = None) -> Optimum:
        """Return the optimum of constraints tightened by amounts (m,).

        With `elastic` (m,), a number t >= 0 is minimized first, and each constraint is at most its
        entry times t. Uses Clarabel (Goulart, Chen 2024).
        """
        import clarabel

        d, extra = len(self.objective.slope), int(elastic is not None)
        room = np.zeros((len(by), extra)) if elastic is None else elastic[:, None]
        rows, right, cones = [np.zeros((0, d + extra))], [np.zeros(0)], list[object]()
        for each, amount, own in zip(self.constraints, by, room, strict=True):
            line, limit, r = np.append(each.slope, -own), -each.constant - amount, len(each.root)
            if not r:
                rows.append(line[None])
                right.append(np.array([limit]))
                cones.append(clarabel.NonnegativeConeT(1))
                continue
            # with s = limit - line @ x, |F v|^2 <= s is |(s - 1, 2 F v)| <= s + 1
            squares = np.hstack([-2 * each.root, np.zeros((r, extra))])
            rows += [line[None], line[None], squares]
            right.append(np.concatenate([[limit + 1, limit - 1], np.zeros(r)]))
            cones.append(clarabel.SecondOrderConeT(r + 2))
        if extra:
            rows.append(-np.eye(d + 1)[[d]])
            right.append(np.zeros(1))
            cones.append(clarabel.NonnegativeConeT(1))
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
        weight = ELASTIC_WEIGHT if extra else 1.0
        curvature = np.zeros((d + extra, d + extra))
        curvature[:d, :d] = 2 * weight * self.objective.matrix
        linear = np.append(weight * self.objective.slope, np.ones(extra))
        parts = sparse.csc_matrix(curvature), linear, sparse.csc_matrix(np.vstack(rows))
        found = clarabel.DefaultSolver(*parts, np.concatenate(right), cones, settings).solve()
        starts = np.cumsum([0, *map(len, right[1:])])[: len(by)]
        duals = np.append(found.z, 0.0)
        conic = np.array([len(each.root) > 0 for each in self.constraints], dtype=bool)
        multipliers = np.maximum(duals[starts] + np.where(conic, duals[starts + 1], 0.0), 0.0)
        return Optimum(np.asarray(found.x)[:d], multipliers, str(found.status))

    def lower_bound(self, multipliers: Array) -> float:
        """Return the Lagrangian's minimum: a lower bound on the objective of feasible points."""
        total = self.objective
        for each, multiplier in zip(self.constraints, multipliers.tolist(), strict=True):
            total += each * multiplier
        return total.minimum()


@dataclass(frozen=True)
class LinearProblem:
    """A problem as a quadratic program of linear models.

    Labels are divided by their standard deviation. The objective and each piece of a constraint are
    divided by their values for errors of one standard deviation.

    Attributes
    ----------
    program, coordinates
        The program, and its variables as coordinates of the weights.
    spread
        The standard deviation of the labels.
    unit, units
        The unit of the objective, and those of the pieces (m,).
    """

    problem: Problem
    program: QuadraticProgram
    coordinates: WhitenedCoordinates
    spread: float
    unit: float
    units: Array

    @classmethod
    def of(cls, problem: Problem) -> LinearProblem:
        """Return the program of a problem; raise FaultError as `solve_linear` does."""
        spread, (aim, *pieces) = label_spread(problem), goal_forms(problem)
        unit, *units = (unit_of(form, spread) for form in (aim, *pieces))
        design = DesignMatrix(problem.X, "unregularized")
        label = np.nan_to_num(problem.label) / spread
        index, l2 = problem.rates.index(), problem.l2 * spread**2 / unit
        curvature = sum(
            aim.coefficients[leaf] * spread**2 / unit * problem.rates.A[[index[leaf]]].toarray()[0]
            for leaf in aim.coefficients
            if leaf.rate.of == "squared_error"
        )
        coordinates = _whitened(2 * np.asarray(curvature), design, label, l2)
        rates = {
            leaf: _rate(leaf, problem, design, label, coordinates) * _unit_of(leaf, spread)
            for leaf in dict.fromkeys(leaf for form in (aim, *pieces) for leaf in form.coefficients)
        }

        def quadratic(form: Affine, unit: float) -> Quadratic:
            zero = Quadratic(np.zeros((design.width,) * 2), np.zeros(design.width), form.constant)
            terms = (rates[leaf] * factor for leaf, factor in form.coefficients.items())
            return sum(terms, zero) * (1 / unit)

        # the curvature is 1 by choice of the coordinates, also where features leave weights open
        loss, penalties, origin = quadratic(aim, unit), design.penalties(l2), coordinates.origin
        objective = Quadratic(
            np.eye(design.width) / 2,
            loss.slope + coordinates.slopes(penalties * origin),
            loss.constant + float(penalties @ origin**2) / 2,
        )
        constraints = [quadratic(form, own) for form, own in zip(pieces, units, strict=True)]
        program = QuadraticProgram(objective, constraints)
        return cls(problem, program, coordinates, spread, unit, np.array(units, dtype=float))

    def model(self, v: Array) -> LinearRegressor:
        w = self.spread * self.coordinates.weights(v)
        assert self.problem.label_range is not None
        return LinearRegressor(w[:-1], float(w[-1]), self.problem.label_range)

    def excess(self, model: LinearRegressor) -> Array:
        """Return by how much a model violates each piece (m,), in its unit."""
        problem = self.problem
        rates, index = problem.measured(problem.decisions(model))[:, None], problem.rates.index()
        return np.array([values(each, rates, index)[0] for each in problem.pieces]) / self.units


def goal_forms(problem: Problem) -> list[Affine]:
    """Return the objective and the pieces of all constraints.

    Raises
    ------
    FaultError
        E306 if no row has a label, E308 for other rates, and for an objective without `mse`.
    """
    problem.error()  # raises E306
    forms = [_form_of(node) for node in (problem.objective.expression, *problem.pieces)]
    if not any(leaf.rate.of == "squared_error" for leaf in forms[0].coefficients):
        raise FaultError(Diagnostic("E308", "the objective has no mse, so it has no minimum"))
    return forms


def _form_of(node: Expression) -> Affine:
    form = affine(node)
    if form is None or any(leaf.rate.of == "decision" for leaf in form.coefficients):
        message = f"'{to_text(node)}' is not a sum of mse and mean_error"
        raise FaultError(Diagnostic("E308", message))
    return form


def label_spread(problem: Problem) -> float:
    """Return the standard deviation of the labels, 1 if they are equal up to rounding errors."""
    mean = mean_label(problem)
    spread = float(np.sqrt(label_weights(problem) @ (np.nan_to_num(problem.label) - mean) ** 2))
    return spread if spread > ROUNDING * abs(mean) else 1.0


def _unit_of(leaf: Leaf, spread: float) -> float:
    return spread if leaf.rate.of == "error" else spread**2


def unit_of(form: Affine, spread: float) -> float:
    """Return the unit of a form: what it is for errors of one standard deviation."""
    terms = form.coefficients.items()
    return sum(abs(factor) * _unit_of(leaf, spread) for leaf, factor in terms) or 1.0


def _whitened(
    curvatures: Array, design: DesignMatrix, label: Array, l2: float
) -> WhitenedCoordinates:
    """Return coordinates in which the objective's curvature is 1, around the least squares."""
    w = np.zeros(design.width)
    for _ in range(2):  # the second step corrects rounding errors of the first
        coordinates = WhitenedCoordinates.around(design, w, curvatures, l2)
        slope = design.pull(curvatures * (design.scores(w) - label)) + design.penalties(l2) * w
        w = coordinates.weights(-coordinates.slopes(slope))
    return replace(coordinates, origin=w)


def _rate(
    leaf: Leaf,
    problem: Problem,
    design: DesignMatrix,
    label: Array,
    coordinates: WhitenedCoordinates,
) -> Quadratic:
    """Return `mse` or `mean_error` of a group as a function of coordinates."""
    weights = problem.rates.A[[problem.rates.index()[leaf]]].toarray()[0]
    used = np.flatnonzero(weights)
    rows, weights, label = design.some(used), weights[used], label[used]
    residuals = rows.scores(coordinates.origin) - label
    if leaf.rate.of == "error":
        zero = np.zeros((design.width,) * 2)
        return Quadratic(zero, coordinates.slopes(rows.pull(weights)), float(weights @ residuals))
    slope = coordinates.slopes(rows.pull(2 * weights * residuals))
    matrix = coordinates.slopes(coordinates.slopes(rows.curvature(weights)).T)
    return Quadratic((matrix + matrix.T) / 2, slope, float(weights @ residuals**2))


def solve_linear(problem: Problem, progress: Progress) -> Solution:
    """Return the linear model of least objective that satisfies the constraints.

    Raises
    ------
    FaultError
        E306 if no row has a label, E308 if the objective has no `mse`, E501 if there are too many
        features.
    """
    begun = time.perf_counter()
    width = problem.X.shape[1]
    if width >= MAX_DENSE_WEIGHTS:
        message = f"'least_squares' takes at most {MAX_DENSE_WEIGHTS - 1} features, not {width}"
        raise FaultError(Diagnostic("E501", message))
    linear = LinearProblem.of(problem)
    program, units = linear.program, linear.units
    by = np.full(len(units), SLACK)
    found = program.solve(by)
    if found.status in INFEASIBLE:  # equalities leave no slack
        by = np.zeros(len(units))
        found = program.solve(by)
    if found.status in INFEASIBLE:
        model = linear.model(program.solve(by, units.min() / units).v)
        rates = problem.measured(problem.decisions(model))
        worst = problem.nearest_miss(rates[:, None])
        reason = f"no linear model satisfies all constraints: the best violates {worst}; "
        reason += "use a looser limit or another `model`, such as HistGradientBoostingRegressor"
        row = trace_row(1, problem.value(model), problem.worst_violation(rates), begun)
        return Solution({"estimate": model}, "infeasible", reason, trace=(row,))
    model = linear.model(found.v)
    for _ in range(CLIPPED_ROUNDS):
        missing = linear.excess(model)
        if not missing.max(initial=0.0) > 0:
            break
        tighter = by + np.maximum(missing + SLACK, 0.0)
        again = program.solve(tighter)
        if again.status in INFEASIBLE:
            break
        by, found, model = tighter, again, linear.model(again.v)
    gap = program.objective.at(found.v) - program.lower_bound(found.multipliers)
    violation = problem.violation(model)
    row = trace_row(1, problem.value(model), violation, begun, gap=linear.unit * gap)
    progress(f"objective {row['objective']:.6g}")
    multipliers = sum_by_goal(problem.piece_owners, found.multipliers * linear.unit / units)
    status, reason = "solved", ""
    if violation > MAX_EXCESS:
        worst = problem.nearest_miss(problem.measured(problem.decisions(model))[:, None])
        status = "iteration_limit"
        reason = f"clipped to the range of the label, estimates violate {worst}"
    elif not gap - found.multipliers @ by <= MAX_GAP:
        status, reason = "iteration_limit", f"a gap of {linear.unit * gap:.2g} is left"
    return Solution({"estimate": model}, status, reason, multipliers, (row,))

"""Linear least squares under convex quadratic constraints, with a duality gap."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.models.linear import LinearRegressor
from ratecli.rates.affine import Affine, affine
from ratecli.rates.expression import Expression, to_text
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
class ErrorForms:
    """The objective and the m pieces of constraints as functions of the errors (n,) of the rows.

    All are divided by their `units`: what they are for errors of one standard deviation. Form j is
    `squares[j] @ errors**2 + slopes[j] @ errors + constants[j]`.

    Attributes
    ----------
    squares, slopes
        (1 + m, n)
    constants, units
        (1 + m,)
    spread
        The standard deviation of the labels, 1 if they are equal up to rounding errors.
    """

    squares: Array
    slopes: Array
    constants: Array
    units: Array
    spread: float

    @classmethod
    def of(cls, problem: Problem) -> ErrorForms:
        """Return the forms of a problem.

        Raises
        ------
        FaultError
            E306 if no row has a label, E308 for other rates, and for an objective without `mse`.
        """
        problem.error()  # raises E306
        forms = [_form_of(node) for node in (problem.objective.expression, *problem.pieces)]
        if not any(leaf.rate.of == "squared_error" for leaf in forms[0].coefficients):
            raise FaultError(Diagnostic("E308", "the objective has no mse, so it has no minimum"))
        mean, index = mean_label(problem), problem.rates.index()
        variance = label_weights(problem) @ (np.nan_to_num(problem.label) - mean) ** 2
        spread = float(np.sqrt(variance))
        spread = spread if spread > ROUNDING * abs(mean) else 1.0
        # how much each rate counts in each form: for mse and for mean_error
        mix = np.zeros((2, len(forms), len(index)))
        for j, form in enumerate(forms):
            for leaf, factor in form.coefficients.items():
                mix[int(leaf.rate.of == "error"), j, index[leaf]] = factor
        sizes = np.abs(mix).sum(axis=2)
        units = spread**2 * sizes[0] + spread * sizes[1]
        units = np.where(units > 0, units, 1.0)
        squares, slopes = (np.asarray(each @ problem.rates.A) / units[:, None] for each in mix)
        constants = np.array([form.constant for form in forms]) / units
        return cls(squares, slopes, constants, units, spread)

    def at(self, errors: Array) -> Array:
        """Return the objective and the pieces (1 + m,) at errors (n,)."""
        return np.asarray(self.squares @ errors**2 + self.slopes @ errors + self.constants)


def _form_of(node: Expression) -> Affine:
    form = affine(node)
    if form is None or any(leaf.rate.of == "decision" for leaf in form.coefficients):
        message = f"'{to_text(node)}' is not a sum of mse and mean_error"
        raise FaultError(Diagnostic("E308", message))
    return form


@dataclass(frozen=True)
class Optimum:
    """A point v (D,), the multipliers (m,), and the status of the interior point method."""

    v: Array
    multipliers: Array
    status: str


@dataclass(frozen=True)
class QuadraticProgram:
    """Minimize the first of 1 + m convex functions of v (D,), with each other one at most 0.

    The functions are `v @ matrices[j] @ v + slopes[j] @ v + constants[j]`.

    Attributes
    ----------
    matrices, slopes, constants
        (1 + m, D, D), that of the objective of full rank, (1 + m, D) and (1 + m,).
    """

    matrices: Array
    slopes: Array
    constants: Array

    @cached_property
    def roots(self) -> list[Array]:
        """For each constraint an array F (r, D) with `F.T @ F` its matrix."""
        found = []
        for matrix in self.matrices[1:]:
            curvatures, axes = np.linalg.eigh(matrix)
            kept = curvatures > MIN_CURVATURE * curvatures[-1]
            found.append(np.sqrt(curvatures[kept])[:, None] * axes[:, kept].T)
        return found

    def solve(self, by: Array, elastic: Array | None = None) -> Optimum:
        """Return the optimum of constraints tightened by amounts (m,).

        With `elastic` (m,), a number t >= 0 is minimized first, and each constraint is at most its
        entry times t. Uses Clarabel (Goulart, Chen 2024).
        """
        import clarabel

        d, extra = self.slopes.shape[1], int(elastic is not None)
        room = np.zeros((len(by), extra)) if elastic is None else elastic[:, None]
        lines = np.hstack([self.slopes[1:], -room])
        rows, limits, cones = [np.zeros((0, d + extra))], list[float](), list[object]()
        heads = list[slice]()
        for line, limit, root in zip(lines, -self.constants[1:] - by, self.roots, strict=True):
            count = 2 if len(root) else 1  # rows with the limit, whose duals add up
            heads.append(slice(len(limits), len(limits) + count))
            rows.append(np.tile(line, (count, 1)))
            if not len(root):
                limits.append(limit)
                cones.append(clarabel.NonnegativeConeT(1))
                continue
            # with s = limit - line @ x, |F v|^2 <= s is |(s - 1, 2 F v)| <= s + 1
            rows.append(np.pad(-2 * root, ((0, 0), (0, extra))))
            limits += [limit + 1, limit - 1, *np.zeros(len(root))]
            cones.append(clarabel.SecondOrderConeT(len(root) + 2))
        if extra:
            rows.append(-np.eye(d + 1)[[d]])
            limits.append(0.0)
            cones.append(clarabel.NonnegativeConeT(1))
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
        weight = ELASTIC_WEIGHT if extra else 1.0
        curvature = np.pad(2 * weight * self.matrices[0], (0, extra))
        linear = np.append(weight * self.slopes[0], np.ones(extra))
        parts = sparse.csc_matrix(curvature), linear, sparse.csc_matrix(np.vstack(rows))
        found = clarabel.DefaultSolver(*parts, np.array(limits), cones, settings).solve()
        multipliers = np.array([max(sum(found.z[head]), 0.0) for head in heads])
        return Optimum(np.asarray(found.x)[:d], multipliers, str(found.status))

    def gap(self, found: Optimum) -> float:
        """Return the objective minus the Lagrangian's minimum, a lower bound of feasible points."""
        prices, v = np.append(1.0, found.multipliers), found.v
        matrix, slope = np.tensordot(prices, self.matrices, 1), prices @ self.slopes
        least = prices @ self.constants - slope @ np.linalg.solve(matrix, slope) / 4
        return float(v @ self.matrices[0] @ v + self.slopes[0] @ v + self.constants[0] - least)


@dataclass(frozen=True)
class LinearProblem:
    """A problem as a quadratic program of linear models.

    Labels are divided by their standard deviation.

    Attributes
    ----------
    program, coordinates
        The program, and its variables as coordinates of the weights.
    """

    problem: Problem
    forms: ErrorForms
    program: QuadraticProgram
    coordinates: WhitenedCoordinates

    @classmethod
    def of(cls, problem: Problem) -> LinearProblem:
        """Return the program of a problem; raise FaultError as `solve_linear` does."""
        forms = ErrorForms.of(problem)
        design = DesignMatrix(problem.X, "unregularized")
        label = np.nan_to_num(problem.label) / forms.spread
        l2 = problem.l2 * forms.spread**2 / forms.units[0]
        squares, lines = forms.squares * forms.spread**2, forms.slopes * forms.spread
        coordinates = _whitened(2 * squares[0], design, label, l2)
        origin, penalties = coordinates.origin, design.penalties(l2)
        errors = design.scores(origin) - label
        slopes = coordinates.slopes(design.pull((2 * squares * errors + lines).T)).T
        constants = squares @ errors**2 + lines @ errors + forms.constants
        slopes[0] += coordinates.slopes(penalties * origin)
        constants[0] += penalties @ origin**2 / 2
        # the curvature is 1 by choice of the coordinates, also where features leave weights open
        matrices = [np.eye(design.width) / 2]
        for weights in squares[1:]:
            used = np.flatnonzero(weights)
            matrix = design.some(used).curvature(weights[used])
            matrix = coordinates.slopes(coordinates.slopes(matrix).T)
            matrices.append((matrix + matrix.T) / 2)
        program = QuadraticProgram(np.stack(matrices), slopes, constants)
        return cls(problem, forms, program, coordinates)

    def model(self, v: Array) -> LinearRegressor:
        w = self.forms.spread * self.coordinates.weights(v)
        assert self.problem.label_range is not None
        return LinearRegressor(w[:-1], float(w[-1]), self.problem.label_range)

    def excess(self, model: LinearRegressor) -> Array:
        """Return by how much a model violates each piece (m,), in its unit."""
        problem = self.problem
        return self.forms.at(np.nan_to_num(problem.decisions(model) - problem.label))[1:]


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
    program, unit, units = linear.program, float(linear.forms.units[0]), linear.forms.units[1:]
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
    gap, violation = program.gap(found), problem.violation(model)
    row = trace_row(1, problem.value(model), violation, begun, gap=unit * gap)
    progress(f"objective {row['objective']:.6g}")
    multipliers = sum_by_goal(problem.piece_owners, found.multipliers * unit / units)
    status, reason = "solved", ""
    if violation > MAX_EXCESS:
        worst = problem.nearest_miss(problem.measured(problem.decisions(model))[:, None])
        status = "iteration_limit"
        reason = f"clipped to the range of the label, estimates violate {worst}"
    elif not gap - found.multipliers @ by <= MAX_GAP:
        status, reason = "iteration_limit", f"a gap of {unit * gap:.2g} is left"
    return Solution({"estimate": model}, status, reason, multipliers, (row,))

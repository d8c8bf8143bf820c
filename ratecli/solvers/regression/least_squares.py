"""Least squares under constraints: exactly for linear models, else by weighted fits of regressors.

Linear least squares under convex quadratic constraints has a duality gap.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.models.composed import MixtureClassifier, ModelRegressor
from ratecli.models.linear import LinearRegressor
from ratecli.rates.affine import Affine, affine
from ratecli.rates.expression import Expression, to_text
from ratecli.solvers.base import JudgedRows, Progress, Solution, trace_row
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.hull.simplex import best_mixture
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import LINEAR_MODEL
from ratecli.solvers.oracles.estimators import fit_named
from ratecli.solvers.oracles.unseen import Indices, UnseenScores
from ratecli.solvers.problem import Problem, mix_of, sum_by_goal
from ratecli.solvers.regression.options import LeastSquares
from ratecli.solvers.seldonian.score_models import (
    LINEAR_SQUARE,
    MAX_DENSE_WEIGHTS,
    MeanLoss,
    ScoreModel,
    WhitenedCoordinates,
    fit_unconstrained,
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
        mean = mean_label(problem)
        variance = label_weights(problem) @ (np.nan_to_num(problem.label) - mean) ** 2
        spread = float(np.sqrt(variance))
        spread = spread if spread > ROUNDING * abs(mean) else 1.0
        mix, constants = mix_of(problem.rates, forms)
        is_error = np.array([leaf.rate.of == "error" for leaf in problem.rates.leaves])
        sizes = abs(mix.toarray()) @ np.where(is_error, spread, spread**2)
        units = np.where(sizes > 0, sizes, 1.0)
        squares, slopes = (
            (mix.toarray() * own) @ problem.rates.A / units[:, None]
            for own in (~is_error, is_error)
        )
        return cls(squares, slopes, constants / units, units, spread)

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
        loss, model = MeanLoss(LINEAR_SQUARE, squares[0]), ScoreModel(label, numeric=True)
        origin, penalties = fit_unconstrained(loss, model, design, l2), design.penalties(l2)
        coordinates = WhitenedCoordinates.around(design, origin, 2 * squares[0], l2)
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
    for slack in (SLACK, 0.0):  # equalities leave none
        by = np.full(len(units), slack)
        found = program.solve(by)
        if found.status not in INFEASIBLE:
            break
    else:
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


MULTIPLIER_SUMS = (1.0, 10.0, 100.0, 1000.0)
"""Bounds on the sum of multipliers, for an objective and pieces in their own units.

The next bound is used when no further fit improves the average and it still violates a constraint.
Starting with the largest bound would take many more fits, which only reduce the multipliers.
"""


MIN_SQUARE = 0.01
"""Smallest weight of the squared error of a row whose error counts, as a share of the mean weight.
"""


@dataclass
class Reduction:
    """The regressors fitted so far, with the objective and pieces (1 + m) of each, in their units.

    The objective plus multipliers times pieces is a weighted sum of squared errors and errors. As
    `c (f - y)^2 + e (f - y)` is `c (f - y + e / 2c)^2` plus a constant, a fit to the labels `y - e
    / 2c` with weights c minimizes it (Agarwal, Dudik, Wu 2019, section 4, for squared errors).
    Without a minimum of c where only e counts (`MIN_SQUARE`), it would be unbounded from below.

    Values are those of `unseen` estimates, by regressors that are fitted in the same way.
    """

    options: LeastSquares
    problem: Problem
    rng: np.random.Generator
    unseen: UnseenScores
    models: list[ModelRegressor] = field(default_factory=list)
    estimates: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.forms = ErrorForms.of(self.problem)
        self.forms.constants[1:] += SLACK

    def fit(self, multipliers: Array) -> Array:
        """Add the regressor for multipliers (m,), and return its values (1 + m,)."""
        problem, prices = self.problem, np.append(1.0, multipliers)
        squares, errors = prices @ self.forms.squares, prices @ self.forms.slopes
        squares = np.where(errors != 0, np.maximum(squares, MIN_SQUARE * squares.mean()), squares)
        shifts = np.divide(errors, 2 * squares, out=np.zeros_like(errors), where=squares > 0)
        targets = problem.label - shifts

        def fit(rows: Indices) -> ModelRegressor:
            weights = np.zeros_like(squares)
            weights[rows] = squares[rows]
            return _fit_weighted(self.options.model, problem, targets, weights, self.rng)

        model, found = self.unseen.fit_and_score(
            fit, lambda model, rows: model.estimate(problem.X[rows])
        )
        self.models.append(model)
        self.estimates.append(found)
        self.values.append(self.forms.at(np.nan_to_num(found - problem.label)))
        return self.values[-1]

    def best_average(self, most: float) -> tuple[Array, Array, float]:
        """Return the chances (T,) of the best mixture of regressors, the multipliers, the value.

        The value is the objective plus `most` times the largest violation, which keeps the sum of
        the multipliers at or below `most`.
        """
        points = np.stack(self.values, axis=1)
        excess = np.append(most, -np.ones(len(points) - 1))[:, None]
        found = best_mixture(points, excess)
        return found.weights, found.multipliers, found.value


def _fit_weighted(
    model: Any, problem: Problem, targets: Array, weights: Array, rng: np.random.Generator
) -> ModelRegressor:
    """Fit a regressor to the targets of the rows with a positive weight; the mean weight is 1."""
    used = np.flatnonzero(weights > 0)
    scaled = weights[used] * (len(used) / weights[used].sum())
    rows = FitRows(problem.X[used], problem.layout, targets[used], scaled)
    assert problem.label_range is not None
    return ModelRegressor(fit_named(model, rows, problem.l2, rng), problem.label_range)


def fit_plain_regressor(model: Any, problem: Problem) -> ModelRegressor:
    """Fit a regressor to the labels; raise E306 if no row has one, E501 if the fit fails."""
    problem.labels()  # E306
    random = np.random.default_rng(problem.seed)
    return _fit_weighted(model, problem, problem.label, label_weights(problem), random)


def solve_least_squares(
    options: LeastSquares, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Solve the problem exactly for linear models, else by fits to weighted rows.

    Raises
    ------
    FaultError
        E308 if labels are of two classes.
    """
    if problem.label_range is None:
        message = "'least_squares' needs labels that are numbers"
        raise FaultError(Diagnostic("E308", message, "set target: number in the data set"))
    if options.model == LINEAR_MODEL:
        return solve_linear(problem, progress)
    return solve_by_fits(options, problem, rng, progress)


def solve_by_fits(
    options: LeastSquares, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Return the average of regressors with the least objective that satisfies the constraints.

    By convexity, the squared errors of the average of regressors are at most those of a random
    choice among them, whose objective and constraints the linear program of each step bounds.
    """
    begun, trace = time.perf_counter(), list[dict[str, float]]()
    bounds = list(MULTIPLIER_SUMS)
    rows = UnseenScores.of(options.scores, problem)
    reduction = Reduction(options, problem, rng, rows)
    units = reduction.forms.units
    reduction.fit(np.zeros(len(units) - 1))
    for k in range(options.iterations):
        chances, multipliers, value = reduction.best_average(bounds[0])
        average = chances @ np.array(reduction.estimates)
        values = np.append(1.0, multipliers) @ reduction.fit(multipliers)
        gap = max(value - float(values), 0.0)  # a fit need not be the best answer
        violation = problem.worst_violation(problem.measured(average))
        row = trace_row(k + 1, problem.value_of(average), violation, begun)
        trace.append(row | {"gap": gap * float(units[0])})
        progress(f"{k + 1} regressors, objective {row['objective']:.6g}")
        if gap <= options.gap:
            if row["violation"] <= MAX_EXCESS or len(bounds) == 1:
                break
            del bounds[0]
    prices = sum_by_goal(problem.piece_owners, multipliers * units[0] / units[1:])
    status, reason = "solved", ""
    if gap > options.gap:
        status = "iteration_limit"
        reason = f"after {len(trace)} steps a gap of {trace[-1]['gap']:.2g} is left"
    elif trace[-1]["violation"] > MAX_EXCESS:
        status = "no_solution_found"
        worst = problem.nearest_miss(problem.measured(average)[:, None])
        unseen = "" if rows.seen else " on rows that its models have not seen"
        reason = f"the best average of regressors violates {worst}{unseen}"
    constant = problem.value_of(np.full(len(average), mean_label(problem)))
    worse = trace[-1]["objective"] > constant
    if not rows.seen and worse and status != "no_solution_found":
        reason = (
            "on rows that its models have not seen, the best average of regressors found is worse "
            f"than the mean label: objective {trace[-1]['objective']:.4g} against {constant:.4g}"
        )
        if problem.slices:
            reason += "; features that tell the groups apart may help"
        return Solution({}, "no_solution_found", reason, prices, tuple(trace))
    variants = {"estimate": MixtureClassifier.of(reduction.models[: len(chances)], chances)}
    judged = None if rows.seen else JudgedRows(problem, average)
    return Solution(variants, status, reason, prices, tuple(trace), judged)

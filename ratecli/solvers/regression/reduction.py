"""Constrained regression with fitted regressors, by weighted fits to shifted labels."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.models.composed import MixtureClassifier, ModelRegressor
from ratecli.solvers.base import JudgedRows, Progress, Solution, trace_row
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.hull.simplex import best_mixture
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import LINEAR_MODEL
from ratecli.solvers.oracles.estimators import fit_named
from ratecli.solvers.oracles.unseen import Indices, UnseenScores
from ratecli.solvers.problem import Problem, sum_by_goal
from ratecli.solvers.regression.linear import SLACK, ErrorForms, solve_linear
from ratecli.solvers.regression.solver import LeastSquares
from ratecli.solvers.seldonian.score_models import label_weights, mean_label

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
    return solve_reduction(options, problem, rng, progress)


def solve_reduction(
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

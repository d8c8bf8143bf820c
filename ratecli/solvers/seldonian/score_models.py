"""Models with a linear score: their outputs and objectives at given scores.

It also fits the optimum without constraints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import minimize
from scipy.special import expit

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.linear import LinearRegressor, RandomizedLogistic
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.functions import Interval
from ratecli.rates.matrix import RateMatrix
from ratecli.rates.rate_function import RateFunction, Tangents
from ratecli.rates.sample import Mask
from ratecli.rates.table import Measurement
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.problem import ERROR_RATE, Problem

DESIGN_RIDGE = 1e-10
"""Curvature added to directions without any, relative to the mean."""
MAX_DENSE_WEIGHTS = 2500
"""Largest number of weights with a full curvature matrix; above it only the diagonal is used."""


@dataclass(frozen=True)
class WhitenedCoordinates:
    """`w = origin + R^-1 v` with `R' R` a curvature matrix, which is the identity in v.

    So steps in v have the same scale in all directions, whatever the scales of the features.

    Attributes
    ----------
    origin
        (D,) the weights at v = 0.
    root
        Upper triangular (D, D), or (D,) if only the diagonal is used.
    """

    origin: Array
    root: Array

    @classmethod
    def around(
        cls, design: DesignMatrix, origin: Array, rows: Array, l2: float
    ) -> WhitenedCoordinates:
        """Return coordinates that whiten curvatures (n,) in the scores plus `l2 / 2 |w|^2`.

        The bias is not penalized.
        """
        penalty = design.penalties(l2)
        if design.width > MAX_DENSE_WEIGHTS:
            diagonal = design.squares(rows) + penalty
            ridge = max(DESIGN_RIDGE * float(diagonal.mean()), 1e-30)
            return cls(origin, np.sqrt(diagonal + ridge))
        matrix = design.curvature(rows) + np.diag(penalty)
        diagonal = np.diag(matrix)
        # features of small scale have small curvatures: the ridge is relative to each one
        typical = max(float(diagonal.mean()), 1e-30)
        matrix += np.diag(DESIGN_RIDGE * diagonal + np.where(diagonal > 0, 0.0, typical))
        return cls(origin, np.asfortranarray(cholesky(matrix)))

    def weights(self, v: Array) -> Array:
        if self.root.ndim == 1:
            return np.asarray(self.origin + v / self.root)
        return np.asarray(self.origin + self._solved(v, transposed=False))

    def place(self, w: Array) -> Array:
        """Return the coordinates v (D,) of weights."""
        apart = w - self.origin
        return np.asarray(self.root * apart if self.root.ndim == 1 else self.root @ apart)

    def slopes(self, gradient: Array) -> Array:
        """Convert slopes in w, (D,) or (D, k), to slopes in v."""
        if self.root.ndim == 1:
            return np.asarray((gradient.T / self.root).T)
        return self._solved(gradient, transposed=True)

    def _solved(self, right: Array, *, transposed: bool) -> Array:
        """Solve with LAPACK directly: for few weights, SciPy's checks take ten times as long."""
        solution, _ = dtrtrs(self.root, right, trans=int(transposed))
        return np.asarray(solution).reshape(right.shape)


@dataclass(frozen=True)
class ScoreModel:
    """Linear models of labels (n,), NaN where missing: classes 0 and 1, or numbers in a range.

    A class is positive with probability sigmoid(score), which is also the estimate of the label.
    Decisions may use a steeper function, sigmoid(sharpness * score). A numeric label is estimated
    by the score, clipped to the range; there are no decisions.
    """

    label: Array
    numeric: bool
    range: Interval = (0.0, 1.0)
    sharpness: float = 1.0

    def outputs(self, scores: Array) -> ScoreOutputs:
        return ScoreOutputs(self, scores)

    def classifier(self, w: Array) -> Classifier:
        if self.numeric:
            return LinearRegressor(w[:-1], float(w[-1]), self.range)
        return RandomizedLogistic(w[:-1], float(w[-1]))


def score_model_of(problem: Problem) -> ScoreModel:
    """Return the model of labels 0 and 1, or of numbers; raise E306 if no row has a label."""
    if problem.label_range is not None:
        return ScoreModel(problem.label, numeric=True, range=problem.label_range)
    signs, _ = problem.labels()
    return ScoreModel(np.where(signs == 0, np.nan, signs > 0), numeric=False)


Weigh = Callable[[Array], Array]


@dataclass(frozen=True)
class ScoreOutputs:
    """Smooth measurements of a model on n rows at their scores, with slopes in the scores."""

    model: ScoreModel
    scores: Array

    @cached_property
    def _estimates(self) -> Array:
        if self.model.numeric:
            return np.clip(self.scores, *self.model.range)
        return np.asarray(expit(self.scores))

    @cached_property
    def _estimate_slopes(self) -> Array:
        if self.model.numeric:
            low, high = self.model.range
            return ((self.scores >= low) & (self.scores <= high)).astype(float)
        return self._estimates * (1 - self._estimates)

    @cached_property
    def _residuals(self) -> Array:
        return np.nan_to_num(self._estimates - self.model.label)

    @cached_property
    def _decisions(self) -> Array:
        return np.asarray(expit(self.model.sharpness * self.scores))

    def measured(self, of: str) -> Array:
        """Return (n,) values of a `rates.table.Measurement`; 0 on rows without a label."""
        match of:
            case "decision":
                return self._decisions
            case "error":
                return self._residuals
            case "squared_error":
                return self._residuals**2
            case "log_loss":
                return np.nan_to_num(
                    np.logaddexp(0.0, self.scores) - self.model.label * self.scores
                )
        raise KeyError(of)

    def pull(self, of: str, rows: NDArray[np.intp], design: Design, weigh: Weigh) -> Array:
        return design.pull(weigh(self.slopes(of)[rows]).T)

    def slopes(self, of: str) -> Array:
        """Return the derivatives (n,) of `measured` in the scores."""
        match of:
            case "decision":
                return self.model.sharpness * self._decisions * (1 - self._decisions)
            case "log_loss":
                return self._residuals
            case "squared_error":
                return 2 * self._residuals * self._estimate_slopes
        return self._estimate_slopes


@dataclass(frozen=True)
class DecisionOutputs:
    """Given decisions, 0 and 1 or probabilities, without slopes."""

    decisions: Array

    def measured(self, of: str) -> Array:
        known = of == "decision"
        return self.decisions if known else np.full(len(self.decisions), np.nan)

    def pull(self, of: str, rows: NDArray[np.intp], design: Design, weigh: Weigh) -> Array:  # noqa: ARG002
        return np.zeros((design.width, len(weigh(np.zeros(len(rows))))))


class Design(Protocol):
    """Features of rows: maps weights (D,) to scores, and slopes in scores to slopes in weights."""

    @property
    def X(self) -> Features: ...
    @property
    def width(self) -> int: ...
    def scores(self, w: Array) -> Array: ...
    def pull(self, slopes: Array) -> Array: ...
    def some(self, chosen: NDArray[np.intp]) -> Design: ...


class Model(Protocol):
    """A kind of model: its outputs at scores, and the classifier of weights."""

    @property
    def numeric(self) -> bool: ...
    def outputs(self, scores: Array) -> ModelOutputs: ...
    def classifier(self, w: Array) -> Classifier: ...


class ModelOutputs(Protocol):
    """Measurements of a model on n rows, and their slopes in the weights."""

    def measured(self, of: str) -> Array:
        """Return (n,) values of a `rates.table.Measurement`."""
        ...

    def pull(self, of: str, rows: NDArray[np.intp], design: Design, weigh: Weigh) -> Array:
        """Return (D, c) slopes in the weights of c weighted sums over some rows (n_g,).

        `weigh` maps slopes (n_g,) of the rows to their c terms (c, n_g), and is linear. `design`
        has the features of the rows.
        """
        ...


@dataclass(frozen=True)
class LogLossObjective:
    """Mean of log(1 + exp(-sign * score)) with weights (n,); signs are -1, 1, or 0 (no label)."""

    signs: Array
    weights: Array

    def value(self, scores: Array) -> float:
        return float(self.weights @ np.logaddexp(0.0, -self.signs * scores))

    def slopes(self, scores: Array) -> Array:
        return np.asarray(-self.signs * self.weights * expit(-self.signs * scores))

    def curvatures(self, scores: Array) -> Array:
        chances = expit(scores)
        return np.asarray(self.weights * self.signs**2 * chances * (1 - chances))


@dataclass(frozen=True)
class SquaredErrorObjective:
    """Mean of (score - label)^2 with weights (n,), before scores are clipped to the label's range.

    It is convex and an upper bound on the mean squared error of the clipped scores.
    """

    label: Array
    weights: Array

    def value(self, scores: Array) -> float:
        return float(self.weights @ (scores - self.label) ** 2)

    def slopes(self, scores: Array) -> Array:
        return np.asarray(2 * self.weights * (scores - self.label))

    def curvatures(self, scores: Array) -> Array:  # noqa: ARG002
        return 2 * self.weights


@dataclass(frozen=True)
class RateObjective:
    """Any expression over rates of a model's outputs, with slopes from its tangent."""

    expression: Expression
    rates: RateMatrix
    model: Any
    """A `Model` whose outputs have `slopes`."""

    @cached_property
    def _kinds(self) -> dict[Measurement, Mask]:
        """For each measurement, the rates (K,) that are means of it."""
        kinds = [leaf.rate.of for leaf in self.rates.leaves]
        return {of: np.array([of == other for other in kinds]) for of in dict.fromkeys(kinds)}

    def _tangent(self, outputs: ModelOutputs) -> Tangents:
        rates = self.rates.measured({of: outputs.measured(of) for of in self._kinds})
        return self._function.tangents(rates)

    @cached_property
    def _function(self) -> RateFunction:
        return RateFunction.of([self.expression], self.rates.index())

    def value(self, scores: Array) -> float:
        return float(self._tangent(self.model.outputs(scores)).value[0])

    def weights(self, outputs: ModelOutputs) -> dict[Measurement, Array]:
        """Return (n,) slopes of the expression in each kind of measurement."""
        by_rate = np.nan_to_num(self._tangent(outputs).slopes[0])
        return {of: self.rates.A.T @ np.where(own, by_rate, 0.0) for of, own in self._kinds.items()}

    def slopes(self, scores: Array) -> Array:
        outputs, total = self.model.outputs(scores), np.zeros(len(scores))
        for of, weights in self.weights(outputs).items():
            total += outputs.slopes(of) * weights
        return total


ConvexObjective = LogLossObjective | SquaredErrorObjective
"""Convex in the scores and a sum over rows, with `curvatures` (n,)."""


class ScoreObjective(Protocol):
    """A function of scores (n,), with its slopes (n,)."""

    def value(self, scores: Array) -> float: ...
    def slopes(self, scores: Array) -> Array: ...


def smooth_objective(goal: Goal, rates: RateMatrix, model: ScoreModel) -> ScoreObjective:
    """Return the function that is minimized for a goal.

    `error` is replaced by log loss, because probabilities would be driven to 0 and 1; `mse` of
    numbers by squared errors of linear scores; anything else is used as it is.
    """
    node = goal.expression
    if isinstance(node, Leaf):
        weights = np.asarray(rates.A[[rates.index()[node]]].toarray()[0], dtype=float)
        if node.rate.of == "squared_error" and model.numeric:
            return SquaredErrorObjective(np.nan_to_num(model.label), weights)
        if not model.numeric and (node.rate.name == "error" or node.rate.of == "log_loss"):
            return LogLossObjective(np.nan_to_num(2 * model.label - 1), np.abs(weights))
    return RateObjective(node, rates, model)


def plain_objective(problem: Problem, model: ScoreModel) -> ConvexObjective:
    """Return the log loss, or squared error for numbers, of all labelled rows.

    Raises E306 if no row has a label.
    """
    signs, weights = problem.labels()
    if model.numeric:
        return SquaredErrorObjective(np.nan_to_num(model.label), label_weights(problem))
    return LogLossObjective(signs, weights)


def label_weights(problem: Problem) -> Array:
    """Return the weights (n,) of labelled rows, with sum 1; 0 for other rows."""
    k = problem.rates.index()[ERROR_RATE]
    return np.asarray(problem.rates.members[[k]].toarray()[0] / problem.rates.totals[k])


def mean_label(problem: Problem) -> float:
    """Return the weighted mean of the labels."""
    return float(label_weights(problem) @ np.nan_to_num(problem.label))


MAX_FIT_STEPS, MAX_LBFGS_STEPS = 60, 2000
"""Maximum numbers of steps; on separable rows the log loss has no minimum to converge to."""
FIT_TOLERANCE = 1e-11
"""Norm of the gradient in whitened coordinates at which to stop."""


def fit_unconstrained(objective: ConvexObjective, design: DesignMatrix, l2: float) -> Array:
    """Return the weights (D,) that minimize `objective + l2 / 2 |w|^2`, the bias not penalized.

    By SciPy's Newton method in a trust region, or by L-BFGS if there are too many weights for a
    matrix.
    """
    start, nothing = np.zeros(design.width), np.zeros(design.X.shape[0])
    flat = WhitenedCoordinates.around(design, start, objective.curvatures(nothing), l2)

    def at(v: Array) -> tuple[float, Array]:
        """Return the penalized value and its gradient (D,)."""
        w = flat.weights(v)
        scores = design.scores(w)
        gradient = design.pull(objective.slopes(scores)) + design.penalties(l2) * w
        value = objective.value(scores) + l2 / 2 * float(w[:-1] @ w[:-1])
        return value, flat.slopes(gradient)

    def curvature(v: Array) -> Array:
        rows = objective.curvatures(design.scores(flat.weights(v)))
        matrix = design.curvature(rows) + np.diag(design.penalties(l2))
        return flat.slopes(flat.slopes(matrix).T)

    if design.width > MAX_DENSE_WEIGHTS:
        options: dict[str, Any] = {"maxiter": MAX_LBFGS_STEPS}
        return flat.weights(minimize(at, start, jac=True, method="L-BFGS-B", options=options).x)
    options = {"maxiter": MAX_FIT_STEPS, "gtol": FIT_TOLERANCE}
    found = minimize(at, start, jac=True, hess=curvature, method="trust-exact", options=options)
    return flat.weights(found.x)

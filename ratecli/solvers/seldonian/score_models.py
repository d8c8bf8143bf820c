"""Models with a linear score: their outputs and objectives at given scores.

It also fits the optimum without constraints.
"""

from __future__ import annotations

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
from ratecli.rates.expression import Expression, Leaf, leaves
from ratecli.rates.functions import Interval
from ratecli.rates.matrix import Measurements, RateMatrix
from ratecli.rates.rate_function import RateFunction, Tangents
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


class SmoothOutputs(Measurements, Protocol):
    """A model's outputs on n rows, with slopes in its scores."""

    def slopes(self, of: str, by: Array, rows: Rows = ...) -> Array:
        """Return the slopes (..., c) in the scores of `by.T @ self[of][rows]`; `by` are (n_g, c).

        For a linear model, these are the slopes (n_g, c) in the scores of the rows.
        """
        ...


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
    def outputs(self, scores: Array) -> SmoothOutputs: ...
    def classifier(self, w: Array) -> Classifier: ...


Rows = NDArray[np.intp] | slice
LINEAR_SQUARE = "squared error before clipping"
"""A measurement of estimates that are not clipped to the range of the label."""


@dataclass(frozen=True)
class ScoreOutputs:
    """Smooth measurements of a model on n rows at their scores; 0 on rows without a label."""

    model: ScoreModel
    scores: Array

    def __getitem__(self, of: str) -> Array:
        match of:
            case "decision":
                return self._decisions
            case "error":
                return self._residuals
            case "squared_error":
                return self._residuals**2
            case "log_loss":
                label = self.model.label
                scores = (1 - 2 * np.nan_to_num(label)) * self.scores
                return np.where(np.isnan(label), 0.0, np.logaddexp(0.0, scores))
            case str() if of == LINEAR_SQUARE:
                return self._linear_residuals**2
        raise KeyError(of)

    def slopes(self, of: str, by: Array, rows: Rows = np.s_[:]) -> Array:
        return np.asarray(by * self._derivatives(of)[rows, None])

    def _derivatives(self, of: str) -> Array:
        """Return the derivative (n,) of each row's measurement with respect to its score."""
        match of:
            case "decision":
                return self.model.sharpness * self._decisions * (1 - self._decisions)
            case "log_loss":
                return self._residuals
            case "squared_error":
                return 2 * self._residuals * self._estimate_slopes
            case str() if of == LINEAR_SQUARE:
                return 2 * self._linear_residuals
        return self._estimate_slopes

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
    def _linear_residuals(self) -> Array:
        return np.nan_to_num(self.scores - self.model.label)

    @cached_property
    def _decisions(self) -> Array:
        return np.asarray(expit(self.model.sharpness * self.scores))

    def curvatures(self, of: str) -> Array:
        """Return the second derivatives (n,) of the log loss, or of `LINEAR_SQUARE`."""
        return self._estimate_slopes if of == "log_loss" else np.full(len(self.scores), 2.0)


class DecisionOutputs(dict[str, Array]):
    """Given decisions (n,), 0 and 1 or probabilities; other measurements are NaN."""

    def __init__(self, decisions: Array) -> None:
        super().__init__(decision=decisions)

    def __missing__(self, of: str) -> Array:
        return np.full(len(self["decision"]), np.nan)


@dataclass(frozen=True)
class MeanLoss:
    """The mean of a convex loss with weights (n,): the log loss, or `LINEAR_SQUARE`.

    The latter is an upper bound on the mean squared error of the clipped scores.
    """

    of: str
    weights: Array

    def value(self, outputs: Measurements) -> float:
        return float(self.weights @ outputs[self.of])

    def slopes(self, outputs: SmoothOutputs) -> Array:
        return outputs.slopes(self.of, self.weights[:, None])[:, 0]

    def curvatures(self, outputs: ScoreOutputs) -> Array:
        """Return the second derivatives (n,) in the scores."""
        return np.asarray(self.weights * outputs.curvatures(self.of))


@dataclass(frozen=True)
class RateObjective:
    """Any expression over rates of a model's outputs, with slopes from its tangent."""

    expression: Expression
    rates: RateMatrix
    """The rates of the expression."""

    @classmethod
    def of(cls, expression: Expression, rates: RateMatrix) -> RateObjective:
        return cls(expression, rates.of_leaves(leaves(expression)))

    @cached_property
    def _function(self) -> RateFunction:
        return RateFunction.of([self.expression], self.rates.index())

    def _tangent(self, outputs: Measurements) -> Tangents:
        return self._function.tangents(self.rates.measured(outputs))

    def value(self, outputs: Measurements) -> float:
        return float(self._tangent(outputs).value[0])

    def slopes(self, outputs: SmoothOutputs) -> Array:
        by_rate = np.nan_to_num(self._tangent(outputs).slopes[0])
        kinds = [leaf.rate.of for leaf in self.rates.leaves]
        parts = list[Array]()
        for of in dict.fromkeys(kinds):
            own = np.array([of == kind for kind in kinds])
            by = self.rates.A.T @ np.where(own, by_rate, 0.0)
            parts.append(outputs.slopes(of, by[:, None])[..., 0])
        return np.asarray(np.sum(parts, axis=0))


class Objective(Protocol):
    """A function of a model's outputs, with slopes in its scores."""

    def value(self, outputs: Any) -> float: ...
    def slopes(self, outputs: Any) -> Array: ...


def smooth_objective(goal: Goal, rates: RateMatrix, model: ScoreModel) -> Objective:
    """Return the function that is minimized for a goal.

    `error` is replaced by log loss, because probabilities would be driven to 0 and 1; `mse` of
    numbers by squared errors of linear scores; anything else is used as it is.
    """
    node = goal.expression
    if isinstance(node, Leaf):
        weights = np.asarray(rates.A[[rates.index()[node]]].toarray()[0], dtype=float)
        if node.rate.of == "squared_error" and model.numeric:
            return MeanLoss(LINEAR_SQUARE, weights)
        if not model.numeric and (node.rate.name == "error" or node.rate.of == "log_loss"):
            return MeanLoss("log_loss", np.abs(weights))
    return RateObjective.of(node, rates)


def plain_objective(problem: Problem) -> MeanLoss:
    """Return the log loss, or squared error for numbers, of all labelled rows.

    Raises E306 if no row has a label.
    """
    _, weights = problem.labels()
    if problem.label_range is None:
        return MeanLoss("log_loss", weights)
    return MeanLoss(LINEAR_SQUARE, label_weights(problem))


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


def fit_unconstrained(loss: MeanLoss, model: ScoreModel, design: DesignMatrix, l2: float) -> Array:
    """Return the weights (D,) that minimize `loss + l2 / 2 |w|^2`, the bias not penalized.

    By SciPy's Newton method in a trust region, or by L-BFGS if there are too many weights for a
    matrix.
    """
    start = np.zeros(design.width)
    at_start = loss.curvatures(model.outputs(np.zeros(len(design))))
    flat = WhitenedCoordinates.around(design, start, at_start, l2)

    def at(v: Array) -> tuple[float, Array]:
        """Return the penalized value and its gradient (D,)."""
        w = flat.weights(v)
        outputs = model.outputs(design.scores(w))
        gradient = design.pull(loss.slopes(outputs)) + design.penalties(l2) * w
        value = loss.value(outputs) + l2 / 2 * float(w[:-1] @ w[:-1])
        return value, flat.slopes(gradient)

    def curvature(v: Array) -> Array:
        rows = loss.curvatures(model.outputs(design.scores(flat.weights(v))))
        matrix = design.curvature(rows) + np.diag(design.penalties(l2))
        return flat.slopes(flat.slopes(matrix).T)

    if design.width > MAX_DENSE_WEIGHTS:
        options: dict[str, Any] = {"maxiter": MAX_LBFGS_STEPS}
        return flat.weights(minimize(at, start, jac=True, method="L-BFGS-B", options=options).x)
    options = {"maxiter": MAX_FIT_STEPS, "gtol": FIT_TOLERANCE}
    found = minimize(at, start, jac=True, hess=curvature, method="trust-exact", options=options)
    return flat.weights(found.x)

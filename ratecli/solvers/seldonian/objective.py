"""The objectives that candidate selection minimizes, as functions of the scores with slopes.

It also fits the optimum without constraints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from ratecli.models.base import Array
from ratecli.rates.analysis import Goal
from ratecli.rates.expression import Expression, Leaf, leaves
from ratecli.rates.matrix import RateMatrix
from ratecli.rates.tangent import tangent
from ratecli.solvers.problem import ERROR_RATE, Problem
from ratecli.solvers.seldonian.design import MAX_DENSE_WEIGHTS, DesignMatrix, WhitenedCoordinates
from ratecli.solvers.seldonian.measures import ScoreModel


class ScoreObjective(ABC):
    """A function of scores (n,) with its slopes."""

    @abstractmethod
    def value(self, scores: Array) -> float: ...

    @abstractmethod
    def slopes(self, scores: Array) -> Array: ...


class ConvexObjective(ScoreObjective):
    """An objective that is convex in the scores and a sum over rows, with curvatures (n,)."""

    @abstractmethod
    def curvatures(self, scores: Array) -> Array: ...


@dataclass(frozen=True)
class LogLossObjective(ConvexObjective):
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
class SquaredErrorObjective(ConvexObjective):
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
class RateObjective(ScoreObjective):
    """Any expression over rates of a model's measurements, with slopes from its tangent."""

    expression: Expression
    rates: RateMatrix
    model: ScoreModel

    def value(self, scores: Array) -> float:
        found, _ = self._rates(scores)
        return float(tangent(self.expression, found, self.rates.index()).value)

    def slopes(self, scores: Array) -> Array:
        found, kinds = self._rates(scores)
        by = tangent(self.expression, found, self.rates.index()).slopes
        said = self.model.said(scores)
        total = np.zeros(len(scores))
        for kind in set(kinds) - {""}:
            own = np.array([of == kind for of in kinds])
            total += said.slopes(kind) * (self.rates.A.T @ np.where(own, np.nan_to_num(by), 0.0))
        return total

    def _rates(self, scores: Array) -> tuple[Array, list[str]]:
        """Return the rates (K,) and their kinds of measurement; 0 and "" for unused rates."""
        said = self.model.said(scores)
        spoken = set(leaves(self.expression))
        kinds = [leaf.rate.of if leaf in spoken else "" for leaf in self.rates.leaves]
        found = np.zeros(len(kinds))
        for kind in set(kinds) - {""}:
            own = np.array([of == kind for of in kinds])
            found[own] = self.rates.rates(said.measured(kind))[own]
        return found, kinds


def smooth_objective(goal: Goal, rates: RateMatrix, model: ScoreModel) -> ScoreObjective:
    """Return the function that is minimized for a goal.

    `error` is replaced by log loss, because probabilities would be driven to 0 and 1; `mse` of
    numbers by squared errors of linear scores; anything else is used as it is.
    """
    node = goal.expression
    if isinstance(node, Leaf):
        row = _row_weights(node, rates)
        if node.rate.of == "squared_error" and model.numeric:
            return SquaredErrorObjective(np.nan_to_num(model.label), row)
        if not model.numeric and (node.rate.name == "error" or node.rate.of == "log_loss"):
            return LogLossObjective(_label_signs(model.label), np.abs(row))
    return RateObjective(node, rates, model)


def plain_objective(problem: Problem, model: ScoreModel) -> ConvexObjective:
    """Return the log loss, or squared error for numbers, of all labelled rows.

    Raises E306 if no row has a label.
    """
    signs, weights = problem.labels()
    if model.numeric:
        k = problem.rates.index()[ERROR_RATE]
        own = problem.rates.members[[k]].toarray()[0] / problem.rates.totals[k]
        return SquaredErrorObjective(np.nan_to_num(model.label), own)
    return LogLossObjective(signs, weights)


def _row_weights(leaf: Leaf, rates: RateMatrix) -> Array:
    """Return the weight (n,) of each row in a rate."""
    return np.asarray(rates.A[[rates.index()[leaf]]].toarray()[0], dtype=float)


def _label_signs(label: Array) -> Array:
    return np.nan_to_num(2 * label - 1)


MAX_FIT_STEPS = 60
"""Maximum number of Newton steps; on separable rows the log loss has no minimum to converge to."""
FIT_TOLERANCE = 1e-13
"""Predicted relative decrease of the objective at which to stop."""
MAX_LBFGS_ITERATIONS = 2000
"""Iteration limit of L-BFGS, which is used if there are too many weights for a matrix."""


def fit_unconstrained(objective: ConvexObjective, design: DesignMatrix, l2: float) -> Array:
    """Return the weights (D,) that minimize `objective + l2 / 2 |w|^2`, the bias not penalized.

    Squared error takes one Newton step; log loss takes a few, each halved until the value
    decreases.
    """
    w = np.zeros(design.width)
    if design.width > MAX_DENSE_WEIGHTS:
        return _fit_by_lbfgs(objective, design, l2)
    value, gradient = _penalized_value(objective, design, l2, w)
    for _ in range(MAX_FIT_STEPS):
        curvatures = objective.curvatures(design.scores(w))
        local = WhitenedCoordinates.around(design, np.zeros_like(w), curvatures, l2)
        slope = local.slopes(gradient)
        promised = float(slope @ slope) / 2
        if not promised > FIT_TOLERANCE * max(abs(value), FIT_TOLERANCE):
            break
        step, length = local.weights(-slope), 1.0
        while length > 1e-8:
            ahead, slopes = _penalized_value(objective, design, l2, w + length * step)
            if ahead <= value - 1e-4 * length * promised:
                break
            length /= 2
        if ahead >= value:
            break
        w, value, gradient = w + length * step, ahead, slopes
    return w


def _penalized_value(
    objective: ConvexObjective, design: DesignMatrix, l2: float, w: Array
) -> tuple[float, Array]:
    scores = design.scores(w)
    gradient = design.pull(objective.slopes(scores))
    gradient[:-1] += l2 * w[:-1]
    return objective.value(scores) + l2 / 2 * float(w[:-1] @ w[:-1]), gradient


def _fit_by_lbfgs(objective: ConvexObjective, design: DesignMatrix, l2: float) -> Array:
    start = np.zeros(design.width)
    flat = WhitenedCoordinates.around(design, start, objective.curvatures(design.scores(start)), l2)

    def at(v: Array) -> tuple[float, Array]:
        value, gradient = _penalized_value(objective, design, l2, flat.weights(v))
        return value, flat.slopes(gradient)

    found = minimize(
        at, start, jac=True, method="L-BFGS-B", options={"maxiter": MAX_LBFGS_ITERATIONS}
    )
    return flat.weights(found.x)

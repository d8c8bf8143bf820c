"""Candidate selection as a numerical problem: an objective, with upper ends that must be at most 0.

Sequential quadratic programming with an exact penalty minimizes the objective under the upper ends,
or the largest upper end alone. Each step minimizes a quadratic model of
`f + price * max(0, ends)`, with the ends linearized at the current candidate and quasi-Newton
curvature of the Lagrangian (Nocedal, Wright: Numerical Optimization, 2nd ed., 18.3 to 18.6: damped
BFGS, and a second-order correction where the linearization is poor). As there are few ends, the
model is solved in its dual, over multipliers on a simplex. Whitened coordinates make the first
model exact and keep the number of steps small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratecli.certify.certificate import round_up, smallest_factor
from ratecli.models.base import Array
from ratecli.rates.sample import Mask
from ratecli.solvers.base import trace_row
from ratecli.solvers.numerics import minimize_quadratic
from ratecli.solvers.seldonian.prediction import PredictedTestResult, TestPrediction
from ratecli.solvers.seldonian.scores import Design, Model, ScoreObjective, WhitenedCoordinates


@dataclass(frozen=True)
class CandidatePoint:
    """A candidate: coordinates v, weights (D,), objective, and its predicted test."""

    v: Array
    w: Array
    scores: Array
    objective: float
    expected: PredictedTestResult

    @property
    def upper(self) -> Array:
        """(P,) upper ends; +inf where there is no bound."""
        return self.expected.upper

    @property
    def worst(self) -> float:
        return float(self.upper.max(initial=-np.inf))

    @property
    def passes(self) -> bool:
        """Whether it is expected to pass; False if a value is NaN."""
        return self.worst <= 0 and np.isfinite(self.objective)


@dataclass(frozen=True)
class CandidateSelection:
    """Minimize `objective + l2 / 2 |w|^2` subject to predicted upper ends that are at most 0."""

    design: Design
    objective: ScoreObjective
    l2: float
    prediction: TestPrediction
    model: Model
    coordinates: WhitenedCoordinates

    def at(self, v: Array) -> CandidatePoint:
        w = self.coordinates.weights(v)
        scores = self.design.scores(w)
        value = self.objective.value(scores) + self.l2 / 2 * float(w[:-1] @ w[:-1])
        expected = self.prediction.at(self.model.outputs(scores))
        return CandidatePoint(v, w, scores, value if np.isfinite(value) else np.inf, expected)

    def gradient(self, point: CandidatePoint) -> Array:
        """Return the gradient (D,) of the objective in v."""
        gradient = self.design.pull(self.objective.slopes(point.scores))
        gradient[:-1] += self.l2 * point.w[:-1]
        return self.coordinates.slopes(gradient)

    def jacobian(self, point: CandidatePoint) -> Array:
        """Return the slopes (P, D) of the upper ends in v."""
        return self.coordinates.slopes(self.prediction.slopes(point.expected).T).T


@dataclass
class CandidateTracker:
    """Records the best candidate that passes, the one with the smallest bound, and a trace."""

    began: float = field(default_factory=time.perf_counter)
    best: CandidatePoint | None = None
    nearest: CandidatePoint | None = None
    trace: list[Mapping[str, Any]] = field(default_factory=list)

    def update(self, point: CandidatePoint) -> None:
        """Keep a candidate if it improves on those so far; non-finite objectives are ignored."""
        if not np.isfinite(point.objective):
            return
        if point.passes and (self.best is None or point.objective < self.best.objective):
            self.best = point
        if self.nearest is None or point.worst < self.nearest.worst:
            self.nearest = point

    def step(self, point: CandidatePoint) -> None:
        """Record a candidate that an iteration ends with."""
        self.update(point)
        self.record(point.objective, point.worst)

    def record(self, objective: float, worst: float) -> None:
        row = trace_row(len(self.trace) + 1, objective, max(worst, 0.0), self.began)
        self.trace.append(row)


MAX_ROW_FACTOR = 1e6
"""Multiple of the number of rows beyond which more rows do not help."""
ROW_FACTOR_HALVINGS = 6


def shortfall_reason(
    prediction: TestPrediction, upper: Array, passes: Callable[[float], bool]
) -> str:
    """Explain why no candidate is expected to pass.

    `upper` (P,) are the smallest upper ends; `passes` tells whether some candidate passes with a
    multiple of the rows, candidate and test alike.
    """
    factor = smallest_factor(passes, MAX_ROW_FACTOR, ROW_FACTOR_HALVINGS)
    name, end = prediction.owners[int(np.argmax(upper))], float(upper.max())
    known = np.isfinite(end)
    bound = f"{end:.4g} > 0" if known else "infinite"
    reason = f"no model is expected to pass the test of '{name}': "
    reason += f"the smallest upper bound on its violation is {bound}"
    if factor is None:
        unknown = "there are too few training rows to tell how many would be enough"
        return f"{reason}; {'no number of rows would be enough' if known else unknown}"
    rows = round_up(factor * prediction.rows, digits=2)
    return (
        f"{reason}; about {rows:,} safety rows instead of {prediction.rows:,} would be enough, "
        "and training rows increased by the same factor"
    )


MAX_SQP_STEPS = 200
MAX_CURVATURE_PAIRS = 60
"""Number of pairs of steps and slope changes that define the curvature."""
SQP_MARGIN = 1e-8
"""Ends are required to be this far below 0, so that convergence from above ends below 0."""
MIN_DECREASE = 1e-9
"""Predicted relative decrease below which the search stops."""
MIN_SCALE = 0.1
"""Smallest scale assumed for an objective or an end."""
MAX_PRICE = 1e5
"""Largest penalty factor relative to the first one, which is the objective at the start."""
ARMIJO_SHARE = 1e-4
"""Fraction of the predicted decrease that a step must achieve (Armijo)."""
MAX_SLOW_STEPS, SLOW_DECREASE_FACTOR = 20, 10.0
"""The search stops if this many steps decrease, on average, less than this multiple of the smallest
decrease that is worth a step.
"""
MIN_STEP_SHARE = 1e-9
"""Fraction of a step below which the line search gives up."""


@dataclass
class InverseHessian:
    """Inverse of a positive definite matrix from pairs of steps and slope changes.

    Initially it is 1 / scale.
    """

    scale: float = 1.0
    pairs: list[tuple[Array, Array, float]] = field(default_factory=list)

    def inverse(self, columns: Array) -> Array:
        """Return the inverse (D, k) times each of the columns (D, k), by the L-BFGS recursion."""
        total, parts = columns.copy(), list[Array]()
        for s, y, product in reversed(self.pairs):
            parts.append(s @ total / product)
            total -= np.multiply.outer(y, parts[-1])
        total /= self.scale
        for (s, y, product), part in zip(self.pairs, reversed(parts), strict=True):
            total += np.multiply.outer(s, part - y @ total / product)
        return total

    def learn(self, step: Array, change: Array, bent: Array) -> None:
        """Add a slope change along a step, damped towards `bent`, the matrix times the step."""
        own, seen = float(step @ bent), float(step @ change)
        if not own > 0:
            return
        if seen < 0.2 * own:
            part = 0.8 * own / (own - seen)
            change = part * change + (1 - part) * bent
        product = float(step @ change)
        if product > 0 and np.isfinite(change).all():
            self.pairs = [*self.pairs[1 - MAX_CURVATURE_PAIRS :], (step, change, product)]


@dataclass(frozen=True)
class SqpStep:
    """A step (D,), multipliers (m,) of the ends, curvature times step, and predicted decrease."""

    move: Array
    multipliers: Array
    bent: Array
    decrease: float


@dataclass(frozen=True)
class LocalModel:
    """The quadratic model at a point: slopes (D,) of f, ends (m,) and their slopes (m, D)."""

    gradient: Array
    ends: Array
    jacobian: Array
    curvature: InverseHessian

    def step(self, price: float, ends: Array | None = None) -> SqpStep:
        """Minimize the model with a penalty `price` on the largest of its ends, or of `ends`."""
        columns = np.column_stack([self.gradient, self.jacobian.T])
        inverse = self.curvature.inverse(columns)
        quadratic = self.jacobian @ inverse[:, 1:]
        quadratic = (quadratic + quadratic.T) / 2
        slope = (self.ends if ends is None else ends) - self.jacobian @ inverse[:, 0]
        size = len(slope)
        start = np.zeros(size)
        start[np.argmin(price * np.diag(quadratic) / 2 - slope)] = price
        positive = np.zeros(size), np.full(size, np.inf)
        multipliers = minimize_quadratic(quadratic, slope, positive, start, fixed_sum=True)
        move = -(inverse[:, 0] + inverse[:, 1:] @ multipliers)
        bent = -(self.gradient + self.jacobian.T @ multipliers)
        after = float((self.ends + self.jacobian @ move).max())
        lower = price * (float(self.ends.max()) - after)
        decrease = lower - float(self.gradient @ move) - float(bent @ move) / 2
        return SqpStep(move, multipliers, bent, decrease)


@dataclass
class SqpOptimizer:
    """Minimizes the objective under the ends, or only the largest end (`worst_only`).

    Attributes
    ----------
    enough
        With `worst_only`: the largest end at which to stop.
    exact
        Predicted relative decrease at which to stop at a point that passes.
    """

    selection: CandidateSelection
    track: CandidateTracker
    worst_only: bool = False
    enough: float = -np.inf
    exact: float = MIN_DECREASE
    price: float = 1.0

    def run(
        self, start: CandidatePoint, steps: int = MAX_SQP_STEPS
    ) -> tuple[CandidatePoint, Array]:
        """Return the last point, and the multipliers (P,) of the ends there."""
        point, multipliers = start, np.zeros(len(start.upper))
        curvature: InverseHessian | None = None
        merits = list[tuple[float, float]]()
        self.price = 1.0 if self.worst_only else max(abs(point.objective), MIN_SCALE)
        highest = MAX_PRICE * self.price
        for _ in range(steps):
            if not np.isfinite(self._merit(point)) or point.worst <= self.enough:
                break
            finite = np.isfinite(point.upper)
            gradient, jacobian = self._slopes(point, finite)
            if not (np.isfinite(gradient).all() and np.isfinite(jacobian).all()):
                break
            curvature = curvature or self._first_curvature(point, jacobian)
            model = LocalModel(gradient, self._ends(point, finite), jacobian, curvature)
            step = self._priced_step(model, point)
            multipliers = np.zeros(len(finite))
            multipliers[finite] = step.multipliers[: finite.sum()]
            if not step.decrease > self._least_decrease(point) or self.price > highest:
                break
            ahead = self._search(point, model, step, finite)
            if ahead is None:
                break
            new_point, taken, bent = ahead
            slopes, ends = self._slopes(new_point, finite)
            change = slopes + ends.T @ taken.multipliers + taken.bent
            curvature.learn(new_point.v - point.v, change, bent)
            point = new_point
            self.track.step(point)
            merits.append((self.price, self._merit(point)))
            if self._is_slow(merits[-MAX_SLOW_STEPS - 1 :], point):
                break
        return point, multipliers

    def _is_slow(self, merits: list[tuple[float, float]], point: CandidatePoint) -> bool:
        """Return whether steps at one penalty hardly decrease, although they predict more."""
        prices, values = zip(*merits, strict=True)
        if len(merits) <= MAX_SLOW_STEPS or len(set(prices)) > 1:
            return False
        least = self.exact * self._size(point)
        return bool(values[0] - values[-1] < MAX_SLOW_STEPS * SLOW_DECREASE_FACTOR * least)

    def _slopes(self, point: CandidatePoint, finite: Mask) -> tuple[Array, Array]:
        """Return slopes of the objective, and of the finite ends and the constant end 0."""
        jacobian = self.selection.jacobian(point)[finite]
        if self.worst_only:
            return np.zeros(jacobian.shape[1]), jacobian
        nothing = np.zeros((1, jacobian.shape[1]))
        return self.selection.gradient(point), np.vstack([jacobian, nothing])

    def _ends(self, point: CandidatePoint, finite: Mask) -> Array:
        ends = point.upper[finite] + SQP_MARGIN
        return ends if self.worst_only else np.append(ends, 0.0)

    def _first_curvature(self, point: CandidatePoint, jacobian: Array) -> InverseHessian:
        """Return the initial curvature.

        It is 1 for the objective in whitened coordinates; for the largest end it makes the first
        step have length 1.
        """
        if not self.worst_only:
            return InverseHessian()
        finite = point.upper[np.isfinite(point.upper)]
        return InverseHessian(max(float(np.linalg.norm(jacobian[np.argmax(finite)])), 1e-12))

    def _priced_step(self, model: LocalModel, point: CandidatePoint) -> SqpStep:
        """Return a step with a penalty high enough to satisfy the linearized ends, if possible."""
        step = model.step(self.price)
        while not self.worst_only and step.multipliers[-1] <= self.price / 10:
            if self.price > MAX_PRICE * max(abs(point.objective), MIN_SCALE):
                break
            self.price *= 10
            step = model.step(self.price)
        return step

    def _least_decrease(self, point: CandidatePoint) -> float:
        """Return the predicted decrease at which to stop.

        Until a point passes, it is less than what the margin costs.
        """
        exact = self.exact if self.worst_only or point.passes else MIN_DECREASE
        return exact * self._size(point)

    def _size(self, point: CandidatePoint) -> float:
        return max(abs(point.worst if self.worst_only else point.objective), MIN_SCALE)

    def _merit(self, point: CandidatePoint) -> float:
        worst = point.worst + SQP_MARGIN
        if self.worst_only:
            return self.price * worst
        return self.price * max(worst, 0.0) + point.objective

    def _search(
        self, point: CandidatePoint, model: LocalModel, step: SqpStep, finite: Mask
    ) -> tuple[CandidatePoint, SqpStep, Array] | None:
        """Return a point of smaller merit, the step to it, and curvature times distance; or None.

        If the whole step is too long, the ends are curved. Then the step with the second-order
        correction is the end of an arc that starts along the step (Mayne, Polak 1982), and the line
        search follows the arc.
        """
        merit, length, taken = self._merit(point), 1.0, step
        while length > MIN_STEP_SHARE:
            bend = length**2 * (taken.move - step.move)
            ahead = self.selection.at(point.v + length * step.move + bend)
            self.track.update(ahead)
            if self._merit(ahead) <= merit - ARMIJO_SHARE * length * step.decrease:
                bent = length * step.bent + length**2 * (taken.bent - step.bent)
                return ahead, taken, bent
            if length == 1.0 and taken is step and np.isfinite(ahead.upper).all():
                curved = self._ends(ahead, finite) - model.jacobian @ step.move
                taken = model.step(self.price, curved)
            else:
                length /= 2
        return None


BOUND_TOLERANCE = 1e-6
"""Predicted relative decrease of the largest bound at which to stop; few digits are reported."""
MAX_BOUND_STEPS = 100


def minimize_worst_bound(
    selection: CandidateSelection,
    start: CandidatePoint,
    track: CandidateTracker,
    enough: float = -np.inf,
    exact: float = BOUND_TOLERANCE,
) -> CandidatePoint:
    """Minimize the largest predicted bound from a start, stopping once it is at most `enough`."""
    search = SqpOptimizer(selection, track, worst_only=True, enough=enough, exact=exact)
    return search.run(start, MAX_BOUND_STEPS)[0]

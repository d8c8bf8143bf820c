"""Sequential quadratic programming with an exact penalty.

It minimizes the objective under the upper ends, or the largest upper end alone. Each step minimizes
a quadratic model of `f + price * max(0, ends)`, with the ends linearized at the current candidate
and quasi-Newton curvature of the Lagrangian (Nocedal, Wright: Numerical Optimization, 2nd ed., 18.3
to 18.6: damped BFGS, and a second-order correction where the linearization is poor). As there are
few ends, the model is solved in its dual, over multipliers on a simplex. Whitened coordinates make
the first model exact and keep the number of steps small.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ratecli.models.base import Array
from ratecli.solvers.seldonian.selection import CandidatePoint, CandidateSelection, CandidateTracker
from ratecli.solvers.seldonian.simplex import minimize_on_simplex

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
        found, held = columns.copy(), list[Array]()
        for s, y, product in reversed(self.pairs):
            part = s @ found / product
            found -= np.multiply.outer(y, part)
            held.append(part)
        found /= self.scale
        for (s, y, product), part in zip(self.pairs, reversed(held), strict=True):
            found += np.multiply.outer(s, part - y @ found / product)
        return found

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
    """A step (D,), multipliers (m,) of the ends, and the predicted decrease."""

    move: Array
    multipliers: Array
    bent: Array
    promised: float


@dataclass(frozen=True)
class LocalModel:
    """The quadratic model at a point, with a penalty `price` on the largest end.

    It has slopes (D,) of f, ends (m,) and their slopes (m, D).
    """

    gradient: Array
    ends: Array
    jacobian: Array
    price: float
    curvature: InverseHessian

    def step(self, ends: Array | None = None) -> SqpStep:
        """Minimize the quadratic model; `ends` replaces the ends at the point as a correction."""
        c = self.ends if ends is None else ends
        columns = np.column_stack([self.gradient, self.jacobian.T])
        inverse = self.curvature.inverse(columns)
        quadratic = self.jacobian @ inverse[:, 1:]
        multipliers = minimize_on_simplex(
            (quadratic + quadratic.T) / 2, c - self.jacobian @ inverse[:, 0], self.price
        )
        move = -(inverse[:, 0] + inverse[:, 1:] @ multipliers)
        bent = -(self.gradient + self.jacobian.T @ multipliers)
        after = float((self.ends + self.jacobian @ move).max())
        lower = self.price * (float(self.ends.max()) - after)
        promised = lower - float(self.gradient @ move) - float(bent @ move) / 2
        return SqpStep(move, multipliers, bent, promised)


@dataclass
class SqpOptimizer:
    """Minimizes the objective under the ends, or only the largest end (`worst_only`)."""

    selection: CandidateSelection
    track: CandidateTracker
    worst_only: bool = False
    enough: float = -np.inf
    """With `worst_only`: the largest end at which to stop."""
    exact: float = MIN_DECREASE
    """Predicted relative decrease at which to stop at a point that passes."""
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
            kept = np.isfinite(point.upper)
            gradient, jacobian = self._slopes(point)
            if not (np.isfinite(gradient).all() and np.isfinite(jacobian).all()):
                break
            if curvature is None:
                curvature = self._first(point, jacobian)
            step = self._priced(point, gradient, jacobian, curvature)
            multipliers = self._spread(step, kept)
            if not step.promised > self._little(point) or self.price > highest:
                break
            found = self._search(point, step, gradient, jacobian, curvature)
            if found is None:
                break
            ahead, taken, bent = found
            slopes, ends = self._slopes(ahead)
            change = slopes + ends.T @ self._spread(taken, kept) + taken.bent
            curvature.learn(ahead.v - point.v, change, bent)
            point = ahead
            self.track.step(point)
            merits.append((self.price, self._merit(point)))
            if self._crawls(merits[-MAX_SLOW_STEPS - 1 :], point):
                break
        return point, multipliers

    def _crawls(self, merits: list[tuple[float, float]], point: CandidatePoint) -> bool:
        """Return whether steps at one penalty hardly decrease, although they predict more."""
        prices, values = zip(*merits, strict=True)
        if len(merits) <= MAX_SLOW_STEPS or len(set(prices)) > 1:
            return False
        least = self.exact * self._size(point)
        return bool(values[0] - values[-1] < MAX_SLOW_STEPS * SLOW_DECREASE_FACTOR * least)

    def _slopes(self, point: CandidatePoint) -> tuple[Array, Array]:
        jacobian = self.selection.jacobian(point)
        if self.worst_only:
            return np.zeros(jacobian.shape[1]), jacobian
        return self.selection.gradient(point), jacobian

    def _first(self, point: CandidatePoint, jacobian: Array) -> InverseHessian:
        """Return the initial curvature.

        It is 1 for the objective in whitened coordinates; for the largest end it makes the first
        step have length 1.
        """
        if not self.worst_only:
            return InverseHessian()
        steepest = float(np.linalg.norm(jacobian[int(np.argmax(point.upper))]))
        return InverseHessian(max(steepest, 1e-12))

    def _ends(self, point: CandidatePoint) -> Array:
        ends = point.upper[np.isfinite(point.upper)] + SQP_MARGIN
        return ends if self.worst_only else np.append(ends, 0.0)

    def _model(
        self, point: CandidatePoint, gradient: Array, jacobian: Array, curvature: InverseHessian
    ) -> LocalModel:
        own = jacobian[np.isfinite(point.upper)]
        if not self.worst_only:
            own = np.vstack([own, np.zeros((1, own.shape[1]))])
        return LocalModel(gradient, self._ends(point), own, self.price, curvature)

    def _priced(
        self, point: CandidatePoint, gradient: Array, jacobian: Array, curvature: InverseHessian
    ) -> SqpStep:
        """Return a step with a penalty high enough to satisfy the linearized ends, if possible."""
        while True:
            model = self._model(point, gradient, jacobian, curvature)
            step = model.step()
            dear = not self.worst_only and step.multipliers[-1] <= self.price / 10
            if not dear or self.price > MAX_PRICE * max(abs(point.objective), MIN_SCALE):
                return step
            self.price *= 10

    def _little(self, point: CandidatePoint) -> float:
        """Return the predicted decrease at which to stop.

        Until a point passes, it is less than what the margin costs.
        """
        exact = self.exact if self.worst_only or point.passes else MIN_DECREASE
        return exact * self._size(point)

    def _size(self, point: CandidatePoint) -> float:
        return max(abs(point.worst if self.worst_only else point.objective), MIN_SCALE)

    def _spread(self, step: SqpStep, kept: Array) -> Array:
        """Return multipliers (P,) of all trees."""
        total = np.zeros(len(kept))
        total[kept] = step.multipliers[: int(kept.sum())]
        return total

    def _merit(self, point: CandidatePoint) -> float:
        ends = np.append(point.upper + SQP_MARGIN, [] if self.worst_only else [0.0])
        worst = float(ends.max(initial=-np.inf))
        return self.price * worst + (0.0 if self.worst_only else point.objective)

    def _search(
        self,
        point: CandidatePoint,
        step: SqpStep,
        gradient: Array,
        jacobian: Array,
        curvature: InverseHessian,
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
            self.track.see(ahead)
            if self._merit(ahead) <= merit - ARMIJO_SHARE * length * step.promised:
                bent = length * step.bent + length**2 * (taken.bent - step.bent)
                return ahead, taken, bent
            if length == 1.0 and taken is step and np.isfinite(ahead.upper).all():
                kept = np.isfinite(point.upper)
                model = self._model(point, gradient, jacobian, curvature)
                shift = np.zeros_like(model.ends)
                shift[: int(kept.sum())] = ahead.upper[kept] - (
                    point.upper[kept] + jacobian[kept] @ step.move
                )
                taken = model.step(model.ends + shift)
                continue
            length /= 2
        return None

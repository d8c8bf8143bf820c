"""Candidate selection as a numerical problem: an objective, with upper ends that must be at most 0.

SciPy's SLSQP minimizes the objective under the upper ends, or the largest upper end alone. Whitened
coordinates make its first quadratic model exact and keep the number of steps small. Because its
matrices are dense, models of many weights are searched in subspaces.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize, nnls

from ratecli.certify.certificate import round_up, smallest_factor
from ratecli.models.base import Array
from ratecli.rates.sample import Mask
from ratecli.solvers.base import trace_row
from ratecli.solvers.seldonian.prediction import TestPrediction
from ratecli.solvers.seldonian.score_models import (
    MAX_DENSE_WEIGHTS,
    Design,
    Model,
    Objective,
    WhitenedCoordinates,
)


@dataclass(frozen=True)
class CandidatePoint:
    """A candidate: coordinates v, weights (D,), objective, and its predicted test.

    `outputs` are `SmoothOutputs`, or given decisions; `upper` (P,) are the upper ends, infinite
    where there is no bound.
    """

    v: Array
    w: Array
    outputs: Any
    objective: float
    upper: Array

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
    objective: Objective
    l2: float
    prediction: TestPrediction
    model: Model
    coordinates: WhitenedCoordinates

    def at(self, v: Array) -> CandidatePoint:
        w = self.coordinates.weights(v)
        outputs = self.model.outputs(self.design.scores(w))
        value = self.objective.value(outputs) + self.l2 / 2 * float(w[:-1] @ w[:-1])
        value = value if np.isfinite(value) else np.inf
        return CandidatePoint(v, w, outputs, value, self.prediction.upper(outputs))

    def gradient(self, point: CandidatePoint) -> Array:
        """Return the gradient (D,) of the objective in v."""
        gradient = self.design.pull(self.objective.slopes(point.outputs))
        gradient[:-1] += self.l2 * point.w[:-1]
        return self.coordinates.slopes(gradient)

    def jacobian(self, point: CandidatePoint) -> Array:
        """Return the slopes (P, D) of the upper ends in v."""
        return self.coordinates.slopes(self.prediction.slopes(point.outputs).T).T


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


MAX_STEPS = 200
MARGIN = 1e-8
"""Ends are required to be this far and the tolerance below 0, so that the last point passes."""
MIN_DECREASE = 1e-9
"""Relative decrease of what is minimized below which the search stops."""
MIN_SCALE = 0.1
"""Smallest scale assumed for an objective or an end."""
MAX_ACTIVE_DISTANCE = 1e-4
"""Distance from 0 up to which ends have multipliers."""
LARGEST = 1e6
"""Replaces infinite objectives and ends."""
PRICES = (10.0, 1e3, 1e5)
"""Prices of the largest end above 0, relative to the objective at the start."""
MAX_SUBSPACES, SUBSPACE_STEPS = 20, 5
"""Maximum number of subspaces for models of many weights, and of steps in each."""
MIN_SUBSPACE_DECREASE = 1e-6
"""Relative decrease that is worth another subspace."""


class _EnoughError(Exception):
    """Stops a search whose largest end is small enough."""


@dataclass
class CandidateSearch:
    """Minimizes the objective under the ends, or only the largest end (`worst_only`).

    The largest end above 0 has a price, which increases until the last point passes (an exact
    penalty: Nocedal, Wright: Numerical Optimization, 2nd ed., 18.5).

    Attributes
    ----------
    enough
        With `worst_only`: the largest end at which to stop.
    exact
        Relative decrease at which to stop.
    """

    selection: CandidateSelection
    track: CandidateTracker
    worst_only: bool = False
    enough: float = -np.inf
    exact: float = MIN_DECREASE
    last: CandidatePoint = field(init=False)
    """The point that was evaluated last."""

    def run(self, start: CandidatePoint, steps: int = MAX_STEPS) -> tuple[CandidatePoint, Array]:
        """Return the last point, and the multipliers (P,) of the ends there."""
        self.last, finite = start, np.isfinite(start.upper)
        multipliers = np.zeros(len(finite))
        if not finite.any() or start.worst <= self.enough:
            return start, multipliers
        size = abs(start.worst if self.worst_only else start.objective)
        size = min(max(size, MIN_SCALE), LARGEST)
        wide = len(start.v) > MAX_DENSE_WEIGHTS
        search = self._search_in_subspaces if wide else self._search_sequentially
        prices = [1.0] if self.worst_only else [price * size for price in PRICES]
        with contextlib.suppress(_EnoughError):
            for price in prices:
                search(finite, price, self.exact * size, steps)
                if self.last.passes:
                    break
        near = finite & (self.last.upper > -MAX_ACTIVE_DISTANCE)
        if near.any() and not self.worst_only:
            slopes = self._jacobian(self.last.v, near)
            multipliers[near], _ = nnls(slopes.T, -self._gradient(self.last.v))
        return self.last, multipliers

    def _search_in_subspaces(self, finite: Mask, price: float, exact: float, steps: int) -> None:
        """Minimize in the span of all slopes so far, and add those at the minimum."""
        basis, before = np.zeros((0, len(self.last.v))), np.inf
        for _ in range(MAX_SUBSPACES):
            slopes = self._gradient(self.last.v), self._jacobian(self.last.v, finite)
            basis = np.linalg.qr(np.vstack([basis, *slopes]).T)[0].T
            self._search_sequentially(finite, price, exact, min(steps, SUBSPACE_STEPS), basis)
            worst = float(self._ends(self.last.v, finite).max())
            worst = worst if self.worst_only else max(worst, 0.0)
            value = self._objective(self.last.v) + price * worst
            if value > before - MIN_SUBSPACE_DECREASE * abs(before):
                break
            before = value

    def _search_sequentially(
        self, finite: Mask, price: float, exact: float, steps: int, basis: Array | None = None
    ) -> None:
        """Minimize over coordinates and a number that is at least every end, by SLSQP.

        Steps are combinations of the rows of the basis (k, D), if there is one.
        """
        origin = self.last.v
        first = origin if basis is None else np.zeros(len(basis))

        def place(x: Array) -> Array:
            return x[:-1] if basis is None else origin + x[:-1] @ basis

        scale = 1.0
        if self.worst_only:  # the first step has length 1
            steepest = self._jacobian(origin, finite)[self._ends(origin, finite).argmax()]
            scale = 1 / max(float(np.linalg.norm(steepest)), 1e-12)
        margin, lowest = scale * (MARGIN + exact), None if self.worst_only else 0.0

        def room(x: Array) -> Array:
            return np.asarray(x[-1] - margin - scale * self._ends(place(x), finite))

        def slopes(x: Array) -> Array:
            jacobian = self._jacobian(place(x), finite)
            along = jacobian if basis is None else jacobian @ basis.T
            return np.column_stack([-scale * along, np.ones(len(jacobian))])

        def gradient(x: Array) -> Array:
            found = self._gradient(place(x))
            return np.append(found if basis is None else basis @ found, price)

        above = max(-float(room(np.append(first, 0.0)).min()), lowest or -np.inf)
        found = minimize(
            lambda x: self._objective(place(x)) + price * x[-1],
            np.append(first, above),
            jac=gradient,
            method="SLSQP",
            bounds=[*[(None, None)] * len(first), (lowest, None)],
            constraints={"type": "ineq", "fun": room, "jac": slopes},
            callback=lambda x: self._step(place(x)),
            options={"maxiter": steps, "ftol": scale * exact},
        )
        self._at(place(found.x))

    def _objective(self, v: Array) -> float:
        return 0.0 if self.worst_only else min(self._at(v).objective, LARGEST)

    def _gradient(self, v: Array) -> Array:
        if self.worst_only:
            return np.zeros(len(v))
        return np.nan_to_num(self.selection.gradient(self._at(v)))

    def _ends(self, v: Array, finite: Mask) -> Array:
        return np.nan_to_num(self._at(v).upper[finite], posinf=LARGEST)

    def _jacobian(self, v: Array, finite: Mask) -> Array:
        return np.nan_to_num(self.selection.jacobian(self._at(v))[finite])

    def _at(self, v: Array) -> CandidatePoint:
        if not np.array_equal(v, self.last.v):
            self.last = self.selection.at(v.copy())
            self.track.update(self.last)
        return self.last

    def _step(self, v: Array) -> None:
        self.track.step(self._at(v))
        if self.last.worst <= self.enough:
            raise _EnoughError


BOUND_TOLERANCE = 1e-7
"""Relative decrease of the largest bound at which to stop; few digits are reported."""
MAX_BOUND_STEPS = 100


def minimize_worst_bound(
    selection: CandidateSelection,
    start: CandidatePoint,
    track: CandidateTracker,
    enough: float = -np.inf,
    exact: float = BOUND_TOLERANCE,
) -> CandidatePoint:
    """Minimize the largest predicted bound from a start, stopping once it is at most `enough`."""
    search = CandidateSearch(selection, track, worst_only=True, enough=enough, exact=exact)
    return search.run(start, MAX_BOUND_STEPS)[0]

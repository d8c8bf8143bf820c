"""Candidate selection as a numerical problem: an objective, with upper ends that must be at most 0.

A tracker records the candidates on the way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ratecli.certify.certificate import round_up
from ratecli.models.base import Array
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.seldonian.prediction import PredictedTestResult, TestPrediction
from ratecli.solvers.seldonian.scores import (
    ScoreModel,
    ScoreObjective,
    WhitenedCoordinates,
)


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
        return self.expected.worst

    @property
    def passes(self) -> bool:
        """Whether it is expected to pass; False if a value is NaN."""
        return self.worst <= 0 and np.isfinite(self.objective)


@dataclass(frozen=True)
class CandidateSelection:
    """Minimize `objective + l2 / 2 |w|^2` subject to predicted upper ends that are at most 0."""

    design: DesignMatrix
    objective: ScoreObjective
    l2: float
    prediction: TestPrediction
    model: ScoreModel
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

    def see(self, point: CandidatePoint) -> None:
        """Keep a candidate if it improves on those so far; non-finite objectives are ignored."""
        if not np.isfinite(point.objective):
            return
        if point.passes and (self.best is None or point.objective < self.best.objective):
            self.best = point
        if self.nearest is None or point.worst < self.nearest.worst:
            self.nearest = point

    def step(self, point: CandidatePoint) -> None:
        """Record a candidate that an iteration ends with."""
        self.see(point)
        self.note(point.objective, point.worst)

    def note(self, objective: float, worst: float) -> None:
        self.trace.append(
            {
                "iteration": len(self.trace) + 1,
                "objective": objective,
                "violation": max(worst, 0.0),
                "seconds": time.perf_counter() - self.began,
            }
        )


MAX_ROW_FACTOR = 1e6
"""Multiple of the number of rows beyond which more rows do not help."""
ROW_FACTOR_HALVINGS = 6


def shortfall_reason(prediction: TestPrediction, upper: Array, factor: float | None) -> str:
    """Explain why no candidate is expected to pass.

    `upper` (P,) are the smallest upper ends, `factor` is how many times the rows, candidate and
    test alike, some candidate needs to pass; None if no number of rows is enough.
    """
    name, end = prediction.owners[int(np.argmax(upper))], float(upper.max())
    reason = f"no model is expected to pass the test of '{name}'"
    if np.isfinite(end):
        reason += f": the smallest bound attainable is {end:+.4g}, and at most 0 is needed"
    else:
        reason += ": its bound is infinite, and at most 0 is needed"
        if factor is None:
            return f"{reason}; there are too few training rows to tell how many would be enough"
    if factor is None:
        return f"{reason}; no number of rows would be enough"
    rows = round_up(factor * prediction.rows, digits=2)
    return (
        f"{reason}; about {rows:,} rows in the test instead of {prediction.rows:,} would do, with "
        "training rows in proportion"
    )

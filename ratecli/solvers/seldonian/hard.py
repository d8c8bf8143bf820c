"""Deterministic candidates: every threshold on the scores of a path of soft models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ratecli.certify.safety_test import SafetyTestSpec
from ratecli.models.base import Array
from ratecli.models.linear import Logistic
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.problem import ERROR_RATE, Problem
from ratecli.solvers.seldonian.attain import (
    minimize_worst_bound,
    row_factor_needed,
    shortfall_reason,
)
from ratecli.solvers.seldonian.cuts import ThresholdCandidates
from ratecli.solvers.seldonian.measures import DecisionMeasurements
from ratecli.solvers.seldonian.prediction import TestPrediction, predict_safety_test
from ratecli.solvers.seldonian.selection import CandidatePoint, CandidateSelection, CandidateTracker
from ratecli.solvers.seldonian.sequential import SqpOptimizer
from ratecli.solvers.seldonian.soft import desaturate_point

SOFT_SHARPNESS = (1.0, 4.0)
"""Sharpness of the probabilities that constrain soft models, relative to the model's own."""
STRICTNESS_LEVELS = 6
"""Number of steps from the optimum without constraints to the smallest attainable bound."""
REFINEMENT_ROUNDS = 3
"""Number of rounds that try models between the best one and its neighbours on the path."""
MAX_SOFT_STEPS = 40
SOFT_TOLERANCE = 1e-2
"""Predicted relative decrease at which steps of soft models stop; low accuracy is enough there."""
THRESHOLD_TRIES = 25
"""Number of thresholds per model to search for the smallest bound if none passes."""


@dataclass(frozen=True)
class ThresholdModel:
    """Weights (D,) with the threshold in the bias, their objective and largest predicted bound."""

    w: Array
    objective: float
    worst: float


@dataclass
class HardDecisionSearch:
    """Searches for the best deterministic linear classifier that is expected to pass the test.

    Decisions have no slopes, so scores come from soft models: minimizers of the log loss whose
    bounds are tightened step by step, with the model's own probabilities and with steeper ones,
    which are closer to decisions. On each model's scores all thresholds are tried exactly, with the
    test's own bounds on decisions.
    """

    problem: Problem
    promise: SafetyTestSpec
    selection: CandidateSelection
    inflated: Callable[[TestPrediction], TestPrediction]

    def solve(self, progress: Progress) -> Solution:
        track, path = CandidateTracker(), list[Array]()
        for sharpness in SOFT_SHARPNESS:
            path += self._path(sharpness)
            progress(f"{len(path)} soft models")
        prediction = self._prediction(path[0])
        best: ThresholdModel | None = None
        for w in path:
            best = self._better(w, prediction, best, track)
        if best is None:
            return self._none(path, prediction, track)
        for part in 0.5 ** np.arange(1, REFINEMENT_ROUNDS + 1):
            for end in _path_neighbours(path, best.w):
                w = (1 - part) * _normalize_scores(best.w) + part * _normalize_scores(end)
                best = self._better(w, prediction, best, track) or best
        progress(f"{len(track.trace)} models, objective {best.objective:.6g}")
        return Solution({"deterministic": _threshold_classifier(best)}, trace=tuple(track.trace))

    def _path(self, sharpness: float) -> list[Array]:
        """Return weights of soft models, from the unconstrained optimum to the smallest bound."""
        model = replace(self.selection.model, sharpness=sharpness)
        soft = replace(self.selection, model=model)
        start = desaturate_point(soft, soft.at(np.zeros(soft.design.width)))
        utmost = minimize_worst_bound(soft, start, CandidateTracker(), exact=SOFT_TOLERANCE)
        found = [start.w]
        if not (np.isfinite(start.worst) and utmost.worst < start.worst):
            return [start.w, utmost.w]
        point: CandidatePoint = start
        for level in np.linspace(start.worst, utmost.worst, STRICTNESS_LEVELS + 1)[1:-1].tolist():
            shifted = replace(soft, prediction=replace(soft.prediction, needed=level))
            track = CandidateTracker()
            last, _ = SqpOptimizer(shifted, track, exact=SOFT_TOLERANCE).run(
                shifted.at(point.v), MAX_SOFT_STEPS
            )
            point = track.best or last
            found.append(point.w)
        return [*found, utmost.w]

    def _prediction(self, w: Array) -> TestPrediction:
        decisions = (self.selection.design.scores(w) > 0).astype(float)
        said = DecisionMeasurements(decisions)
        return self.inflated(predict_safety_test(self.problem, self.promise, said))

    def _cuts(self, w: Array, prediction: TestPrediction) -> ThresholdCandidates:
        scores = self.selection.design.scores(np.append(w[:-1], 0.0))
        return ThresholdCandidates(scores, self.problem.rates, self._objective(), prediction)

    def _objective(self) -> Expression:
        """Return the file's objective if it uses decisions only, else plain error."""
        node = self.problem.objective.expression
        return node if all(leaf.rate.of == "decision" for leaf in ex.leaves(node)) else ERROR_RATE

    def _better(
        self,
        w: Array,
        prediction: TestPrediction,
        best: ThresholdModel | None,
        track: CandidateTracker,
    ) -> ThresholdModel | None:
        """Return the best model of `best` and all thresholds on the scores of w, or None."""
        cuts = self._cuts(w, prediction)
        k = cuts.best(best.objective if best else np.inf)
        if k is not None:
            moved = np.append(w[:-1], -float(cuts.thresholds()[k]))
            best = ThresholdModel(moved, float(cuts.values()[k]), cuts.worst(k))
        if best is not None:
            track.note(best.objective, best.worst)
        return best

    def _none(
        self, path: list[Array], prediction: TestPrediction, track: CandidateTracker
    ) -> Solution:
        """Return the decisions with the smallest bound found, with the reason why none passes."""
        found, tried = list[ThresholdModel](), [self._cuts(w, prediction) for w in path]
        for w, cuts in zip(path, tried, strict=True):
            k, end = cuts.nearest(THRESHOLD_TRIES)
            moved = np.append(w[:-1], -float(cuts.thresholds()[k]))
            found.append(ThresholdModel(moved, float(cuts.values()[k]), end))
            track.note(found[-1].objective, end)
        order = np.argsort([each.worst for each in found])
        nearest = found[order[0]]

        def passes(times: float) -> bool:
            more = prediction.scaled(times)
            return any(tried[k].any_passes(THRESHOLD_TRIES, more) for k in order)

        decisions = (self.selection.design.scores(nearest.w) > 0).astype(float)
        upper = prediction.at(DecisionMeasurements(decisions)).upper
        reason = shortfall_reason(prediction, upper, row_factor_needed(passes))
        classifier = {"deterministic": _threshold_classifier(nearest)}
        return Solution(classifier, "iteration_limit", reason, trace=tuple(track.trace))


def _path_neighbours(path: list[Array], w: Array) -> list[Array]:
    """Return the models before and after the one on a path whose direction is closest to w's."""
    own = _normalize_scores(w)[:-1]
    nearest = int(np.argmax([_normalize_scores(each)[:-1] @ own for each in path]))
    return path[max(nearest - 1, 0) : nearest] + path[nearest + 1 : nearest + 2]


def _normalize_scores(w: Array) -> Array:
    """Scale the weights to norm 1, which leaves decisions unchanged."""
    return w / max(float(np.linalg.norm(w[:-1])), 1e-300)


def _threshold_classifier(cut: ThresholdModel) -> Logistic:
    return Logistic(cut.w[:-1], float(cut.w[-1]))

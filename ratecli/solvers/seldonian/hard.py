"""Candidates whose decisions are 0 or 1: a path of soft models, and every threshold on their scores."""

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
"""How many times steeper than the model's own the chances are that soft models are held to."""
STRICTNESS_LEVELS = 6
"""Strictnesses, from that of the optimum without constraints to the utmost."""
REFINEMENT_ROUNDS = 3
"""Times that models halfway to the neighbours of the best one are looked at."""
MAX_SOFT_STEPS = 40
SOFT_TOLERANCE = 1e-2
"""Decrease that steps of soft models must promise, which only lead the way."""
THRESHOLD_TRIES = 25
"""Thresholds of each model that are looked at for the least bound where none passes."""


@dataclass(frozen=True)
class ThresholdModel:
    """A model (D,) with its threshold in the bias; its objective and the largest end expected."""

    w: Array
    objective: float
    worst: float


@dataclass
class HardDecisionSearch:
    """The best decisions by linear scores that are expected to pass.

    Decisions have no slopes, so scores come from soft models: the least log loss under ends that fall
    step by step, of the model's own chances and of steeper ones, which are nearer to decisions. On each
    model's scores all thresholds are tried exactly, with the test's own bounds on decisions.
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
        """Weights of soft models, from the optimum without constraints to the least worst end."""
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
        """The file's, if it is one of decisions, and else plain error."""
        node = self.problem.objective.expression
        return node if all(leaf.rate.of == "decision" for leaf in ex.leaves(node)) else ERROR_RATE

    def _better(
        self,
        w: Array,
        prediction: TestPrediction,
        best: ThresholdModel | None,
        track: CandidateTracker,
    ) -> ThresholdModel | None:
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
        """The decisions of the least end found, and what is missing."""
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
    """The models before and after the one on a path that points most nearly as w does."""
    own = _normalize_scores(w)[:-1]
    nearest = int(np.argmax([_normalize_scores(each)[:-1] @ own for each in path]))
    return path[max(nearest - 1, 0) : nearest] + path[nearest + 1 : nearest + 2]


def _normalize_scores(w: Array) -> Array:
    """Scores in units of their own: decisions are the same."""
    return w / max(float(np.linalg.norm(w[:-1])), 1e-300)


def _threshold_classifier(cut: ThresholdModel) -> Logistic:
    return Logistic(cut.w[:-1], float(cut.w[-1]))

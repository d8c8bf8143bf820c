"""Deterministic candidates: every threshold on the scores of a path of soft models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.models.linear import Logistic
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression
from ratecli.rates.matrix import RateMatrix
from ratecli.rates.rate_function import RateFunction
from ratecli.rates.sample import Mask
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.problem import ERROR_RATE, Problem
from ratecli.solvers.seldonian.options import Seldonian
from ratecli.solvers.seldonian.prediction import TestPrediction, predict_safety_test
from ratecli.solvers.seldonian.score_models import DecisionOutputs, ScoreModel
from ratecli.solvers.seldonian.selection import (
    CandidatePoint,
    CandidateSearch,
    CandidateSelection,
    CandidateTracker,
    minimize_worst_bound,
    shortfall_reason,
)
from ratecli.solvers.seldonian.soft import candidate_selection, desaturate_point, solve_smooth

BOUND_ROUNDING = 1e-9
"""Tolerance for the estimate of a goal whose predicted bound is at most 0."""
BOUND_KNOTS = 32
"""Number of thresholds with computed bounds; others may be ruled out by interpolation."""
INTERPOLATION_SAFETY = 0.95
"""Fraction of the interpolated distance between bound and estimate that is relied on."""
SPREAD_THRESHOLDS = 25
"""Number of thresholds per model to search for the smallest bound if none passes."""


class ThresholdCandidates:
    """The T thresholds on scores (n,) with different decisions, from all negative to all positive.

    Attributes
    ----------
    values
        (T,) the objective; infinite where it is undefined.
    estimates
        (P, T) values of the trees at the point estimates: lower limits of their bounds.
    violations
        (T,) how far the largest tree is above 0 at the point estimates.
    """

    def __init__(
        self, scores: Array, rates: RateMatrix, objective: Expression, prediction: TestPrediction
    ) -> None:
        """Evaluate the objective, a function of `rates`, and the constraints at every threshold."""
        curve = RateCurve.of(scores)
        self.prediction, self.scores, self.thresholds = prediction, scores, curve.thresholds
        every = np.clip(curve.rates(rates), 0.0, 1.0)
        trees = [node for goal in prediction.goals for _, node in goal.nodes]
        ends = RateFunction.of([objective, *trees], rates.index()).values(every)
        self.values, *estimates = np.nan_to_num(ends, nan=np.inf)
        self.estimates = np.reshape(estimates, (len(trees), -1))
        self.violations = self.estimates.max(axis=0, initial=-np.inf)

    def ends(self, cut: int, prediction: TestPrediction | None = None) -> Array:
        """Return the bounds (P,) at one threshold, by this or another prediction."""
        return (prediction or self.prediction).upper(self._decisions(cut))

    def _decisions(self, cut: int) -> DecisionOutputs:
        return DecisionOutputs((self.scores > self.thresholds[cut]).astype(float))

    def point(self, w: Array, cut: int) -> CandidatePoint:
        """Return the candidate with weights w (D,) and the threshold number `cut`."""
        moved = np.append(w[:-1], -float(self.thresholds[cut]))
        value, upper = float(self.values[cut]), self.ends(cut)
        return CandidatePoint(moved, moved, self._decisions(cut), value, upper)

    def worst(self, cut: int, prediction: TestPrediction | None = None) -> float:
        """Return the largest bound at one threshold."""
        return float(self.ends(cut, prediction).max(initial=-np.inf))

    def best(self, below: float) -> int | None:
        """Return the threshold expected to pass with the smallest objective under `below`, or None.

        Skips thresholds whose point estimates already violate a goal. If there are more than
        `BOUND_KNOTS`, it also skips those where a bound interpolated between some thresholds is
        clearly above 0, because the distance between bound and estimate changes little from one
        threshold to the next. The others are tried from the best objective on.
        """
        likely = np.flatnonzero((self.violations <= BOUND_ROUNDING) & (self.values < below))
        if len(likely) > BOUND_KNOTS:
            likely = likely[self._may_pass(likely)]
        order = likely[np.argsort(self.values[likely], kind="stable")]
        return next((cut for cut in order.tolist() if self.worst(cut) <= 0), None)

    def _may_pass(self, cuts: NDArray[np.intp]) -> Mask:
        """Return which of some thresholds, in ascending order, are worth trying, as a mask."""
        # thresholds are denser at the ends, where counts are small
        steps = np.sin(np.linspace(-np.pi / 2, np.pi / 2, BOUND_KNOTS))
        knots = np.unique(cuts[np.round((steps + 1) / 2 * (len(cuts) - 1)).astype(int)])
        above = np.array([self.ends(cut) for cut in knots.tolist()]).T - self.estimates[:, knots]
        possible = np.ones(len(cuts), dtype=bool)
        for own, estimates in zip(above, self.estimates[:, cuts], strict=True):
            distance = np.interp(cuts, knots, np.nan_to_num(own, nan=0.0, posinf=0.0))
            possible &= estimates + INTERPOLATION_SAFETY * distance <= BOUND_ROUNDING
        return possible

    @cached_property
    def promising(self) -> list[int]:
        """The thresholds with the smallest violations, and as many spread evenly."""
        spread = np.linspace(0, len(self.violations) - 1, SPREAD_THRESHOLDS).astype(int)
        least = np.argsort(self.violations, kind="stable")[:SPREAD_THRESHOLDS]
        return list(dict.fromkeys([*least.tolist(), *spread.tolist()]))


SURROGATE_BOUND = "student_t"
"""Bound of the soft models that guide the search for hard decisions, whatever the test uses."""
SOFT_SHARPNESS = (1.0, 4.0)
"""Sharpness of the probabilities that constrain soft models, relative to the model's own."""
STRICTNESS_LEVELS = 6
"""Number of steps from the optimum without constraints to the smallest attainable bound."""
REFINEMENT_ROUNDS = 3
"""Number of rounds that try models between the best one and its neighbours on the path."""
MAX_SOFT_STEPS = 40
SOFT_TOLERANCE = 1e-2
"""Predicted relative decrease at which steps of soft models stop; low accuracy is enough there."""


@dataclass(frozen=True)
class HardDecisionSearch:
    """Tries thresholds on the scores of models, with the test's own bounds on decisions."""

    problem: Problem
    selection: CandidateSelection
    prediction: TestPrediction
    track: CandidateTracker = field(default_factory=CandidateTracker)

    def cuts(self, w: Array) -> ThresholdCandidates:
        """Return the thresholds for the file's objective if it uses decisions only, else error."""
        node = self.problem.objective.expression
        if not all(leaf.rate.of == "decision" for leaf in ex.leaves(node)):
            node = ERROR_RATE
        scores = self.selection.design.scores(np.append(w[:-1], 0.0))
        return ThresholdCandidates(scores, self.problem.rates, node, self.prediction)

    def try_thresholds(self, w: Array) -> None:
        """Keep the best threshold on the scores of w if it improves on the best one so far."""
        cuts, best = self.cuts(w), self.track.best
        k = cuts.best(best.objective if best else np.inf)
        if k is not None:
            self.track.update(cuts.point(w, k))
        if self.track.best is not None:
            self.track.record(self.track.best.objective, self.track.best.worst)

    def nearest(self, path: list[Array]) -> Solution:
        """Return the decisions with the smallest bound found, with the reason why none passes."""
        tried, points = [self.cuts(w) for w in path], list[CandidatePoint]()
        for w, cuts in zip(path, tried, strict=True):
            points.append(cuts.point(w, min(cuts.promising, key=cuts.worst)))
            self.track.record(points[-1].objective, points[-1].worst)
        order = np.argsort([point.worst for point in points])

        def passes(times: float) -> bool:
            more = replace(self.prediction, times=times)
            pairs = ((tried[k], cut) for k in order for cut in tried[k].promising)
            return any(cuts.worst(cut, more) <= 0 for cuts, cut in pairs)

        nearest = points[order[0]]
        reason = shortfall_reason(self.prediction, nearest.upper, passes)
        return _solution(self.track, nearest, "iteration_limit", reason)


def _solution(
    track: CandidateTracker, point: CandidatePoint, status: str = "solved", reason: str = ""
) -> Solution:
    classifiers = {"deterministic": Logistic(point.w[:-1], float(point.w[-1]))}
    return Solution(classifiers, status, reason, trace=tuple(track.trace))


def solve_seldonian(
    options: Seldonian, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Return the best model that is expected to pass its test; raise E102 if there is no test."""
    if problem.safety_test is None:
        message = "'seldonian' needs a safety test"
        raise FaultError(Diagnostic("E102", message, "add at the top: safety: {delta: 0.05}"))
    if options.decisions == "deterministic":
        return solve_hard(options, problem, progress)
    return solve_smooth(options, problem, rng, progress)


def solve_hard(options: Seldonian, problem: Problem, progress: Progress) -> Solution:
    """Search for the best deterministic linear classifier that is expected to pass the test.

    Decisions have no slopes, so scores come from soft models: minimizers of the log loss whose
    bounds are tightened step by step, with the model's own probabilities and with steeper ones,
    which are closer to decisions. On each model's scores all thresholds are tried exactly.
    """
    safety, path = problem.safety_test, list[Array]()
    assert safety is not None
    selection = candidate_selection(options, problem, replace(safety, bound=SURROGATE_BOUND))
    for sharpness in SOFT_SHARPNESS:
        path += _soft_models(selection, sharpness)
        progress(f"{len(path)} soft models")
    outputs = DecisionOutputs((selection.design.scores(path[0]) > 0).astype(float))
    prediction = predict_safety_test(problem, safety, outputs, options.inflation)
    search = HardDecisionSearch(problem, selection, prediction)
    track = search.track
    for w in path:
        search.try_thresholds(w)
    if track.best is None:
        return search.nearest(path)
    for part in 0.5 ** np.arange(1, REFINEMENT_ROUNDS + 1):
        for end in _path_neighbours(path, track.best.w):
            own = (1 - part) * _normalize_scores(track.best.w)
            search.try_thresholds(own + part * _normalize_scores(end))
    progress(f"{len(track.trace)} models, objective {track.best.objective:.6g}")
    return _solution(track, track.best)


def _soft_models(selection: CandidateSelection, sharpness: float) -> list[Array]:
    """Return weights of soft models, from the unconstrained optimum to the smallest bound."""
    assert isinstance(selection.model, ScoreModel)
    soft = replace(selection, model=replace(selection.model, sharpness=sharpness))
    point = start = desaturate_point(soft, soft.at(np.zeros(soft.design.width)))
    last = minimize_worst_bound(soft, start, CandidateTracker(), exact=SOFT_TOLERANCE)
    path = [start.w]
    if np.isfinite(start.worst) and last.worst < start.worst:
        levels = np.linspace(start.worst, last.worst, STRICTNESS_LEVELS + 1)[1:-1]
        for level in levels.tolist():
            shifted = replace(soft, prediction=replace(soft.prediction, needed=level))
            track = CandidateTracker()
            search = CandidateSearch(shifted, track, exact=SOFT_TOLERANCE)
            reached, _ = search.run(shifted.at(point.v), MAX_SOFT_STEPS)
            point = track.best or reached
            path.append(point.w)
    return [*path, last.w]


def _path_neighbours(path: list[Array], w: Array) -> list[Array]:
    """Return the models before and after the one on a path whose direction is closest to w's."""
    own = _normalize_scores(w)[:-1]
    nearest = int(np.argmax([_normalize_scores(each)[:-1] @ own for each in path]))
    return path[max(nearest - 1, 0) : nearest] + path[nearest + 1 : nearest + 2]


def _normalize_scores(w: Array) -> Array:
    """Scale the weights to norm 1, which leaves decisions unchanged."""
    return w / max(float(np.linalg.norm(w[:-1])), 1e-300)

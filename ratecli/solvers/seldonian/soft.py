"""Candidate selection for models whose outputs are smooth in their weights.

It contains two of the optimizers, `lagrangian` and `cma`; `sequential` is in `selection`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import logit

from ratecli.certify.trees import SafetyTestSpec
from ratecli.models.base import Array
from ratecli.models.output_cache import array_digest
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.design_matrix import DesignMatrix
from ratecli.solvers.fit_cache import FitCache
from ratecli.solvers.gradient_steps import Stepper
from ratecli.solvers.problem import Problem, sum_by_goal
from ratecli.solvers.seldonian.options import Seldonian
from ratecli.solvers.seldonian.policy import policy_selection
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.score_models import (
    MeanLoss,
    ScoreModel,
    WhitenedCoordinates,
    fit_unconstrained,
    plain_objective,
    score_model_of,
    smooth_objective,
)
from ratecli.solvers.seldonian.selection import (
    MIN_DECREASE,
    CandidatePoint,
    CandidateSearch,
    CandidateSelection,
    CandidateTracker,
    minimize_worst_bound,
    shortfall_reason,
)

_coordinates_cache = FitCache[WhitenedCoordinates](4)
"""Coordinates around unconstrained models, which sweep points share."""
ADAM_DECAYS = (0.9, 0.95)
"""Decay of the running means of slopes and of their squares (those of the toolkit)."""
MULTIPLIER_DAMPING = 3.0
"""Factor of an upper end that is added to its multiplier in the gradient (damping)."""
LAGRANGIAN_MARGIN = 1e-6
"""Ends are required to be this far below 0, because iterates oscillate around the boundary."""


def descend_lagrangian(
    selection: CandidateSelection,
    track: CandidateTracker,
    start: CandidatePoint,
    options: Seldonian,
) -> Array:
    """Search for the saddle point of `objective + multipliers . ends`.

    Return the damped multipliers (P,) at the best iterate that passes. Multipliers are nonnegative.
    An infinite end has no slope and counts as 1. A non-finite iterate ends the search.
    """

    def ends_at(point: CandidatePoint) -> Array:
        finite = np.isfinite(point.upper)
        return np.where(finite, point.upper + LAGRANGIAN_MARGIN, np.sign(point.upper))

    def damped_multipliers() -> Array:
        return np.maximum(multipliers + MULTIPLIER_DAMPING * ends, 0.0)

    point, ends = start, ends_at(start)
    descent, ascent = (Stepper("adam", options.step, ADAM_DECAYS) for _ in range(2))
    multipliers = np.full(len(ends), options.multiplier)
    best = damped = damped_multipliers()
    for k in range(options.iterations):
        slopes = selection.gradient(point) + selection.jacobian(point).T @ damped
        if not np.isfinite(slopes).all():
            break
        descent.rate = ascent.rate = options.step * (1 - k / options.iterations)
        multipliers = np.maximum(multipliers - ascent.step(-ends), 0.0)
        point = selection.at(point.v - descent.step(slopes))
        ends = ends_at(point)
        track.step(point)
        damped = damped_multipliers()
        if point is track.best:
            best = damped
    return best


INITIAL_SIGMA = 0.2
"""Initial standard deviation, in whitened coordinates."""
FAILED_PENALTY, INFINITE_BOUND_PENALTY = 1e5, 1e4
"""Objective of a candidate that does not pass, plus the sum of its ends above 0; and the value of
an infinite end.
"""


def evolve(
    selection: CandidateSelection,
    track: CandidateTracker,
    start: CandidatePoint,
    iterations: int,
    seed: int,
) -> Array:
    """Search by CMA-ES of the package `cma`; return zeros (P,), as it has no multipliers."""
    import cma

    def penalized(point: CandidatePoint) -> float:
        """Return the objective if a candidate passes, else a larger penalty."""
        if point.passes:
            return point.objective
        return FAILED_PENALTY + float(np.clip(point.upper, 0.0, INFINITE_BOUND_PENALTY).sum())

    tolerances = {"tolfun": 1e-7, "tolfunhist": 1e-8, "tolx": 1e-6}
    quiet = {"verbose": -9, "verb_log": 0, "verb_disp": 0}
    options = {"seed": seed, "maxiter": iterations} | tolerances | quiet
    search = cma.CMAEvolutionStrategy(start.v, INITIAL_SIGMA, options)
    while not search.stop():
        places = search.ask()
        points = [selection.at(np.asarray(place)) for place in places]
        for point in points:
            track.update(point)
        search.tell(places, [penalized(point) for point in points])
        track.step(min(points, key=penalized))
    return np.zeros(len(start.upper))


ROW_TOLERANCE = 1e-5
"""Decrease worth another step, relative to the weight of a row in the objective."""
CURVATURE_SCORE_CAP = 4.0
"""Scores are clipped to this range for curvatures: those of confidently classified rows vanish, and
directions could have none.
"""
BIAS_SHIFTS = (0.0, -0.25, 0.25, -0.5, 0.5, -1.0, 1.0, -2.0, 2.0, -4.0, 4.0, -8.0, 8.0)
"""Shifts of a constant model from the mean of the labels, in scores, or for numbers in standard
deviations; no shift first.
"""
MIN_POSITIVE_SHARE = 1e-4
"""Smallest share of positive labels assumed for constant models."""
CLEARLY_PASSING_BOUND = -1e-7
"""A bound at which a candidate clearly passes."""
SIGN_TOLERANCE = 1e-3
"""Replaces `BOUND_TOLERANCE` where only the sign of the bound matters."""


def solve_smooth(
    options: Seldonian, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Return the best candidate expected to pass, or the one with the smallest bound."""
    seed = int(rng.integers(1, 2**31))
    assert problem.safety_test is not None
    make_selection = candidate_selection if problem.episodes is None else policy_selection
    selection = make_selection(options, problem, problem.safety_test)
    track, model = CandidateTracker(), selection.model
    chosen, multipliers = select_candidate(selection, options, track, seed)
    name = "stochastic" if problem.label_range is None else "estimate"
    if chosen.passes:
        progress(f"{len(track.trace)} steps, objective {chosen.objective:.6g}")
        classifier = {name: model.classifier(chosen.w)}
        return Solution(classifier, "solved", "", multipliers, tuple(track.trace))
    nearest = point = minimize_worst_bound(selection, chosen, track)
    progress(f"{len(track.trace)} steps, smallest bound {nearest.worst:+.4g}")

    def passes(times: float) -> bool:
        """Would a model near the last one pass with a multiple of the rows?"""
        nonlocal point  # the optimum for one number of rows is a good start for another
        more = replace(selection, prediction=replace(selection.prediction, times=times))
        point = minimize_worst_bound(
            more, more.at(point.v), CandidateTracker(), CLEARLY_PASSING_BOUND, SIGN_TOLERANCE
        )
        return point.worst <= 0

    reason = shortfall_reason(selection.prediction, nearest.upper, passes)
    classifier = {name: model.classifier(nearest.w)}
    return Solution(classifier, "iteration_limit", reason, trace=tuple(track.trace))


def select_candidate(
    selection: CandidateSelection, options: Seldonian, track: CandidateTracker, seed: int = 1
) -> tuple[CandidatePoint, dict[str, float]]:
    """Return the candidate with the smallest objective found among those expected to pass.

    The multipliers of the constraints are returned as well. If the optimum without constraints is
    expected to pass, it is returned. If the optimizer finds no candidate that passes, or none
    better than a constant model, it is restarted from another point that passes. If there is none,
    the candidate with the smallest bound is returned.
    """

    def search(start: CandidatePoint) -> Array:
        """Search from a start, and return the multipliers (P,)."""
        if options.optimizer == "lagrangian":
            return descend_lagrangian(selection, track, start, options)
        if options.optimizer == "cma":
            return evolve(selection, track, start, options.iterations, seed)
        exact = max(MIN_DECREASE, ROW_TOLERANCE / selection.design.X.shape[0])
        return CandidateSearch(selection, track, exact=exact).run(start, options.iterations)[1]

    optimum = selection.at(np.zeros(selection.design.width))
    track.step(optimum)
    if optimum.passes and isinstance(selection.objective, MeanLoss):
        return optimum, {}
    start = desaturate_point(selection, optimum)
    multipliers = search(start)
    if restart := _find_better_start(selection, start, track):
        track.update(restart)
        multipliers = search(restart)
    known = np.where(np.isfinite(multipliers), multipliers, 0)
    best = track.best or track.nearest or start
    return best, sum_by_goal(selection.prediction.owners, known)


def desaturate_point(selection: CandidateSelection, point: CandidatePoint) -> CandidatePoint:
    """Scale scores down if most probabilities are close to 0 or 1, as they are on separable rows.

    There the slopes vanish, and a search could not follow them.
    """
    typical = float(np.median(np.abs(selection.design.scores(point.w))))
    if selection.model.numeric or typical <= CURVATURE_SCORE_CAP:
        return point
    return selection.at(selection.coordinates.place(point.w * (CURVATURE_SCORE_CAP / typical)))


def _find_better_start(
    selection: CandidateSelection, start: CandidatePoint, track: CandidateTracker
) -> CandidatePoint | None:
    """Return a point that passes and is better than the best one so far, or None.

    It is the best constant model or, if nothing passed so far, a point of smallest bound reached
    from a constant model or from the start.
    """
    if track.best is not None:
        plain = constant_model(selection, BIAS_SHIFTS[0])
        better = plain.passes and plain.objective < track.best.objective
        return plain if better else None
    constants = [constant_model(selection, shift) for shift in BIAS_SHIFTS]
    passing = [point for point in constants if point.passes]
    if passing:
        return min(passing, key=lambda point: point.objective)
    for place in (start, min(constants, key=lambda point: point.worst)):
        point = minimize_worst_bound(selection, place, track, CLEARLY_PASSING_BOUND)
        if point.passes:
            return point
    return None


def constant_model(selection: CandidateSelection, shift: float) -> CandidatePoint:
    """Return a constant model: the mean of the labels, shifted by `shift`."""
    if not isinstance(selection.model, ScoreModel):  # a policy: all actions have the same chance
        return selection.at(np.zeros(selection.design.width))
    label = selection.model.label
    mean = float(np.nanmean(label))
    if selection.model.numeric:
        bias = mean + shift * float(np.nanstd(label))
    else:
        bias = float(logit(np.clip(mean, MIN_POSITIVE_SHARE, 1 - MIN_POSITIVE_SHARE))) + shift
    w = np.append(np.zeros(selection.design.width - 1), bias)
    return selection.at(selection.coordinates.place(w))


def candidate_selection(
    options: Seldonian, problem: Problem, safety: SafetyTestSpec
) -> CandidateSelection:
    """Return the optimization problem of smooth models, predicting the given safety test."""
    design, model = DesignMatrix(problem.X, "unregularized"), score_model_of(problem)
    plain = plain_objective(problem)
    objective = smooth_objective(problem.objective, problem.rates, model)
    convex = objective if isinstance(objective, MeanLoss) else plain

    def around_minimum() -> WhitenedCoordinates:
        origin = fit_unconstrained(convex, model, design, problem.l2)
        cap = np.inf if model.numeric else CURVATURE_SCORE_CAP
        capped = model.outputs(np.clip(design.scores(origin), -cap, cap))
        return WhitenedCoordinates.around(design, origin, plain.curvatures(capped), problem.l2)

    weights = model.label, convex.weights, plain.weights
    key = array_digest((problem.l2, convex.of, plain.of), problem.X, *weights)
    coordinates = _coordinates_cache.get(key, around_minimum)
    scores = design.scores(coordinates.origin)
    prediction = predict_safety_test(problem, safety, model.outputs(scores), options.inflation)
    return CandidateSelection(design, objective, problem.l2, prediction, model, coordinates)

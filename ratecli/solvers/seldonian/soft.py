"""Candidate selection for models whose measurements are smooth in their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from scipy.special import logit

from ratecli.models.base import Array
from ratecli.solvers.problem import sum_by_goal
from ratecli.solvers.seldonian.attain import CLEARLY_PASSING_BOUND, minimize_worst_bound
from ratecli.solvers.seldonian.evolution import CmaEvolution
from ratecli.solvers.seldonian.lagrangian import LagrangianOptimizer
from ratecli.solvers.seldonian.objective import ConvexObjective
from ratecli.solvers.seldonian.selection import CandidatePoint, CandidateSelection, CandidateTracker
from ratecli.solvers.seldonian.sequential import MIN_DECREASE, SqpOptimizer

ROW_TOLERANCE = 1e-5
"""What part of a row's weight in the objective is worth another step."""
CURVATURE_SCORE_CAP = 4.0
"""Score beyond which a row's curvature is taken to be what it is there: those of rows that a model is
sure of vanish, and directions would have none.
"""
BIAS_SHIFTS = (0.0, -0.25, 0.25, -0.5, 0.5, -1.0, 1.0, -2.0, 2.0, -4.0, 4.0, -8.0, 8.0)
"""From what labels are on average, in scores or, of numbers, in deviations: first none at all."""
MIN_POSITIVE_SHARE = 1e-4
"""Share of positive labels that models which look at no feature begin from, at least."""
OptimizerName = Literal["sequential", "lagrangian", "cma"]


@dataclass(frozen=True)
class OptimizerSettings:
    """Which optimizer, and its options: see `solver.Seldonian`."""

    optimizer: OptimizerName = "sequential"
    iterations: int = 1000
    step: float = 0.01
    multiplier: float = 0.5
    seed: int = 1


@dataclass(frozen=True)
class SelectedCandidate:
    """A candidate, whether it is expected to pass, and the multipliers of the constraints."""

    point: CandidatePoint
    passes: bool
    multipliers: Mapping[str, float] = field(default_factory=dict)


class CandidateOptimizer(Protocol):
    def run(self, start: CandidatePoint, steps: int) -> tuple[CandidatePoint, Array]: ...


def select_candidate(
    selection: CandidateSelection, settings: OptimizerSettings, track: CandidateTracker
) -> SelectedCandidate:
    """The candidate of least objective among those expected to pass that are found.

    The optimum without constraints is the answer where it is expected to pass. Where what an optimizer
    finds is none that is, or no better than a model that looks at no feature, it starts again from
    another point that passes. If there is none, the candidate is the point of the least worst end.
    """
    optimum = selection.at(np.zeros(selection.design.width))
    track.step(optimum)
    if optimum.passes and isinstance(selection.objective, ConvexObjective):
        return SelectedCandidate(optimum, passes=True)
    start = desaturate_point(selection, optimum)
    _, multipliers = _make_optimizer(selection, settings, track).run(start, settings.iterations)
    if found := _find_better_start(selection, start, track):
        track.see(found)
        again = _make_optimizer(selection, settings, track)
        _, multipliers = again.run(found, settings.iterations)
    best = track.best or track.nearest or start
    named = sum_by_goal(
        selection.prediction.owners, np.where(np.isfinite(multipliers), multipliers, 0)
    )
    return SelectedCandidate(best, best.passes, named)


def desaturate_point(selection: CandidateSelection, point: CandidatePoint) -> CandidatePoint:
    """A point of smaller scores in the same direction, where most chances are all but 0 and 1.

    There they have no slopes that a search could follow: so it is with rows that can be told apart.
    """
    typical = float(np.median(np.abs(point.scores)))
    if selection.model.numeric or typical <= CURVATURE_SCORE_CAP:
        return point
    return selection.at(selection.coordinates.place(point.w * (CURVATURE_SCORE_CAP / typical)))


def _find_better_start(
    selection: CandidateSelection, start: CandidatePoint, track: CandidateTracker
) -> CandidatePoint | None:
    """A point that passes, better than what was found: the best model that looks at no feature, or, if
    nothing was found, one of the least worst end from there or from the start.
    """
    if track.best is not None:
        plain = selection.at(_bias_only_weights(selection, BIAS_SHIFTS[0]))
        better = plain.passes and plain.objective < track.best.objective
        return plain if better else None
    blind = [selection.at(_bias_only_weights(selection, shift)) for shift in BIAS_SHIFTS]
    passing = [point for point in blind if point.passes]
    if passing:
        return min(passing, key=lambda point: point.objective)
    for place in (start, min(blind, key=lambda point: point.worst)):
        found = minimize_worst_bound(selection, place, track, CLEARLY_PASSING_BOUND)
        if found.passes:
            return found
    return None


def _bias_only_weights(selection: CandidateSelection, shift: float) -> Array:
    """Where all weights but the bias are 0, and that says what the labels are on average, or more."""
    label = selection.model.label
    mean = float(np.nanmean(label))
    if selection.model.numeric:
        bias = mean + shift * float(np.nanstd(label))
    else:
        bias = float(logit(np.clip(mean, MIN_POSITIVE_SHARE, 1 - MIN_POSITIVE_SHARE))) + shift
    w = np.zeros(selection.design.width)
    w[-1] = bias
    return selection.coordinates.place(w)


def _make_optimizer(
    selection: CandidateSelection, settings: OptimizerSettings, track: CandidateTracker
) -> CandidateOptimizer:
    match settings.optimizer:
        case "lagrangian":
            return LagrangianOptimizer(selection, track, settings.step, settings.multiplier)
        case "cma":
            return CmaEvolution(selection, track, settings.seed)
    exact = max(MIN_DECREASE, ROW_TOLERANCE / selection.design.X.shape[0])
    return SqpOptimizer(selection, track, exact=exact)

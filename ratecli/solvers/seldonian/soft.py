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
from ratecli.solvers.seldonian.objective import ConvexObjective
from ratecli.solvers.seldonian.selection import CandidatePoint, CandidateSelection, CandidateTracker
from ratecli.solvers.seldonian.sequential import MIN_DECREASE, SqpOptimizer

ADAM_MEAN_DECAY, ADAM_SQUARE_DECAY = 0.9, 0.95
"""Decay of the running means of slopes and of their squares (the toolkit's)."""
ADAM_TINY = 1e-8
MULTIPLIER_DAMPING = 3.0
"""What an end adds at once to its multiplier, in multiples of itself."""
LAGRANGIAN_MARGIN = 1e-6
"""How far below 0 ends are asked to be: what circles around the edge must be within."""


@dataclass
class AdamStepper:
    """Steps of about `rate` in every coordinate (Kingma, Ba 2015, algorithm 1).

    Running means begin at 0 and are corrected for that in each step anew, not in place: under constant
    slopes each step has the length `rate`, from the first on.
    """

    rate: float
    count: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(1))
    square: Array = field(default_factory=lambda: np.zeros(1))

    def step(self, slopes: Array) -> Array:
        """What to add to the coordinates."""
        self.count += 1
        self.mean = ADAM_MEAN_DECAY * self.mean + (1 - ADAM_MEAN_DECAY) * slopes
        self.square = ADAM_SQUARE_DECAY * self.square + (1 - ADAM_SQUARE_DECAY) * slopes**2
        mean = self.mean / (1 - ADAM_MEAN_DECAY**self.count)
        square = self.square / (1 - ADAM_SQUARE_DECAY**self.count)
        return -self.rate * mean / (np.sqrt(square) + ADAM_TINY)


@dataclass(frozen=True)
class LagrangianOptimizer:
    """The saddle point of `objective + multipliers . ends`; the best iterate that passes is kept.

    Multipliers stay at least 0. An end that is infinite has no slope and counts as 1. An iterate that is
    no number ends the search; what was found before stays.
    """

    selection: CandidateSelection
    track: CandidateTracker
    rate: float
    multiplier: float

    def run(self, start: CandidatePoint, steps: int) -> tuple[CandidatePoint, Array]:
        """The last point, and the multipliers (P,) that were felt at the best one."""
        point, ends = start, self._ends(start)
        descent, ascent = AdamStepper(self.rate), AdamStepper(self.rate)
        multipliers = np.full(len(ends), self.multiplier)
        of_best = felt = self._felt(multipliers, ends)
        for k in range(steps):
            slopes = self.selection.gradient(point) + self.selection.jacobian(point).T @ felt
            if not np.isfinite(slopes).all():
                break
            descent.rate = ascent.rate = self.rate * (1 - k / steps)
            multipliers = np.maximum(multipliers + ascent.step(-ends), 0.0)
            point = self.selection.at(point.v + descent.step(slopes))
            ends = self._ends(point)
            self.track.step(point)
            felt = self._felt(multipliers, ends)
            if point is self.track.best:
                of_best = felt
        return point, of_best

    @staticmethod
    def _felt(multipliers: Array, ends: Array) -> Array:
        return np.maximum(multipliers + MULTIPLIER_DAMPING * ends, 0.0)

    @staticmethod
    def _ends(point: CandidatePoint) -> Array:
        return np.where(
            np.isfinite(point.upper), point.upper + LAGRANGIAN_MARGIN, np.sign(point.upper)
        )


INITIAL_SIGMA = 0.2
"""Deviation of the first candidates, in coordinates in which the objective is round."""
FAILED_PENALTY, INFINITE_BOUND_PENALTY = 1e5, 1e4
"""Objective of what does not pass, beside the sum of its ends above 0; what an infinite end counts."""


@dataclass(frozen=True)
class CmaEvolution:
    """CMA-ES by the package `cma`: seeded, and quiet."""

    selection: CandidateSelection
    track: CandidateTracker
    seed: int

    def run(self, start: CandidatePoint, steps: int) -> tuple[CandidatePoint, Array]:
        """The last mean, and no multipliers: zeros (P,)."""
        import cma  # noqa: PLC0415  slow to import

        options = {
            "seed": self.seed, "maxiter": steps, "verbose": -9, "verb_log": 0, "verb_disp": 0,
            "tolfun": 1e-7, "tolfunhist": 1e-8, "tolx": 1e-6,
        }  # fmt: skip
        search = cma.CMAEvolutionStrategy(start.v, INITIAL_SIGMA, options)
        while not search.stop():
            places = search.ask()
            points = [self.selection.at(np.asarray(place)) for place in places]
            for point in points:
                self.track.see(point)
            search.tell(places, [self.barred(point) for point in points])
            self.track.step(min(points, key=self.barred))
        return self.selection.at(np.asarray(search.result.xfavorite)), np.zeros(len(start.upper))

    def barred(self, point: CandidatePoint) -> float:
        """The objective where a candidate passes, and more than any where it does not."""
        if point.passes:
            return point.objective
        missed = np.nan_to_num(np.maximum(point.upper, 0.0), posinf=INFINITE_BOUND_PENALTY)
        return FAILED_PENALTY + float(np.minimum(missed, INFINITE_BOUND_PENALTY).sum())


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

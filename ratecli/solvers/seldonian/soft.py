"""Candidate selection for models whose measurements are smooth in their weights.

It holds two of the optimizers, `lagrangian` and `cma`; `sequential` is in a module of its own.
"""

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
"""Decay of the running means of slopes and of their squares (those of the toolkit)."""
ADAM_TINY = 1e-8
MULTIPLIER_DAMPING = 3.0
"""Factor of an upper end that is added to its multiplier in the gradient (damping)."""
LAGRANGIAN_MARGIN = 1e-6
"""Ends are required to be this far below 0, because iterates oscillate around the boundary."""


@dataclass
class AdamStepper:
    """Adam steps of about `rate` in every coordinate (Kingma, Ba 2015, algorithm 1).

    Running means start at 0. The bias correction is applied to a copy in each step, not in place,
    so under constant slopes each step has the length `rate` from the first on.
    """

    rate: float
    count: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(1))
    square: Array = field(default_factory=lambda: np.zeros(1))

    def step(self, slopes: Array) -> Array:
        """Return the step to add to the coordinates."""
        self.count += 1
        self.mean = ADAM_MEAN_DECAY * self.mean + (1 - ADAM_MEAN_DECAY) * slopes
        self.square = ADAM_SQUARE_DECAY * self.square + (1 - ADAM_SQUARE_DECAY) * slopes**2
        mean = self.mean / (1 - ADAM_MEAN_DECAY**self.count)
        square = self.square / (1 - ADAM_SQUARE_DECAY**self.count)
        return -self.rate * mean / (np.sqrt(square) + ADAM_TINY)


@dataclass(frozen=True)
class LagrangianOptimizer:
    """Searches for the saddle point of `objective + multipliers . ends`.

    The best iterate that passes is kept. Multipliers are nonnegative. An infinite end has no slope
    and counts as 1. A non-finite iterate ends the search.
    """

    selection: CandidateSelection
    track: CandidateTracker
    rate: float
    multiplier: float

    def run(self, start: CandidatePoint, steps: int) -> tuple[CandidatePoint, Array]:
        """Return the last point, and the damped multipliers (P,) at the best one."""
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
"""Initial standard deviation, in whitened coordinates."""
FAILED_PENALTY, INFINITE_BOUND_PENALTY = 1e5, 1e4
"""Objective of a candidate that does not pass, plus the sum of its ends above 0; and the value of
an infinite end.
"""


@dataclass(frozen=True)
class CmaEvolution:
    """CMA-ES of the package `cma`, seeded and without output."""

    selection: CandidateSelection
    track: CandidateTracker
    seed: int

    def run(self, start: CandidatePoint, steps: int) -> tuple[CandidatePoint, Array]:
        """Return the last mean, and zeros (P,) because there are no multipliers."""
        import cma

        options = {
            "seed": self.seed,
            "maxiter": steps,
            "verbose": -9,
            "verb_log": 0,
            "verb_disp": 0,
            "tolfun": 1e-7,
            "tolfunhist": 1e-8,
            "tolx": 1e-6,
        }
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
        """Return the objective if a candidate passes, else a larger penalty."""
        if point.passes:
            return point.objective
        missed = np.nan_to_num(np.maximum(point.upper, 0.0), posinf=INFINITE_BOUND_PENALTY)
        return FAILED_PENALTY + float(np.minimum(missed, INFINITE_BOUND_PENALTY).sum())


ROW_TOLERANCE = 1e-5
"""Predicted decrease worth another step, relative to the weight of a row in the objective."""
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
OptimizerName = Literal["sequential", "lagrangian", "cma"]


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimizer and its options: see `solver.Seldonian`."""

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
    """Return the candidate with the smallest objective found among those expected to pass.

    If the optimum without constraints is expected to pass, it is returned. If the optimizer finds
    no candidate that passes, or none better than a constant model, it is restarted from another
    point that passes. If there is none, the candidate with the smallest bound is returned.
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
    """Scale scores down if most probabilities are close to 0 or 1, as they are on separable rows.

    There the slopes vanish, and a search could not follow them.
    """
    typical = float(np.median(np.abs(point.scores)))
    if selection.model.numeric or typical <= CURVATURE_SCORE_CAP:
        return point
    return selection.at(selection.coordinates.place(point.w * (CURVATURE_SCORE_CAP / typical)))


def _find_better_start(
    selection: CandidateSelection, start: CandidatePoint, track: CandidateTracker
) -> CandidatePoint | None:
    """Return a point that passes and is better than the best one found, or None.

    It is the best constant model or, if nothing was found so far, a point of smallest bound reached
    from a constant model or from the start.
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
    """Return coordinates of a constant model: the mean of the labels, shifted by `shift`."""
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

"""Candidate selection for models whose measurements are smooth in their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from scipy.special import logit

from ratecli.models.base import Array
from ratecli.solvers.problem import by_goal
from ratecli.solvers.seldonian.attain import CLEAR, least
from ratecli.solvers.seldonian.evolution import Evolution
from ratecli.solvers.seldonian.lagrangian import Lagrangian
from ratecli.solvers.seldonian.objective import Convex
from ratecli.solvers.seldonian.selection import Point, Selection, Track
from ratecli.solvers.seldonian.sequential import EXACT, Sequential

OF_A_ROW = 1e-5
"""What part of a row's weight in the objective is worth another step."""
BENT = 4.0
"""Score beyond which a row's curvature is taken to be what it is there: those of rows that a model is
sure of vanish, and directions would have none.
"""
SHIFTS = (0.0, -0.25, 0.25, -0.5, 0.5, -1.0, 1.0, -2.0, 2.0, -4.0, 4.0, -8.0, 8.0)
"""From what labels are on average, in scores or, of numbers, in deviations: first none at all."""
RAREST = 1e-4
"""Share of positive labels that models which look at no feature begin from, at least."""
Name = Literal["sequential", "lagrangian", "cma"]


@dataclass(frozen=True)
class Settings:
    """Which optimizer, and its options: see `solver.Seldonian`."""

    optimizer: Name = "sequential"
    iterations: int = 1000
    step: float = 0.01
    multiplier: float = 0.5
    seed: int = 1


@dataclass(frozen=True)
class Selected:
    """A candidate, whether it is expected to pass, and the multipliers of the constraints."""

    point: Point
    passes: bool
    multipliers: Mapping[str, float] = field(default_factory=dict)


class Optimizer(Protocol):
    def run(self, start: Point, steps: int) -> tuple[Point, Array]: ...


def select(selection: Selection, settings: Settings, track: Track) -> Selected:
    """The candidate of least objective among those expected to pass that are found.

    The optimum without constraints is the answer where it is expected to pass. Where what an optimizer
    finds is none that is, or no better than a model that looks at no feature, it starts again from
    another point that passes. If there is none, the candidate is the point of the least worst end.
    """
    optimum = selection.at(np.zeros(selection.design.width))
    track.step(optimum)
    if optimum.passes and isinstance(selection.objective, Convex):
        return Selected(optimum, passes=True)
    start = unsaturated(selection, optimum)
    _, multipliers = _optimizer(selection, settings, track).run(start, settings.iterations)
    if found := _better_start(selection, start, track):
        track.see(found)
        again = _optimizer(selection, settings, track)
        _, multipliers = again.run(found, settings.iterations)
    best = track.best or track.nearest or start
    named = by_goal(selection.prediction.owners, np.where(np.isfinite(multipliers), multipliers, 0))
    return Selected(best, best.passes, named)


def unsaturated(selection: Selection, point: Point) -> Point:
    """A point of smaller scores in the same direction, where most chances are all but 0 and 1.

    There they have no slopes that a search could follow: so it is with rows that can be told apart.
    """
    typical = float(np.median(np.abs(point.scores)))
    if selection.model.numeric or typical <= BENT:
        return point
    return selection.at(selection.coordinates.place(point.w * (BENT / typical)))


def _better_start(selection: Selection, start: Point, track: Track) -> Point | None:
    """A point that passes, better than what was found: the best model that looks at no feature, or, if
    nothing was found, one of the least worst end from there or from the start.
    """
    if track.best is not None:
        plain = selection.at(_blind(selection, SHIFTS[0]))
        better = plain.passes and plain.objective < track.best.objective
        return plain if better else None
    blind = [selection.at(_blind(selection, shift)) for shift in SHIFTS]
    passing = [point for point in blind if point.passes]
    if passing:
        return min(passing, key=lambda point: point.objective)
    for place in (start, min(blind, key=lambda point: point.worst)):
        found = least(selection, place, track, CLEAR)
        if found.passes:
            return found
    return None


def _blind(selection: Selection, shift: float) -> Array:
    """Where all weights but the bias are 0, and that says what the labels are on average, or more."""
    label = selection.model.label
    mean = float(np.nanmean(label))
    if selection.model.numeric:
        bias = mean + shift * float(np.nanstd(label))
    else:
        bias = float(logit(np.clip(mean, RAREST, 1 - RAREST))) + shift
    w = np.zeros(selection.design.width)
    w[-1] = bias
    return selection.coordinates.place(w)


def _optimizer(selection: Selection, settings: Settings, track: Track) -> Optimizer:
    match settings.optimizer:
        case "lagrangian":
            return Lagrangian(selection, track, settings.step, settings.multiplier)
        case "cma":
            return Evolution(selection, track, settings.seed)
    exact = max(EXACT, OF_A_ROW / selection.design.X.shape[0])
    return Sequential(selection, track, exact=exact)

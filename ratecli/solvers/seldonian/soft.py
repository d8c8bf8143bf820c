"""Candidate selection for models whose measurements are smooth in their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

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
SHIFTS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
"""Scores of models that look at no feature: from the mean of those of the optimum, in deviations."""
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

    The optimum without constraints is the answer where it is expected to pass. Where an optimizer finds
    nothing that is, it starts again from another point that passes. If there is none, the candidate is
    the point of the least worst end.
    """
    start = selection.at(np.zeros(selection.design.width))
    track.step(start)
    if start.passes and isinstance(selection.objective, Convex):
        return Selected(start, passes=True)
    _, multipliers = _optimizer(selection, settings, track).run(start, settings.iterations)
    if track.best is None and (found := _passing(selection, start, track)):
        again = _optimizer(selection, settings, track)
        _, multipliers = again.run(found, settings.iterations)
    best = track.best or track.nearest or start
    named = by_goal(selection.prediction.owners, np.where(np.isfinite(multipliers), multipliers, 0))
    return Selected(best, best.passes, named)


def _optimizer(selection: Selection, settings: Settings, track: Track) -> Optimizer:
    match settings.optimizer:
        case "lagrangian":
            return Lagrangian(selection, track, settings.step, settings.multiplier)
        case "cma":
            return Evolution(selection, track, settings.seed)
    exact = max(EXACT, OF_A_ROW / selection.design.X.shape[0])
    return Sequential(selection, track, exact=exact)


def _passing(selection: Selection, start: Point, track: Track) -> Point | None:
    """A point that passes: the best model that looks at no feature, or one of the least worst end from
    there or from the optimum, which may be far from any good one.
    """
    blind = [selection.at(place) for place in _blind(selection)]
    passing = [point for point in blind if point.passes]
    if passing:
        return min(passing, key=lambda point: point.objective)
    for place in (start, min(blind, key=lambda point: point.worst)):
        found = least(selection, place, track, CLEAR)
        if found.passes:
            return found
    return None


def _blind(selection: Selection) -> Iterator[Array]:
    """Where all weights but the bias are 0, which is that of the mean score, or less or more."""
    origin = selection.coordinates.origin
    scores = selection.design.scores(origin)
    for shift in SHIFTS:
        w = np.zeros(len(origin))
        w[-1] = float(scores.mean()) + shift * float(scores.std())
        yield selection.coordinates.place(w)

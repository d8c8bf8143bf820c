"""Candidate selection for models whose measurements are smooth in their weights."""

from __future__ import annotations

from collections.abc import Mapping
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
    nothing that is, the least worst end is sought, from that optimum and from a model that
    looks at no feature, and the optimizer starts again from the first point that passes. If there is
    none, the candidate is the point of the least worst end.
    """
    start = selection.at(np.zeros(selection.design.width))
    track.step(start)
    if start.passes and isinstance(selection.objective, Convex):
        return Selected(start, passes=True)
    _, multipliers = _optimizer(selection, settings, track).run(start, settings.iterations)
    if track.best is None:
        for place in (start.v, _blind(selection)):
            found = least(selection, selection.at(place), track, CLEAR)
            if found.passes:
                again = _optimizer(selection, settings, track)
                _, multipliers = again.run(found, settings.iterations)
                break
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


def _blind(selection: Selection) -> Array:
    """Where all weights but the bias are 0, which is that of the mean score."""
    origin = selection.coordinates.origin
    w = np.zeros(len(origin))
    w[-1] = float(selection.design.scores(origin).mean())
    return selection.coordinates.place(w)

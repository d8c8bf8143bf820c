"""Problem 3 of Goh et al. (2016), solved to a certified gap by the method of multipliers.

The method is applied to the scores y = X w (Rockafellar 1976). Its multipliers are slopes, one per
row, which form a dual point. Each round solves a smooth problem by Newton's method (`newton`), with
all constraints inside, so it needs no outer search over multipliers, unlike their Algorithm 2.

Compared with dual coordinate ascent, each step yields both ends of the gap, however ill-conditioned
the problem is. Interior-point methods form X' D X of all rows in each step, which is infeasible for
wide X, and cannot be warm-started.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ratecli.models.base import Array
from ratecli.models.linear import RAMP_CORNER
from ratecli.solvers.majorize.convex import (
    COMPROMISE_GAP,
    FEASIBILITY_TOLERANCE,
    ConvexProblem,
    ConvexSolution,
    StoppingRule,
    constraint_excess,
)
from ratecli.solvers.majorize.newton import EnvelopePoint, HingePulls, MoreauEnvelope, times_rows

MAX_ROUNDS = 60
"""Maximum number of slope updates."""
MAX_NEWTON_STEPS = 40
"""Maximum number of Newton steps between two updates."""
INITIAL_SIGMA = 1.5
"""Sigma of the first round, in mean weights of a row."""
SIGMA_GROWTH = 1.5
"""Factor on sigma from round to round."""
GRADIENT_SHARE = 0.3
"""Slopes are updated once the gradient accounts for at most this part of the gap."""
MARGIN_SHARE = 0.2
"""Part of the gap that margins on the constraints may cost."""
MAX_CONSTRAINT_MARGIN = 1e-4
"""Largest margin (rate units)."""
MARGIN_TOLERANCE = 0.5
"""Accuracy of the constraints in the proximal step, in margins."""
CHORD_POINTS = 6
"""Number of points tried on the way to an infeasible one."""
MIN_CHORD_SHARE = 0.1
"""Smallest part of a chord that is worth moving along."""
MAX_REPAIR_DISTANCE = 3.0
"""How close to the bound, in tolerances, an infeasible point must be to be made feasible."""
INITIAL_PRICE = 100.0
"""Initial price of excess, in ranges of the objective."""
PRICE_GROWTH = 10.0
"""Factor by which the price of excess grows."""


class _Slopes(NamedTuple):
    """Slopes (n,) and their bounds, from which the next problem can start."""

    slopes: Array
    up: Array
    down: Array


@dataclass(frozen=True)
class AugmentedLagrangian:
    """The method of multipliers with all constraints at once."""

    stopping: StoppingRule

    def solve(
        self, problem: ConvexProblem, anchor: Array, before: ConvexSolution | None = None
    ) -> ConvexSolution:
        """Minimize, raising the price of excess while that may help.

        The price is raised while a multiplier reaches it and a constraint is violated, or while the
        feasible point found costs more than an infeasible one.
        """
        price = min(INITIAL_PRICE * (problem.ramp.spread or 1.0), self.stopping.ceiling)
        while True:
            search = _FixedPriceRun(problem, self.stopping, price, anchor)
            found = search.run(before)
            is_final = price >= self.stopping.ceiling or found.lower > self.stopping.hopeless
            if search.certain or is_final or not search.priced_out:
                return found
            price, before = min(PRICE_GROWTH * price, self.stopping.ceiling), found


@dataclass(frozen=True)
class _Point:
    """Weights with their scores and values; `worth` is the objective plus the price of excess."""

    w: Array
    z: Array
    values: Array
    worth: float

    @property
    def feasible(self) -> bool:
        return bool((self.values[1:] <= FEASIBILITY_TOLERANCE).all())


class _FixedPriceRun:
    """A run at one price of excess: the best point, the best lower bound and the current slopes."""

    def __init__(
        self, problem: ConvexProblem, stopping: StoppingRule, price: float, anchor: Array
    ) -> None:
        self.problem, self.stopping, self.price = problem, stopping, price
        self.best = self._point(anchor, problem.ramp.rows.scores(anchor))
        self.cheapest = self.best.worth
        self.start = self.best.values[0] if self.best.feasible else -np.inf
        self.slopes = np.zeros(len(problem.ramp.rows))
        self.v = np.zeros(problem.constraints)
        self.pulls = HingePulls(problem)
        self.lower, self.certificate = -np.inf, self.v
        self.steps = 0

    def run(self, before: ConvexSolution | None) -> ConvexSolution:
        weights = self.problem.weights / max(len(self.slopes), 1)
        sigma = INITIAL_SIGMA * float(weights[0] or weights.max() or 1.0)
        w, z = self._start(before)
        for _ in range(MAX_ROUNDS):
            w, z = self._round(w, z, sigma)
            if self.done:
                break
            sigma *= SIGMA_GROWTH
        value, *values = self.best.values.tolist()
        point = self.best.w, value, self.certificate, constraint_excess(np.array(values))
        converged = self.certain if self.best.feasible else self.done
        state, gap = _Slopes(self.slopes, *self.problem.bounds(self.v)), max(self.gap, 0.0)
        return ConvexSolution(*point, self.lower, gap, self.steps, converged, state)

    def _start(self, before: ConvexSolution | None) -> tuple[Array, Array]:
        """Return the initial weights and their scores; set slopes and multipliers, from `before` if
        possible.

        Slopes keep their relative position between their bounds. Rows whose hinges have changed get
        the slopes of the hinges at the last weights.
        """
        known = None if before is None else before.state
        if (
            before is None
            or not isinstance(known, _Slopes)
            or len(known.slopes) != len(self.slopes)
        ):
            return self.best.w, self.best.z
        self.v = np.minimum(before.multipliers, self.price)
        up, down = self.problem.bounds(self.v)
        z = self.problem.ramp.rows.scores(before.w)
        there = np.where(z > RAMP_CORNER, up, np.where(z < -RAMP_CORNER, -down, up - down))
        width = known.up + known.down
        part = np.divide(known.slopes + known.down, width, out=np.zeros(len(z)), where=width > 0)
        alike = ((up > 0) == (known.up > 0)) & ((down > 0) == (known.down > 0))
        self.slopes = np.clip(np.where(alike, part * (up + down) - down, there), -down, up)
        return before.w, z

    def _round(self, w: Array, z: Array, sigma: float) -> tuple[Array, Array]:
        """Take Newton steps on one envelope, whose slopes become the next shift; return weights and
        scores.
        """
        envelope = self._envelope(sigma)
        here = envelope.enter(w, z, self.v)
        for step in range(MAX_NEWTON_STEPS):
            missing = self._update_bounds(here)
            if self.done or (step and self._is_nearly_solved(here, missing)):
                break
            following = envelope.step(here)
            if following is None:
                break
            here, self.steps = following, self.steps + 1
        self.slopes, self.v = here.near.slopes, here.near.v
        return here.w, here.z

    def _envelope(self, sigma: float) -> MoreauEnvelope:
        """Return the smooth problem of a round.

        Binding constraints get a margin whose cost is part of the gap.
        """
        cost = MARGIN_SHARE * self.tolerance / max(len(self.v), 1)
        margin = cost / np.maximum(self.v, cost / MAX_CONSTRAINT_MARGIN)
        kept = MARGIN_TOLERANCE * float(margin.min(initial=MAX_CONSTRAINT_MARGIN))
        margin, shift = margin * (self.v > 0), self.slopes / sigma
        return MoreauEnvelope(self.problem, sigma, margin, self.price, kept, shift, self.pulls)

    @property
    def gap(self) -> float:
        """Gap between the best point, with excess at its price, and the lower bound."""
        return self.best.worth - self.lower

    @property
    def tolerance(self) -> float:
        """The required gap in the objective's units."""
        return self.stopping.tolerance(self.lower, self.problem.ramp.spread)

    @property
    def priced_out(self) -> bool:
        """Whether a higher price of excess would change the solution."""
        return bool((self.certificate >= self.price).any())

    @property
    def certain(self) -> bool:
        """Whether the best point is feasible and its gap small enough."""
        enough = self.stopping.progress * max(self.start - self.best.values[0], 0.0)
        return self.best.feasible and self.gap <= max(self.tolerance, enough)

    @property
    def done(self) -> bool:
        """Whether the run can stop."""
        if self.certain:
            return True
        # A higher price may help, or no point may be feasible: a rough answer is then enough.
        is_final = self.best.feasible and self.price >= self.stopping.ceiling
        rough = 0.0 if is_final else COMPROMISE_GAP
        left = self.cheapest - self.lower  # a feasible point may never be the cheapest
        return self.priced_out and left <= max(self.tolerance, rough * abs(self.lower))

    def _is_nearly_solved(self, here: EnvelopePoint, missing: float) -> bool:
        """Whether the smooth problem is solved well enough.

        The gap at these multipliers, `missing`, is due to the gradient and to the slopes; the
        gradient may account for a fixed part of it.
        """
        penalties, gradient = self.problem.ramp.penalties, here.gradient
        curved = penalties > 0
        left = float((gradient[curved] ** 2 / penalties[curved]).sum()) / 2
        left += float(np.abs(gradient[~curved]) @ np.maximum(np.abs(here.w[~curved]), 1.0))
        return left <= GRADIENT_SHARE * max(missing, self.tolerance)

    def _update_bounds(self, here: EnvelopePoint) -> float:
        """Update the lower bound and the best point.

        If the point is infeasible, a feasible one between it and the best one is used. Return the
        gap at these multipliers, which is that of an SVM.
        """
        v, slopes, pull = here.near.v, here.near.slopes, here.pull
        if self.problem.ramp.rows.intercept == "unregularized":
            slopes, pull = self._balanced(here)
        bound = self.problem.dual(v, slopes, pull)
        if bound > self.lower:
            self.lower, self.certificate = bound, v
        point = self._point(here.w, here.z)
        missing = float(point.values[0] + v @ point.values[1:]) - bound
        self.cheapest = min(self.cheapest, point.worth)
        if self.best.feasible and not point.feasible:
            near = point.values[0] - self.lower <= MAX_REPAIR_DISTANCE * self.tolerance
            point = self._feasible_point_towards(point) if near else self.best
        if point.worth < self.best.worth or (point.feasible and not self.best.feasible):
            self.best = point
        return missing

    def _balanced(self, here: EnvelopePoint) -> tuple[Array, Array]:
        """Return slopes (n,) that sum to 0, and X' times them, (width,).

        If possible, only the slopes of rows at a corner of their hinge change.
        """
        slopes, moved = here.near.slopes.copy(), here.near.corner
        up, down = self.problem.bounds(here.near.v)
        total = slopes[moved].sum() - slopes.sum()  # offsets the slopes of other rows
        if not -down[moved].sum() < total < up[moved].sum():
            moved, total = np.arange(len(slopes)), 0.0
        before = slopes[moved]
        slopes[moved] = balance_slopes(before, up[moved], down[moved], total)
        change = (slopes[moved] - before)[None]
        return slopes, here.pull + times_rows(change, self.problem.ramp.rows, moved)[0]

    def _point(self, w: Array, z: Array) -> _Point:
        values = self.problem.at(z)
        values[0] += self.problem.ramp.regularizer(w)
        worth = float(values[0]) + self.price * float(constraint_excess(values[1:]).sum())
        return _Point(w, z, values, worth)

    def _feasible_point_towards(self, beyond: _Point) -> _Point:
        """Return nearly the last feasible point on the way from the best one to `beyond`.

        Each constraint is convex: it lies below its chord and is satisfied up to where the chord
        crosses 0. Chords that cross near their start are halved instead.
        """
        near = self.best
        for _ in range(CHORD_POINTS):
            missed = np.flatnonzero(beyond.values[1:] > FEASIBILITY_TOLERANCE) + 1
            inside, outside = near.values[missed], beyond.values[missed]
            part = float(np.min(inside / (inside - outside), initial=1.0))
            part = part if part > MIN_CHORD_SHARE else 0.5
            w, z = near.w + part * (beyond.w - near.w), near.z + part * (beyond.z - near.z)
            point = self._point(w, z)
            near, beyond = (point, beyond) if point.feasible else (near, point)
        return near


def balance_slopes(slopes: Array, up: Array, down: Array, total: float) -> Array:
    """Return the nearest slopes (n,) in [-down, up] with the sum `total`, which must be possible.

    They are `clip(slopes - t, -down, up)` for the t at which the sum passes the total.
    """
    corners = np.sort(np.concatenate([slopes - up, slopes + down]))

    def shifted(t: float) -> Array:
        return np.clip(slopes - t, -down, up)

    last = bisect_left(corners, -total, 1, len(corners) - 1, key=lambda t: -shifted(t).sum())
    low, high = float(corners[last - 1]), float(corners[last])
    above, below = float(shifted(low).sum()) - total, float(shifted(high).sum()) - total
    part = above / (above - below) if above > below else 0.0
    return shifted(low + part * (high - low))

"""The hinge problem to a certificate: augmented Lagrangian outside, semismooth Newton inside.

The method of multipliers on z = X w (Rockafellar 1976) keeps slopes that are a dual point. Its
inner problem, in w alone, is smooth and piecewise quadratic: only rows that sit on a corner of
their hinge enter the Hessian, a few hundred of tens of thousands, so a Newton step costs two
products with X and a small Gram matrix (second-order sparsity: Li, Sun, Toh 2018). Chosen over dual
coordinate ascent because both ends of the gap come with every step, whatever the conditioning, and
because a start from neighbouring multipliers takes a handful of steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from ratecli.models.base import Array, Features
from ratecli.models.ramp import HALF
from ratecli.solvers.majorize.hinge import HingeProblem

Mask = NDArray[np.bool_]

ROUNDS = 60
"""Updates of the slopes."""
STEPS = 40
"""Newton steps between two updates."""
FIRST_PENALTY = 3.0
"""Penalty of the first round, in mean weights of a row."""
GROWTH = 2.0
"""Of the penalty from round to round."""
ENOUGH = 0.1
"""Part of the gap to which the gradient must fall before the slopes are updated."""
NARROW = 2000
"""Features up to which the rows on a corner are made dense: a Gram matrix by BLAS."""
ARMIJO = 1e-4
SHORTEST = 1e-6


@dataclass(frozen=True)
class HingeSolution:
    """A point, slopes that certify it, and both values: `primal - dual` bounds what is missing."""

    w: Array
    slopes: Array
    primal: float
    dual: float
    steps: int = 0

    @property
    def gap(self) -> float:
        return self.primal - self.dual

    def or_better(self, other: HingeSolution) -> HingeSolution:
        """The better of each end: a point and the slopes that certify it need not belong together."""
        near = self if self.primal <= other.primal else other
        high = self if self.dual >= other.dual else other
        steps = max(self.steps, other.steps)
        return HingeSolution(near.w, high.slopes, near.primal, high.dual, steps)


@dataclass(frozen=True)
class Envelope:
    """The problem with every hinge smoothed (its Moreau envelope) around scores shifted by (n,)."""

    problem: HingeProblem
    shift: Array
    penalty: float

    def slopes(self, z: Array) -> tuple[Array, Mask]:
        """Slopes at scores z, and which rows sit on a corner of their hinge (-1/2 or 1/2)."""
        up, down = self.problem.up, self.problem.down
        middle = up - down
        at = self.penalty * (z + self.shift)
        low, high = at + HALF * self.penalty, at - HALF * self.penalty - middle
        corner = ((low > -down) & (low < middle)) | ((high > 0) & (high < down))
        slopes = np.clip(low, -down, middle) + np.clip(high, 0, down)
        return np.minimum(slopes, up), corner  # the sum may pass `up` by rounding

    def value(self, z: Array, w: Array) -> float:
        slopes, _ = self.slopes(z)
        nearest = z + self.shift - slopes / self.penalty
        return self.problem.primal(nearest, w) + float(slopes @ slopes) / (2 * self.penalty)


def minimize(
    problem: HingeProblem, gap: float, start: HingeSolution | None = None
) -> HingeSolution:
    """Minimize to a gap of at most `gap`, or as near as `ROUNDS` rounds come.

    `start` may be the solution of a problem with other weights on the same rows.
    """
    w = np.zeros(problem.X.shape[1]) if start is None else start.w
    slopes = np.zeros(len(problem.up)) if start is None else start.slopes
    slopes = np.clip(slopes, -problem.down, problem.up)
    best = _pair(problem, w, np.asarray(problem.X @ w), slopes, np.asarray(problem.X.T @ slopes))
    penalty = FIRST_PENALTY * float((problem.up + problem.down).mean())
    for _ in range(ROUNDS if penalty else 0):
        best, w, slopes = _round(Envelope(problem, slopes / penalty, penalty), w, best, gap)
        if best.gap <= gap:
            break
        penalty *= GROWTH
    return best


def _round(
    smooth: Envelope, w: Array, best: HingeSolution, gap: float
) -> tuple[HingeSolution, Array, Array]:
    """Newton steps on one envelope: the best pair, and the point and slopes where they end."""
    problem = smooth.problem
    z = np.asarray(problem.X @ w)
    for step in range(STEPS):
        slopes, corner = smooth.slopes(z)
        pull = np.asarray(problem.X.T @ slopes)
        best = best.or_better(_pair(problem, w, z, slopes, pull))
        gradient = problem.l2 * w + pull
        left = float(gradient @ gradient) / (2 * problem.l2)
        if best.gap <= gap or (step and left <= ENOUGH * best.gap):
            break
        p = -_solved(problem, np.flatnonzero(corner), smooth.penalty, gradient)
        along = np.asarray(problem.X @ p)
        length = _length(smooth, (z, along), (w, p), float(gradient @ p))
        w, z = w + length * p, z + length * along
        best = replace(best, steps=best.steps + 1)
        if length < SHORTEST:
            break
    return best, w, smooth.slopes(z)[0]


def _pair(problem: HingeProblem, w: Array, z: Array, slopes: Array, pull: Array) -> HingeSolution:
    return HingeSolution(w, slopes, problem.primal(z, w), problem.dual(slopes, pull))


def _length(
    smooth: Envelope, scores: tuple[Array, Array], point: tuple[Array, Array], slope: float
) -> float:
    """Armijo's step, halved from 1, along a direction given with where it starts."""
    (z, along), (w, p) = scores, point
    value, length = smooth.value(z, w), 1.0
    while length >= SHORTEST:
        reached = smooth.value(z + length * along, w + length * p)
        if reached <= value + ARMIJO * length * slope:
            break
        length /= 2
    return length


def _solved(
    problem: HingeProblem, rows: NDArray[np.intp], penalty: float, gradient: Array
) -> Array:
    """(lambda I + penalty X_J' X_J)^-1 gradient, on the smaller side of X_J."""
    if not len(rows):
        return gradient / problem.l2
    corner = problem.X[rows]
    wide = len(rows) < len(gradient)
    if wide or len(gradient) <= NARROW:
        corner = _dense(corner)
    if wide:
        # Woodbury: (l I + s A'A)^-1 g = (g - A' (l/s I + A A')^-1 A g) / l
        gram = _dense(corner @ corner.T)
        gram[np.diag_indices(len(rows))] += problem.l2 / penalty
        inner = linalg.solve(gram, corner @ gradient, assume_a="pos")
        return np.asarray((gradient - corner.T @ inner) / problem.l2)
    gram = penalty * _dense(corner.T @ corner)
    gram[np.diag_indices(len(gradient))] += problem.l2
    return np.asarray(linalg.solve(gram, gradient, assume_a="pos"))


def _dense(matrix: Features) -> Array:
    return matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix.toarray())

"""Convex functions of slacks ("atoms"), and the slack player's best responses to multipliers.

A curved goal is a sum of atoms `w f(xi)`. Each argument of an atom is affine in the rates and has a
slack of its own: where f increases, the argument must not exceed its slack; where f decreases, it
must not fall below it. With a multiplier mu >= 0 for each, the slack player minimizes

    w f(xi) - sum of sign * mu * xi    over a box,

the box that contains the arguments (Narasimhan, Cotter, Gupta 2019, section 3, where the conjugate
of f must be restricted to the box). All functions work on B lanes (settings) at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ratecli.models.base import Array
from ratecli.rates.expression import Expression, Leaf
from ratecli.rates.tangent import tangents, values
from ratecli.solvers.hull.forms import LinearTerm

ValuesAndSlopes = Callable[[Array], tuple[Array, Array]]
"""Returns values (m, B) and slopes (n, m, B) at points (n, m, B)."""

DIFFERENCE_STEP = 1e-6
"""Distance of the points whose slopes are differenced for the curvature; a kink counts as curved
within it.
"""
CURVATURE_RIDGE = 1e-10
"""Share of the curvature that is added to it to make it positive."""
ARMIJO_SHARE = 1e-4
"""Share of the linearly predicted decrease that a step must achieve (Armijo)."""
ROUNDING = 1e-15
REST_TOLERANCE = 1e-13
"""A lane has converged when the linearly predicted decrease within the box, relative to its value,
is below this.
"""
OPTIMALITY_TOLERANCE = 1e-10
"""A lane below this relative predicted decrease counts as optimal."""
BOX_EDGE_DISTANCE = 1e-4
"""Arguments this close to a bound of the box that are pushed towards it are set to the bound."""
MAX_BOX_STEPS, MAX_HALVINGS = 40, 25
BISECTION_STEPS = 50


class _Expansion(NamedTuple):
    """Values (B,), slopes (n, B) and curvatures (n, n, B) of a loss at one point per lane."""

    values: Array
    slopes: Array
    curved: Array

    @property
    def size(self) -> Array:
        """Scale (B,) that errors of the values are relative to."""
        return np.asarray(1 + np.abs(self.values))


def minimize_in_unit_box(loss: ValuesAndSlopes, start: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Minimize each lane of a convex loss in [0, 1]^n by projected Newton steps.

    Return points (n, B), and a mask (B,) of the lanes that are known to be optimal by their slopes,
    which excludes minima at a kink. Curvatures are differences of slopes. Arguments that slopes
    hold at a bound of the box stay there (Bertsekas 1982); a step that overshoots is halved.
    """
    x = np.clip(start, 0.0, 1.0)
    here = _expand_loss(loss, x)
    left = _max_linear_decrease(x, here.slopes)
    done = left <= REST_TOLERANCE * here.size
    for _ in range(MAX_BOX_STEPS):
        if done.all():
            break
        tried, ahead, good = _line_search(loss, x, here, done)
        after = _max_linear_decrease(tried, ahead.slopes)
        lower = ahead.values < here.values - ROUNDING * here.size
        better = good & (lower | (after < left / 2))
        x, left = np.where(better, tried, x), np.where(better, after, left)
        pairs = zip(ahead, here, strict=True)
        here = _Expansion(*(np.where(better, new, old) for new, old in pairs))
        done = ~better | (left <= REST_TOLERANCE * here.size)
    return x, left <= OPTIMALITY_TOLERANCE * here.size


def _line_search(
    loss: ValuesAndSlopes, x: Array, here: _Expansion, done: NDArray[np.bool_]
) -> tuple[Array, _Expansion, NDArray[np.bool_]]:
    """Halve a step until it decreases enough.

    Return the points after the step, and a mask of the lanes that succeeded or were done before.
    """
    step, share = _newton_step(x, here.slopes, here.curved), np.ones(x.shape[1])
    for _ in range(MAX_HALVINGS):
        tried = np.clip(x - share * step, 0.0, 1.0)
        ahead = _expand_loss(loss, tried)
        promised = (here.slopes * (x - tried)).sum(axis=0)
        enough = ahead.values <= here.values - ARMIJO_SHARE * promised + ROUNDING * here.size
        good = done | ((promised > 0) & enough)
        if good.all():
            break
        share = np.where(good, share, share / 2)
    return tried, ahead, good


def _max_linear_decrease(x: Array, slope: Array) -> Array:
    """Return the largest decrease (B,) of the linearization within the box.

    It bounds how far the minimum is below the current value.
    """
    return np.asarray((slope * np.where(slope > 0, x, x - 1)).sum(axis=0))


def _expand_loss(loss: ValuesAndSlopes, x: Array) -> _Expansion:
    n = len(x)
    inward = np.where(x < 0.5, DIFFERENCE_STEP, -DIFFERENCE_STEP)
    steps = np.concatenate([np.zeros((n, 1, 1)), np.eye(n)[:, :, None]], axis=1) * inward[:, None]
    values, slopes = loss(x[:, None] + steps)
    rise = (slopes[:, 1:] - slopes[:, :1]) / inward
    return _Expansion(values[0], slopes[:, 0], 0.5 * (rise + rise.swapaxes(0, 1)))


def _newton_step(x: Array, slope: Array, curved: Array) -> Array:
    """Return the step (n, B) to subtract, not yet clipped to the box."""
    low, high = (x <= BOX_EDGE_DISTANCE) & (slope > 0), (x >= 1 - BOX_EDGE_DISTANCE) & (slope < 0)
    held = low | high
    n = len(x)
    free = np.where(held[:, None] | held[None], 0.0, curved)
    trace = np.trace(np.maximum(free, 0.0))
    least = CURVATURE_RIDGE * trace + np.finfo(float).tiny ** 0.5
    diagonal = np.where(held, 1.0, least)
    system = free + np.eye(n)[:, :, None] * diagonal
    right = np.where(low, x, np.where(high, x - 1, slope))  # held arguments move onto their bound
    found = np.linalg.solve(system.transpose(2, 0, 1), right.T[:, :, None])[:, :, 0].T
    return np.asarray(found / np.maximum(np.abs(found).max(axis=0), 1.0))


def bisect_slopes(slopes: Callable[[Array], Array], lanes: int) -> Array:
    """Return where in [0, 1] the slopes (1, B) of functions of one variable change sign: (1, B)."""
    low, high = np.zeros((1, lanes)), np.ones((1, lanes))
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        falls = slopes(middle) < 0
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return (low + high) / 2


MIN_SHARE = 1e-3
"""Smallest share whose logarithm is taken: bounds multipliers by 1 / MIN_SHARE (protocols 3.3)."""
TINY_DENOMINATOR = 1e-300


@dataclass(frozen=True)
class ConvexAtom(ABC):
    """A convex function of n arguments; `lines` are its arguments as affine functions of the rates.

    For an instance that combines A atoms of its class (`combine_atoms`), shapes (n, B) and (B,)
    below become (n, A, B) and (A, B).
    """

    lines: tuple[LinearTerm, ...]
    signs: ClassVar[tuple[int, ...]]

    @abstractmethod
    def value(self, slacks: Array) -> Array:
        """Return the values (B,) at slacks (n, B)."""

    @abstractmethod
    def respond(self, weight: Array, pull: Array) -> Array:
        """Return the slacks (n, B) that minimize `weight * f - pull @ slacks`.

        Weights are (B,), pulls (n, B).
        """

    @abstractmethod
    def slopes(self, slacks: Array) -> Array:
        """Return the derivatives (n, B) of f."""


@dataclass(frozen=True)
class _ScaledAtom(ConvexAtom):
    """`scale` times a function; `scale` is (A, 1) for A combined atoms."""

    scale: float | Array


@dataclass(frozen=True)
class NegativeLog(_ScaledAtom):
    """`-scale * log(x)` of a share x."""

    signs: ClassVar[tuple[int, ...]] = (-1,)

    def value(self, slacks: Array) -> Array:
        return np.asarray(-self.scale * np.log(slacks[0]))

    def respond(self, weight: Array, pull: Array) -> Array:
        best = self.scale * weight / np.maximum(-pull, TINY_DENOMINATOR)
        return np.asarray(np.minimum(np.maximum(best, MIN_SHARE), 1.0))

    def slopes(self, slacks: Array) -> Array:
        return -self.scale / np.maximum(slacks, MIN_SHARE)


@dataclass(frozen=True)
class _MeanAtom(_ScaledAtom):
    """A mean of two shares, or its negative.

    The function is homogeneous: it doubles when both arguments do. So the best point is 0 or has an
    argument that is 1.
    """

    def respond(self, weight: Array, pull: Array) -> Array:
        ones, none = np.ones_like(weight), np.zeros_like(pull)
        sides = [
            none,
            np.stack([ones, self._other(weight, pull[1])]),
            np.stack([self._other(weight, pull[0]), ones]),
        ]
        worth = [weight * self.value(side) - (pull * side).sum(axis=0) for side in sides]
        chosen = np.argmin(worth, axis=0)
        return np.asarray(np.take_along_axis(np.stack(sides), chosen[None, None], axis=0)[0])

    @abstractmethod
    def _other(self, weight: Array, pull: Array) -> Array:
        """Return the best share in [0, 1] of the other argument when one is 1."""


@dataclass(frozen=True)
class NegativeGeometricMean(_MeanAtom):
    """`-scale * sqrt(x y)` (vector 9.8)."""

    signs: ClassVar[tuple[int, ...]] = (-1, -1)

    def value(self, slacks: Array) -> Array:
        return np.asarray(-self.scale * np.sqrt(slacks[0] * slacks[1]))

    def _other(self, weight: Array, pull: Array) -> Array:
        half = 0.5 * self.scale * weight / np.maximum(-pull, TINY_DENOMINATOR)
        return np.asarray(np.minimum(half, 1.0) ** 2)

    def slopes(self, slacks: Array) -> Array:
        x, y = np.maximum(slacks, MIN_SHARE)
        return np.asarray(-0.5 * self.scale * np.stack([np.sqrt(y / x), np.sqrt(x / y)]))


@dataclass(frozen=True)
class NegativeHarmonicMean(_MeanAtom):
    """`-scale * 2 x y / (x + y)`."""

    signs: ClassVar[tuple[int, ...]] = (-1, -1)

    def value(self, slacks: Array) -> Array:
        total = slacks.sum(axis=0)
        return np.asarray(
            -2 * self.scale * slacks[0] * slacks[1] / np.maximum(total, TINY_DENOMINATOR)
        )

    def _other(self, weight: Array, pull: Array) -> Array:
        square = 2 * self.scale * weight / np.maximum(-pull, TINY_DENOMINATOR)
        return np.asarray(np.clip(np.sqrt(square) - 1, 0.0, 1.0))

    def slopes(self, slacks: Array) -> Array:
        x, y = np.maximum(slacks, MIN_SHARE)
        return np.asarray(-2 * self.scale * np.stack([(y / (x + y)) ** 2, (x / (x + y)) ** 2]))


@dataclass(frozen=True)
class QuadraticMean(_MeanAtom):
    """`scale * sqrt((x^2 + y^2) / 2)`."""

    signs: ClassVar[tuple[int, ...]] = (1, 1)

    def value(self, slacks: Array) -> Array:
        return np.asarray(self.scale * np.sqrt(0.5 * (slacks**2).sum(axis=0)))

    def _other(self, weight: Array, pull: Array) -> Array:
        sine = np.sqrt(2) * pull / np.maximum(self.scale * weight, TINY_DENOMINATOR)
        sine = np.clip(sine, 0.0, np.sqrt(0.5))  # the share is 1 at the upper bound
        return np.asarray(np.minimum(sine / np.sqrt(1 - sine**2), 1.0))

    def slopes(self, slacks: Array) -> Array:
        size = np.sqrt(2 * (slacks**2).sum(axis=0))
        return np.asarray(self.scale * slacks / np.maximum(size, TINY_DENOMINATOR))


@dataclass(frozen=True)
class SmoothAtom(ConvexAtom):
    """Any expression that is convex in its rates and monotone in each.

    Best responses are found by Newton's method for all lanes at once. Those at a kink, such as
    equal arguments of `max`, are found by bisection if there is one slack, else lane by lane.
    """

    expression: Expression
    index: dict[Leaf, int]
    signs: tuple[int, ...]  # type: ignore[misc]

    def value(self, slacks: Array) -> Array:
        return values(self.expression, slacks, self.index)

    def respond(self, weight: Array, pull: Array, near: Array | None = None) -> Array:
        """Return the best response.

        The search starts from slacks `near`, which are kept where no other point is better.
        """
        start = np.full(pull.shape, 0.5) if near is None else near
        found, known = minimize_in_unit_box(partial(self._loss, weight, pull), start)
        left = np.flatnonzero(~known)
        if len(left) and len(found) == 1:
            loss = partial(self._loss, weight[left], pull[:, left])
            found[:, left] = bisect_slopes(lambda x: loss(x)[1], len(left))
        elif len(left):
            each = [self._at_a_kink(weight[b], pull[:, b], found[:, b]) for b in left]
            found[:, left] = np.stack(each, axis=1)
        return found

    def _at_a_kink(self, weight: Array, pull: Array, found: Array) -> Array:
        """Solve one lane by L-BFGS-B; return `found` if that is no improvement."""

        def loss(x: Array) -> tuple[float, Array]:
            value, slopes = self._loss(weight, pull[:, None], x[:, None])
            return float(value[0]), slopes[:, 0]

        start, bounds = np.full(len(pull), 0.5), [(0.0, 1.0)] * len(pull)
        other = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        return np.asarray(other.x) if other.fun < loss(found)[0] else found

    def _loss(self, weight: Array, pull: Array, points: Array) -> tuple[Array, Array]:
        """Return values (..., B) and slopes (n, ..., B) of the minimized function at `points`.

        Points are (n, ..., B).
        """
        found = tangents(self.expression, points.reshape(len(points), -1), self.index)
        pulls = pull.reshape(len(pull), *(1,) * (points.ndim - 2), -1)
        value = weight * found.value.reshape(points.shape[1:]) - (pulls * points).sum(axis=0)
        return value, weight * found.slopes.reshape(points.shape) - pulls

    def slopes(self, slacks: Array) -> Array:
        return tangents(self.expression, slacks, self.index).slopes


@dataclass(frozen=True)
class RatioAtom(ConvexAtom):
    """`x / y` of an upper slack x and a lower slack y: not convex, so the slack player descends.

    The box is that of Algorithm 3: numerator and denominator at most `most`, the denominator at
    least `MIN_SHARE`.
    """

    most: tuple[float | Array, float | Array]
    least: ClassVar[tuple[float, float]] = (0.0, MIN_SHARE)
    signs: ClassVar[tuple[int, ...]] = (1, -1)

    def value(self, slacks: Array) -> Array:
        return np.asarray(slacks[0] / slacks[1])

    def respond(self, weight: Array, pull: Array) -> Array:  # noqa: ARG002
        raise TypeError("a ratio has no best response: its slacks descend")

    def slopes(self, slacks: Array) -> Array:
        found = np.empty_like(slacks)
        found[0] = 1 / slacks[1]
        found[1] = -slacks[0] * found[0] ** 2
        return found

    def boxed(self, slacks: Array) -> Array:
        """Project slacks onto the box."""
        found = np.empty_like(slacks)
        for side, given, low, high in zip(found, slacks, self.least, self.most, strict=True):
            np.minimum(np.maximum(given, low), high, out=side)
        return found


def combine_atoms(atoms: Sequence[ConvexAtom]) -> ConvexAtom:
    """Combine A atoms of one class with a closed form (or ratios) into a single vectorized one."""
    first = atoms[0]
    if isinstance(first, RatioAtom):
        tops, bottoms = np.array([each.most for each in atoms if isinstance(each, RatioAtom)]).T
        return replace(first, lines=(), most=(tops[:, None], bottoms[:, None]))
    scales = np.array([each.scale for each in atoms if isinstance(each, _ScaledAtom)])
    return replace(first, lines=(), scale=scales[:, None])  # type: ignore[call-arg]

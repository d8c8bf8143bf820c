"""The smooth problem of the method of multipliers in the weights alone, and Newton's method for it.

    minimize over w   regularizer(w) + (distance of X w + shift from hinges and constraints)

It is piecewise quadratic. Only rows at a corner of their hinge enter its Hessian, hundreds out of
tens of thousands, and each binding constraint adds one row (second-order sparsity: Li, Sun, Toh
2018). So a step costs two products with X and a small Gram matrix.

The distance is that of the point nearest to scores u = X w + shift:

    minimize over y   F(y) + sigma/2 |y - u|^2

F is the objective of Problem 3 plus `price` per unit of constraint excess. At given multipliers v
the rows are independent and each has a closed-form solution. The best v, a handful of numbers,
maximizes a concave, piecewise quadratic function and is found by Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from ratecli.models.base import Array
from ratecli.solvers.design_matrix import MAX_DENSE_ENTRIES, DesignMatrix, row_blocks
from ratecli.solvers.majorize.convex import ConvexProblem, RampProblem
from ratecli.solvers.majorize.loops import add_rows, add_squares_of_rows, move_to_hinges

Mask = NDArray[np.bool_]

MAX_PROX_STEPS = 30
PROX_ARMIJO = 1e-4
MIN_PROX_STEP = 1e-4


@dataclass(frozen=True)
class ProxPoint:
    """The point nearest to u (n,) at multipliers v (m,).

    Attributes
    ----------
    slopes
        (n,) sigma (u - y) at the point y, a slope of the Lagrangian's hinges there.
    state
        (n,) 4 times the kind of each row, plus which of its hinges change with u: 2 for that on +y
        and 1 for that on -y. Rows with neither stay at a corner of their hinge (-1/2 or 1/2) under
        small changes of u. Rows of one state have equal tilts.
    counts
        (4 K,) number of rows of each state.
    values
        (m + 1,) objective without the regularizer and constraint values at y, margins added.
    value
        The dual function of the multipliers.
    """

    problem: ConvexProblem
    v: Array
    slopes: Array
    state: NDArray[np.int32]
    counts: NDArray[np.intp]
    values: Array
    value: float

    @cached_property
    def corner(self) -> NDArray[np.intp]:
        """The rows at a corner."""
        return np.flatnonzero(self.state & 3 == 0)

    @property
    def tilts(self) -> Array:
        """(m, 4 K) slopes of the constraints at y by state, 0 for rows at a corner."""
        return self.problem.tilts[1:]

    def gram(self, chosen: NDArray[np.generic]) -> Array:
        """Return the products (k, k) of the slopes of k chosen constraints."""
        used = np.flatnonzero(self.counts)
        tilts = self.tilts[chosen][:, used]
        return np.asarray((tilts * self.counts[used]) @ tilts.T)


RIDGE = 1e-12
"""Curvature added to all directions, relative to the mean, because some may have none."""
MAX_CHANGES = 10
"""Maximum number of active-set changes per variable."""
SLOPE_TOLERANCE = 1e-12
"""Slope, relative to the largest at 0, below which a bound stays active."""


def minimize_in_box(curvature: Array, slope: Array, low: Array, high: Array) -> Array:
    """Minimize `x' curvature x / 2 - slope @ x` over x (m,) within bounds that include 0.

    Active-set method: take Newton's step up to the first bound in its way, and keep that bound
    active until its slope points inside. Along directions without curvature the function is linear
    and has its minimum on a bound.
    """
    size = len(slope)
    ridged = curvature.copy()
    ridged[np.diag_indices(size)] += RIDGE * (float(np.trace(curvature)) / size or 1.0)
    x, free = np.zeros(size), np.ones(size, dtype=bool)
    for _ in range(MAX_CHANGES * size):
        move = np.zeros(size)
        move[free] = np.linalg.solve(ridged[np.ix_(free, free)], (slope - ridged @ x)[free])
        ends = np.where(move > 0, high, low)
        shares = np.divide(ends - x, move, out=np.full(size, np.inf), where=move != 0)
        share = float(shares.min())
        if share < 1:
            x, stopped = x + share * move, shares <= share
            x[stopped], free = ends[stopped], free & ~stopped
            continue
        x = x + move
        falls = slope - ridged @ x
        inside = np.where(x >= high, -falls, falls) * ~free
        if inside.max() <= SLOPE_TOLERANCE * np.abs(slope).max():
            break
        free[np.argmax(inside)] = True
    return x


MAX_CHANGED = 8
"""Number of changed rows, as a multiple of all rows, after which sums are computed anew."""


class HingePulls:
    """X' times the slopes of the objective and of each constraint, at one point after another.

    Rows off the corners of their hinges have the same slopes as long as their state is the same. So
    only rows are read that are at a corner or have changed their state since the last point.
    """

    def __init__(self, problem: ConvexProblem) -> None:
        self._problem, self._rows = problem, problem.ramp.rows
        self._start()

    def _start(self) -> None:
        self._state = np.zeros(len(self._rows), dtype=np.int32)  # at a corner, where tilts are 0
        self._found = np.zeros((len(self._problem.tilts), self._rows.width))
        self._changed = 0

    def at(self, near: ProxPoint) -> tuple[Array, Array]:
        """Return (width,) X' times the slopes of `near`, and (m, width) X' times its tilts."""
        rows, tilts = self._rows, self._problem.tilts
        if self._changed > MAX_CHANGED * len(rows):  # rounding errors add up
            self._start()
        changed = np.flatnonzero(near.state != self._state)
        for part in np.array_split(changed, 1 + len(tilts) * len(changed) // MAX_DENSE_ENTRIES):
            change = tilts[:, near.state[part]] - tilts[:, self._state[part]]
            self._found += times_rows(change, rows, part)
        self._state, self._changed = near.state, self._changed + len(changed)
        if rows.biased:
            self._found[:, -1] = tilts @ near.counts
        pull = self._found[0] + near.v @ self._found[1:]
        pull += times_rows(near.slopes[None, near.corner], rows, near.corner)[0]
        if rows.biased:
            pull[-1] = near.slopes.sum()
        return pull, self._found[1:]


def times_rows(factors: Array, rows: DesignMatrix, chosen: NDArray[np.intp]) -> Array:
    """Return (k, width) factors (k, c) times the c chosen rows."""
    found = np.zeros((len(factors), rows.width))
    if isinstance(rows.X, np.ndarray):
        for block in row_blocks(rows.X, len(chosen)):
            found[:, : rows.X.shape[1]] += factors[:, block] @ rows.X[chosen[block]]
    else:
        add_rows(*rows.compressed, chosen, factors, found)
    if rows.biased:
        found[:, -1] = factors.sum(axis=1)
    return found


NEWTON_ARMIJO = 1e-4
MIN_NEWTON_STEP = 1e-12
"""Newton's step can be too long by this factor if penalty and number of corners are tiny."""
MIN_STEP_FACTOR, MAX_STEP_FACTOR = 0.1, 0.6
"""Bounds on the factor by which a step is shortened."""
NEWTON_RIDGE = 1e-12


@dataclass(frozen=True)
class EnvelopePoint:
    """Weights w, scores z = X w, the point nearest to z + shift, and the energy with its gradient.

    `binding` (m,) marks the constraints whose multipliers depend on the scores; `pull` (width,) is
    X' times the slopes, and `extra` (k, width) X' times the tilt of these k constraints.
    """

    w: Array
    z: Array
    near: ProxPoint
    binding: Mask
    pull: Array
    extra: Array
    energy: float
    gradient: Array


@dataclass(frozen=True)
class MoreauEnvelope:
    """The smooth objective of a convex problem with constraints at most `-margin` (m,).

    Scores z = X w are moved by `shift` (n,). `tolerance` is the accuracy of the constraints' values
    at the nearest point.
    """

    problem: ConvexProblem
    sigma: float
    margin: Array
    price: float
    tolerance: float
    shift: Array
    pulls: HingePulls

    @property
    def ramp(self) -> RampProblem:
        return self.problem.ramp

    def _near(self, u: Array, v: Array) -> ProxPoint:
        """Return the point nearest to u (n,) at fixed multipliers."""
        problem, slopes, state = self.problem, np.empty(len(u)), np.empty(len(u), dtype=np.int32)
        kinds, bounds = problem.up.shape[1], problem.bounds_by_kind(v)
        sums, counts = np.zeros((kinds, 2)), np.zeros(4 * kinds, dtype=np.intp)
        squares = move_to_hinges(u, problem.kind, *bounds, self.sigma, slopes, state, sums, counts)
        values = problem.of_hinges(sums)
        values[1:] += self.margin
        value = float(values[0] + v @ values[1:]) + squares / (2 * self.sigma)
        return ProxPoint(problem, v, slopes, state, counts, values, value)

    def nearest(self, u: Array, v: Array, most: float = np.inf) -> ProxPoint:
        """Return the point nearest to u (n,) at the best multipliers, searched from v on.

        The search ends early at multipliers whose value exceeds `most`.
        """
        here = self._near(u, v)
        for _ in range(MAX_PROX_STEPS if len(v) else 0):
            if here.value > most:
                break
            gradient = here.values[1:]
            low, high = here.v <= 0, here.v >= self.price
            (free,) = np.nonzero((~low | (gradient > 0)) & (~high | (gradient < 0)))
            if not len(free) or np.abs(gradient[free]).max() <= self.tolerance:
                break
            following = self._raise(u, here, free)
            if following is None:
                break
            here = following
        return here

    def _raise(self, u: Array, here: ProxPoint, free: NDArray[np.intp]) -> ProxPoint | None:
        """Take Newton's step in the free multipliers, at most doubling them; halve it if needed."""
        gradient = here.values[1:]
        curvature = here.gram(free) / self.sigma
        most = 2 * np.maximum(here.v, self._unit)
        low, high = np.maximum(-here.v, -most), np.minimum(self.price - here.v, most)
        step = np.zeros(len(here.v))
        step[free] = minimize_in_box(curvature, gradient[free], low[free], high[free])
        length = 1.0
        while length >= MIN_PROX_STEP:
            v = np.clip(here.v + length * step, 0.0, self.price)
            reached = self._near(u, v)
            if reached.value >= here.value + PROX_ARMIJO * float(gradient @ (v - here.v)):
                return None if np.array_equal(v, here.v) else reached
            length /= 2
        return None

    @cached_property
    def _unit(self) -> Array:
        """Multipliers at which a constraint weighs as much as the objective.

        A constant constraint counts as 1.
        """
        weights = self.problem.weights
        return np.asarray((weights[0] or 1.0) / np.where(weights[1:] > 0, weights[1:], 1.0))

    def at(self, w: Array, z: Array, near: ProxPoint) -> EnvelopePoint:
        binding = (near.v > 0) & (near.v < self.price)
        binding[binding] = near.gram(binding).diagonal() > 0
        pull, tilted = self.pulls.at(near)
        energy, gradient = self.ramp.regularizer(w) + near.value, self.ramp.penalties * w + pull
        return EnvelopePoint(w, z, near, binding, pull, tilted[binding], energy, gradient)

    def enter(self, w: Array, z: Array, v: Array) -> EnvelopePoint:
        """Return the point at weights w with scores z, searching the multipliers from v on."""
        return self.at(w, z, self.nearest(z + self.shift, v))

    def step(self, here: EnvelopePoint) -> EnvelopePoint | None:
        """Take Newton's step, shortened until the energy decreases enough; None if it does not.

        Each time the step is shortened to the minimum of a parabola.
        """
        p, along, follow = self._directions(here)
        slope, length = float(here.gradient @ p), self._longest(here.w, p)
        shortest = MIN_NEWTON_STEP * length
        while length >= shortest:
            w, z = here.w + length * p, here.z + length * along
            v = np.clip(here.near.v + length * follow, 0.0, self.price)
            fixed = self.ramp.regularizer(w) - here.energy
            near = self.nearest(z + self.shift, v, NEWTON_ARMIJO * length * slope - fixed)
            rise = near.value + fixed
            if rise <= NEWTON_ARMIJO * length * slope:
                return self.at(w, z, near)
            lowest = -slope * length / (2 * (rise - slope * length))
            length *= min(max(lowest, MIN_STEP_FACTOR), MAX_STEP_FACTOR)
        return None

    def _longest(self, w: Array, p: Array) -> float:
        """Return 1, or less if an unpenalized weight would more than double.

        Without rows at corners the energy is linear in such a weight and Newton's step unbounded.
        """
        free = self.ramp.penalties == 0
        far = float((np.abs(p[free]) / (1 + np.abs(w[free]))).max(initial=0.0))
        return 1.0 / max(far, 1.0)

    def _directions(self, here: EnvelopePoint) -> tuple[Array, Array, Array]:
        """Return Newton's step in the weights, in the scores and, to first order, the multipliers.

        The Hessian is `penalties + sigma X' (corner rows + projection on the tilts) X`: along
        binding constraints, rows off the corners can move, but only at a cost.
        """
        ramp, near = self.ramp, here.near
        gram = near.gram(here.binding)
        gram[np.diag_indices(len(gram))] *= 1 + NEWTON_RIDGE
        extra = np.linalg.solve(np.linalg.cholesky(gram), here.extra)
        p = -solve_newton_system(ramp, near.corner, extra, self.sigma, here.gradient)
        along, follow = ramp.rows.scores(p), np.zeros(len(here.binding))
        moved = np.bincount(near.state, along, near.tilts.shape[1])
        right = self.sigma * (near.tilts[here.binding] @ moved)
        follow[here.binding] = np.linalg.solve(gram, right)
        return p, along, follow


CG_COST = 4000
"""Cost of conjugate gradients per stored entry, in multiplications of dense matrices: about a
hundred iterations of two products, where an entry costs as much as twenty multiplications.
"""
SPARSE_COST = 20
"""Cost of adding a product to a sparse place, in multiplications of dense matrices."""
CHEAP_PRODUCTS = 1e8
"""Number of multiplications whose cost is negligible."""
UNPENALIZED_CURVATURE = 1e-6
"""Curvature of unpenalized weights, as a share of the largest penalty: the system is then regular
even if no row is at a corner.
"""
CG_TOLERANCE = 0.1
"""Relative residual of conjugate gradients; a smaller one costs more than it saves."""
MAX_CG_ITERATIONS = 500


def solve_newton_system(
    ramp: RampProblem, chosen: NDArray[np.intp], extra: Array, sigma: float, right: Array
) -> Array:
    """Return (diag(penalties) + sigma (A' A + E' E))^-1 right.

    A contains the `chosen` rows of the problem; E is `extra`, (k, width), one row per constraint.
    """
    rows, penalties = ramp.rows, ramp.penalties
    diagonal = np.maximum(penalties, UNPENALIZED_CURVATURE * float(penalties.max()))
    count, width = len(chosen) + len(extra), len(right)
    stored = rows.X.size * len(chosen) / max(len(rows), 1)
    sparsely = SPARSE_COST * stored * stored / max(len(chosen), 1)
    in_weights = min(sparsely, count * width**2) + width**3 / 3
    in_rows = count**2 * (width + count / 3)
    if min(in_weights, in_rows) > CG_COST * (stored + extra.size) + CHEAP_PRODUCTS:
        part = rows.some(chosen)  # in single precision, as the step need not be exact
        part = replace(part, X=part.X.astype(np.float32))
        return _solve_by_conjugate_gradients(part, extra, sigma, diagonal, right)
    if in_rows < in_weights:
        return _solve_in_rows(np.vstack([rows.dense(chosen), extra]), sigma, diagonal, right)
    matrix = sigma * (_sum_of_squares(rows, chosen, sparsely < count * width**2) + extra.T @ extra)
    matrix[np.diag_indices(width)] += diagonal
    return np.asarray(linalg.cho_solve(linalg.cho_factor(matrix, lower=True), right))


def _sum_of_squares(rows: DesignMatrix, chosen: NDArray[np.intp], sparsely: bool) -> Array:
    """Return the lower triangle (width, width) of the sum of outer squares of the chosen rows."""
    if sparsely and not isinstance(rows.X, np.ndarray):
        found = np.zeros((rows.width, rows.width))
        add_squares_of_rows(*rows.compressed, chosen, rows.biased, found)
        return found
    blocks = np.array_split(chosen, 1 + len(chosen) * rows.width // MAX_DENSE_ENTRIES)
    return np.asarray(sum(A.T @ A for A in map(rows.dense, blocks)))


def _solve_in_rows(rows: Array, sigma: float, diagonal: Array, right: Array) -> Array:
    """Solve by Woodbury: (D + s A'A)^-1 = D^-1 - D^-1 A' (I/s + A D^-1 A')^-1 A D^-1."""
    scaled = rows / diagonal
    matrix = scaled @ rows.T
    matrix[np.diag_indices(len(rows))] += 1 / sigma
    inner = linalg.solve(matrix, scaled @ right, assume_a="pos") if len(rows) else np.zeros(0)
    return np.asarray(right / diagonal - scaled.T @ inner)


def _solve_by_conjugate_gradients(
    rows: DesignMatrix, extra: Array, sigma: float, diagonal: Array, right: Array
) -> Array:
    """Solve by conjugate gradients with a diagonal preconditioner, without forming a matrix."""
    squares = rows.squares(np.ones(len(rows), dtype=rows.X.dtype))
    scale = diagonal + sigma * (squares + (extra**2).sum(axis=0))

    def product(p: Array) -> Array:
        pulled = rows.pull(rows.scores(p.astype(rows.X.dtype)))
        return np.asarray(diagonal * p + sigma * (pulled + extra.T @ (extra @ p)))

    shape = (len(right), len(right))
    matrix, inverse = (LinearOperator(shape, matvec=f) for f in (product, lambda p: p / scale))
    return np.asarray(cg(matrix, right, rtol=CG_TOLERANCE, maxiter=MAX_CG_ITERATIONS, M=inverse)[0])

"""The best single threshold for each group: branch and bound over intervals of cuts.

Each group has a binary tree over its cuts, whose nodes store the smallest and largest contribution
of their cuts to every goal. A box is a combination of one node for each group. Sums over groups
bound the goals within a box, and a box is split by replacing one node by its two children.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.solvers.baselines.thresholded import ROUNDING
from ratecli.solvers.hull.forms import ConvexTerm, Fraction, LinearTerm

if TYPE_CHECKING:
    from ratecli.solvers.baselines.post_shift import CutIndices, GroupHull
    from ratecli.solvers.hull.master import HullOptimum

MAX_CHOICES_AT_ONCE = 10_000
"""Maximum number of choices evaluated together; if there are no more, all are evaluated."""
MAX_CHOICES = 400_000
"""Maximum number of choices that are all evaluated for objectives without bounds."""
MAX_ENTRIES_AT_ONCE = 20_000_000
"""Maximum number of rates computed together, and of values of goals at the cuts of all groups for
which there is branch and bound.
"""
MAX_BOXES, MAX_BOX_ENTRIES = 100_000, 200_000_000
"""Maximum number of boxes with computed bounds, and of numbers computed for all boxes together."""
BATCH = 512
"""Number of boxes split together: those with the smallest bounds."""
BOUND_ROUNDING = 1e-11
"""Bounds are trusted up to this rounding error."""
UNDEFINED = 1e6
"""Value of a goal where a ratio is undefined or infinite."""


@dataclass(frozen=True)
class CutChoice:
    """One cut per group (C,), its violation and its objective.

    Attributes
    ----------
    gap
        How far the objective may be above the optimum, or the violation above the smallest one if
        it is positive. 0 if the choice is proven optimal.
    """

    cuts: CutIndices
    violation: float
    objective: float
    gap: float = np.inf

    @property
    def key(self) -> tuple[float, float]:
        """Choices are compared by their violation, then by their objective; smaller is better."""
        return self.violation, self.objective


def best_deterministic_cuts(
    hull: GroupHull, optimum: HullOptimum, chances: Sequence[tuple[CutIndices, Array]]
) -> CutChoice:
    """Return the feasible choice of one cut per group with the smallest objective.

    `optimum` is the best point of the hull, and `chances` are its cuts with their chances. If no
    choice is feasible, the one with the smallest violation is returned.

    If there are few choices, all are evaluated. Otherwise a local search finds a good choice, and
    branch and bound improves it until it is optimal or the bounds of `MAX_BOXES` boxes are known.
    Smooth terms have no bounds: more choices are evaluated, and the local search has more starts.
    """
    local, smooth = LocalSearch(hull), bool(hull.program.objective.smooth)
    sizes = [len(cell) for cell in hull.cells]
    if math.prod(sizes) <= (MAX_CHOICES if smooth else local.most):
        return replace(local.all(sizes), gap=0.0)
    supports = list(itertools.islice(itertools.product(*(cuts for cuts, _ in chances)), STARTS))
    starts = [local.best(np.array(supports).T), local.rounded(optimum, chances), local.coarse()]
    found = min(map(local.moved, starts), key=lambda choice: choice.key)
    if smooth:
        return found
    if sum(sizes) * (1 + len(hull.program.constraints)) <= MAX_ENTRIES_AT_ONCE:
        found = _BoxSearch(hull, optimum, local).improved(found)
    if found.violation or not optimum.feasible:
        return found
    return replace(found, gap=min(found.gap, max(found.objective - optimum.bound, 0.0)))


STARTS = 64
PASSES = 20
SINGLE_REACH = 500
"""Number of neighbouring cuts on each side, and of evenly spread cuts, tried for a group."""


class LocalSearch:
    """Moves of single groups from a choice of cuts."""

    def __init__(self, hull: GroupHull) -> None:
        self.hull = hull
        self.most = min(MAX_CHOICES_AT_ONCE, MAX_ENTRIES_AT_ONCE // len(hull.origin))

    def best(self, choices: CutIndices) -> CutChoice:
        """Return the best of choices (C, N)."""
        return self._best(choices, self.hull.rates(choices))

    def _best(self, choices: CutIndices, rates: Array) -> CutChoice:
        key, k = self.hull.program.best_point(rates, ROUNDING)
        return CutChoice(choices[:, k], *key)

    def all(self, sizes: Sequence[int]) -> CutChoice:
        """Return the best of all choices, given the number of cuts of each group."""
        parts = (
            np.arange(start, min(start + self.most, math.prod(sizes)))
            for start in range(0, math.prod(sizes), self.most)
        )
        found = (self.best(np.array(np.unravel_index(part, sizes))) for part in parts)
        return min(found, key=lambda choice: choice.key)

    def rounded(
        self, optimum: HullOptimum, chances: Sequence[tuple[CutIndices, Array]]
    ) -> CutChoice:
        """Return the best cut of each group while the others decide as in the hull's optimum."""
        hull, cuts = self.hull, np.zeros(len(self.hull.cells), dtype=np.intp)
        for c, own in enumerate(chances):
            every = np.arange(len(hull.cells[c]))
            rates = hull.rates_with(optimum.rates, own, c, every)
            _, cuts[c] = hull.program.best_point(rates, ROUNDING)
        return self.best(cuts[:, None])

    def coarse(self) -> CutChoice:
        """Return the best choice on a grid of evenly spread cuts, as fine as the limits allow.

        With many groups, the grid has only choices of the same fraction of cuts in every group.
        """
        ends = np.array([len(cell) - 1 for cell in self.hull.cells])
        each = int(self.most ** (1 / len(ends)))
        if each < 2:
            choices = np.outer(ends, np.linspace(0, 1, 2))
        else:
            grids = [np.linspace(0, end, min(each, end + 1)) for end in ends]
            choices = np.stack([grid.ravel() for grid in np.meshgrid(*grids, indexing="ij")])
        return self.best(choices.astype(np.intp))

    def moved(self, choice: CutChoice) -> CutChoice:
        """Return the choice after moving one group at a time, as long as that improves it."""
        for _ in range(PASSES):
            before = choice.key
            for c in range(len(self.hull.cells)):
                choice = min(choice, self._neighbour(choice, c), key=lambda each: each.key)
            if not choice.key < before:
                break
        return choice

    def _neighbour(self, choice: CutChoice, c: int) -> CutChoice:
        """Return the best choice with another cut for group c."""
        count, own = len(self.hull.cells[c]), choice.cuts[c]
        near = np.arange(max(own - SINGLE_REACH, 0), min(own + SINGLE_REACH + 1, count))
        even = np.linspace(0, count - 1, SINGLE_REACH).astype(np.intp)
        moved = np.union1d(near, even)
        choices = np.tile(choice.cuts[:, None], (1, len(moved)))
        choices[c] = moved
        rates, before = self.hull.rates(choice.cuts[:, None])[:, 0], (choice.cuts[[c]], np.ones(1))
        return self._best(choices, self.hull.rates_with(rates, before, c, moved))


class _CutTree:
    """A binary tree over the cuts of a group. Node 1 is the root, 2 i and 2 i + 1 are children.

    Attributes
    ----------
    size
        Number of leaves, a power of 2; the nodes from `size` on are leaves.
    low, high
        (2 size, N) smallest and largest of N values of the cuts; infinite for a node without cuts.
    likely
        (2 size,) the cut with the smallest last value.
    spread
        (2 size,) how much the values vary, positive for nodes with several cuts.
    """

    def __init__(self, table: Array, weights: Array) -> None:
        """Build the tree of T cuts with values (N, T) whose variations have weights (N,)."""
        count = table.shape[1]
        self.size = size = 1 << (count - 1).bit_length()
        self.low = np.full((2 * size, len(table)), np.inf)
        self.high = np.full((2 * size, len(table)), -np.inf)
        self.likely = np.zeros(2 * size, dtype=np.intp)
        own = slice(size, size + count)
        self.low[own] = self.high[own] = table.T
        self.likely[own] = np.arange(count)
        while size > 1:
            left, right, half = slice(size, 2 * size, 2), slice(size + 1, 2 * size, 2), size // 2
            self.low[half:size] = np.minimum(self.low[left], self.low[right])
            self.high[half:size] = np.maximum(self.high[left], self.high[right])
            first = self.low[left, -1] <= self.low[right, -1]
            self.likely[half:size] = np.where(first, self.likely[left], self.likely[right])
            size = half
        several = np.arange(2 * self.size) < self.size
        with np.errstate(invalid="ignore"):
            spread = np.nan_to_num((self.high - self.low) @ weights, neginf=0.0, posinf=0.0)
        self.spread = np.where(several, spread + ROUNDING, 0.0)


@dataclass(frozen=True)
class _BoxBounds:
    """Lower bounds (M,) of the violation and of the objective in M boxes."""

    violation: Array
    objective: Array

    def __getitem__(self, chosen: NDArray[np.generic]) -> _BoxBounds:
        return _BoxBounds(self.violation[chosen], self.objective[chosen])

    def join(self, other: _BoxBounds) -> _BoxBounds:
        pairs = ((self.violation, other.violation), (self.objective, other.objective))
        return _BoxBounds(*(np.append(*pair) for pair in pairs))


@dataclass(frozen=True)
class _JointFraction:
    """A fraction of rates of several groups, expanded at the hull's optimum.

    Attributes
    ----------
    shares
        (J + 1,) its shares in the goals.
    weight
        Its share in the Lagrangian.
    value, bottom
        Its value and its denominator at the hull's optimum.
    """

    fraction: Fraction
    shares: Array
    weight: float
    value: float
    bottom: float


class _BoxSearch:
    """Branch and bound. Goals are sums of terms of one group and of *joint* terms of several.

    Terms of one group, including fractions and curves, are tabulated for each of its cuts. Two
    bounds are combined: each goal by itself, and the Lagrangian at the multipliers of the hull's
    optimum, where joint fractions are replaced by their expansions there. The error of an expansion
    within a box is bounded and subtracted.

    Attributes
    ----------
    weights
        (J + 1,) weights of the objective and the constraints in the Lagrangian.
    """

    def __init__(self, hull: GroupHull, optimum: HullOptimum, local: LocalSearch) -> None:
        self.hull, self.local, self.at = hull, local, optimum.rates
        self.prices = optimum.prices
        program = hull.program
        self.forms = (program.objective, *program.constraints)
        self.feasible = optimum.feasible
        prices = np.maximum(np.nan_to_num(optimum.multipliers), 0.0)
        if not optimum.feasible and prices.any():
            prices /= prices.sum()
        self.weights = np.append(float(optimum.feasible), prices)
        self.effects = [cell.points(hull.kinds.slopes, slice(None)) for cell in hull.cells]
        moving = [effect.any(axis=1) for effect in self.effects]
        self.moving = np.array(moving)  # (C, K) whether a group has an effect on a rate
        self.joints = [
            self._joint(m) for m, each in enumerate(program.fractions) if self._owner(each) is None
        ]
        self.curves = [
            (i, curve)
            for i, form in enumerate(self.forms)
            for curve in form.curves
            if self._owner(curve) is None
        ]
        self.trees, self.constants = self._build()

    def _owner(self, term: Fraction | ConvexTerm) -> int | None:
        """Return the only group with an effect on a term (0 if none has), None if several have."""
        if isinstance(term, Fraction):
            used = (term.top.slopes != 0) | (term.bottom.slopes != 0)
        else:
            used = np.zeros(len(self.at), dtype=bool)
            used[[term.index[leaf] for leaf in ex.leaves(term.expression)]] = True
        owners = np.flatnonzero((self.moving & used).any(axis=1))
        return None if len(owners) > 1 else int(owners[0]) if len(owners) else 0

    def _joint(self, m: int) -> _JointFraction:
        fraction = self.hull.program.fractions[m]
        shares = np.array([form.shares[m] for form in self.forms])
        value, bottom = float(fraction.at(self.at)), float(fraction.bottom.at(self.at))
        weight = float(self.weights @ shares)
        return _JointFraction(fraction, shares, weight, value if bottom > 0 else 0.0, bottom)

    def _build(self) -> tuple[list[_CutTree], Array]:
        """Return the trees of the groups, and constants (N,) of the sums of their values.

        The N values are the J + 1 goals without joint terms, lines that joint terms depend on (two
        for each fraction, and all rates if there are curves), and the Lagrangian.
        """
        program, origin = self.hull.program, self.hull.origin
        lines = [form.line for form in self.forms]
        for joint in self.joints:
            top, bottom = joint.fraction.top, joint.fraction.bottom
            lines += [top + bottom * -joint.value, bottom]
        if self.curves:
            lines += [LinearTerm(unit, 0.0) for unit in np.eye(len(origin))]
        slopes = np.array([line.slopes for line in lines])
        constants = np.array([float(line.at(origin)) for line in lines])
        tables = [slopes @ effect for effect in self.effects]
        for i, form in enumerate(self.forms):
            terms: list[tuple[float, Fraction | ConvexTerm]] = [
                (float(form.shares[m]), program.fractions[m]) for m in form.fractions
            ]
            terms += [(1.0, curve) for curve in form.curves]
            for share, term in terms:
                owner = self._owner(term)
                if owner is not None:
                    values = share * term.at(origin[:, None] + self.effects[owner])
                    tables[owner][i] += np.nan_to_num(
                        values, nan=UNDEFINED, posinf=UNDEFINED, neginf=-UNDEFINED
                    )
        mix = np.zeros(len(lines))
        mix[: len(self.forms)] = self.weights
        for place, joint in enumerate(self.joints):
            if joint.bottom > 0:
                mix[len(self.forms) + 2 * place] = joint.weight / joint.bottom
        constant = sum(joint.weight * joint.value for joint in self.joints)
        if self.curves:
            line = self._curves_line()
            mix[-len(origin) :] += line.slopes
            constant += line.constant
        constants = np.append(constants, mix @ constants + constant)
        tables = [np.vstack([table, mix @ table]) for table in tables]
        spread = np.zeros(len(tables[0]))
        spread[: len(self.forms)] = 1.0 + self.weights
        for i, curve in self.curves:
            used = [curve.index[leaf] for leaf in ex.leaves(curve.expression)]
            spread[-1 - len(origin) : -1][used] += 1.0 + self.weights[i]
        return [_CutTree(table, spread) for table in tables], constants

    def _curves_line(self) -> LinearTerm:
        """Return a line that is nowhere above the weighted sum of the joint curves.

        If the goals have no other terms than lines and joint curves, its slopes are the share of
        these curves in the prices at the hull's optimum. The Lagrangian is then smallest there.
        """
        own = sum(len(form.curves) for form in self.forms) == len(self.curves)
        if not (self.feasible and own) or self.hull.program.fractions:
            tangents = (curve.tangent(self.at) * self.weights[i] for i, curve in self.curves)
            return sum(tangents, self.hull.program.objective.line * 0.0)
        slopes = self.prices - self.weights @ np.array([form.line.slopes for form in self.forms])
        value = sum(self.weights[i] * float(curve.at(self.at)) for i, curve in self.curves)
        return LinearTerm(slopes, value - float(slopes @ self.at))

    def bounds(self, nodes: CutIndices) -> _BoxBounds:
        """Return the bounds of boxes (M, C)."""
        parts = list(zip(self.trees, nodes.T, strict=True))
        low = sum((tree.low[own] for tree, own in parts), self.constants)
        goals, lagrangian = low[:, : len(self.forms)].copy(), low[:, -1].copy()
        if self.joints or self.curves:
            high = sum((tree.high[own] for tree, own in parts), self.constants)
            self._add_fractions(goals, lagrangian, low, high)
            self._add_curves(goals, low, high)
        violation = goals[:, 1:].max(axis=1, initial=0.0)
        objective = goals[:, 0]
        if self.feasible:
            lagrangian -= ROUNDING * self.weights[1:].sum()
            objective = np.fmax(objective, lagrangian)
        elif self.weights.any():
            violation = np.fmax(violation, lagrangian)
        return _BoxBounds(violation, objective)

    def _add_fractions(self, goals: Array, lagrangian: Array, low: Array, high: Array) -> None:
        """Add bounds of joint fractions to goals (M, J + 1) and their errors to the Lagrangian."""
        for place, joint in enumerate(self.joints):
            k, ends = len(self.forms) + 2 * place, joint.fraction.range
            (less, more), (few, many) = ((low[:, j], high[:, j]) for j in (k, k + 1))
            unknown = few <= ROUNDING
            with np.errstate(divide="ignore", invalid="ignore"):
                least = joint.value + less / np.where(less < 0, few, many)
                most = joint.value + more / np.where(more > 0, few, many)
                far = np.stack([1 / few, 1 / many]) - np.divide(1.0, joint.bottom)
                corners = joint.weight * np.stack([less * far, more * far])
            least = np.fmax(np.where(unknown, -np.inf, least), ends[0])
            most = np.fmin(np.where(unknown, np.inf, most), ends[1])
            for i in np.flatnonzero(joint.shares):
                goals[:, i] += joint.shares[i] * (least if joint.shares[i] > 0 else most)
            if joint.weight:
                error = corners.reshape(4, -1).min(axis=0)
                lagrangian += np.where(unknown | (joint.bottom <= 0), -np.inf, error)

    def _add_curves(self, goals: Array, low: Array, high: Array) -> None:
        """Add bounds of joint curves to goals (M, J + 1), from their tangents at the middle."""
        if not (self.curves and len(low)):
            return
        first = len(self.forms) + 2 * len(self.joints)
        less, more = low[:, first:-1].T, high[:, first:-1].T
        middle, half = 0.5 * (less + more), 0.5 * (more - less)
        for i, curve in self.curves:
            goals[:, i] += np.nan_to_num(curve.least(middle, half), nan=-np.inf)

    def improved(self, best: CutChoice) -> CutChoice:
        """Return the best choice, its gap 0 unless `MAX_BOXES` were not enough."""
        most = min(MAX_BOXES, MAX_BOX_ENTRIES // (len(self.trees) * len(self.constants)))
        nodes = np.ones((1, len(self.trees)), dtype=np.intp)
        bounds, count = self.bounds(nodes), 1
        while True:
            near = self._open(bounds, best)
            nodes, bounds = nodes[near], bounds[near]
            if not len(nodes):
                return replace(best, gap=0.0)
            keys = bounds.violation if best.violation else bounds.objective
            if count >= most:
                reached = best.violation or best.objective
                return replace(best, gap=max(reached - float(keys.min()), 0.0))
            chosen = np.zeros(len(nodes), dtype=bool)
            some = min(BATCH, len(nodes))
            chosen[np.argpartition(keys, some - 1)[:some]] = True
            parts = self._split(nodes[chosen])
            best = min(best, self.local.best(self._likely(parts)), key=lambda each: each.key)
            parts = parts[self._spreads(parts).any(axis=1)]
            count += len(parts)
            inside = self.bounds(parts)
            near = self._open(inside, best)
            nodes = np.vstack([nodes[~chosen], parts[near]])
            bounds = bounds[~chosen].join(inside[near])

    def _open(self, bounds: _BoxBounds, best: CutChoice) -> NDArray[np.bool_]:
        """Return whether boxes may contain a better choice."""
        if best.violation:
            return bounds.violation < best.violation - BOUND_ROUNDING
        below = ~(bounds.objective >= best.objective - BOUND_ROUNDING)
        return (bounds.violation <= BOUND_ROUNDING) & below

    def _spreads(self, nodes: CutIndices) -> Array:
        """Return (M, C) the spread of the nodes of boxes, 0 for a single cut."""
        parts = zip(self.trees, nodes.T, strict=True)
        return np.stack([tree.spread[own] for tree, own in parts], axis=1)

    def _likely(self, nodes: CutIndices) -> CutIndices:
        """Return a choice (C, M) in each box, that with the smallest Lagrangian."""
        return np.stack([tree.likely[own] for tree, own in zip(self.trees, nodes.T, strict=True)])

    def _split(self, nodes: CutIndices) -> CutIndices:
        """Return the parts of boxes, each split at the node whose values vary most."""
        c = np.argmax(self._spreads(nodes), axis=1)
        rows = np.arange(len(nodes))
        parts = []
        for side in (0, 1):
            part = nodes.copy()
            part[rows, c] = 2 * nodes[rows, c] + side
            parts.append(part)
        found = np.vstack(parts)
        some = [tree.low[own, 0] < np.inf for tree, own in zip(self.trees, found.T, strict=True)]
        return np.asarray(found[np.all(some, axis=0)])

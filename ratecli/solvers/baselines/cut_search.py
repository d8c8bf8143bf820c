"""The best single threshold for each group: all choices if there are few, else a search.

For two groups and affine goals, each cut of one group leaves an interval of cuts of the other, and
the best of an interval is looked up. Otherwise, a local search moves the cuts of one group, of two
groups or of all groups together, on grids that become finer around the best choice. If the goals
are convex, branch and bound over intervals of cuts then finds the best choice.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.baselines.group_hull import MIN_CUT_CHANCE, CutIndices, GroupHull
from ratecli.solvers.hull.forms import RatePoints
from ratecli.solvers.hull.master import HullOptimum, Master, solution

ROUNDING = 1e-12
"""Rounding error of a sum of a few exact rates."""
MAX_CHOICES = 20_000
"""Maximum number of choices that are all evaluated."""
MAX_CHOICES_AT_ONCE, MAX_ENTRIES_AT_ONCE = 1000, 20_000_000
"""Maximum number of choices evaluated together, and of their rates."""
STARTS = 64
"""Maximum number of choices among the cuts of a random choice."""
PASSES = 20
MAX_PAIRS = 30
"""Maximum number of pairs of groups that are moved together."""
MAX_NEAR = 50
"""By how many cuts the first search moves groups."""
MIN_GRID = 3
"""All groups are moved together if the grid has at least this many cuts of each."""
ZOOM = 0.7
"""Width of a grid relative to the one before it."""
PROVEN_GAP = 1e-9
"""Gaps that count as 0."""
MAX_GROUPS, MAX_BOXES = 6, 200
"""Maximum number of groups for branch and bound, and of boxes whose best random choice is found."""


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

    def rank(self, elastic: bool) -> float:
        """Return the objective, infinite if a constraint is violated; the violation if elastic."""
        if elastic:
            return self.violation
        return np.inf if self.violation else self.objective


def best_deterministic_cuts(
    hull: GroupHull, optimum: HullOptimum, chances: Sequence[tuple[CutIndices, Array]]
) -> CutChoice:
    """Return the best choice found of one cut per group: feasible with the smallest objective.

    `optimum` is the best point of the hull, and `chances` are its cuts with their chances. If no
    choice is feasible, the one with the smallest violation is returned.
    """
    local, elastic, least = LocalSearch(hull), not optimum.feasible, optimum.bound
    found = local.moved(local.better(None, [cuts for cuts, _ in chances]), widest=MAX_NEAR)
    if hull.program.is_convex and len(hull.cells) <= MAX_GROUPS:
        found, least = _bounded(local, found, optimum)
    if not found.rank(elastic) - PROVEN_GAP <= least < np.inf:
        found = min(map(local.moved, (found, local.coarse())), key=attrgetter("key"))
    left = found.rank(elastic) - least if least < np.inf else np.inf  # no choice is feasible
    return replace(found, gap=left if left > PROVEN_GAP else 0.0)


def proven_cuts(hull: GroupHull) -> CutChoice | None:
    """Return the best choice of one cut per group if all choices can be compared, else None."""
    local, sizes = LocalSearch(hull), [len(cell) for cell in hull.cells]
    found = local.all(sizes) if math.prod(sizes) <= MAX_CHOICES else local.pair()
    return None if found is None else replace(found, gap=0.0)


class _Box(NamedTuple):
    """The choices with cuts between two ends (C,) for each group; none is better than `bound`."""

    bound: float
    number: int
    low: CutIndices
    high: CutIndices

    def halves(self, bound: float, number: int, c: int, middle: float) -> Iterator[_Box]:
        """Yield the choices with a cut of group c below or at the middle, and those above it."""
        last = min(max(math.floor(middle), self.low[c]), self.high[c] - 1)
        own = np.arange(len(self.low)) == c
        yield _Box(bound, number, self.low, np.where(own, last, self.high))
        yield _Box(bound, number + 1, np.where(own, last + 1, self.low), self.high)


def _bounded(local: LocalSearch, found: CutChoice, optimum: HullOptimum) -> tuple[CutChoice, float]:
    """Return the best choice by branch and bound, given a good one, and a bound on its rank.

    The goals are convex. The best random choice of the cuts in a box bounds its single choices.
    Boxes are split at the mean cut of the group whose cut varies most.
    """
    hull, count, elastic = local.hull, len(local.ends), not optimum.feasible
    points = np.hstack([cell.points(hull.kinds.slopes, slice(None)) for cell in hull.cells])
    block = np.repeat(np.arange(count), local.ends + 1)
    cut = np.concatenate([np.arange(end + 1) for end in local.ends])
    boxes, solved = [_Box(optimum.bound, 0, 0 * local.ends, local.ends)], 0
    while boxes and boxes[0].bound < found.rank(elastic) - PROVEN_GAP and solved < MAX_BOXES:
        box, solved = heapq.heappop(boxes), solved + 1
        inside = (box.low[block] <= cut) & (cut <= box.high[block])
        own, cuts = block[inside], cut[inside]
        here = RatePoints(points[:, inside], own, hull.origin)
        best = solution(Master(hull.program, here, optimum.tangents, elastic=elastic, floor=0.0))
        if best is None:
            continue
        likely = best.weights > MIN_CUT_CHANCE
        found = local.better(found, [cuts[likely & (own == c)] for c in range(count)])
        mean = np.bincount(own, best.weights * cuts)
        spread = np.bincount(own, best.weights * (cuts - mean[own]) ** 2)
        c = int(np.argmax(spread))
        middle = float(mean[c])
        if likely.sum() <= count:  # a single choice, which is not found if a ratio is undefined
            c = int(np.argmax(box.high - box.low))
            middle = 0.5 * float(box.low[c] + box.high[c])
        if best.bound < found.rank(elastic) - PROVEN_GAP and box.low[c] < box.high[c]:
            for half in box.halves(best.bound, 2 * solved, c, middle):
                heapq.heappush(boxes, half)
    return found, boxes[0].bound if boxes else found.rank(elastic)


class LocalSearch:
    """Moves of groups from a choice of cuts."""

    def __init__(self, hull: GroupHull) -> None:
        self.hull = hull
        self.most = min(MAX_CHOICES_AT_ONCE, MAX_ENTRIES_AT_ONCE // len(hull.origin))
        self.ends = np.array([len(cell) - 1 for cell in hull.cells])
        count = len(self.ends)
        pairs = list(itertools.combinations(range(count), 2))
        chosen = np.random.default_rng(0).permutation(len(pairs))[:MAX_PAIRS]
        self.together = [*((c,) for c in range(count)), *(pairs[k] for k in chosen)]
        if count > 2 and self.most >= MIN_GRID**count:
            self.together.append(tuple(range(count)))

    def best(self, choices: CutIndices) -> CutChoice:
        """Return the best of choices (C, N)."""
        key, k = self.hull.program.best_point(self.hull.rates(choices), ROUNDING)
        return CutChoice(choices[:, k], *key)

    def better(self, choice: CutChoice | None, supports: Sequence[CutIndices]) -> CutChoice:
        """Return the best of a choice and of `STARTS` combinations of some cuts of each group."""
        some = list(itertools.islice(itertools.product(*supports), STARTS))
        found = self.best(np.array(some).T)
        return found if choice is None else min(choice, found, key=attrgetter("key"))

    def all(self, sizes: Sequence[int]) -> CutChoice:
        """Return the best of all choices, given the number of cuts of each group."""
        parts = (
            np.arange(start, min(start + self.most, math.prod(sizes)))
            for start in range(0, math.prod(sizes), self.most)
        )
        found = (self.best(np.array(np.unravel_index(part, sizes))) for part in parts)
        return min(found, key=attrgetter("key"))

    def pair(self) -> CutChoice | None:
        """Return the best cuts of two groups if the goals are affine; None if there are none.

        Also None if a ratio is undefined at these cuts, or if some constraint neither grows nor
        falls with the cuts of the second group. A cut of the first group otherwise leaves an
        interval of cuts that satisfy the constraints.
        """
        hull, program = self.hull, self.hull.program
        if len(self.ends) != 2 or not program.is_affine:
            return None
        lines = np.array([form.line.vector for form in program.constraints])
        first, second = (cell.points(hull.kinds.slopes, slice(None)) for cell in hull.cells)
        first = first + hull.origin[:, None]
        low, high = np.zeros(first.shape[1], dtype=np.intp), np.full(first.shape[1], len(second.T))
        for slopes, constant in zip(lines[:, :-1], lines[:, -1], strict=True):
            values, most = slopes @ second, ROUNDING - constant - slopes @ first
            steps = np.diff(values)
            if (steps >= -ROUNDING).all():
                high = np.minimum(high, np.searchsorted(values, most, side="right"))
            elif (steps <= ROUNDING).all():
                kept = np.searchsorted(values[::-1], most, side="right")
                low = np.maximum(low, len(values) - kept)
            else:
                return None
        inside = np.flatnonzero(low < high)
        if not inside.size:
            return None
        aim = program.objective.line.slopes
        costs = aim @ second
        others = _least_between(costs, low[inside], high[inside])
        k = int(np.argmin((aim @ first)[inside] + costs[others]))
        found = self.best(np.array([[inside[k]], [others[k]]]))
        return None if found.violation else found

    def coarse(self) -> CutChoice:
        """Return the best choice on a grid of evenly spread cuts, as fine as the limits allow.

        With many groups, the grid has only choices of the same fraction of cuts in every group.
        """
        each = int(self.most ** (1 / len(self.ends)))
        if each < 2:
            return self.best(np.outer(self.ends, np.linspace(0, 1, 101)).astype(np.intp))
        return self.best(_product([np.linspace(0, end, min(each, end + 1)) for end in self.ends]))

    def moved(self, choice: CutChoice, widest: float = np.inf) -> CutChoice:
        """Return the choice after moves of groups by some cuts, as long as they improve it."""
        for _ in range(PASSES):
            before = choice.cuts
            for groups in self.together:
                choice = self._zoomed(choice, np.array(groups), widest)
            if (choice.cuts == before).all():
                break
        return choice

    def _zoomed(
        self, choice: CutChoice, groups: NDArray[np.intp], widest: float = np.inf
    ) -> CutChoice:
        """Return the best choice with other cuts for some groups, on finer and finer grids.

        The first grid reaches `widest` cuts from the choice, the last one has all cuts around it.
        """
        each, half = int(self.most ** (1 / len(groups))), min(self.ends[groups].max() / 2, widest)
        while True:
            own = choice.cuts[groups]
            low, high = np.maximum(own - half, 0), np.minimum(own + half, self.ends[groups])
            moved = _product([np.linspace(*pair, each) for pair in zip(low, high, strict=True)])
            choices = np.repeat(choice.cuts[:, None], moved.shape[1], axis=1)
            choices[groups] = moved
            better = min(choice, self.best(choices), key=attrgetter("key"))
            if 2 * half < each and better is choice:
                return choice
            choice, half = better, max(ZOOM * half, (each - 1) / 2)


def _least_between(
    values: Array, low: NDArray[np.intp], high: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the index of the smallest of the values (n,) from `low` (m,) to below `high` (m,).

    This is a sparse table: the minimum of 2^k values is that of two halves, and two such ranges
    cover any range.
    """
    level = np.frexp(high - low)[1] - 1
    found, least = np.empty(len(low), dtype=np.intp), np.arange(len(values))
    for k in range(int(level.max()) + 1):
        own, length = level == k, 1 << k
        left, right = least[low[own]], least[high[own] - length]
        found[own] = np.where(values[right] < values[left], right, left)
        before, after = least[:-length], least[length:]
        least = np.where(values[after] < values[before], after, before)
    return found


def _product(grids: Sequence[Array]) -> CutIndices:
    """Return all combinations (C, N) of one cut from each grid, rounded."""
    cuts = [np.unique(grid.round().astype(np.intp)) for grid in grids]
    return np.stack([each.ravel() for each in np.meshgrid(*cuts, indexing="ij")])

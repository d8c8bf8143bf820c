"""The best single threshold for each group: all choices if there are few, else a local search.

The search moves the cuts of one group, of two groups or of all groups together, on grids that
become finer around the best choice. The bound of the hull of random choices says how far its result
may be from the optimum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from ratecli.models.base import Array
from ratecli.solvers.baselines.group_hull import CutIndices, GroupHull
from ratecli.solvers.hull.forms import RatePoints
from ratecli.solvers.hull.master import HullOptimum, Master

ROUNDING = 1e-12
"""Rounding error of a sum of a few exact rates."""
MAX_CHOICES = 200_000
"""Maximum number of choices that are all evaluated."""
MAX_CHOICES_AT_ONCE, MAX_ENTRIES_AT_ONCE = 10_000, 20_000_000
"""Maximum number of choices evaluated together, and of their rates."""
MAX_SINGLE_MOVES = 1000
"""Maximum number of cuts of a group tried together."""
STARTS = 64
"""Maximum number of choices among the cuts of the best random choice."""
PASSES = 20
MAX_PAIRS = 30
"""Maximum number of pairs of groups that are moved together."""
MAX_NEAR = 50
"""By how many cuts the first search moves groups."""
MIN_GRID = 3
"""All groups are moved together if the grid has at least this many cuts of each."""
ZOOM = 0.7
"""Width of a grid relative to the one before it."""
PROVEN_GAP, SMALL_GAP = 1e-9, 5e-4
"""Gaps that count as 0, and that need no further search."""
MAX_PROGRAMS = 5
"""Maximum number of integer programs, each with tangents at the last one's choice."""
MAX_BINARIES, MAX_NODES = 600, 1000
"""Maximum number of cuts in an integer program, and of nodes that HiGHS opens."""


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
    """Return the best choice found of one cut per group: feasible with the smallest objective.

    `optimum` is the best point of the hull, and `chances` are its cuts with their chances. If no
    choice is feasible, the one with the smallest violation is returned.
    """
    local, sizes = _LocalSearch(hull), [len(cell) for cell in hull.cells]
    if math.prod(sizes) <= MAX_CHOICES:
        return replace(local.all(sizes), gap=0.0)
    supports = list(itertools.islice(itertools.product(*(cuts for cuts, _ in chances)), STARTS))
    found = local.best(np.array(supports).T)
    searches: tuple[Callable[[], CutChoice], ...] = (
        lambda: local.moved(found, widest=MAX_NEAR),
        lambda: local.moved(found),
        lambda: local.moved(local.rounded(optimum, chances)),
        lambda: local.moved(local.coarse()),
    )
    for search in searches:
        if _gap(found, optimum) > SMALL_GAP:
            found = min(found, search(), key=attrgetter("key"))
    tangents_at = [optimum.rates, hull.rates(found.cuts[:, None])[:, 0]]
    for _ in range(MAX_PROGRAMS if _gap(found, optimum) > SMALL_GAP else 0):
        exact = local.integral(tangents_at.pop(0), found, chances) if tangents_at else None
        if exact is None:
            continue
        better = min(found, exact, local.moved(exact), key=attrgetter("key"))
        if better is not found:
            found = better
            tangents_at.append(hull.rates(found.cuts[:, None])[:, 0])
    return replace(found, gap=_gap(found, optimum))


def _gap(found: CutChoice, optimum: HullOptimum) -> float:
    """Return how far a choice may be from the optimum, given that of the hull."""
    if found.violation and optimum.feasible:
        return np.inf
    gap = max((found.violation or found.objective) - optimum.bound, 0.0)
    return gap if gap > PROVEN_GAP else 0.0


class _LocalSearch:
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

    def integral(
        self, at: Array, found: CutChoice, chances: Sequence[tuple[CutIndices, Array]]
    ) -> CutChoice | None:
        """Return the best of some choices if tangents at rates (K,) replace curved goals.

        These are cuts near those of a choice and of the best random choice. Solved by HiGHS as a
        program with a binary number for each cut; None if that finds no choice.
        """
        each, parts = max(MAX_BINARIES // len(self.ends), MIN_GRID), list[CutIndices]()
        for (own, _), cut, end in zip(chances, found.cuts, self.ends, strict=True):
            known = np.append(own, cut)
            distance = np.abs(np.arange(end + 1)[:, None] - known).min(axis=1)
            parts.append(np.sort(np.argsort(distance, kind="stable")[:each]))
        cells, slopes = self.hull.cells, self.hull.kinds.slopes
        points = np.hstack([c.points(slopes, p) for c, p in zip(cells, parts, strict=True)])
        block = np.repeat(np.arange(len(cells)), [len(part) for part in parts])
        flat = self.hull.program.linearized(at, single=True)
        if flat is None:
            return None
        master = Master(flat, RatePoints(points, block, self.hull.origin), floor=0.0)
        chosen = master.solve_integral(MAX_NODES)
        if chosen is None:
            return None
        cuts = [int(p[np.argmax(chosen[block == c])]) for c, p in enumerate(parts)]
        return self.best(np.array(cuts)[:, None])

    def all(self, sizes: Sequence[int]) -> CutChoice:
        """Return the best of all choices, given the number of cuts of each group."""
        parts = (
            np.arange(start, min(start + self.most, math.prod(sizes)))
            for start in range(0, math.prod(sizes), self.most)
        )
        found = (self.best(np.array(np.unravel_index(part, sizes))) for part in parts)
        return min(found, key=attrgetter("key"))

    def rounded(
        self, optimum: HullOptimum, chances: Sequence[tuple[CutIndices, Array]]
    ) -> CutChoice:
        """Return the best cut of each group while the others decide as in the hull's optimum."""
        hull, cuts = self.hull, np.zeros(len(self.ends), dtype=np.intp)
        for c, own in enumerate(chances):
            rates = hull.rates_with(optimum.rates, own, c, np.arange(self.ends[c] + 1))
            _, cuts[c] = hull.program.best_point(rates, ROUNDING)
        return self.best(cuts[:, None])

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
        most = MAX_SINGLE_MOVES if len(groups) == 1 else self.most
        each, half = int(most ** (1 / len(groups))), min(self.ends[groups].max() / 2, widest)
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


def _product(grids: Sequence[Array]) -> CutIndices:
    """Return all combinations (C, N) of one cut from each grid, rounded."""
    cuts = [np.unique(grid.round().astype(np.intp)) for grid in grids]
    return np.stack([each.ravel() for each in np.meshgrid(*cuts, indexing="ij")])

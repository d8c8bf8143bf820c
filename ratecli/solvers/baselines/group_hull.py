"""The best randomized choice of one threshold per group, as a point of a hull of rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.groups import Groups
from ratecli.solvers.hull.best import MAX_EXCESS, HullOptimum, optimize_over_hull
from ratecli.solvers.hull.columns import RatePoints
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RateProgram
from ratecli.solvers.hull.relaxation import Relaxation
from ratecli.solvers.numerics.thresholds import Thresholds
from ratecli.solvers.problem import ERROR_RATE

CutIndices = NDArray[np.intp]
"""Ascending indices of cuts of a group. Cut 0 has no positive decisions; thresholds descend."""

FLAT_DIRECTION = 1e-9
"""Directions in which values vary by at most this part of the largest variation are ignored."""
MAX_CUTS_KEPT_WHOLE = 256
"""All cuts of a group are kept if it has no more than this."""


@dataclass(frozen=True)
class GroupCuts:
    """The T cuts of a group: positive decisions for the rows above each of T thresholds.

    Attributes
    ----------
    thresholds
        (T,) descending.
    kinds
        (Q,) the kinds of its rows.
    yes
        (Q, T) weight of each kind above each threshold.
    """

    thresholds: Array
    kinds: NDArray[np.intp]
    yes: Array

    def __len__(self) -> int:
        return len(self.thresholds)

    def points(self, slopes: Array, chosen: CutIndices | slice) -> Array:
        """Return (K, ...) what cuts add to the rates, given slopes (K, all kinds) of kinds."""
        return np.asarray(slopes[:, self.kinds] @ self.yes[:, chosen])

    def costs(self, prices: Array, slopes: Array) -> Array:
        """Return (T,) the cost of each cut at the prices (K,) of the rates."""
        return np.asarray((prices @ slopes[:, self.kinds]) @ self.yes)


def cuts_by_group(
    scores: Array, groups: Groups, kinds: RowKinds, directions: Array
) -> list[GroupCuts]:
    """Return the cuts of each group on scores (n,).

    A group whose decisions affect the goals in none of their `directions` (F, K) has one cut, at
    the threshold 0.
    """
    found = []
    order = np.argsort(groups.of, kind="stable")
    ends = np.cumsum(np.bincount(groups.of, minlength=len(groups.patterns)))
    for rows in np.split(order, ends[:-1]):
        present, own = np.unique(kinds.of[rows], return_inverse=True)
        if not (directions @ kinds.slopes[:, present]).any():
            above = kinds.weight[rows] * (scores[rows] > 0)
            once = np.asarray(np.bincount(own, above, len(present)), dtype=float)
            found.append(GroupCuts(np.zeros(1), present, once[:, None]))
            continue
        cuts = Thresholds.of(scores[rows])
        weights = kinds.weight[rows] * (own == np.arange(len(present))[:, None])
        found.append(GroupCuts(cuts.values, present, cuts.positive_sums(weights)))
    return found


def goal_directions(program: RateProgram) -> Array:
    """Return the nonzero slopes (F, K) in the rates of all that the goals are functions of."""
    forms = (program.objective, *program.constraints)
    rows = [form.line.slopes for form in forms]
    rows += [line.slopes for each in program.fractions for line in (each.top, each.bottom)]
    for curve in (curve for form in forms for curve in form.curves):
        unit = np.eye(len(curve.index))
        rows += [unit[curve.index[leaf]] for leaf in ex.leaves(curve.expression)]
    found = np.array(rows)
    return found[found.any(axis=1)]


def hull_vertices(cell: GroupCuts, moves: Array) -> CutIndices | None:
    """Return the cuts on the convex hull of the effects of a cell's cuts, or None if it is unknown.

    No other cut can matter to goals that are functions of `moves @ yes`, moves (F, Q), because
    every point of the hull is a random choice among these. In two dimensions the hull is computed
    exactly, like that of a ROC curve; in more dimensions all cuts are kept if there are few.
    """
    if len(cell) <= MAX_CUTS_KEPT_WHOLE:
        return np.arange(len(cell))
    _, sizes, axes = np.linalg.svd(moves @ cell.yes, full_matrices=False)
    rank = int((sizes > FLAT_DIRECTION * sizes[0]).sum())
    if rank > 2:
        return None
    points = sizes[:rank, None] * axes[:rank]
    if rank == 2:
        return np.sort(ConvexHull(points.T).vertices).astype(np.intp)
    reach = points.sum(axis=0)
    return np.unique([np.argmin(reach), np.argmax(reach)]).astype(np.intp)


def couple_group_cuts(chances: Sequence[tuple[CutIndices, Array]]) -> tuple[CutIndices, Array]:
    """Combine the cuts and chances of each group into joint cuts (M, C) with chances (M,).

    A single random number determines the cuts of all groups. Hence M is at most the number of cuts
    minus the number of groups plus 1, and a number that selects a lower threshold in one group does
    so in all.
    """
    ends = [np.cumsum(each) for _, each in chances]
    steps = np.unique(np.concatenate([[0.0, 1.0], *(each[:-1] for each in ends)]).clip(0, 1))
    steps = steps[np.append(True, np.diff(steps) > FLAT_DIRECTION)]
    steps[-1] = 1.0
    middles = 0.5 * (steps[1:] + steps[:-1])
    drawn = [
        numbers[np.minimum(np.searchsorted(each, middles), len(numbers) - 1)]
        for (numbers, _), each in zip(chances, ends, strict=True)
    ]
    return np.stack(drawn, axis=1), np.diff(steps)


OBJECTIVE_TIE = 1e-8
"""Objectives that differ by no more than this count as equal."""
INITIAL_CUTS = 33
"""Number of evenly spread cuts that a group starts with if its relevant cuts are not all known."""
MIN_CUT_CHANCE = 1e-9
"""Smaller chances are treated as rounding errors of 0."""


@dataclass
class GroupHull:
    """A hull with a block of points for each group (Hardt, Price, Srebro 2016, for any goal).

    If the cuts of every group can be reduced to the vertices of their own hull, the best point is
    the optimum over all cuts. Otherwise cuts that are cheap at the prices of the current best point
    are added until none promises to improve it by more than the gap. By duality this is equally
    certain if no goal has fractions; with fractions it only holds locally.

    Attributes
    ----------
    kept
        The cuts of each group that are points of the hull.
    whole
        For each group, whether no other cuts can matter.
    """

    program: RateProgram
    kinds: RowKinds
    cells: list[GroupCuts]
    gap: float
    kept: list[CutIndices] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    feasible: bool = False
    _tangents: list[tuple[int, LinearTerm]] = field(default_factory=list)

    def __post_init__(self) -> None:
        moves = goal_directions(self.program) @ self.kinds.slopes
        with_error = np.vstack([moves, self.error @ self.kinds.slopes])
        for cell in self.cells:
            vertices = hull_vertices(cell, with_error[:, cell.kinds])
            if vertices is None:
                vertices = hull_vertices(cell, moves[:, cell.kinds])
            self.whole.append(vertices is not None)
            even = np.linspace(0, len(cell) - 1, INITIAL_CUTS).astype(np.intp)
            self.kept.append(even if vertices is None else vertices)

    @property
    def error(self) -> Array:
        """(K,) 1 for plain error, 0 for other rates."""
        index = self.kinds.matrix.index()
        return np.asarray(np.eye(len(index))[index[ERROR_RATE]])

    @property
    def origin(self) -> Array:
        """(K,) the rates when all decisions are negative."""
        return np.nan_to_num(self.kinds.matrix.c)

    @property
    def sure(self) -> bool:
        """Whether bounds and gaps hold for all cuts, not only for those that are kept."""
        return all(self.whole) or not self.program.fractions

    @property
    def columns(self) -> RatePoints:
        """The kept cuts as points of the hull, one block for each group."""
        parts = zip(self.cells, self.kept, strict=True)
        points = [cell.points(self.kinds.slopes, kept) for cell, kept in parts]
        sizes = [len(kept) for kept in self.kept]
        return RatePoints(np.hstack(points), np.repeat(np.arange(len(sizes)), sizes), self.origin)

    def best(self) -> HullOptimum:
        """Return the best point, or the one of least violation if none satisfies the constraints.

        If the latter satisfies them after all, the search for the best point gave up and there is
        no bound.
        """
        relaxation = Relaxation(self.program, self.columns, tangents=self._tangents)
        optimum = optimize_over_hull(relaxation, 0.5 * self.gap)
        self.feasible = optimum is not None
        if optimum is not None:
            self._tangents = optimum.tangents
            return optimum
        elastic = Relaxation(self.program, self.columns, elastic=True)
        nearest = optimize_over_hull(elastic, 0.5 * self.gap)
        assert nearest is not None
        self.feasible = float(self.program.excess(nearest.rates)) <= MAX_EXCESS
        if not self.feasible:
            return nearest
        value = float(self.program.value(self.program.objective, nearest.rates))
        return replace(nearest, value=value, bound=-np.inf)

    def settled(self, found: HullOptimum) -> HullOptimum:
        """Return the point of least error among those as good as `found`.

        Distinguishes between optima of objectives such as divergences, which are 0 for very
        different choices. Returns `found` if it is infeasible or if the objective has fractions.
        """
        aim, most = self.program.objective, found.value + OBJECTIVE_TIE
        if not self.feasible or aim.shares.any():
            return found
        bound = replace(aim, line=aim.line + LinearTerm(0.0 * self.error, -most))
        constraints = (*self.program.constraints, bound)
        error = ProgramForm(LinearTerm(self.error, 0.0), 0.0 * aim.shares)
        owners = (*self.program.owners, "objective")
        program = replace(self.program, objective=error, constraints=constraints, owners=owners)
        near = optimize_over_hull(Relaxation(program, self.columns), 0.5 * self.gap)
        if near is None:
            return found
        value = float(self.program.value(aim, near.rates))
        return replace(found, weights=near.weights, rates=near.rates, value=value)

    def cheaper(self, optimum: HullOptimum) -> tuple[float, list[CutIndices]]:
        """Return the total saving promised by each group's cheapest cut, and the cuts to keep.

        These are the kept cuts and the cheapest ones. Groups that are whole are skipped.
        """
        saved, more = 0.0, list(self.kept)
        for c, (cell, chances) in enumerate(zip(self.cells, self._split(optimum), strict=True)):
            if not self.whole[c]:
                costs = cell.costs(optimum.prices, self.kinds.slopes)
                cheapest = int(np.argmin(costs))
                saved += float(chances @ costs[self.kept[c]]) - float(costs[cheapest])
                more[c] = np.union1d(self.kept[c], [cheapest])
        return saved, more

    def chances(self, optimum: HullOptimum) -> list[tuple[CutIndices, Array]]:
        """Return each group's cuts with positive chances, and these chances, which sum to 1."""
        parts = []
        for kept, chances in zip(self.kept, self._split(optimum), strict=True):
            some = chances > MIN_CUT_CHANCE
            parts.append((kept[some], chances[some] / chances[some].sum()))
        return parts

    def _split(self, optimum: HullOptimum) -> list[Array]:
        """Return the chances of the kept cuts of each group."""
        return np.split(optimum.weights, np.cumsum([len(kept) for kept in self.kept])[:-1])

    def rates(self, combinations: CutIndices) -> Array:
        """Return (K, N) the rates of N combinations (C, N) of one cut per group."""
        parts = zip(self.cells, combinations, strict=True)
        each = (cell.points(self.kinds.slopes, chosen) for cell, chosen in parts)
        return np.asarray(sum(each, self.origin[:, None]))

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
from ratecli.solvers.hull.best import HullOptimum, optimize_over_hull
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RatePoints, RateProgram
from ratecli.solvers.numerics import Thresholds
from ratecli.solvers.problem import ERROR_RATE, Groups

CutIndices = NDArray[np.intp]
"""Ascending indices of cuts of a group. Cut 0 has no positive decisions; thresholds descend."""

FLAT_DIRECTION = 1e-9
"""Directions in which values vary by at most this part of the largest variation are ignored."""


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
    cells = []
    order = np.argsort(groups.of, kind="stable")
    ends = np.cumsum(np.bincount(groups.of, minlength=len(groups.patterns)))
    for rows in np.split(order, ends[:-1]):
        present, own = np.unique(kinds.of[rows], return_inverse=True)
        if not (directions @ kinds.slopes[:, present]).any():
            above = kinds.weight[rows] * (scores[rows] > 0)
            once = np.asarray(np.bincount(own, above, len(present)), dtype=float)
            cells.append(GroupCuts(np.zeros(1), present, once[:, None]))
            continue
        cuts = Thresholds.of(scores[rows])
        weights = kinds.weight[rows] * (own == np.arange(len(present))[:, None])
        cells.append(GroupCuts(cuts.values, present, cuts.positive_sums(weights)))
    return cells


def goal_directions(program: RateProgram) -> Array:
    """Return the nonzero slopes (F, K) in the rates of all that the goals are functions of."""
    forms = (program.objective, *program.constraints)
    rows = [form.line.slopes for form in forms]
    rows += [line.slopes for each in program.fractions for line in (each.top, each.bottom)]
    for curve in (curve for form in forms for curve in form.curves):
        unit = np.eye(len(curve.index))
        rows += [unit[curve.index[leaf]] for leaf in ex.leaves(curve.expression)]
    slopes = np.array(rows)
    return slopes[slopes.any(axis=1)]


def hull_vertices(cell: GroupCuts, moves: Array) -> CutIndices:
    """Return the cuts on the convex hull of the effects of a cell's cuts.

    No other cut can matter to goals that are functions of `moves @ yes`, moves (F, Q), because
    every point of the hull is a random choice among these. In more than two dimensions, where most
    cuts are vertices, all of them are returned.
    """
    _, sizes, axes = np.linalg.svd(moves @ cell.yes, full_matrices=False)
    rank = int((sizes > FLAT_DIRECTION * sizes[0]).sum())
    if rank > 2 or len(cell) <= rank:
        return np.arange(len(cell))
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
MIN_CUT_CHANCE = 1e-9
"""Smaller chances are treated as rounding errors of 0."""


@dataclass
class GroupHull:
    """A hull with a block of points for each group (Hardt, Price, Srebro 2016, for any goal).

    Attributes
    ----------
    kept
        The cuts of each group that are points of the hull: no others can matter to the goals.
    """

    program: RateProgram
    kinds: RowKinds
    cells: list[GroupCuts]
    gap: float
    kept: list[CutIndices] = field(init=False)
    feasible: bool = False

    def __post_init__(self) -> None:
        directions = np.vstack([goal_directions(self.program), self.error])
        moves = directions @ self.kinds.slopes
        self.kept = [hull_vertices(cell, moves[:, cell.kinds]) for cell in self.cells]

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
        optimum = optimize_over_hull(self.program, self.columns, 0.5 * self.gap)
        assert optimum is not None
        self.feasible = optimum.feasible
        return optimum

    def settled(self, optimum: HullOptimum) -> HullOptimum:
        """Return the point of least error among those as good as `optimum`.

        Distinguishes between optima of objectives such as divergences, which are 0 for very
        different choices. Returns `optimum` if it is infeasible or if the objective has fractions.
        """
        objective, most = self.program.objective, optimum.value + OBJECTIVE_TIE
        if not self.feasible or objective.shares.any():
            return optimum
        bound = replace(objective, line=objective.line + LinearTerm(0.0 * self.error, -most))
        constraints = (*self.program.constraints, bound)
        error = ProgramForm(LinearTerm(self.error, 0.0), 0.0 * objective.shares)
        owners = (*self.program.owners, "objective")
        program = replace(self.program, objective=error, constraints=constraints, owners=owners)
        near = optimize_over_hull(program, self.columns, 0.5 * self.gap)
        if near is None or not near.feasible:
            return optimum
        value = float(self.program.value(objective, near.rates))
        return replace(optimum, weights=near.weights, rates=near.rates, value=value)

    def chances(self, optimum: HullOptimum) -> list[tuple[CutIndices, Array]]:
        """Return each group's cuts with positive chances, and these chances, which sum to 1."""
        parts, ends = [], np.cumsum([len(kept) for kept in self.kept])
        for kept, chances in zip(self.kept, np.split(optimum.weights, ends[:-1]), strict=True):
            some = chances > MIN_CUT_CHANCE
            parts.append((kept[some], chances[some] / chances[some].sum()))
        return parts

    def rates(self, combinations: CutIndices) -> Array:
        """Return (K, N) the rates of N combinations (C, N) of one cut per group."""
        parts = zip(self.cells, combinations, strict=True)
        each = (cell.points(self.kinds.slopes, chosen) for cell, chosen in parts)
        return np.asarray(sum(each, self.origin[:, None]))

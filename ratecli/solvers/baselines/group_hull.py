"""Cuts of the scores of groups, and the hull of the rates that random choices of them reach."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from ratecli.models.base import Array
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RatePoints, RateProgram
from ratecli.solvers.hull.master import HullOptimum, best_in_hull
from ratecli.solvers.problem import ERROR_RATE

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

    def moves(self, slopes: Array) -> tuple[NDArray[np.intp], Array]:
        """Return the R rates that its cuts change, and what all of them add to these (R, T)."""
        own = slopes[:, self.kinds]
        rates = np.flatnonzero(own.any(axis=1))
        return rates, own[rates] @ self.yes


def cuts_by_group(
    scores: Array, of: NDArray[np.intp], kinds: RowKinds, directions: Array
) -> list[GroupCuts]:
    """Return the cuts of each group on scores (n,) of rows in groups `of` (n,), none of them empty.

    A group whose decisions affect the goals in none of their `directions` (F, K) has one cut, at
    the threshold 0.
    """
    cells, of, scores = [], of[kinds.row], scores[kinds.row]
    order = np.argsort(of.astype(np.min_scalar_type(of.max())), kind="stable")  # sorted by radix
    ends = np.cumsum(np.bincount(of))
    for rows in np.split(order, ends[:-1]):  # entries of `kinds`
        own = kinds.of[rows]
        present = np.flatnonzero(np.bincount(own))
        if not (directions @ kinds.slopes[:, present]).any():
            above = kinds.weight[rows] * (scores[rows] > 0)
            once = np.bincount(own, above)[present].astype(float)
            cells.append(GroupCuts(np.zeros(1), present, once[:, None]))
            continue
        curve = RateCurve.of(scores[rows])
        weights = kinds.weight[rows] * (own == present[:, None])
        cells.append(GroupCuts(curve.thresholds, present, curve.sums(weights)))
    return cells


def goal_directions(program: RateProgram) -> Array:
    """Return the nonzero slopes (F, K) in the rates of all that the goals are functions of."""
    forms = (program.objective, *program.constraints)
    rows = [form.line.slopes for form in forms]
    rows += [line.slopes for each in program.fractions for line in (each.top, each.bottom)]
    unit = np.eye(len(program.index))
    for form in forms:
        rows += [unit[program.index[leaf]] for leaf in form.leaves()]
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


OBJECTIVE_TIE = 1e-8
"""Objectives that differ by no more than this count as equal."""
MIN_CUT_CHANCE = 1e-9
"""Smaller chances are treated as rounding errors of 0."""


class GroupHull:
    """A hull with a block of points for each group (Hardt, Price, Srebro 2016, for any goal).

    Attributes
    ----------
    error
        (K,) 1 for plain error, 0 for other rates.
    origin
        (K,) the rates when all decisions are negative.
    """

    def __init__(
        self, program: RateProgram, kinds: RowKinds, cells: list[GroupCuts], gap: float
    ) -> None:
        self.program, self.kinds, self.cells, self.gap = program, kinds, cells, gap
        index = kinds.matrix.index()
        self.error = np.eye(len(index))[index[ERROR_RATE]]
        self.origin = np.nan_to_num(kinds.matrix.c)
        self._moves = [cell.moves(kinds.slopes) for cell in cells]

    @cached_property
    def vertices(self) -> list[CutIndices]:
        """The cuts of each group that are points of the hull: no others can matter to the goals."""
        moves = np.vstack([goal_directions(self.program), self.error]) @ self.kinds.slopes
        return [hull_vertices(cell, moves[:, cell.kinds]) for cell in self.cells]

    @cached_property
    def columns(self) -> RatePoints:
        """The vertices as points of the hull, one block for each group."""
        parts = zip(self.cells, self.vertices, strict=True)
        points = np.hstack([cell.points(self.kinds.slopes, chosen) for cell, chosen in parts])
        block = np.repeat(np.arange(len(self.cells)), [len(chosen) for chosen in self.vertices])
        return RatePoints(points, block, self.origin)

    def best(self) -> HullOptimum:
        """Return the best point, or the one of least violation if none satisfies the constraints.

        If the latter satisfies them after all, the search for the best point gave up and there is
        no bound. Among several best points, the one of least error is returned unless the objective
        has fractions: objectives such as divergences are 0 for very different choices.
        """
        optimum = best_in_hull(self.program, self.columns, 0.5 * self.gap)
        assert optimum is not None
        objective, most = self.program.objective, optimum.value + OBJECTIVE_TIE
        is_error = not objective.curves and (objective.line.slopes == self.error).all()
        if not optimum.feasible or objective.shares.any() or objective.smooth or is_error:
            return optimum
        bound = replace(objective, line=objective.line + LinearTerm(0.0 * self.error, -most))
        constraints = (*self.program.constraints, bound)
        error = ProgramForm(LinearTerm(self.error, 0.0), 0.0 * objective.shares)
        owners = (*self.program.owners, "objective")
        program = replace(self.program, objective=error, constraints=constraints, owners=owners)
        near = best_in_hull(program, self.columns, 0.5 * self.gap)
        if near is None or not near.feasible:
            return optimum
        value = float(self.program.value(objective, near.rates))
        return replace(optimum, weights=near.weights, rates=near.rates, value=value)

    def chances(self, optimum: HullOptimum) -> list[tuple[CutIndices, Array]]:
        """Return each group's cuts with positive chances, and these chances, which sum to 1."""
        parts, ends = [], np.cumsum([len(kept) for kept in self.vertices])
        for kept, chances in zip(self.vertices, np.split(optimum.weights, ends[:-1]), strict=True):
            some = chances > MIN_CUT_CHANCE
            parts.append((kept[some], chances[some] / chances[some].sum()))
        return parts

    def rates(self, combinations: CutIndices) -> Array:
        """Return (K, N) the rates of N combinations (C, N) of one cut per group."""
        found = np.repeat(self.origin[:, None], combinations.shape[1], axis=1)
        for (rates, added), chosen in zip(self._moves, combinations, strict=True):
            found[rates] += added[:, chosen]
        return found

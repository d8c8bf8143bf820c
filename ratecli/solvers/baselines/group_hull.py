"""The best random choice among cuts, one for each group."""

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
from ratecli.solvers.oracles.threshold import all_thresholds
from ratecli.solvers.problem import ERROR_RATE

CutIndices = NDArray[np.intp]
"""Numbers of cuts of a group, 0 for no yes, ascending as the threshold falls."""

FLAT_DIRECTION = 1e-9
"""A direction in which nothing moves by more than this part of what moves most does not count."""
MAX_CUTS_KEPT_WHOLE = 256
"""A group with so few cuts keeps them all."""


@dataclass(frozen=True)
class GroupCuts:
    """The T cuts of a group: who is decided yes above each of T thresholds.

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
        """(K, ...) what some cuts add to the rates, where kinds have `slopes` (K, all kinds)."""
        return np.asarray(slopes[:, self.kinds] @ self.yes[:, chosen])

    def costs(self, prices: Array, slopes: Array) -> Array:
        """(T,) what each cut costs where rates have the prices (K,)."""
        return np.asarray((prices @ slopes[:, self.kinds]) @ self.yes)


def cuts_by_group(
    scores: Array, groups: Groups, kinds: RowKinds, directions: Array
) -> list[GroupCuts]:
    """The cuts of each group on scores (n,).

    A group whose decisions move the goals in none of their `directions` (F, K) has one cut, that of
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
        ranking, counts, thresholds = all_thresholds(scores[rows])
        yes = np.zeros((len(present), len(rows) + 1))
        yes[own[ranking], np.arange(1, len(rows) + 1)] = kinds.weight[rows][ranking]
        found.append(GroupCuts(thresholds, present, np.cumsum(yes, axis=1)[:, counts]))
    return found


def goal_directions(program: RateProgram) -> Array:
    """(F, K) slopes in the rates of all that the goals are functions of, none of them 0."""
    forms = (program.objective, *program.constraints)
    rows = [form.line.slopes for form in forms]
    rows += [line.slopes for each in program.fractions for line in (each.top, each.bottom)]
    for curve in (curve for form in forms for curve in form.curves):
        unit = np.eye(len(curve.index))
        rows += [unit[curve.index[leaf]] for leaf in ex.leaves(curve.expression)]
    found = np.array(rows)
    return found[found.any(axis=1)]


def hull_vertices(cell: GroupCuts, moves: Array) -> CutIndices | None:
    """The cuts on the convex hull of all that the cell's cuts do, None where it is not known.

    No other cut can matter to goals that are functions of `moves @ yes`, moves (F, Q): any point of
    the hull is a random choice among these. In two dimensions the hull is found exactly, as that of
    a ROC curve is; in more, all cuts are kept where there are few.
    """
    if len(cell) <= MAX_CUTS_KEPT_WHOLE:
        return np.arange(len(cell))
    _, sizes, axes = np.linalg.svd(moves, full_matrices=False)
    rank = int((sizes > FLAT_DIRECTION * sizes[0]).sum())
    if rank > 2:
        return None
    points = ((sizes[:rank, None] * axes[:rank]) @ cell.yes).T
    points = points / np.abs(points).max()
    if rank == 2 and not _are_collinear(points):
        return np.sort(ConvexHull(points).vertices).astype(np.intp)
    reach = points @ points[np.argmax(np.abs(points).sum(axis=1))]
    return np.unique([np.argmin(reach), np.argmax(reach)]).astype(np.intp)


def _are_collinear(points: Array) -> bool:
    """Whether points (T, 2), one of them 0, lie on one line."""
    x, y = points[np.argmax(np.abs(points).sum(axis=1))]
    return bool(np.abs(points[:, 0] * y - points[:, 1] * x).max() <= FLAT_DIRECTION)


def couple_group_cuts(chances: Sequence[tuple[CutIndices, Array]]) -> tuple[CutIndices, Array]:
    """Cuts of all groups at once: (M, C) and their M chances, of each group's cuts and chances.

    One number drawn for all of them, so that M is at most the number of cuts less that of groups,
    and 1 more, and so that who draws a lower threshold in one group does so in all.
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
"""Objectives that differ by no more are the same."""
INITIAL_CUTS = 33
"""Cuts, spread evenly, that a group begins with where not all that matter are known."""
MIN_CUT_CHANCE = 1e-9
"""Below this a chance is what rounding left of none."""


@dataclass
class GroupHull:
    """A hull with a block of points for each group (Hardt, Price, Srebro 2016, for any goal).

    Where a group's cuts can be thinned out to the vertices of their own hull, the best point is that
    of all cuts. Elsewhere cuts are added that are cheap at the prices of the best point so far, until
    none promises more than the gap; by duality that is as certain where no goal has fractions, and
    only as far as one can see from the point where some has.

    Attributes
    ----------
    kept
        The cuts of each group that are points of the hull.
    whole
        Of each group, whether no others can matter.
    """

    program: RateProgram
    kinds: RowKinds
    cells: list[GroupCuts]
    gap: float
    kept: list[CutIndices] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    feasible: bool = False
    _touching: list[list[LinearTerm]] = field(default_factory=list)

    def __post_init__(self) -> None:
        moves = goal_directions(self.program) @ self.kinds.slopes
        also = np.vstack([moves, self.error @ self.kinds.slopes])
        for cell in self.cells:
            found = hull_vertices(cell, also[:, cell.kinds])
            if found is None:
                found = hull_vertices(cell, moves[:, cell.kinds])
            self.whole.append(found is not None)
            even = np.linspace(0, len(cell) - 1, INITIAL_CUTS).astype(np.intp)
            self.kept.append(even if found is None else found)

    @property
    def error(self) -> Array:
        """(K,) 1 where the rate is plain error."""
        index = self.kinds.matrix.index()
        return np.asarray(np.eye(len(index))[index[ERROR_RATE]])

    @property
    def origin(self) -> Array:
        """(K,) the rates where nobody is decided yes."""
        return np.nan_to_num(self.kinds.matrix.c)

    @property
    def sure(self) -> bool:
        """Whether bounds and gaps are of all cuts, not only of those that are kept."""
        return all(self.whole) or not self.program.fractions

    @property
    def columns(self) -> RatePoints:
        parts = zip(self.cells, self.kept, strict=True)
        points = [cell.points(self.kinds.slopes, kept) for cell, kept in parts]
        sizes = [len(kept) for kept in self.kept]
        return RatePoints(np.hstack(points), np.repeat(np.arange(len(sizes)), sizes), self.origin)

    def best(self) -> HullOptimum:
        """The best point, or where none meets the constraints the one of least violation.

        That one may meet them all: then the search for the best one gave up, and there is no bound.
        """
        relaxation = Relaxation(self.program, self.columns, touching=self._touching)
        found = optimize_over_hull(relaxation, 0.5 * self.gap)
        self.feasible = found is not None
        if found is None:
            found = optimize_over_hull(
                Relaxation(self.program, self.columns, elastic=True), 0.5 * self.gap
            )
            assert found is not None
            self.feasible = float(self.program.excess(found.rates)) <= MAX_EXCESS
            if self.feasible:
                value = float(self.program.value(self.program.objective, found.rates))
                found = replace(found, value=value, bound=-np.inf)
        else:
            self._touching = found.touching
        return found

    def settled(self, found: HullOptimum) -> HullOptimum:
        """Of points as good as the best one that of least error; it alone where the objective has
        fractions.

        A divergence may be 0 for choices that have little more in common than that.
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

    def cheaper(self, found: HullOptimum) -> tuple[float, list[CutIndices]]:
        """What the cheapest cut of each group that is not whole promises to save, all in all, and the
        cuts to keep with those.
        """
        saved, more = 0.0, list(self.kept)
        parts = np.split(found.weights, np.cumsum([len(kept) for kept in self.kept])[:-1])
        for c, (cell, weights) in enumerate(zip(self.cells, parts, strict=True)):
            if not self.whole[c]:
                costs = cell.costs(found.prices, self.kinds.slopes)
                cheapest = int(np.argmin(costs))
                saved += float(weights @ costs[self.kept[c]]) - float(costs[cheapest])
                more[c] = np.union1d(self.kept[c], [cheapest])
        return saved, more

    def chances(self, weights: Array) -> list[tuple[CutIndices, Array]]:
        """Of each group the cuts that have a chance, and their chances, which add up to 1."""
        parts = np.split(weights, np.cumsum([len(kept) for kept in self.kept])[:-1])
        found = []
        for kept, part in zip(self.kept, parts, strict=True):
            some = part > MIN_CUT_CHANCE
            found.append((kept[some], part[some] / part[some].sum()))
        return found

    def rates(self, combinations: CutIndices) -> Array:
        """(K, N) of N combinations (C, N) of a cut of each group."""
        parts = zip(self.cells, combinations, strict=True)
        each = (cell.points(self.kinds.slopes, chosen) for cell, chosen in parts)
        return np.asarray(sum(each, self.origin[:, None]))

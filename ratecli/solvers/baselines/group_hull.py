"""The best random choice among cuts, one for each group."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ratecli.models.base import Array
from ratecli.rates.kinds import RowKinds
from ratecli.solvers.baselines.group_cuts import (
    CutIndices,
    GroupCuts,
    goal_directions,
    hull_vertices,
)
from ratecli.solvers.hull.best import MAX_EXCESS, HullOptimum, optimize_over_hull
from ratecli.solvers.hull.columns import RatePoints
from ratecli.solvers.hull.forms import LinearTerm, ProgramForm, RateProgram
from ratecli.solvers.hull.relaxation import Relaxation
from ratecli.solvers.problem import ERROR_RATE

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

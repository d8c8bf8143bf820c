"""One threshold per group on a plain classifier's score: the algorithm `post_shift`.

The best randomized choice of thresholds is a point of a hull of rates; the best single choice is
found by branch and bound (`cut_search`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from ratecli.models.base import Array
from ratecli.models.composed import GroupThreshold, MixtureClassifier
from ratecli.rates import expression as ex
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.baselines.cut_search import best_deterministic_cuts
from ratecli.solvers.baselines.pools import pool_groups
from ratecli.solvers.baselines.solvers import PostShift
from ratecli.solvers.baselines.thresholded import score_rows
from ratecli.solvers.curve import RateCurve
from ratecli.solvers.hull.deterministic import no_single_ending
from ratecli.solvers.hull.forms import (
    UNDEFINED_RATIO_REASON,
    LinearTerm,
    ProgramForm,
    RatePoints,
    RateProgram,
)
from ratecli.solvers.hull.infeasible import unmet_status
from ratecli.solvers.hull.master import HullOptimum, best_in_hull
from ratecli.solvers.oracles.choice import model_name
from ratecli.solvers.problem import ERROR_RATE, Groups, Problem, sum_by_goal

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
    order = np.argsort(of, kind="stable")
    ends = np.cumsum(np.bincount(of))
    for rows in np.split(order, ends[:-1]):  # entries of `kinds`
        present, own = np.unique(kinds.of[rows], return_inverse=True)
        if not (directions @ kinds.slopes[:, present]).any():
            above = kinds.weight[rows] * (scores[rows] > 0)
            once = np.asarray(np.bincount(own, above, len(present)), dtype=float)
            cells.append(GroupCuts(np.zeros(1), present, once[:, None]))
            continue
        curve = RateCurve.of(scores[rows])
        weights = kinds.weight[rows] * (own == np.arange(len(present))[:, None])
        cells.append(GroupCuts(curve.thresholds, present, curve.sums(weights)))
    return cells


def goal_directions(program: RateProgram) -> Array:
    """Return the nonzero slopes (F, K) in the rates of all that the goals are functions of."""
    forms = (program.objective, *program.constraints)
    rows = [form.line.slopes for form in forms]
    rows += [line.slopes for each in program.fractions for line in (each.top, each.bottom)]
    unit = np.eye(len(program.index))
    for form in forms:
        used = ex.leaves(*(curve.expression for curve in form.curves))
        rows += [unit[program.index[leaf]] for leaf in (*used, *form.smooth_leaves)]
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


class GroupHull:
    """A hull with a block of points for each group (Hardt, Price, Srebro 2016, for any goal).

    Attributes
    ----------
    error
        (K,) 1 for plain error, 0 for other rates.
    origin
        (K,) the rates when all decisions are negative.
    vertices
        The cuts of each group that are points of the hull: no others can matter to the goals.
    columns
        The vertices as points of the hull, one block for each group.
    """

    def __init__(
        self, program: RateProgram, kinds: RowKinds, cells: list[GroupCuts], gap: float
    ) -> None:
        self.program, self.kinds, self.cells, self.gap = program, kinds, cells, gap
        index = kinds.matrix.index()
        self.error = np.eye(len(index))[index[ERROR_RATE]]
        self.origin = np.nan_to_num(kinds.matrix.c)
        moves = np.vstack([goal_directions(program), self.error]) @ kinds.slopes
        self.vertices = [hull_vertices(cell, moves[:, cell.kinds]) for cell in cells]
        parts = zip(cells, self.vertices, strict=True)
        points = np.hstack([cell.points(kinds.slopes, chosen) for cell, chosen in parts])
        block = np.repeat(np.arange(len(cells)), [len(chosen) for chosen in self.vertices])
        self.columns = RatePoints(points, block, self.origin)
        self._moves = [cell.moves(kinds.slopes) for cell in cells]

    def best(self) -> HullOptimum:
        """Return the best point, or the one of least violation if none satisfies the constraints.

        If the latter satisfies them after all, the search for the best point gave up and there is
        no bound. Among several best points, the one of least error is returned unless the objective
        has fractions: objectives such as divergences are 0 for very different choices.
        """
        optimum = best_in_hull(self.program, self.columns, 0.5 * self.gap)
        assert optimum is not None
        objective, most = self.program.objective, optimum.value + OBJECTIVE_TIE
        if not optimum.feasible or objective.shares.any() or objective.smooth:
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

    def rates_with(
        self, rates: Array, own: tuple[CutIndices, Array], c: int, others: CutIndices
    ) -> Array:
        """Return (K, N) rates (K,) with each of N `others` for group c.

        Group c has the cuts and chances `own` before.
        """
        changed, added = self._moves[c]
        found = np.repeat(rates[:, None], len(others), axis=1)
        found[changed] += added[:, others] - (added[:, own[0]] @ own[1])[:, None]
        return found


def solve_post_shift(
    options: PostShift,
    problem: Problem,
    rng: np.random.Generator,  # noqa: ARG001
    progress: Progress,
) -> Solution:
    """Return the best single choice of thresholds, or the best random one.

    The latter is the best point of a hull with a block for each group.
    """
    begun = time.perf_counter()
    scored = score_rows(options, problem)
    scorer, problem = scored.classifier, scored.problem
    progress(f"{model_name(options.model)} model ready")
    program, kinds = RateProgram.of(problem), RowKinds.by(problem.rates)
    groups, pools = _groups_and_pools(options, problem)
    cells = cuts_by_group(scored.scores, pools[groups.of], kinds, goal_directions(program))
    hull = GroupHull(program, kinds, cells, options.gap)
    optimum = hull.best()
    chances, left = hull.chances(optimum), optimum.left
    single = best_deterministic_cuts(hull, optimum, chances)
    choices, weights = couple_group_cuts(chances)
    objective = float(program.value(program.objective, optimum.rates))
    if optimum.feasible and not single.violation and single.objective < optimum.value - hull.gap:
        # an interrupted search may return a random choice that is worse than the single one
        choices, weights, objective = single.cuts[None, :], np.ones(1), single.objective
        left += single.objective - optimum.value
    row = trace_row(1, objective, max(float(program.excess(optimum.rates)), 0.0), begun)
    row |= {"cuts": sum(map(len, hull.vertices)), "exact": single.gap == 0}
    row |= {"pooled": len(pools) - len(cells)} if len(pools) > len(cells) else {}
    if not single.violation and np.isfinite(single.gap):
        row["deterministic_gap"] = single.gap
    if np.isfinite(left):
        row["gap" if np.isnan(optimum.first_order_gap) else "first_order_gap"] = left
    progress(f"objective {objective:.5g}, violation {row['violation']:.2g}, {row['cuts']} cuts")

    def thresholds(cuts: CutIndices) -> Array:
        own = [cell.thresholds[cut] for cell, cut in zip(cells, cuts, strict=True)]
        return np.array(own)[pools]

    def classifier(cuts: CutIndices) -> GroupThreshold:
        return GroupThreshold(scorer, groups.slices, groups.patterns, thresholds(cuts))

    variants = options.select(
        {
            "stochastic": lambda: MixtureClassifier(tuple(map(classifier, choices)), weights),
            "deterministic": lambda: classifier(single.cuts),
        }
    )
    final = hull.rates(choices.T) @ weights  # without chances that are rounding errors of 0
    final_optimum = replace(optimum, rates=final)
    status, reason = _status_and_reason(problem, hull, final_optimum, left, scored.suboptimal)
    if not options.randomize:
        choices, weights = single.cuts[None, :], np.ones(1)
        row |= {"objective": single.objective, "violation": single.violation}
        if single.violation and optimum.feasible:
            status, reason = no_single_ending(problem, hull.rates(choices.T)[:, 0])
    multipliers = sum_by_goal(program.owners, optimum.multipliers)
    decided = [scored.scores > thresholds(cuts)[groups.of] for cuts in choices]
    judged = scored.judged(weights @ np.array(decided, dtype=float))
    return Solution(variants, status, reason, multipliers, (row,), judged)


def _groups_and_pools(options: PostShift, problem: Problem) -> tuple[Groups, NDArray[np.intp]]:
    """Return the C groups that decisions may depend on, and the pool (C,) of each."""
    if options.groups == "unknown":
        none = np.zeros((problem.X.shape[0], 0), dtype=bool)
        return Groups.by((), none), np.zeros(1, dtype=np.intp)
    groups, refuse = Groups.of_problem(problem), options.small_groups == "refuse"
    return groups, pool_groups(problem, groups, options.min_support, refuse=refuse)


def _status_and_reason(
    problem: Problem, hull: GroupHull, optimum: HullOptimum, left: float, short: str
) -> tuple[str, str]:
    """Return the status of the solution and its reason.

    The objective is at most `left` above the optimum. `short` says why the scorer is not optimal,
    and is "" if it is.
    """
    program = hull.program
    if not optimum.feasible:
        worst = problem.nearest_miss(optimum.rates[:, None])
        reason = f"no choice of thresholds satisfies all constraints: the last one violates {worst}"
        return unmet_status(problem, reason)
    if program.missed(optimum.rates) == np.inf:
        reason = UNDEFINED_RATIO_REASON
    elif left <= hull.gap:
        reason = short
    elif np.isinf(left):
        reason = "the search for the best random choice gave up"
    else:
        reason = f"the objective may be {left:.2g} above the optimum"
    return "iteration_limit" if reason else "solved", reason

"""One threshold per group on a plain classifier's score: the algorithm `post_shift`.

The best randomized choice of thresholds is a point of a hull of rates; `cut_search` finds the best
single choice. Groups with few rows share the threshold of another group, or are refused.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.models.composed import GroupThreshold, MixtureClassifier
from ratecli.rates import expression as ex
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import JudgedRows, Progress, Solution, trace_row
from ratecli.solvers.baselines.cut_search import CutChoice, best_deterministic_cuts, proven_cuts
from ratecli.solvers.baselines.group_hull import (
    CutIndices,
    GroupHull,
    cuts_by_group,
    goal_directions,
)
from ratecli.solvers.baselines.options import PostShift
from ratecli.solvers.baselines.thresholded import score_rows
from ratecli.solvers.hull.deterministic import no_single_ending
from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON, RateProgram
from ratecli.solvers.hull.infeasible import unmet_status
from ratecli.solvers.hull.master import HullOptimum
from ratecli.solvers.oracles.choice import model_name
from ratecli.solvers.problem import Groups, Problem, sum_by_goal

MIN_CHANCE_STEP = 1e-9
"""Chances of joint cuts that differ by no more than this are equal."""


def couple_group_cuts(
    chances: Sequence[tuple[NDArray[Any], Array]],
) -> tuple[NDArray[Any], Array]:
    """Combine the cuts and chances of each group into joint cuts (M, C) with chances (M,).

    Cuts are indices or thresholds.

    A single random number determines the cuts of all groups. Hence M is at most the number of cuts
    minus the number of groups plus 1, and a number that selects a lower threshold in one group does
    so in all.
    """
    ends = [np.cumsum(each) for _, each in chances]
    steps = np.unique(np.concatenate([[0.0, 1.0], *(each[:-1] for each in ends)]).clip(0, 1))
    steps = steps[np.append(True, np.diff(steps) > MIN_CHANCE_STEP)]
    steps[-1] = 1.0
    middles = 0.5 * (steps[1:] + steps[:-1])
    drawn = [
        numbers[np.minimum(np.searchsorted(each, middles), len(numbers) - 1)]
        for (numbers, _), each in zip(chances, ends, strict=True)
    ]
    return np.stack(drawn, axis=1), np.diff(steps)


class RandomCuts(NamedTuple):
    """M joint cuts (M, C) with chances (M,), their objective, and how far it may be from the best.

    `left` is infinite if there is no bound.
    """

    cuts: CutIndices
    chances: Array
    objective: float
    left: float


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
    problem = scored.problem
    progress(f"{model_name(options.model)} model ready")
    program, kinds = RateProgram.of(problem), RowKinds.by(problem.rates)
    groups, pools = _groups_and_pools(options, problem)
    cells = cuts_by_group(scored.scores, pools[groups.of], kinds, goal_directions(program))
    hull = GroupHull(program, kinds, cells, options.gap)

    def thresholds(cuts: CutIndices) -> Array:
        own = [cell.thresholds[cut] for cell, cut in zip(cells, cuts, strict=True)]
        return np.array(own)[pools]

    def classifier(cuts: CutIndices) -> GroupThreshold:
        return GroupThreshold(scored.classifier, groups.slices, groups.patterns, thresholds(cuts))

    def judged(cuts: CutIndices, chances: Array) -> JudgedRows | None:
        decided = [scored.scores > thresholds(each)[groups.of] for each in cuts]
        return scored.judged(chances @ np.array(decided, dtype=float))

    pooled = {"pooled": len(pools) - len(cells)} if len(pools) > len(cells) else {}
    proven = proven_cuts(hull)
    if proven and not proven.violation and "stochastic" not in options.wanted:
        progress(f"objective {proven.objective:.5g}, violation 0")
        row = trace_row(1, proven.objective, 0.0, begun, exact=True, deterministic_gap=0.0)
        return Solution(
            {"deterministic": classifier(proven.cuts)},
            "iteration_limit" if scored.suboptimal else "solved",
            scored.suboptimal,
            trace=(row | pooled,),
            judged=judged(proven.cuts[None, :], np.ones(1)),
        )
    optimum = hull.best()
    chances = hull.chances(optimum)
    single = proven or best_deterministic_cuts(hull, optimum, chances)
    mixed = _random_cuts(hull, optimum, chances, single)
    row = _result_row(hull, optimum, mixed, single, begun) | pooled
    progress(
        f"objective {mixed.objective:.5g}, violation {row['violation']:.2g}, {row['cuts']} cuts"
    )
    mixture = MixtureClassifier(tuple(map(classifier, mixed.cuts)), mixed.chances)
    makers = {"stochastic": lambda: mixture, "deterministic": lambda: classifier(single.cuts)}
    variants = options.select(makers)
    final = hull.rates(mixed.cuts.T) @ mixed.chances  # without chances that are rounding errors
    ended = replace(optimum, rates=final)
    status, reason = _status_and_reason(problem, hull, ended, mixed.left, scored.suboptimal)
    if not options.randomize:
        mixed = RandomCuts(single.cuts[None, :], np.ones(1), single.objective, single.gap)
        row |= {"objective": single.objective, "violation": single.violation}
        if single.violation and optimum.feasible:
            status, reason = no_single_ending(problem, hull.rates(mixed.cuts.T)[:, 0])
    multipliers = sum_by_goal(program.owners, optimum.multipliers)
    rows = judged(mixed.cuts, mixed.chances)
    return Solution(variants, status, reason, multipliers, (row,), rows)


def _random_cuts(
    hull: GroupHull,
    optimum: HullOptimum,
    chances: Sequence[tuple[CutIndices, Array]],
    single: CutChoice,
) -> RandomCuts:
    """Return the best random choice; an interrupted search may return a worse one than `single`."""
    if optimum.feasible and not single.violation and single.objective < optimum.value - hull.gap:
        left = optimum.left + single.objective - optimum.value
        return RandomCuts(single.cuts[None, :], np.ones(1), single.objective, left)
    objective = float(hull.program.value(hull.program.objective, optimum.rates))
    return RandomCuts(*couple_group_cuts(chances), objective, optimum.left)


def _result_row(
    hull: GroupHull, optimum: HullOptimum, mixed: RandomCuts, single: CutChoice, begun: float
) -> dict[str, Any]:
    """Return the row of the trace."""
    violation = max(float(hull.program.excess(optimum.rates)), 0.0)
    row = trace_row(1, mixed.objective, violation, begun)
    row |= {"cuts": sum(map(len, hull.vertices)), "exact": single.gap == 0}
    if not single.violation and np.isfinite(single.gap):
        row["deterministic_gap"] = single.gap
    if np.isfinite(mixed.left):
        row["gap" if np.isnan(optimum.first_order_gap) else "first_order_gap"] = mixed.left
    return row


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


def pool_groups(
    problem: Problem, groups: Groups, min_support: int, *, refuse: bool
) -> NDArray[np.intp]:
    """Return the index (C,) of each group's pool. Groups of one pool share a threshold.

    The support of a group is the smallest number of its rows that a rate of the goals averages
    over, such as its positive rows for `tpr`; that of a pool is the sum over its groups. While a
    pool has less than `min_support`, the one with the least is merged with the pool that differs
    from it in the fewest slices, the one with the largest support in case of ties.

    Raises
    ------
    FaultError
        E408 if a group has less and `refuse` is true.
    """
    if not min_support:
        return np.arange(len(groups.patterns))
    support = _supports(problem, groups)
    pools = [[c] for c in np.flatnonzero(support >= 0).tolist()]
    apart = (groups.patterns[:, None] != groups.patterns).sum(axis=2)
    while len(pools) > 1:
        smallest = min(pools, key=lambda pool: support[pool].sum())
        count = int(support[smallest].sum())
        if count >= min_support:
            break
        if refuse:
            raise FaultError(_too_few(groups, smallest[0], count, min_support))
        pools.remove(smallest)
        nearest = min(
            pools,
            key=lambda pool: (apart[np.ix_(pool, smallest)].min(), -support[pool].sum()),
        )
        nearest += smallest
    shared = np.arange(len(groups.patterns))
    for pool in pools:
        shared[pool] = min(pool)
    return np.unique(shared, return_inverse=True)[1]


def _supports(problem: Problem, groups: Groups) -> NDArray[np.intp]:
    """Return the support (C,) of the groups, -1 for a group that no rate of the goals covers."""
    index, count = problem.rates.index(), len(groups.patterns)
    pieces = [p for goal in (problem.objective, *problem.constraints) for p in goal.pieces]
    leaves = [leaf for leaf in ex.leaves(*pieces) if leaf.rate.yes != leaf.rate.no]
    least = np.full(count, -1, dtype=np.intp)
    for leaf in leaves:
        where, rows = leaf.where.visible, problem.rates.members[[index[leaf]]].indices
        inside = groups.patterns[:, groups.slices.index(str(where))] if where.conditions else True
        counts = np.bincount(groups.of[rows], minlength=count)
        least = np.where(inside & ((least < 0) | (counts < least)), counts, least)
    return least


def _too_few(groups: Groups, group: int, count: int, least: int) -> Diagnostic:
    names = np.array(groups.slices)[groups.patterns[group]]
    rows = (
        f"the group '{' and '.join(names)}'" if len(names) else "the group in no slice of the goals"
    )
    message = f"{rows} has {count} rows that a goal averages over, and min_support is {least}"
    return Diagnostic("E408", message, "use more rows, or small_groups: pool")

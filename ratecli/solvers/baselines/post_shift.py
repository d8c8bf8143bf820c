"""One threshold per group on a plain classifier's score: the algorithm `post_shift`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import GroupThreshold, MixtureClassifier
from ratecli.rates.matrix import RowKinds
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.baselines.group_hull import (
    CutIndices,
    GroupHull,
    couple_group_cuts,
    cuts_by_group,
    goal_directions,
)
from ratecli.solvers.baselines.plain import fit_plain_classifier
from ratecli.solvers.hull.best import HullOptimum
from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON, RateProgram, unmet_status
from ratecli.solvers.liblinear import ClassificationLoss
from ratecli.solvers.problem import Groups, Problem


def solve_post_shift(
    problem: Problem,
    loss: ClassificationLoss,
    gap: float,
    rng: np.random.Generator,
    progress: Progress,
) -> Solution:
    """Return the best random and the best single choice of thresholds: see `solvers.PostShift`.

    The random choice is the best point of a hull with a block for each group.
    """
    begun = time.perf_counter()
    scorer, short = fit_plain_classifier(problem, loss, rng)
    progress(f"{loss} loss fitted")
    program, kinds = RateProgram.of(problem), RowKinds.by(problem.rates)
    groups = Groups.of_problem(problem)
    cells = cuts_by_group(scorer.score(problem.X), groups, kinds, goal_directions(program))
    hull = GroupHull(program, kinds, cells, gap)
    best = hull.best()
    optimum = hull.settled(best)
    chances, left = hull.chances(optimum), optimum.value - best.bound
    single = best_deterministic_cuts(hull, optimum, best.bound, chances)
    choices, weights = couple_group_cuts(chances)
    objective = float(program.value(program.objective, optimum.rates))
    if hull.feasible and not single.violation and single.objective < optimum.value - gap:
        # an interrupted search may return a random choice that is worse than the single one
        choices, weights, objective = single.cuts[None, :], np.ones(1), single.objective
        left += single.objective - optimum.value
    row = {
        "iteration": 1,
        "objective": objective,
        "violation": max(float(program.excess(optimum.rates)), 0.0),
        "cuts": sum(map(len, hull.kept)),
        "seconds": time.perf_counter() - begun,
        "exact": single.exact,
    }
    row |= {"gap": left} if np.isfinite(left) else {}
    progress(f"objective {objective:.5g}, violation {row['violation']:.2g}, {row['cuts']} cuts")

    def classifier(cuts: CutIndices) -> GroupThreshold:
        thresholds = [cell.thresholds[cut] for cell, cut in zip(cells, cuts, strict=True)]
        return GroupThreshold(scorer, groups.slices, groups.patterns, np.array(thresholds))

    variants: dict[str, Classifier] = {
        "stochastic": MixtureClassifier(tuple(map(classifier, choices)), weights),
        "deterministic": classifier(single.cuts),
    }
    multipliers = program.by_goal(optimum.multipliers)
    if not hull.feasible:
        missed = f"{row['violation']:.3g} or more"
        reason = f"every choice of thresholds misses some constraint by {missed}"
        status, reason = unmet_status(program, kinds, reason)
        return Solution(variants, status, reason, multipliers, (row,))
    if program.missed(optimum.rates) == np.inf:
        reason = UNDEFINED_RATIO_REASON
    elif left <= gap:
        reason = short
    elif np.isinf(left):
        reason = "the search for the best random choice gave up"
    else:
        reason = f"the objective may be {left:.2g} above the least one"
    status = "iteration_limit" if reason else "solved"
    return Solution(variants, status, reason, multipliers, (row,))


ROUNDING = 1e-12
"""Rounding error of a sum of a few exact rates."""
MAX_CHOICES_AT_ONCE = 100_000
"""Maximum number of choices evaluated together."""
MAX_ENTRIES_AT_ONCE = 20_000_000
"""Maximum number of rates or costs computed together."""
STARTS = 64
PASSES = 20
PAIR_REACH = 25
"""Distance, in cuts, by which two groups are moved together in either direction."""
MAX_PAIRED_GROUPS = 12
"""With more groups than this, pairs of groups are not moved."""
SINGLE_REACH = 2000
"""Number of neighbouring cuts on each side, and of evenly spread cuts, tried for a single group."""
REACH_GROWTH = 4.0


@dataclass(frozen=True)
class CutChoice:
    """One cut per group (C,), its violation and objective, and whether it is proven optimal."""

    cuts: CutIndices
    violation: float
    objective: float
    exact: bool

    @property
    def key(self) -> tuple[float, float]:
        """Choices are compared by their violation, then by their objective; smaller is better."""
        return self.violation, self.objective


def best_deterministic_cuts(
    hull: GroupHull,
    optimum: HullOptimum,
    bound: float,
    chances: Sequence[tuple[CutIndices, Array]],
) -> CutChoice:
    """Return the feasible choice of one cut per group with the smallest objective.

    `optimum` is the best point of the hull, `chances` are its cuts with their chances, and no
    feasible point has an objective below `bound`.

    If there are few choices, all are evaluated. Otherwise the search evaluates the choices whose
    cuts cost little more than the best random choice at its prices, in growing sets: by duality the
    objective of a feasible choice is at least the bound of the random one plus the extra cost of
    its cuts, so the search ends with the optimum. This does not hold if goals have fractions. In
    that case, and if there are too many choices, a coarse grid is evaluated, and single groups and
    pairs of them are moved from its best choice as long as that improves it.
    """
    search = _CutChoiceSearch(hull, bound, optimum)
    sizes = [len(cell) for cell in hull.cells]
    if np.prod(sizes, dtype=float) <= search.most:
        return search.best(np.indices(sizes).reshape(len(sizes), -1), exact=True)
    near = search.near() if hull.feasible else None
    if near is not None and near.exact:
        return near
    supports = list(itertools.islice(itertools.product(*(cuts for cuts, _ in chances)), STARTS))
    starts = [search.best(np.array(supports).T, exact=False), search.coarse()]
    starts += [near] if near is not None else []
    moved = search.moved(min(starts, key=lambda choice: choice.key))
    sure = hull.feasible and not moved.violation
    return replace(moved, exact=sure and moved.objective <= bound + search.slack)


class _CutChoiceSearch:
    def __init__(self, hull: GroupHull, bound: float, optimum: HullOptimum) -> None:
        self.hull, self.bound, self.optimum = hull, bound, optimum
        self.most = min(MAX_CHOICES_AT_ONCE, MAX_ENTRIES_AT_ONCE // len(hull.origin))
        # rounding error that the bound may have as the result of a linear program
        self.slack = 1e-8 * (1.0 + float(np.abs(optimum.multipliers).sum()))

    def best(self, choices: CutIndices, *, exact: bool) -> CutChoice:
        """Return the best of choices (C, N)."""
        program, rates = self.hull.program, self.hull.rates(choices)
        missed = program.missed(rates, ROUNDING)
        values = np.nan_to_num(program.value(program.objective, rates), nan=np.inf)
        k = int(np.lexsort((values, missed))[0])
        return CutChoice(choices[:, k], float(missed[k]), float(values[k]), exact)

    def near(self) -> CutChoice | None:
        """Return the best choice of cuts with small extra costs, None if there are too many."""
        prices = self.optimum.prices
        costs = [cell.costs(prices, self.hull.kinds.slopes) for cell in self.hull.cells]
        reduced = [cost - cost.min() for cost in costs]
        longest = sum(float(cost.max()) for cost in reduced)
        reach, last = 1e-6 * longest, None
        while (choices := self._within(reduced, reach)) is not None:
            last = self.best(choices, exact=True)
            needed = np.inf
            if not last.violation and not self.hull.program.fractions:
                needed = last.objective - self.bound + self.slack
            if reach >= min(needed, longest):
                return last
            reach = min(REACH_GROWTH * reach, needed, longest)
        return None if last is None else replace(last, exact=False)

    def _within(self, reduced: Sequence[Array], reach: float) -> CutIndices | None:
        """Return all choices (C, N) with an extra cost of at most `reach`, None if too many."""
        choices, spent = np.zeros((0, 1), dtype=np.intp), np.zeros(1)
        for costs in reduced:
            cheap = np.flatnonzero(costs <= reach)
            if len(cheap) * len(spent) > MAX_ENTRIES_AT_ONCE:
                return None
            total = np.add.outer(spent, costs[cheap])
            left, right = np.nonzero(total <= reach)
            if len(left) > self.most:
                return None
            choices, spent = np.vstack([choices[:, left], cheap[right]]), total[left, right]
        return choices

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
        return self.best(choices.astype(np.intp), exact=False)

    def moved(self, choice: CutChoice) -> CutChoice:
        """Return the choice after moving one group, then two, as long as that improves it."""
        groups = range(len(self.hull.cells))
        moves: list[tuple[int, ...]] = [(c,) for c in groups]
        if len(groups) <= MAX_PAIRED_GROUPS:
            moves += itertools.combinations(groups, 2)
        for _ in range(PASSES):
            before = choice.key
            for moving in moves:
                choice = min(choice, self._neighbour(choice, moving), key=lambda each: each.key)
            if not choice.key < before:
                break
        return choice

    def _neighbour(self, choice: CutChoice, moving: tuple[int, ...]) -> CutChoice:
        """Return the best choice with other cuts for one or two groups."""
        options = []
        for c in moving:
            count, own = len(self.hull.cells[c]), choice.cuts[c]
            reach = SINGLE_REACH if len(moving) == 1 else PAIR_REACH
            near = np.arange(max(own - reach, 0), min(own + reach + 1, count))
            if len(moving) == 1:
                even = np.linspace(0, count - 1, SINGLE_REACH).astype(np.intp)
                near = np.union1d(near, even)
            options.append(near)
        grid = np.meshgrid(*options, indexing="ij")
        choices = np.tile(choice.cuts[:, None], (1, grid[0].size))
        choices[list(moving)] = [each.ravel() for each in grid]
        return self.best(choices, exact=False)

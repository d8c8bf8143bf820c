"""The `post_shift` algorithm: one threshold per group on a plain classifier's score."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt

from ratecli.rates.analysis import PROGRAM_SHAPES
from ratecli.solvers.base import Progress, Solution, Solver

if TYPE_CHECKING:
    from ratecli.models.base import Classifier
    from ratecli.models.group_threshold import GroupThreshold
    from ratecli.models.linear import Threshold
    from ratecli.solvers.baselines.group_hull import CutIndices, GroupHull
    from ratecli.solvers.groups import Groups
    from ratecli.solvers.problem import Problem

MAX_ROUNDS = 100


@dataclass(frozen=True)
class PostShift(Solver):
    """The best thresholds of groups on one score (Hardt, Price, Srebro 2016), for any goal.

    The score is that of `unconstrained`. The groups are the cells into which the slices of the
    goals' rates partition the rows; two groups share a threshold only if that is optimal. Group
    membership must be known when a row is classified, but need not be a feature. The data set that
    a row comes from is not known then and does not define a group.

    The variant `stochastic` is a random choice among thresholds, which satisfies all constraints on
    the training set with the smallest objective of any such choice. It is the best point of a hull
    with a block for each group, whose points are the group's cuts; most groups have a single
    threshold, few need a random choice between two. It is optimal within `gap` (`gap` in the trace)
    unless a goal has ratios of rates and a group has more than two kinds of rows that count
    differently (labels and a deployed model's decisions, or several data sets): then it is a local
    optimum, and the trace has no gap.

    The variant `deterministic` is the best single threshold for each group. It is a global optimum
    if `exact` in the trace is true: if there are few choices, or if no goal compares ratios.

    Attributes
    ----------
    loss
        Loss of the score, as in `unconstrained`: `logistic` or `hinge`.
    gap
        How far the objective may be from the optimum.
    """

    loss: Literal["logistic", "hinge"] = "logistic"
    gap: Annotated[float, Gt(0)] = 1e-5

    version: ClassVar[int] = 3
    objectives: ClassVar[frozenset[str]] = PROGRAM_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    @property
    def sees_slices(self) -> bool:
        return True

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.rates.matrix import RowKinds
        from ratecli.solvers.baselines.group_hull import GroupHull, cuts_by_group, goal_directions
        from ratecli.solvers.baselines.plain import fit_plain_classifier
        from ratecli.solvers.groups import Groups
        from ratecli.solvers.hull.forms import RateProgram

        begun = time.perf_counter()
        scorer, short = fit_plain_classifier(problem, self.loss, rng)
        progress(f"{self.loss} loss fitted")
        program, kinds = RateProgram.of(problem), RowKinds.by(problem.rates)
        groups = Groups.of_problem(problem)
        cells = cuts_by_group(scorer.score(problem.X), groups, kinds, goal_directions(program))
        search = _GroupThresholdSearch(
            GroupHull(program, kinds, cells, self.gap), scorer, groups, begun
        )
        while search.goes_on():
            progress(search.step())
        variants = search.variants()
        status, reason = search.ending()
        if short and status == "solved":
            status, reason = "iteration_limit", short
        multipliers = program.by_goal(search.found.multipliers)
        return Solution(variants, status, reason, multipliers, tuple(search.trace))


class _GroupThresholdSearch:
    """Column generation over the cuts of groups, with its trace and result."""

    def __init__(self, hull: GroupHull, scorer: Threshold, groups: Groups, begun: float) -> None:
        self.hull, self.scorer, self.groups, self.begun = hull, scorer, groups, begun
        self.trace: list[dict[str, Any]] = []
        self.ended = False
        self.left = np.inf

    def goes_on(self) -> bool:
        return not self.ended and len(self.trace) < MAX_ROUNDS

    def step(self) -> str:
        """Find the best point of the current hull, then add cuts that are cheap at its prices."""
        program = self.hull.program
        found = self.hull.best()
        promised, more = self.hull.cheaper(found)
        kept = sum(map(len, self.hull.kept))
        self.ended = promised <= 0.5 * self.hull.gap or kept == sum(map(len, more))
        self.bound = found.bound - max(promised, 0.0)
        self.found = found = self.hull.settled(found) if self.ended else found
        self.left = found.value - self.bound
        self.chances = self.hull.chances(found.weights)
        self.hull.kept = more
        row = {
            "iteration": len(self.trace) + 1,
            "objective": float(program.value(program.objective, found.rates)),
            "violation": max(float(program.excess(found.rates)), 0.0),
            "cuts": kept,
            "seconds": time.perf_counter() - self.begun,
        }
        known = self.hull.sure and np.isfinite(self.left)
        self.trace.append(row | ({"gap": self.left} if known else {}))
        return f"objective {row['objective']:.5g}, violation {row['violation']:.2g}, {kept} cuts"

    def variants(self) -> Mapping[str, Classifier]:
        """Return the variants by name.

        The deterministic choice replaces a worse random one, which an interrupted search may
        return.
        """
        from ratecli.models.mixture import MixtureClassifier
        from ratecli.solvers.baselines.group_hull import couple_group_cuts
        from ratecli.solvers.baselines.single_cuts import best_deterministic_cuts

        choices, chances = couple_group_cuts(self.chances)
        single = best_deterministic_cuts(self.hull, self.found, self.bound, self.chances)
        found = self.found.value - self.hull.gap if self.hull.feasible else -np.inf
        if not single.key[0] and single.key[1] < found:
            choices, chances = single.cuts[None, :], np.ones(1)
            self.left += single.key[1] - self.found.value
            self.trace[-1]["objective"] = single.key[1]
        self.trace[-1]["exact"] = single.exact
        return {
            "stochastic": MixtureClassifier(tuple(map(self._classifier, choices)), chances),
            "deterministic": self._classifier(single.cuts),
        }

    def _classifier(self, cuts: CutIndices) -> GroupThreshold:
        from ratecli.models.group_threshold import GroupThreshold

        chosen = [cell.thresholds[cut] for cell, cut in zip(self.hull.cells, cuts, strict=True)]
        groups = self.groups
        return GroupThreshold(self.scorer, groups.slices, groups.patterns, np.array(chosen))

    def ending(self) -> tuple[str, str]:
        """Return status and reason."""
        from ratecli.solvers.feasibility import unmet_status
        from ratecli.solvers.hull.forms import UNDEFINED_RATIO_REASON

        if self.hull.feasible and self.hull.program.missed(self.found.rates) == np.inf:
            return "iteration_limit", UNDEFINED_RATIO_REASON
        if self.hull.feasible and self.ended and self.left <= self.hull.gap:
            return "solved", ""
        if self.hull.feasible and np.isinf(self.left):
            return "iteration_limit", "the search for the best random choice gave up"
        if self.hull.feasible:
            return "iteration_limit", f"the objective may be {self.left:.2g} above the least one"
        missed = self.trace[-1]["violation"]
        reason = f"every choice of thresholds misses some constraint by {missed:.3g} or more"
        return unmet_status(self.hull.program, self.hull.kinds, reason)

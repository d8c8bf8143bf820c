"""Algorithms that let a package choose thresholds of groups on the score of a model.

Classes of algorithms import what is slow to import when they solve.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from ratecli.models.base import Array
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.baselines.options import ThresholdSolver
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.oracles.choice import model_name
from ratecli.solvers.problem import Problem
from ratecli_peers.rules import EQUALIZED_ODDS, GroupRule, Kind, KnownRules, tightened_rule

if TYPE_CHECKING:
    from ratecli_peers.rows import GroupChances, GroupRows, ScoredGroups


NO_THRESHOLDS = "no thresholds that the package tries satisfy all limits"


class AfterModel(ThresholdSolver):
    """Base of algorithms that fit a model and let a package choose thresholds of groups.

    They are `random` if the package may choose among several thresholds of a group.
    """

    random: ClassVar[bool] = True

    @property
    def sees_slices(self) -> bool:
        return True

    @abstractmethod
    def chances(self, scored: ScoredGroups, problem: Problem) -> GroupChances | None:
        """Return the thresholds on scores, and their chances, that the package chooses.

        None if no thresholds that it tries satisfy the constraints.
        """

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        """Return the model with the thresholds that the package chooses.

        Raises
        ------
        FaultError
            As `ScoredGroups.of` and `package_errors` do.
        """
        from ratecli_peers.rows import ScoredGroups, package_errors, plain_solution, solution

        begun, scored = time.perf_counter(), ScoredGroups.of(self, problem)
        progress(f"{model_name(self.model)} model ready")
        if not problem.constraints:
            return plain_solution(scored.classifier)
        with package_errors(self.needs[0]):
            found = self.chances(scored, problem)
        if found is None:
            return Solution({}, "no_solution_found", NO_THRESHOLDS)
        mixture = scored.rows.thresholds(scored.classifier, found)
        classifier = mixture if self.random else mixture.members[0]
        judged = scored.judged(scored.rows.decisions(scored.scores, found))
        return solution(problem, classifier, begun, self.needs[0], judged)


@dataclass(frozen=True, kw_only=True)
class WithinTolerance(KnownRules, AfterModel):
    """Base of algorithms whose package knows differences of rates of groups, but not their ratio.

    Attributes
    ----------
    steps
        How often the difference is halved to find the one that keeps a ratio.
    """

    steps: Annotated[int, Ge(1)] = 6

    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = (
        *(("difference", rate) for rate in ("positive_rate", "tpr", "fpr", EQUALIZED_ODDS)),
        *(("ratio", rate) for rate in ("positive_rate", "tpr", "fpr")),
    )

    @abstractmethod
    def within(
        self, scores: Array, rows: GroupRows, rule: GroupRule, tolerance: float
    ) -> GroupChances:
        """Return what the package chooses for scores (m,) if rates may differ by a tolerance."""

    def chances(self, scored: ScoredGroups, problem: Problem) -> GroupChances:
        rule, scores, rows = tightened_rule(problem), scored.scores, scored.rows
        if rule.kind == "difference":
            return self.within(scores, rows, rule, rule.bound)
        low, high = 0.0, 1 - rule.bound  # no rate is above 1
        found = self.within(scores, rows, rule, low)
        for _ in range(self.steps):
            middle = (low + high) / 2
            tried = self.within(scores, rows, rule, middle)
            if scored.violation(rows.decisions(scores, tried)) <= MAX_EXCESS:
                low, found = middle, tried
            else:
                high = middle
        return found

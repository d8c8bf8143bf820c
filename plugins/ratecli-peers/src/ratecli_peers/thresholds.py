"""Random thresholds of groups that another package chooses, for ratios of rates, too.

Classes of algorithms import what is slow to import when they solve.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from ratecli.models.base import Array
from ratecli.solvers.base import JudgedRows, Progress, Solution
from ratecli.solvers.baselines.options import ThresholdSolver
from ratecli.solvers.oracles.choice import model_name
from ratecli.solvers.problem import Problem
from ratecli_peers.rules import EQUALIZED_ODDS, GroupRule, Kind, OneRule, one_rule

if TYPE_CHECKING:
    from ratecli_peers.rows import GroupRows

GroupChances = list[tuple[Array, Array]]
"""Thresholds on scores, and their chances, of each group."""


@dataclass(frozen=True, kw_only=True)
class ThresholdPeer(OneRule, ThresholdSolver):
    """Base of algorithms that let a package choose random thresholds of groups.

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

    @property
    def sees_slices(self) -> bool:
        return True

    @abstractmethod
    def chances(
        self, scores: Array, label: Array, group: Array, rule: GroupRule, tolerance: float
    ) -> GroupChances:
        """Return what the package chooses for rows (m,) if rates may differ by a tolerance."""

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        """Return the model with the thresholds that the package chooses.

        Raises
        ------
        FaultError
            As `GroupRows.of`, `score_rows` and `package_errors` do.
        """
        from ratecli.solvers.baselines.thresholded import score_rows
        from ratecli_peers.rows import GroupRows, plain_solution, solution, start

        begun, (package,) = start(), self.needs
        scored = score_rows(self, problem)
        progress(f"{model_name(self.model)} model ready")
        if not problem.constraints:
            return plain_solution(scored.classifier)
        rows = GroupRows.of(scored.problem)
        scores = scored.scores[rows.rows]
        found, tolerance = self._under_rule(rows, scores, one_rule(problem.constraints))
        classifier, judged = rows.thresholds(scored.classifier, found), None
        if not scored.seen:
            decided = (scored.scores > 0).astype(float)
            decided[rows.rows] = _decisions(rows, scores, found)
            judged = JudgedRows(scored.problem, decided)
        return solution(problem, classifier, begun, package, judged, tolerance=tolerance)

    def _under_rule(
        self, rows: GroupRows, scores: Array, rule: GroupRule
    ) -> tuple[GroupChances, float]:
        """Return the thresholds, and the difference of rates that the package allows."""
        from ratecli_peers.rows import package_errors

        tolerance = rule.bound if rule.kind == "difference" else 0.0
        with package_errors(self.needs[0]):
            found = self.chances(scores, rows.label, rows.group, rule, tolerance)
            high = 1 - rule.bound  # no rate is above 1
            for _ in range(self.steps if rule.kind == "ratio" else 0):
                middle = (tolerance + high) / 2
                tried = self.chances(scores, rows.label, rows.group, rule, middle)
                if _keeps(rule, rows, scores, tried):
                    tolerance, found = middle, tried
                else:
                    high = middle
        return found, tolerance


def _decisions(rows: GroupRows, scores: Array, found: GroupChances) -> Array:
    """Return the chance (m,) of a positive decision on rows with scores (m,)."""
    decided = np.zeros(len(scores))
    for g, (cuts, shares) in enumerate(found):
        own = rows.group == g
        decided[own] = (scores[own, None] > cuts) @ shares
    return decided


def _keeps(rule: GroupRule, rows: GroupRows, scores: Array, found: GroupChances) -> bool:
    """Whether thresholds keep a ratio."""
    decided, label = _decisions(rows, scores, found), {"tpr": 1, "fpr": 0}.get(rule.rate)
    counted = np.ones(len(scores), dtype=bool) if label is None else rows.label == label
    rates = [decided[counted & (rows.group == g)].mean() for g in range(len(found))]
    return bool(min(rates) >= rule.bound * max(rates))

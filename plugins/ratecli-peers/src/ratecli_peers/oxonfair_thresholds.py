"""OxonFair's `FairPredictor`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.probabilities import ProbabilityModel
from ratecli.rates.analysis import Goal
from ratecli.solvers.base import Progress, Solution
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import is_linear, model_name
from ratecli.solvers.oracles.estimators import fit_named
from ratecli.solvers.oracles.model_names import LOGISTIC
from ratecli.solvers.oracles.unseen import UnseenScores
from ratecli.solvers.problem import Groups, Problem
from ratecli_peers.classifiers import InferredGroupThreshold
from ratecli_peers.rows import (
    CERTAIN,
    GroupChances,
    GroupRows,
    ScoredGroups,
    package_errors,
    solution,
)
from ratecli_peers.rules import (
    EQUALIZED_ODDS,
    GroupRule,
    Kind,
    KnownRules,
    group_rules,
    tightened_rule,
    tightened_rules,
)
from ratecli_peers.thresholds import NO_THRESHOLDS, AfterModel

METRICS = {
    "positive_rate": "pos_pred_rate",
    "tpr": "true_pos_rate",
    "fpr": "false_pos_rate",
    "error": "accuracy",
    "tnr": "true_neg_rate",
    "accuracy": "accuracy",
}
"""OxonFair's name of a rate whose differences, ratios or lower limits it knows."""
WHOLE: Mapping[Kind, str] = {"difference": "max_diff", "ratio": "min_ratio", "floor": "min"}
"""What it makes of a metric of groups."""


@dataclass(frozen=True)
class OxonFair(KnownRules, AfterModel):
    """OxonFair's `FairPredictor` (Delaney et al. 2024): the best thresholds of groups on a grid.

    It takes any number of limits on differences, ratios and lower limits of rates of groups. The
    first is its `constraint`, the others are `additional_constraints`. One constraint on
    differences of `tpr` and `fpr` is its `equalized_odds_max`, with the stricter limit. Of more
    than two groups, the largest difference and the smallest ratio count (`max_diff`, `min_ratio`;
    its `diff` and `ratio` are means over pairs). A comparison in one direction is enforced in both.
    Without constraints, the model is returned. Rows in none of the groups keep the model's
    threshold.

    It uses its fast search. For models that overfit, its documentation recommends to choose
    thresholds by rows that the model was not fitted to: `scores: {held_out: 0.4}`.

    Attributes
    ----------
    groups
        `known` when a row is classified, or `inferred` by a model of the groups of the same kind
        as `model`, which must not be an existing score.
    threshold
        With inferred groups: rows whose likeliest group has a smaller probability share a threshold
        of their own; 0 if there are no such rows.
    """

    groups: Literal["known", "inferred"] = "known"
    threshold: Annotated[float, Ge(0), Le(1)] = 2 / 3

    version: ClassVar[int] = 2
    random: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("oxonfair",)
    several: ClassVar[bool] = True
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = (
        *(("difference", rate) for rate in ("positive_rate", "tpr", "fpr", "error")),
        *(("ratio", rate) for rate in ("positive_rate", "tpr", "fpr", "tnr", "accuracy")),
        *(("floor", rate) for rate in ("positive_rate", "tpr", "tnr", "accuracy")),
    )

    @classmethod
    def refusal(cls, objective: Goal | None, constraints: Sequence[Goal]) -> str:
        if why := super().refusal(objective, constraints):
            return why
        same = len({rule.groups for rule in group_rules(constraints)}) <= 1
        return "" if same else "all its rules are about the same groups"

    @property
    def sees_slices(self) -> bool:
        return self.groups == "known"

    @property
    def idle(self) -> Mapping[str, str]:
        known = {"threshold": "the groups are known"} if self.groups == "known" else {}
        return {**super().idle, **known}

    def chances(self, scored: ScoredGroups, problem: Problem) -> GroupChances | None:
        chances = scored.chances
        data = np.column_stack([1 - chances, chances])
        peer = self._fitted(data, scored.rows, problem)
        return peer and [(np.array([cut]), np.ones(1)) for cut in _cuts(scored, peer)]

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        if self.groups == "known" or not problem.constraints:
            return super().solve(problem, rng, progress)
        begun, scored = time.perf_counter(), ScoredGroups.of(self, problem, complete=True)
        likely = GroupModel.of(self, problem, scored.rows)
        progress(f"{model_name(self.model)} models ready")
        chances, rows = scored.chances, scored.rows
        data = np.column_stack([1 - chances, chances, likely.chances[rows.rows]])
        # it fails if it allows for unlikely groups and no row has one
        unlikely = bool((data[:, 2:].max(axis=1) < self.threshold).any())
        least = self.threshold if unlikely else 0.0
        with package_errors("oxonfair"):
            peer = self._fitted(data, rows, problem, least)
            if peer is None:
                return Solution({}, "no_solution_found", NO_THRESHOLDS)
            decided = peer.predict({"data": data, "target": rows.label, "groups": rows.group})
        classifier = likely.thresholds(scored.classifier, _cuts(scored, peer), least)
        judged = scored.judged(np.asarray(decided, dtype=float))
        return solution(problem, classifier, begun, "oxonfair", judged)

    def _fitted(self, data: Array, rows: GroupRows, problem: Problem, least: float = 0.0) -> Any:
        """Return the predictor of chances of labels (m, 2), and of groups (m, G) if inferred.

        None if no point of a grid satisfies the additional constraints.
        """
        from oxonfair import FairPredictor
        from oxonfair import group_metrics as gm

        inferred = {"inferred_groups": lambda d: d[:, 2:]} if self.groups == "inferred" else {}
        validation = {"data": data, "target": rows.label, "groups": rows.group}
        peer = FairPredictor(lambda d: d[:, :2].copy(), validation, threshold=least, **inferred)
        (metric, bound), *others = ((_metric(gm, rule), rule.bound) for rule in _rules(problem))
        try:
            return peer.fit(gm.accuracy, metric, bound, additional_constraints=others)
        except IndexError:  # of the points that are left, it takes the first
            return None


def _rules(problem: Problem) -> list[GroupRule]:
    """Return the rules of a problem; one constraint on differences of tpr and fpr is one rule."""
    rules = tightened_rules(problem)
    odds = {("difference", "tpr"), ("difference", "fpr")}
    is_odds = len(problem.constraints) == 1 and {(each.kind, each.rate) for each in rules} == odds
    return [tightened_rule(problem)] if is_odds else rules


def _metric(metrics: Any, rule: GroupRule) -> Any:
    """Return OxonFair's metric of a rule; its difference of accuracy is that of error."""
    if rule.rate == EQUALIZED_ODDS:
        return metrics.equalized_odds_max
    return getattr(getattr(metrics, METRICS[rule.rate]), WHOLE[rule.kind])


def _cuts(scored: ScoredGroups, peer: Any) -> Array:
    """Return thresholds on scores: decisions are positive where 2 * chance - 1 + offset > 0."""
    return scored.cuts((1 - np.ravel(peer.offset)) / 2)


class GroupModel(NamedTuple):
    """A model of G groups, and its chances (n, G) on rows that it has not seen."""

    model: ProbabilityModel
    chances: Array

    @classmethod
    def of(cls, solver: OxonFair, problem: Problem, rows: GroupRows) -> GroupModel:
        """Fit the model of an option to groups; `rows` are those that thresholds are chosen by."""
        group = np.searchsorted(rows.cells, Groups.of_problem(problem).of)
        value = LOGISTIC if is_linear(solver.model) else solver.model

        def fit(own: NDArray[np.intp]) -> ProbabilityModel:
            given = FitRows(problem.X[own], problem.layout, group[own], np.ones(len(own)))
            return fit_named(value, given, problem.l2, np.random.default_rng(problem.seed))

        unseen = UnseenScores.of(solver.scores, problem)
        return cls(*unseen.fit_and_score(fit, lambda m, own: m.probabilities(problem.X[own])))

    def thresholds(self, scorer: Classifier, cuts: Array, least: float) -> InferredGroupThreshold:
        """Return the classifier; cuts start with that of unlikely groups if `least` is not 0."""
        every = np.zeros(self.model.classes + 1)
        first = 0 if least else 1
        every[first : first + len(cuts)] = np.clip(cuts, -CERTAIN, CERTAIN)
        return InferredGroupThreshold(scorer, self.model, every, least)

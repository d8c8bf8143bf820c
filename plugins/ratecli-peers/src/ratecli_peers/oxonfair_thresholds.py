"""OxonFair's `FairPredictor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier
from ratecli.models.probabilities import ProbabilityModel
from ratecli.rates.analysis import Goal
from ratecli.solvers.base import JudgedRows, Progress, Solution
from ratecli.solvers.baselines.options import ThresholdSolver
from ratecli.solvers.baselines.thresholded import score_rows
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import is_linear, model_name
from ratecli.solvers.oracles.estimators import fit_named
from ratecli.solvers.oracles.model_names import LOGISTIC
from ratecli.solvers.oracles.unseen import UnseenScores
from ratecli.solvers.problem import Groups, Problem
from ratecli_peers.classifiers import InferredGroupThreshold
from ratecli_peers.rows import (
    CERTAIN,
    GroupRows,
    as_chance,
    as_threshold,
    package_errors,
    plain_solution,
    solution,
    start,
)
from ratecli_peers.rules import GroupRule, Kind, OneRule, group_rules, listed

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
class OxonFair(OneRule, ThresholdSolver):
    """OxonFair's `FairPredictor` (Delaney et al. 2024): the best thresholds of groups on a grid.

    It takes any number of limits on differences, ratios and lower limits of rates of groups. The
    first is its `constraint`, the others are `additional_constraints`. Of more than two groups, the
    largest difference and the smallest ratio count (`max_diff`, `min_ratio`; its `diff` and `ratio`
    are means over pairs). A comparison in one direction is enforced in both. Without constraints,
    the model is returned. Rows in none of the groups keep the model's threshold.

    It uses its fast search. Its examples choose thresholds by rows that the model was not fitted
    to: `scores: {held_out: 0.3}`.

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

    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("oxonfair",)
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = (
        *(("difference", rate) for rate in ("positive_rate", "tpr", "fpr", "error")),
        *(("ratio", rate) for rate in ("positive_rate", "tpr", "fpr", "tnr", "accuracy")),
        *(("floor", rate) for rate in ("positive_rate", "tpr", "tnr", "accuracy")),
    )

    @classmethod
    def refusal(cls, goals: Sequence[Goal]) -> str:
        if goals and goals[0].name == "objective":
            return super().refusal(goals)
        try:
            rules = group_rules(goals)
        except ValueError as error:
            return str(error)
        wrong = [rule for rule in rules if (rule.kind, rule.rate) not in cls.accepts]
        if wrong:
            return f"it takes a {listed(cls.accepts)}, not a {wrong[0].kind} of {wrong[0].rate}"
        if len({rule.groups for rule in rules}) > 1:
            return "all its rules are about the same groups"
        return ""

    @property
    def sees_slices(self) -> bool:
        return self.groups == "known"

    @property
    def idle(self) -> Mapping[str, str]:
        known = {"threshold": "the groups are known"} if self.groups == "known" else {}
        return {**super().idle, **known}

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        begun = start()
        scored = score_rows(self, problem)
        progress(f"{model_name(self.model)} model ready")
        if not problem.constraints:
            return plain_solution(scored.classifier)
        inferred = self.groups == "inferred"
        rows = GroupRows.of(scored.problem, complete=inferred)
        likely = GroupModel.of(self, problem, rows) if inferred else None
        chances = as_chance(scored.classifier, scored.scores[rows.rows])
        data = np.column_stack([1 - chances, chances])
        with package_errors("oxonfair"):
            data = data if likely is None else np.hstack([data, likely.chances[rows.rows]])
            peer = self._fitted(data, rows, group_rules(problem.constraints))
            decided = (scored.scores > 0).astype(float)
            decided[rows.rows] = peer.predict({"data": data, "groups": rows.group, "target": 0})
            # positive where 2 * chance - 1 + offset > 0
            cuts = as_threshold(scored.classifier, (1 - np.ravel(peer.offset)) / 2)
        if likely is None:
            each = [(np.array([cut]), np.ones(1)) for cut in cuts]
            classifier: Classifier = rows.thresholds(scored.classifier, each)
        else:
            classifier = likely.thresholds(scored.classifier, cuts, self.threshold)
        judged = None if scored.seen else JudgedRows(scored.problem, decided)
        return solution(problem, classifier, begun, "OxonFair", judged)

    def _fitted(self, data: Array, rows: GroupRows, rules: Sequence[GroupRule]) -> Any:
        """Return the predictor of chances of labels (m, 2), and of groups (m, G) if inferred."""
        from oxonfair import FairPredictor
        from oxonfair import group_metrics as gm

        inferred = {"inferred_groups": lambda d: d[:, 2:]} if self.groups == "inferred" else {}
        validation = {"data": data, "target": rows.label, "groups": rows.group}
        peer = FairPredictor(
            lambda d: d[:, :2].copy(), validation, threshold=self.threshold, **inferred
        )
        # its difference of accuracy is that of error
        limits = [
            (getattr(getattr(gm, METRICS[rule.rate]), WHOLE[rule.kind]), rule.bound)
            for rule in rules
        ]
        (metric, bound), *others = limits
        return peer.fit(gm.accuracy, metric, bound, additional_constraints=others)


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

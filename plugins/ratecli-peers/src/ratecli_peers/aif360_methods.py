"""AIF360: reweighing before a model, calibrated equalized odds and the reject option after it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt, Le

from ratecli.models.output_cache import array_digest
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.fit_cache import CACHED_FITS, FitCache
from ratecli.solvers.oracles.choice import LINEAR_MODEL, ReducedModelOption
from ratecli.solvers.problem import Problem
from ratecli_peers.rules import EQUALIZED_ODDS, GroupsOnly, Kind, KnownRules, tightened_rule
from ratecli_peers.thresholds import AfterModel

if TYPE_CHECKING:
    from ratecli_peers.rows import GroupChances, ScoredGroups

GROUP = "group"
NEEDS = ("aif360",)


@dataclass(frozen=True)
class Reweighing(GroupsOnly, Solver):
    """AIF360's `Reweighing` (Kamiran, Calders 2012), then a model.

    The weights of rows make the group and the label independent. It takes only the groups from the
    constraints, whatever their limits are. Every labelled row must be in a group.

    Attributes
    ----------
    model
        `linear`, which is LIBLINEAR's logistic regression with a regularized bias, or a classifier
        as in `unconstrained`.
    """

    model: ReducedModelOption = LINEAR_MODEL

    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = NEEDS

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        from ratecli_peers.learner import Learner, fit_weighted
        from ratecli_peers.rows import GroupRows, package_errors, solution

        begun, rows = time.perf_counter(), GroupRows.of(problem, complete=True)
        with package_errors("aif360"):
            from aif360.sklearn.preprocessing import Reweighing as Peer

            indices = rows.rows[:, None]  # it needs rows, but not their features
            _, weights = Peer(prot_attr=rows.group).fit_transform(indices, rows.label)
        learner = Learner.of(self.model, problem)
        found = fit_weighted(learner, problem.X[rows.rows], rows.label, np.asarray(weights))
        return solution(problem, found, begun, "aif360")


@dataclass(frozen=True)
class CalibratedEqualizedOdds(GroupsOnly, AfterModel):
    """AIF360's `CalibratedEqualizedOdds` (Pleiss et al. 2017) after a model.

    In the group with the smaller cost, some randomly chosen decisions are replaced by the group's
    rate of positive labels. The costs of the two groups are then equal. It takes only the groups
    from the constraints, whatever their limits are. AIF360 holds rows out for it (`scores:
    {held_out: 0.25}`).

    Attributes
    ----------
    cost_constraint
        The cost: mean probability of negative rows (`fpr`), mean distance to 1 of positive ones
        (`fnr`), or the mean of these by number of rows (`weighted`).
    """

    cost_constraint: Literal["fpr", "fnr", "weighted"] = "weighted"

    version: ClassVar[int] = 2
    needs: ClassVar[tuple[str, ...]] = NEEDS
    two_groups: ClassVar[bool] = True

    def chances(self, scored: ScoredGroups, problem: Problem) -> GroupChances:  # noqa: ARG002
        from aif360.sklearn.postprocessing import CalibratedEqualizedOdds as Peer

        chances, label = tables(scored)
        peer = Peer(GROUP, cost_constraint=self.cost_constraint).fit(chances, label)
        found = []
        for rate, share in zip(peer.base_rates_, peer.mix_rates_, strict=True):
            mixed = float(np.clip(np.nan_to_num(share), 0.0, 1.0))
            always = -np.inf if rate > 0.5 else np.inf
            parts = np.array([0.0, always]), np.array([1 - mixed, mixed])
            found.append(parts if mixed else (np.zeros(1), np.ones(1)))
        return found


@dataclass(frozen=True)
class RejectOption(KnownRules, AfterModel):
    """AIF360's `RejectOptionClassifierCV` (Kamiran, Karim, Zhang 2012) after a model.

    Around a threshold, decisions are positive in the group with fewer positive labels and negative
    in the other one. Threshold and margin are chosen from a grid, the most accurate ones that keep
    the limit (its own is a ratio of 0.8 or a difference of 0.1). Equalized odds are the mean of the
    two differences. A comparison in one direction is enforced in both. Without constraints, the
    model is returned. AIF360 holds rows out for it (`scores: {held_out: 0.25}`).

    Attributes
    ----------
    step
        Distance of thresholds, and of margins, in the grid.
    metric
        What is largest: `balanced_accuracy` as in AIF360, or `accuracy`.
    """

    step: Annotated[float, Gt(0), Le(0.25)] = 0.05
    metric: Literal["balanced_accuracy", "accuracy"] = "balanced_accuracy"

    version: ClassVar[int] = 1
    random: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = NEEDS
    two_groups: ClassVar[bool] = True
    accepts: ClassVar[tuple[tuple[Kind, str], ...]] = (
        *(("difference", rate) for rate in ("positive_rate", "tpr", EQUALIZED_ODDS)),
        ("ratio", "positive_rate"),
    )

    def chances(self, scored: ScoredGroups, problem: Problem) -> GroupChances:
        from aif360.sklearn import metrics
        from aif360.sklearn.postprocessing import RejectOptionClassifierCV

        rule = tightened_rule(problem)
        chances, label = tables(scored)
        rates = label.groupby(level=GROUP).mean()
        privileged = int(rates.to_numpy().argmax())
        is_ratio, fairness = rule.kind == "ratio", FAIRNESS[rule.kind, rule.rate]

        def grid() -> Any:
            given = {"prot_attr": GROUP, "priv_group": privileged}
            given |= {"zero_division": 0} if is_ratio else {}
            score = metrics.make_scorer(getattr(metrics, fairness), is_ratio=is_ratio, **given)
            options = {"scoring": {"metric": self.metric, "rule": score}, "refit": False}
            peer = RejectOptionClassifierCV(GROUP, step=self.step, **options)
            return peer.fit(chances, label, priv_group=privileged).cv_results_

        # the grid does not depend on the limit, which may be tightened
        rows = scored.chances, scored.rows.label, scored.rows.group
        key = array_digest((fairness, self.metric, self.step), *rows)
        found = _grids.get(key, grid)
        kept = found["mean_test_rule"] >= (rule.bound if is_ratio else -rule.bound) - ROUNDING
        masked = np.ma.array(found["mean_test_metric"], mask=~kept)
        best = int(masked.argmax() if kept.any() else found["mean_test_rule"].argmax())
        threshold, margin = (found["params"][best][name] for name in ("threshold", "margin"))
        # positive from the upper end on, not above it
        upper, lower = np.nextafter(threshold + margin, -np.inf), threshold - margin
        cuts = scored.cuts(np.array([upper if g == privileged else lower for g in range(2)]))
        return [(np.array([cut]), np.ones(1)) for cut in cuts]


FAIRNESS = {
    ("difference", "positive_rate"): "statistical_parity_difference",
    ("ratio", "positive_rate"): "disparate_impact_ratio",
    ("difference", "tpr"): "equal_opportunity_difference",
    ("difference", EQUALIZED_ODDS): "average_odds_error",
}
"""AIF360's metric of a rule."""
ROUNDING = 1e-12
_grids = FitCache[Any](CACHED_FITS)
"""The measured points of grids."""


def tables(scored: ScoredGroups) -> tuple[Any, Any]:
    """Return chances (m, 2) of the labels, and the labels (m,), as pandas tables by group."""
    import pandas as pd

    group = pd.Index(scored.rows.group, name=GROUP)
    chances = np.column_stack([1 - scored.chances, scored.chances])
    return pd.DataFrame(chances, index=group), pd.Series(scored.rows.label, index=group)

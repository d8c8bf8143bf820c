"""fairlearn's `CorrelationRemover` before a model."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.oracles.choice import LINEAR_MODEL, ReducedModelOption
from ratecli.solvers.problem import Problem
from ratecli_peers.rules import GroupsOnly


@dataclass(frozen=True)
class CorrelationRemover(GroupsOnly, Solver):
    """fairlearn's `CorrelationRemover`, then a model of the remaining features.

    It subtracts from each feature what membership in the groups predicts linearly. It takes only
    the groups from the constraints, whatever their limits are. Features that state the group become
    constant. Rows without a label are not used.

    Attributes
    ----------
    alpha
        1 removes all of it, 0 nothing.
    model
        `linear`, which is LIBLINEAR's logistic regression with a regularized bias, or a classifier
        as in `unconstrained`; it sees categories as one feature for each value.
    """

    alpha: Annotated[float, Ge(0), Le(1)] = 1.0
    model: ReducedModelOption = LINEAR_MODEL

    version: ClassVar[int] = 1
    needs: ClassVar[tuple[str, ...]] = ("fairlearn",)

    @property
    def sees_slices(self) -> bool:
        return True

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        from fairlearn.preprocessing import CorrelationRemover as Peer

        from ratecli.models.layout import ColumnLayout
        from ratecli_peers.classifiers import DecorrelatedClassifier
        from ratecli_peers.learner import Learner, fit_weighted
        from ratecli_peers.rows import GroupRows, dense, package_errors, solution

        begun, rows, width = time.perf_counter(), GroupRows.of(problem), problem.X.shape[1]
        X, members = dense(problem, rows.rows), rows.memberships
        layout = ColumnLayout.numbers(width)
        learner = replace(Learner.of(self.model, problem), layout=layout)
        with package_errors("fairlearn"):
            sensitive = range(width, width + members.shape[1])
            peer = Peer(sensitive_feature_ids=[*sensitive], alpha=self.alpha)
            remaining = peer.fit_transform(np.hstack([X, members]))
            weights = np.ones(len(rows.label))
            fitted = fit_weighted(learner, np.asarray(remaining), rows.label, weights)
        slopes = self.alpha * np.asarray(peer.beta_)
        mean = np.asarray(peer.sensitive_mean_, dtype=float)
        found = DecorrelatedClassifier(fitted, rows.groups.slices, slopes, mean)
        return solution(problem, found, begun, "fairlearn")

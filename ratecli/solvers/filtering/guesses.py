"""Filters by a classifier of the group itself: what a proxy that says little is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from ratecli.models.base import Array
from ratecli.models.fitted import SklearnModel
from ratecli.models.proxies import ClassifierProxy, ProxyFilter
from ratecli.models.trees import TreeEnsemble
from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Progress, Role, Solution, Solver
from ratecli.solvers.filtering.aim import FilterTarget
from ratecli.solvers.filtering.solver import filter_variants
from ratecli.solvers.filtering.weights import maximize_kept_rows, optimal_sampling_weights
from ratecli.solvers.oracles.choice import ChancesOption, fit_probability_classifier
from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class GuessedGroup(Solver):
    """Keeps rows by the group that a classifier guesses (the naive and the QP proxies of section 5).

    The classifier is trained to tell the group from the features, or with several columns the
    combination, so that a guess says as much of a group as the classifier is good for; constraints on
    disclosivity are measured and not kept.

    Attributes
    ----------
    weights
        `naive`: as many rows are kept of each guess; `qp`: the chances that balance the groups best
        (Algorithm 1).
    classifier
        Of scikit-learn, by its name, with options behind it if there are any: LogisticRegression,
        {DecisionTreeClassifier: {max_depth: 20}}.
    noise
        eta: with this chance a guess is replaced by any other, each alike, while the chances stay
        (appendix A.1.1). What it says and keeps is then known in closed form.
    kept
        Least share of all rows that is kept, for `qp`.
    sampled
        Whether a variant `sampled` is added: one sample, drawn by a hash of each row.
    missing
        Training rows without a value of a column that tells groups: `refuse` them before any trial, or
        `leave_out`, where the filter is found without them. It decides on them as on any row, and shares
        that are measured count them among all.
    """

    weights: Literal["naive", "qp"] = "qp"
    classifier: ChancesOption = "LogisticRegression"
    noise: Annotated[float, Ge(0), Le(1)] = 0.0
    kept: Annotated[float, Ge(0), Le(1)] = 0.0
    sampled: bool = False
    missing: Literal["refuse", "leave_out"] = "refuse"

    role: ClassVar[Role] = "reads"
    hides_groups: ClassVar[bool] = True
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.BALANCE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.DISCLOSURE})

    @property
    def idle(self) -> Mapping[str, str]:
        """Naive weights follow from the guesses alone."""
        if self.weights == "qp":
            return {}
        return {"kept": "'kept' is of 'weights: qp', and these are naive"}

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        """Raises FaultError, E501, where the classifier refuses rows or options."""
        aim = FilterTarget.of(problem, leave_out=self.missing == "leave_out")
        chances = self._fitted(aim, problem.l2, rng)
        progress(f"a classifier of {chances.classes} groups is fitted")
        likeliest = chances.of(aim.X).argmax(axis=1)
        groups = np.unique(likeliest[aim.kinds.weight > 0])  # rows that are left out have no say
        masses = aim.mass(np.equal.outer(likeliest, groups).astype(float)).T
        keep = self._keep(aim, masses)
        found = ProxyFilter(ClassifierProxy(chances, groups.astype(np.intp), self.noise), keep)
        return Solution(filter_variants(found, rng, sampled=self.sampled))

    def _fitted(
        self, aim: FilterTarget, l2: float, rng: np.random.Generator
    ) -> TreeEnsemble | SklearnModel:
        used = np.flatnonzero(aim.kinds.weight)
        rows = (aim.X[used], aim.combinations[used], aim.kinds.weight[used])
        return fit_probability_classifier(self.classifier, rows, l2, rng)

    def _keep(self, aim: FilterTarget, masses: Array) -> Array:
        """(L,) chances of guesses with masses (L, R)."""
        A, sizes = aim.values(masses)
        if self.weights == "naive":
            return np.asarray(sizes.min() / sizes)
        return maximize_kept_rows(
            A, sizes, optimal_sampling_weights(A, sizes, aim.target, kept=self.kept)
        ).keep

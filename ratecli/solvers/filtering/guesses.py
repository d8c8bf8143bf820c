"""Baseline filters that keep rows by a predicted group, `qp_proxy` and `naive_proxy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Le

from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Progress, Role, Solution, Solver
from ratecli.solvers.oracles.choice import ChancesOption, fit_probability_classifier

if TYPE_CHECKING:
    from ratecli.models.base import Array
    from ratecli.models.sklearn_model import SklearnModel
    from ratecli.models.trees import TreeEnsemble
    from ratecli.solvers.filtering.aim import FilterTarget
    from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class GuessedGroup(Solver):
    """Keeps rows by the group that a classifier predicts (naive and QP proxies of section 5).

    The classifier is trained to predict the group from the features, or the combination of groups
    if there are several columns. A prediction therefore reveals as much about the group as the
    classifier's accuracy allows: constraints on disclosivity are measured but not enforced.

    Attributes
    ----------
    weights
        `naive`: keep equally many rows of each predicted group; `qp`: use the chances that balance
        the groups best (Algorithm 1).
    classifier
        Name of a scikit-learn classifier, optionally with options: LogisticRegression,
        {DecisionTreeClassifier: {max_depth: 20}}.
    noise
        eta: probability with which a prediction is replaced by one of the others, uniformly, while
        the chances of keeping stay as they are (appendix A.1.1). The effect on disclosivity and
        balance is computed in closed form.
    kept
        Minimum share of all rows that is kept, for `qp`.
    sampled
        Whether to add the variant `sampled`: a single sample, drawn by a hash of each row.
    missing
        What to do with training rows without a value in a column that defines groups: `refuse` them
        with an error before any trial, or `leave_out` these rows when the filter is fitted. The
        filter decides on them like on any row, and measured shares include them.
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
        """Options without effect: naive weights depend only on the predictions."""
        if self.weights == "qp":
            return {}
        return {"kept": "'kept' is of 'weights: qp', and these are naive"}

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        """Fit the classifier and the chances of keeping.

        Raises
        ------
        FaultError
            E501 if the classifier rejects the rows or its options.
        """
        from ratecli.models.proxies import ClassifierProxy, ProxyFilter
        from ratecli.solvers.filtering.aim import FilterTarget
        from ratecli.solvers.filtering.solver import filter_variants

        aim = FilterTarget.of(problem, leave_out=self.missing == "leave_out")
        chances = self._fitted(aim, problem.l2, rng)
        progress(f"a classifier of {chances.classes} groups is fitted")
        likeliest = chances.of(aim.X).argmax(axis=1)
        groups = np.unique(likeliest[aim.kinds.weight > 0])  # ignore rows that are left out
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
        """Return (L,) chances of keeping predicted groups with masses (L, R)."""
        from ratecli.solvers.filtering.weights import maximize_kept_rows, optimal_sampling_weights

        A, sizes = aim.values(masses)
        if self.weights == "naive":
            return np.asarray(sizes.min() / sizes)
        return maximize_kept_rows(
            A, sizes, optimal_sampling_weights(A, sizes, aim.target, kept=self.kept)
        ).keep

"""What solves fairlearn's reductions to weighted classification.

Importing this module requires fairlearn.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from fairlearn import reductions
from scipy import sparse

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import MIN_CHANCE, MixtureClassifier, mixture_variants
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import affine_pieces
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.hull.deterministic import best_of_members
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.problem import Problem, mix_of
from ratecli_peers.fairlearn_reductions import ExponentiatedGradient, GridSearch
from ratecli_peers.learner import Learner, constant, fit_weighted
from ratecli_peers.rows import GroupRows, dense, package_errors, plain_solution, solution
from ratecli_peers.rules import GroupRule, tightened_rule


class AffineRowsMoment(reductions.ClassificationMoment):  # type: ignore[misc]
    """The moment `slopes @ decisions + constants`, (m, n) and (m,), at most 0 as a constraint.

    fairlearn's own moments compare groups with all rows and weight each row by 1 / n; this one
    follows the constraints in the file.
    """

    def __init__(self, slopes: Array, constants: Array) -> None:
        super().__init__()
        self.slopes, self.constants = slopes, constants

    def load_data(self, X: Any, y: Any) -> None:
        super().load_data(X, pd.Series(y))

    @property
    def index(self) -> pd.Index:
        return pd.RangeIndex(len(self.constants))

    def gamma(self, predictor: Callable[[Any], Array]) -> pd.Series[float]:
        return pd.Series(self.slopes @ predictor(self.X) + self.constants, index=self.index)

    def bound(self) -> pd.Series[float]:
        return pd.Series(0.0, index=self.index)

    def project_lambda(self, lambda_vec: pd.Series[float]) -> pd.Series[float]:
        return lambda_vec

    def signed_weights(self, lambda_vec: pd.Series[float] | None = None) -> pd.Series[float]:
        """Return the value of a positive decision for each row, in units of 1 / n."""
        prices = np.ones(len(self.constants)) if lambda_vec is None else lambda_vec.to_numpy()
        return pd.Series(-self.total_samples * (prices @ self.slopes))


def solve_exponentiated_gradient(
    options: ExponentiatedGradient, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Run the reduction, and measure its mixture by ratecli's rates."""
    begun, X = time.perf_counter(), to_int32_indices(problem.X)
    objective = AffineRowsMoment(*problem.rows(problem.objective))
    forms = [form for goal in problem.constraints for form in affine_pieces(goal)]
    forms = forms or [Affine({}, -1.0)]  # fairlearn requires a constraint: one that always holds
    mix, constants = mix_of(problem.rates, forms)
    slopes = sparse.csr_array(mix @ problem.rates.A)
    constants = mix @ np.nan_to_num(problem.rates.c) + constants
    learner = Learner.of(options.model, problem)
    limits = {"eps": options.eps, "max_iter": options.iterations, "nu": options.gap}
    reduction = reductions.ExponentiatedGradient(
        learner, AffineRowsMoment(slopes, constants), objective=objective, **limits
    )
    signs, _ = problem.labels()
    with warnings.catch_warnings():
        # pandas deprecations concern fairlearn's code
        warnings.simplefilter("ignore", DeprecationWarning)
        reduction.fit(X, (signs > 0).astype(int))
    weights = reduction.weights_[reduction.weights_ > MIN_CHANCE]
    fitted = [reduction.predictors_[k] for k in weights.index]
    members = [_classifier(each, X.shape[1]) for each in fitted]
    mixture = MixtureClassifier.of(members, weights.to_numpy(dtype=float))
    decisions = np.clip(mixture.chances @ np.stack([each.predict(X) for each in fitted]), 0.0, 1.0)
    value = float((objective.slopes @ decisions + objective.constants)[0])
    violation = problem.worst_violation(problem.rates.rates(decisions))
    row = trace_row(int(reduction.last_iter_) + 1, value, violation, begun)
    row |= {"gap": float(reduction.best_gap_), "work": int(reduction.n_oracle_calls_)}
    progress(f"{row['work']} classifiers fitted")
    single = best_of_members(problem, mixture.members)
    found = mixture_variants(mixture, rng) | {"deterministic": lambda: single.classifier}
    variants = options.select(found)
    if not options.randomize:
        row |= {"objective": single.objective, "violation": single.violation}
    steps = f"after {row['iteration']} steps"
    if reduction.best_gap_ >= reduction.nu:
        reason = f"{steps} a gap of {row['gap']:.2g} is left, above {reduction.nu:.2g}"
    elif row["violation"] > MAX_EXCESS:
        reason = f"{steps} a constraint is violated"
    else:
        return Solution(variants, trace=(row,))
    return Solution(variants, "iteration_limit", reason, trace=(row,))


def _classifier(model: Any, width: int) -> Classifier:
    """Return the classifier of a learner or of fairlearn's fallback if all costs have one sign."""
    return model.classifier if isinstance(model, Learner) else constant(model.constant == 1, width)


MOMENTS = {
    "demographic_parity": reductions.DemographicParity,
    "true_positive_rate_parity": reductions.TruePositiveRateParity,
    "false_positive_rate_parity": reductions.FalsePositiveRateParity,
    "error_rate_parity": reductions.ErrorRateParity,
    "equalized_odds": reductions.EqualizedOdds,
}


def moment_of(rule: GroupRule) -> reductions.UtilityParity:
    """Return fairlearn's moment of a rule."""
    bound = {"ratio_bound" if rule.kind == "ratio" else "difference_bound": rule.bound}
    return MOMENTS[rule.parity](**bound)


def solve_grid_search(options: GridSearch, problem: Problem, progress: Progress) -> Solution:
    """Run the grid search, and return the classifier that `selection_rule` selects."""
    begun, learner = time.perf_counter(), Learner.of(options.model, problem)
    rows = GroupRows.of(problem, complete=True)
    X = dense(problem, rows.rows)
    if not problem.constraints:
        weights = np.ones(len(rows.label))
        return plain_solution(fit_weighted(learner, X, rows.label, weights))
    limits = {"grid_size": options.grid_size, "grid_limit": options.grid_limit}
    weight = {"constraint_weight": options.constraint_weight}
    with package_errors("fairlearn"):
        search = reductions.GridSearch(
            learner, moment_of(tightened_rule(problem)), **limits, **weight
        )
        search.fit(X, rows.label, sensitive_features=rows.group)
    progress(f"{len(search.predictors_)} classifiers fitted")
    found = [_classifier(each, X.shape[1]) for each in search.predictors_]
    best = search.best_idx_
    if options.selection_rule == "rule":
        keys = [(max(problem.violation(each), MAX_EXCESS), problem.value(each)) for each in found]
        best = min(range(len(found)), key=keys.__getitem__)
    return solution(problem, found[best], begun, "fairlearn", work=len(found))

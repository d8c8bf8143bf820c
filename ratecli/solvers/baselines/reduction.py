"""The algorithm `exponentiated_gradient`: fairlearn's reduction to weighted classification.

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
from sklearn.linear_model import LogisticRegression

from ratecli.models.base import Array, Classifier
from ratecli.models.composed import MixtureClassifier, deterministic_variants
from ratecli.models.linear import Logistic, Threshold
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.baselines.solvers import ExponentiatedGradient
from ratecli.solvers.hull.best import MAX_EXCESS
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.problem import Problem


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


def solve_reduction(
    options: ExponentiatedGradient, problem: Problem, rng: np.random.Generator, progress: Progress
) -> Solution:
    """Run the reduction, and measure its mixture by ratecli's rates."""
    begun, X = time.perf_counter(), problem.X
    objective = AffineRowsMoment(*problem.rows(problem.objective))
    slopes, constants = problem.rows(*problem.constraints)
    if not len(slopes):  # fairlearn requires a constraint: add one that always holds
        slopes, constants = np.zeros((1, X.shape[0])), np.full(1, -1.0)
    learner = LogisticRegression(
        solver="liblinear", C=1 / (X.shape[0] * problem.l2), random_state=int(rng.integers(2**31))
    )
    limits = {"eps": options.eps, "max_iter": options.iterations, "nu": options.gap}
    reduction = reductions.ExponentiatedGradient(
        learner, AffineRowsMoment(slopes, constants), objective=objective, **limits
    )
    signs, _ = problem.labels()
    with warnings.catch_warnings():
        # pandas deprecations concern fairlearn's code
        warnings.simplefilter("ignore", DeprecationWarning)
        reduction.fit(to_int32_indices(X), (signs > 0).astype(int))
    weights = reduction.weights_
    members = [_linear_classifier(reduction.predictors_[k], X.shape[1]) for k in weights.index]
    mixture = MixtureClassifier.of(members, weights.to_numpy(dtype=float))
    decisions = mixture.decide(X)
    value = float((objective.slopes @ decisions + objective.constants)[0])
    row = trace_row(int(reduction.last_iter_) + 1, value, problem.violation(mixture), begun)
    row |= {"gap": float(reduction.best_gap_), "work": int(reduction.n_oracle_calls_)}
    progress(f"{row['work']} classifiers fitted")
    variants = {"stochastic": mixture, **deterministic_variants(mixture, None)}
    steps = f"after {row['iteration']} steps"
    if reduction.best_gap_ >= reduction.nu:
        reason = f"{steps} a gap of {row['gap']:.2g} is left, above {reduction.nu:.2g}"
    elif row["violation"] > MAX_EXCESS:
        reason = f"{steps} a constraint is violated"
    else:
        return Solution(variants, trace=(row,))
    return Solution(variants, "iteration_limit", reason, trace=(row,))


def _linear_classifier(model: Any, width: int) -> Classifier:
    if type(model).__name__ == "DummyClassifier":
        # fairlearn's fallback if all costs have the same sign
        return Threshold(np.zeros(width), 1.0 if model.constant == 1 else -1.0)
    return Logistic(model.coef_[0].astype(float), float(model.intercept_[0]))

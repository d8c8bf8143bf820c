"""The algorithm `exponentiated_gradient`: fairlearn's reduction to weighted classification.

Importing this module requires fairlearn.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from fairlearn import reductions
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import MIN_CHANCE, MixtureClassifier, mixture_variants
from ratecli.models.layout import ColumnLayout
from ratecli.models.linear import Logistic, Threshold
from ratecli.rates.affine import Affine
from ratecli.rates.analysis import affine_pieces
from ratecli.solvers.base import Progress, Solution, trace_row
from ratecli.solvers.baselines.options import ExponentiatedGradient
from ratecli.solvers.hull.deterministic import best_of_members
from ratecli.solvers.hull.master import MAX_EXCESS
from ratecli.solvers.liblinear import to_int32_indices
from ratecli.solvers.oracles.base import FitRows
from ratecli.solvers.oracles.choice import is_linear
from ratecli.solvers.oracles.estimators import as_classifier, fit_named
from ratecli.solvers.problem import Problem, mix_of


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


@dataclass
class Learner:
    """The estimator that fairlearn fits: the model of an option.

    Attributes
    ----------
    model
        The option.
    layout
        The columns behind the features.
    l2
        Regularization of a logistic regression.
    seed
        Seed of each fit.
    classifier
        The fitted classifier.
    decisions
        (n,) its decisions on the rows that it was fitted to, the only ones that fairlearn asks for.
    """

    model: Any
    layout: ColumnLayout
    l2: float
    seed: int
    classifier: Classifier = field(init=False)
    decisions: Array = field(init=False)

    def __sklearn_clone__(self) -> Learner:
        return replace(self)

    def fit(self, X: Features, y: Any, sample_weight: Any) -> Learner:
        """Fit the model to rows (n, d), labels (n,) and weights (n,) that sum to n.

        Raises
        ------
        FaultError
            E501 if the model cannot be fitted or stored.
        """
        labels, weights = np.asarray(y, dtype=np.intp), np.asarray(sample_weight, dtype=float)
        if is_linear(self.model):
            fitted = LogisticRegression(
                solver="liblinear", C=1 / (X.shape[0] * self.l2), random_state=self.seed
            ).fit(X, labels, sample_weight=weights)
            self.classifier = Logistic(fitted.coef_[0].astype(float), float(fitted.intercept_[0]))
        else:
            used = np.flatnonzero(weights)
            rows = FitRows(X[used], self.layout, labels[used], weights[used])
            random = np.random.default_rng(self.seed)
            self.classifier = as_classifier(fit_named(self.model, rows, self.l2, random))
        self.decisions = self.classifier.decide(X)
        return self

    def predict(self, X: Features) -> Array:  # noqa: ARG002
        return self.decisions


def solve_reduction(
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
    learner = Learner(options.model, problem.layout, problem.l2, int(rng.integers(2**31)))
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
    if isinstance(model, Learner):
        return model.classifier
    return Threshold(np.zeros(width), 1.0 if model.constant == 1 else -1.0)

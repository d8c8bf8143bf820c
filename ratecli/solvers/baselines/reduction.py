"""The `exponentiated_gradient` algorithm: fairlearn's reduction to weighted classification."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from ratecli.rates.analysis import Shape, affine_pieces
from ratecli.solvers.base import Progress, Solution, Solver

if TYPE_CHECKING:
    from ratecli.models.base import Classifier
    from ratecli.solvers.problem import Problem

MIN_CHANCE = 1e-9
"""Smaller chances are treated as rounding errors of 0."""


@dataclass(frozen=True)
class ExponentiatedGradient(Solver):
    """fairlearn's `ExponentiatedGradient` (Agarwal et al. 2018, algorithm 1), unchanged.

    Multipliers grow exponentially with the violation of their constraint. The learner is
    LIBLINEAR's logistic regression with a regularized bias, fitted to the signs of the costs and
    weighted by their size. After each step a linear program finds the best mixture of the
    classifiers so far. Any affine constraint is enforced exactly as written, through ratecli's own
    moments; this includes demographic parity, equal opportunity, equalized odds and error rate
    parity, as differences or as ratios. A constraint may be violated by up to twice the remaining
    gap (`not_met`).

    Attributes
    ----------
    eps
        Inverse of the largest sum of multipliers.
    iterations
        Maximum number of steps.
    gap
        Duality gap at which the algorithm stops. The default is fairlearn's: half a standard error
        of the first classifier's error.
    """

    eps: Annotated[float, Gt(0)] = 0.01
    iterations: Annotated[int, Ge(1)] = 50
    gap: Annotated[float, Gt(0)] | None = None

    version: ClassVar[int] = 1
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from fairlearn.reductions import ExponentiatedGradient as Reduction
        from sklearn.linear_model import LogisticRegression

        from ratecli.models.mixture import MajorityVote, MixtureClassifier
        from ratecli.solvers.baselines.moments import AffineRowsMoment
        from ratecli.solvers.liblinear import to_int32_indices

        begun = time.perf_counter()
        aim = AffineRowsMoment(*problem.rows(affine_pieces(problem.objective)))
        slopes, constants = problem.rows(
            [form for goal in problem.constraints for form in affine_pieces(goal)]
        )
        if not len(constants):  # fairlearn requires a constraint: add one that always holds
            slopes, constants = np.zeros((1, problem.X.shape[0])), np.full(1, -1.0)
        learner = LogisticRegression(
            solver="liblinear",
            C=1 / (problem.X.shape[0] * problem.l2),
            random_state=int(rng.integers(2**31)),
        )
        reduction = Reduction(
            learner,
            AffineRowsMoment(slopes, constants),
            objective=aim,
            eps=self.eps,
            max_iter=self.iterations,
            nu=self.gap,
        )
        signs, _ = problem.labels()
        with warnings.catch_warnings():
            # pandas deprecations concern fairlearn's code
            warnings.simplefilter("ignore", DeprecationWarning)
            reduction.fit(to_int32_indices(problem.X), (signs > 0).astype(int))
        members, chances = _mixture_members(reduction)
        mixture = MixtureClassifier(members, chances)
        decisions = mixture.decide(problem.X)
        row = {
            "iteration": int(reduction.last_iter_) + 1,
            "objective": float((aim.slopes @ decisions + aim.constants)[0]),
            "violation": problem.violation(mixture),
            "gap": float(reduction.best_gap_),
            "work": int(reduction.n_oracle_calls_),
            "seconds": time.perf_counter() - begun,
        }
        progress(f"{row['work']} classifiers fitted")
        variants: dict[str, Classifier] = {
            "stochastic": mixture,
            "voted": MajorityVote(members, chances),
        }
        return Solution(variants, *_final_status(reduction, row["violation"]), trace=(row,))


def _mixture_members(reduction: Any) -> tuple[tuple[Classifier, ...], Any]:
    """Return the classifiers with positive chances, and these chances, which sum to 1."""
    chances = reduction.weights_.to_numpy(dtype=float)
    numbers = reduction.weights_.index[chances > MIN_CHANCE]
    width = reduction.constraints_.X.shape[1]
    members = tuple(_linear_classifier(reduction.predictors_[k], width) for k in numbers)
    kept = chances[chances > MIN_CHANCE]
    return members, kept / kept.sum()


def _linear_classifier(model: Any, width: int) -> Classifier:
    from ratecli.models.linear import Logistic, Threshold

    if type(model).__name__ == "DummyClassifier":
        # fairlearn's fallback if all costs have the same sign
        return Threshold(np.zeros(width), 1.0 if model.constant == 1 else -1.0)
    return Logistic(model.coef_[0].astype(float), float(model.intercept_[0]))


def _final_status(reduction: Any, violation: float) -> tuple[str, str]:
    from ratecli.solvers.hull.best import MAX_EXCESS

    steps = f"after {reduction.last_iter_ + 1} steps"
    if reduction.best_gap_ >= reduction.nu:
        left = f"a gap of {reduction.best_gap_:.2g} is left, above {reduction.nu:.2g}"
        return "iteration_limit", f"{steps} {left}"
    if violation > MAX_EXCESS:
        return "iteration_limit", f"{steps} a constraint is missed"
    return "solved", ""

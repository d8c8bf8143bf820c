"""The baseline algorithms and their options; other modules solve the problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from ratecli.errors import Diagnostic
from ratecli.rates.analysis import PROGRAM_SHAPES, Goal, Shape
from ratecli.solvers.base import ConstraintName, Progress, Role, Solution, Solver

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np

    from ratecli.rates.matrix import RateMatrix
    from ratecli.solvers.problem import Problem


@dataclass(frozen=True)
class Unconstrained(Solver):
    """Minimizes plain error on the labelled training rows, whatever the goals are.

    Attributes
    ----------
    loss
        `hinge` (a linear SVM with a certified gap) or `logistic` (by LIBLINEAR), both with a
        regularized bias, and both fitted by passes of Newton's method if rows are streamed; for
        numeric labels `squared` (exact ridge regression with an unregularized bias).
    """

    loss: Literal["hinge", "logistic", "squared"] = "hinge"

    version: ClassVar[int] = 3
    role: ClassVar[Role] = "ignores"
    numbers: ClassVar[Mapping[str, Any] | None] = {"loss": "squared"}
    streams: ClassVar[Mapping[str, Any] | None] = {}

    @property
    def takes_classes(self) -> bool:
        return self.loss != "squared"

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.solvers.baselines.linear import fit_plain_classifier, fit_plain_estimate

        if self.loss == "squared":
            return Solution({"estimate": fit_plain_estimate(problem)})
        classifier, reason = fit_plain_classifier(problem, self.loss, rng)
        progress(f"{self.loss} loss fitted")
        return Solution(
            {"deterministic": classifier}, "iteration_limit" if reason else "solved", reason
        )


@dataclass(frozen=True)
class Audit(Solver):
    """Returns the deployed model unchanged, to compare it with others and to certify it.

    Nothing is fitted. The rows that a stored model was trained on are not known: a certificate is
    valid only if they do not include the rows of the safety test.
    """

    role: ClassVar[Role] = "ignores"
    needs_deployed: ClassVar[bool] = True

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        assert problem.deployed is not None  # files without one are rejected before a run
        return Solution({"deployed": problem.deployed})


@dataclass(frozen=True)
class Thresholded(Solver):
    """A linear classifier whose bias is shifted to satisfy constraints (Goh et al. 2016, figure 3).

    The classifier is that of `unconstrained`, an SVM with a certified gap. Of all thresholds on its
    scores that satisfy the constraints on the training set, the one with the smallest objective is
    chosen, and among equally good ones the one nearest to the classifier's own. Every threshold is
    evaluated, so goals may be of any class that can be computed from decisions. If one threshold
    cannot satisfy all constraints together, `meets` selects one of them.

    With `loss: logistic`, `free: true` and the objective `1 - f1` this is the plug-in classifier
    for the F-measure (UncF1 of Narasimhan et al. 2019, table 4), except that the paper chooses
    among 1000 quantiles of the validation scores, and this algorithm among all training scores.

    Attributes
    ----------
    meets
        The constraint to satisfy; all of them by default.
    free
        Whether to ignore the constraints and minimize the objective over all thresholds.
    loss
        `hinge` (linear SVM) or `logistic` (by LIBLINEAR).
    """

    meets: ConstraintName | None = None
    free: bool = False
    loss: Literal["hinge", "logistic"] = "hinge"

    version: ClassVar[int] = 2
    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = PROGRAM_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        if self.free and self.meets is not None:
            raise ValueError("meets: it has no effect with free: true")

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.solvers.baselines.linear import solve_thresholded

        return solve_thresholded(self, problem, rng, progress)


@dataclass(frozen=True)
class PostShift(Solver):
    """The best thresholds of groups on one score (Hardt, Price, Srebro 2016), for any goal.

    The score is that of `unconstrained`. The groups are the cells into which the slices of the
    goals' rates partition the rows; two groups share a threshold only if that is optimal. Group
    membership must be known when a row is classified, but need not be a feature. The data set that
    a row comes from is not known then and does not define a group.

    The variant `stochastic` is a random choice among thresholds, which satisfies all constraints on
    the training set with the smallest objective of any such choice. It is the best point of a hull
    with a block for each group, whose points are the group's cuts; most groups have a single
    threshold, few need a random choice between two. It is optimal within `gap`, as the trace says.

    The variant `deterministic` is the best single threshold for each group. It is a global optimum
    if `exact` in the trace is true: if there are few choices, or if no goal compares ratios.

    Attributes
    ----------
    loss
        Loss of the score, as in `unconstrained`: `logistic` or `hinge`.
    gap
        How far the objective may be from the optimum.
    """

    loss: Literal["logistic", "hinge"] = "logistic"
    gap: Annotated[float, Gt(0)] = 1e-5

    version: ClassVar[int] = 4
    objectives: ClassVar[frozenset[str]] = PROGRAM_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    @property
    def sees_slices(self) -> bool:
        return True

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:
        from ratecli.solvers.baselines.post_shift import solve_post_shift

        return solve_post_shift(self, problem, rng, progress)


@dataclass(frozen=True)
class Zafar(Solver):
    """A linear SVM with bounded covariance (Zafar et al. 2015; Goh et al. 2016, equation 8).

    Minimizes the mean hinge loss plus `l2 / 2 |w|^2`, like `unconstrained`, subject to <w, x> being
    at most `covariance` for each constraint. Here x is the mean of the rows for which the
    constraint demands fewer positive decisions, minus the mean of those for which it demands more.
    For `positive_rate[men] <= t * positive_rate[women]` that is the mean over men minus the mean
    over women for every t: the limits of the constraints have no effect, nor has the objective. The
    bound is one-sided, as in Goh et al.; the original is two-sided, with a logistic loss.

    Attributes
    ----------
    covariance
        Largest difference of mean scores (c), in units of the SVM's scores, whose margin is 1.
        Useful values range from 0 to the difference of the plain SVM.
    """

    covariance: Annotated[float, Ge(0)] = 0.0

    version: ClassVar[int] = 2
    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = frozenset(Shape)
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def obstacle(self, goal: Goal, rates: RateMatrix) -> Diagnostic | None:
        from ratecli.solvers.baselines.linear import one_sided_diagnostic

        return one_sided_diagnostic(goal, rates)

    def solve(self, problem: Problem, rng: np.random.Generator, progress: Progress) -> Solution:  # noqa: ARG002
        from ratecli.solvers.baselines.linear import solve_bounded_covariance

        return solve_bounded_covariance(problem, self.covariance, progress)


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
        from ratecli.solvers.baselines.reduction import solve_reduction

        return solve_reduction(self, problem, rng, progress)

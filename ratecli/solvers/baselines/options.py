"""The baseline algorithms and their options; other modules solve the problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from ratecli.errors import Diagnostic
from ratecli.rates.analysis import (
    MAX_PIECES,
    PROGRAM_SHAPES,
    SEARCHED_SHAPES,
    Goal,
    Shape,
    count_affine_pieces,
)
from ratecli.solvers.base import ConstraintName, RandomizableSolver, Role, Solver
from ratecli.solvers.oracles.choice import (
    LINEAR_MODEL,
    ModelOption,
    ModelOrRegressorOption,
    Scores,
    existing_score,
    is_linear,
    is_of_module,
    is_regressor,
    model_name,
    named_options,
    stops_early,
)

if TYPE_CHECKING:  # numpy is slow to import
    from ratecli.rates.matrix import RateMatrix


DEFAULT_FOLDS, DEFAULT_HELD_OUT = 5, 0.5
SVM_GAP = 1e-5
"""Duality gap of the plain SVM, relative to the mean hinge loss."""
ONE_SIDED = "ratecli.solvers.baselines.svm:one_sided_diagnostic"
"""A function of a module that takes long to import."""


@dataclass(frozen=True, kw_only=True)
class ModelSolver(Solver):
    """Base of algorithms that fit one model to the labels.

    Attributes
    ----------
    model
        `linear` with a `loss`, `logistic`, or a classifier: the name of any of scikit-learn whose
        fit takes sample weights, `lightgbm`, `xgboost` or `catboost` (optional extras), or
        `package.module:Class` of these packages and those named by `--trust`. Parameters follow the
        name: `{lightgbm: {num_leaves: 15, early_stopping_round: 20}}`. Boosted trees, except
        CatBoost's, see categories and missing numbers as such. With early stopping, validation rows
        decide when to stop. An existing score, `{score: NAME}`, is not fitted: NAME is among the
        `scores` of each data set, and decisions are positive above .5, or above T with `{score:
        {name: NAME, threshold: T}}`.
    """

    model: ModelOption = LINEAR_MODEL
    streams: ClassVar[Mapping[str, Any] | None] = {"model": LINEAR_MODEL}
    tunes_by_loss: ClassVar[bool] = True

    @property
    def idle(self) -> Mapping[str, str]:
        if self.model == LINEAR_MODEL:
            return {}
        if self.score_column:
            return dict.fromkeys(("loss", "scores"), "an existing score is not fitted")
        return {"loss": f"the model '{model_name(self.model)}' has its own loss"}

    @property
    def score_column(self) -> str:
        score = existing_score(self.model)
        return score.name if score else ""

    @property
    def chooses_by(self) -> str:
        return "model" if stops_early(self.model) else ""


@dataclass(frozen=True, kw_only=True)
class ThresholdSolver(ModelSolver):
    """Base of algorithms that choose thresholds on a model's score.

    Attributes
    ----------
    scores
        The scores that thresholds are chosen by. `in_sample`: the model's scores of all training
        rows. `{folds: K}`: each row is scored by a model fitted to the other K - 1 folds, 2 <= K <=
        100. `{held_out: S}`: only a share S of the rows is scored, and the model is fitted to the
        others, 0 < S <= 0.9. A flexible model's scores of its own rows are too good: a recall set
        by them is missed on new rows. Default: `in_sample` for linear models and existing scores,
        `{held_out: 0.5}` for single decision trees, `{folds: 5}` for others.
    loss
        Loss of a linear model's score, as in `unconstrained`: `logistic` or `hinge`.
    """

    scores: Scores | None = None
    loss: Literal["logistic", "hinge"] = "logistic"

    streams: ClassVar[Mapping[str, Any] | None] = None

    def __post_init__(self) -> None:
        if self.scores is None:  # record the resolved value, not None
            plain = is_linear(self.model) or self.score_column
            # thresholds for the leaves of the trees of folds do not fit those of another tree
            tree = is_of_module(self.model, "sklearn.tree")
            unseen: Scores = {"held_out": DEFAULT_HELD_OUT} if tree else {"folds": DEFAULT_FOLDS}
            object.__setattr__(self, "scores", "in_sample" if plain else unseen)


@dataclass(frozen=True)
class Unconstrained(ModelSolver):
    """Minimizes plain error on the labelled training rows, whatever the goals are.

    For logged decisions without labels, it minimizes the objective without constraints.

    Attributes
    ----------
    model
        As for other algorithms that fit one model; for numeric labels also a regressor, such as
        `HistGradientBoostingRegressor` or `LGBMRegressor`.
    loss
        `hinge` (a linear SVM with a certified gap) or `logistic` (by LIBLINEAR), both with a
        regularized bias, and both fitted by passes of Newton's method if rows are streamed; for
        numeric labels `squared` (exact ridge regression with an unregularized bias).
    """

    model: ModelOrRegressorOption = field(default=LINEAR_MODEL, kw_only=True)
    loss: Literal["hinge", "logistic", "squared"] = "hinge"

    version: ClassVar[int] = 6
    runs: ClassVar[str] = "ratecli.solvers.baselines.label_model:solve_plain"
    role: ClassVar[Role] = "ignores"
    numbers: ClassVar[Mapping[str, Any] | None] = {"loss": "squared"}
    episodes: ClassVar[Mapping[str, Any] | None] = {}

    def __post_init__(self) -> None:
        if is_regressor(self.model):
            object.__setattr__(self, "loss", "squared")

    @property
    def takes_classes(self) -> bool:
        return self.loss != "squared"

    @property
    def needs_probabilities(self) -> bool:
        return bool(self.score_column) and "threshold" not in named_options(self.model)[1]


@dataclass(frozen=True)
class Audit(Solver):
    """Returns the deployed model unchanged, to compare it with others and to certify it.

    Nothing is fitted. The rows that a stored model was trained on are not known: a certificate is
    valid only if they do not include the rows of the safety test.
    """

    runs: ClassVar[str] = "ratecli.solvers.baselines.label_model:return_deployed"
    role: ClassVar[Role] = "ignores"
    needs_deployed: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, str]] = {
        "model": "it audits the model under `deployed`; to audit a score, write "
        "unconstrained: {model: {score: NAME}}"
    }


@dataclass(frozen=True)
class Thresholded(ThresholdSolver):
    """A classifier whose threshold is shifted to satisfy constraints (Goh et al. 2016, figure 3).

    The classifier is that of `unconstrained`, by default an SVM with a certified gap. The threshold
    on its scores has the smallest objective among those that satisfy the constraints on the
    training set. Of equally good thresholds, the one nearest to the classifier's own is chosen.
    Every threshold is evaluated, so the choice is exact for objectives of all classes. If no
    threshold satisfies all constraints together, `meets` selects one constraint.

    With `loss: logistic`, `free: true` and the objective `1 - f1`, this is the plug-in classifier
    for the F-measure (UncF1 of Narasimhan et al. 2019, table 4). The paper chooses among 1000
    quantiles of the validation scores; this algorithm chooses among all training scores.

    Attributes
    ----------
    meets
        The constraint to satisfy; all of them by default.
    free
        Whether to ignore the constraints and minimize the objective over all thresholds.
    """

    meets: ConstraintName | None = None
    free: bool = False
    loss: Literal["logistic", "hinge"] = field(default="hinge", kw_only=True)

    version: ClassVar[int] = 5
    runs: ClassVar[str] = "ratecli.solvers.baselines.thresholded:solve_thresholded"
    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = SEARCHED_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.free and self.meets is not None:
            raise ValueError("meets: it has no effect with free: true")


@dataclass(frozen=True)
class PostShift(ThresholdSolver, RandomizableSolver):
    """The best thresholds of groups on one score (Hardt, Price, Srebro 2016), for any goal.

    The score is that of `unconstrained`. The slices of the goals' rates partition the rows into
    groups, and each group has its own threshold. A row's group must be known when the row is
    classified, but it need not be a feature. The data set that a row comes from is not known then
    and does not define a group.

    The model is the best single threshold for each group. If `exact` in the trace is true, it is
    the optimum: no other choice of thresholds has a smaller objective on the training set. If no
    choice satisfies all constraints, the optimum is the one with the smallest violation. With too
    many choices, the model is the best result of a local search, and its objective is at most
    `deterministic_gap` above the optimum.

    With `randomize`, the model is the best random choice among thresholds that satisfies all
    constraints on the training set. Most groups have a single threshold; few need a random choice
    between two. The trace contains the certified distance from the optimum, `gap`. There is no
    certificate for sums and comparisons of ratios and for other smooth objectives, such as `-mcc`.
    The model is then the best of several local optima. Small steps could improve its objective by
    `first_order_gap`, which is in the trace.

    Attributes
    ----------
    gap
        How far the objective may be from the optimum.
    groups
        `known`, or `unknown` if a row's group is not known when it is classified: then all rows
        share one threshold. `mixture` with the model `plugin` predicts groups together with labels.
    min_support
        A group with fewer rows has no threshold of its own. Only rows count that a goal averages
        over, such as rows with a positive label for `tpr`.
    small_groups
        How groups below `min_support` are treated. `pool`: each shares the threshold of the group
        that differs from it in the fewest slices (the largest such group); the smallest group
        comes first. `refuse`: the trial ends with E408.
    """

    gap: Annotated[float, Gt(0)] = 1e-5
    groups: Literal["known", "unknown"] = "known"
    min_support: Annotated[int, Ge(0)] = 0
    small_groups: Literal["pool", "refuse"] = "pool"

    version: ClassVar[int] = 14
    runs: ClassVar[str] = "ratecli.solvers.baselines.post_shift:solve_post_shift"
    objectives: ClassVar[frozenset[str]] = SEARCHED_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        super().__post_init__()
        RandomizableSolver.__post_init__(self)

    @property
    def sees_slices(self) -> bool:
        return self.groups == "known"

    @property
    def idle(self) -> Mapping[str, str]:
        found = dict(super().idle)
        if self.groups == "unknown":
            found["min_support"] = "all groups share one threshold"
        if not self.min_support:
            found["small_groups"] = "min_support is 0, so that no group is small"
        return found


@dataclass(frozen=True)
class Zafar(Solver):
    """A linear SVM with bounded covariance (Zafar et al. 2015; Goh et al. 2016, equation 8).

    Minimizes the mean hinge loss plus `l2 / 2 |w|^2`, like `unconstrained`, subject to <w, x> <=
    `covariance` for each constraint. Here x is the mean of the rows for which the constraint
    demands fewer positive decisions, minus the mean of those for which it demands more. For
    `positive_rate[men] <= t * positive_rate[women]` that is the mean over men minus the mean over
    women, for every t. Therefore neither the limits of the constraints nor the objective have an
    effect. The bound is one-sided, as in Goh et al.; the original is two-sided, with a logistic
    loss.

    Attributes
    ----------
    covariance
        Largest difference of mean scores (c), in units of the SVM's scores, whose margin is 1.
        Useful values range from 0 to the difference of the plain SVM.
    """

    covariance: Annotated[float, Ge(0)] = 0.0

    version: ClassVar[int] = 3
    runs: ClassVar[str] = "ratecli.solvers.baselines.svm:solve_zafar"
    role: ClassVar[Role] = "reads"
    objectives: ClassVar[frozenset[str]] = frozenset(Shape)
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.AFFINE})

    def obstacle(self, goal: Goal, rates: RateMatrix) -> Diagnostic | None:
        if (count := count_affine_pieces(goal)) > MAX_PIECES:
            message = (
                f"zafar compares groups in pairs: '{goal.name}' has {count}, over {MAX_PIECES}"
            )
            return Diagnostic("E308", message, "use fewer groups, or another algorithm")
        found: Diagnostic | None = resolve_name(ONE_SIDED)(goal, rates)
        return found

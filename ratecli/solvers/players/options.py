"""The solver `three_player`: a game of classifier, slacks and multipliers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from annotated_types import Ge, Gt, MinLen
from pydantic import BeforeValidator

from ratecli.errors import Diagnostic, InvalidValueError
from ratecli.rates.analysis import PROGRAM_SHAPES
from ratecli.solvers.base import Progress, RandomizableSolver, Solution, Variant
from ratecli.solvers.oracles.choice import (
    LINEAR_MODEL,
    OracleOption,
    Scores,
    check_model,
    check_scores,
    named_options,
    oracle_uses_groups,
)
from ratecli.solvers.oracles.model_names import EARLY_STOPPING, LOGISTIC_MODEL, SCORE_MODEL

if TYPE_CHECKING:  # numpy is slow to import
    import numpy as np

    from ratecli.solvers.problem import Problem

LearningRate = Annotated[float, Gt(0)]
TunedOption = Literal["learning_rate", "multiplier_rate"]

LANES_TOGETHER = 16
"""Number of settings, of all problems together, that are played at once."""
DESCENT_DEFAULTS = {"steps": 5000, "every": 10}
RESPONSE_DEFAULTS = {"steps": 200, "every": 1}
"""With a linear oracle and the default rates, 200 steps leave the mixture .0001 (KL) and .008 (F1)
above the best on Adult, and .000 and .004 on COMPAS; 400 steps are hardly better.
"""
LIGHTGBM = "lightgbm"
DEFAULT_TREES, DEFAULT_TREES_EVERY = 100, 2
DEFAULT_HELD_OUT = 0.2
ONLY_LINEAR = (
    *("batch", "learning_rate", "multiplier_rate", "tune", "optimizer", "multipliers", "rates"),
    *("radius", "steps"),
)
"""Options without effect on boosted trees."""
NOT_IN_GAME = ("boosting_type", "class_weight", "objective", "scale_pos_weight", *EARLY_STOPPING)
"""Parameters of LightGBM that the game decides."""


def check_held_out(value: Any) -> Any:
    """Return the value; raise E104 unless it is `in_sample` or a share to hold out."""
    if isinstance(value, dict) and "folds" in value:
        message = "folds would need a game for each: multipliers follow one booster"
        hint = "write in_sample or {held_out: 0.2}"
        raise InvalidValueError(Diagnostic("E104", message, hint))
    return check_scores(value)


def check_boosted_model(value: Any) -> Any:
    """Return the value; raise InvalidValueError unless it is `linear` or names LightGBM."""
    name, options = named_options(check_model(value))
    if name not in {LINEAR_MODEL, LIGHTGBM}:
        shown = name.partition(" ")[0]  # the name of an instance ends with a number
        message = f"'three_player' trains 'linear' and 'lightgbm', not '{shown}'"
        other = "mixture" if name not in {LOGISTIC_MODEL, SCORE_MODEL} else "post_shift"
        hint = f"'{other}' takes it"
        raise InvalidValueError(Diagnostic("E104", message, hint))
    for key in NOT_IN_GAME:
        if key in options:
            message = f"'{key}' has no effect: the goals decide what the trees are fitted to"
            raise InvalidValueError(Diagnostic("E104", message, loc=(name, key), key=True))
    return value


@dataclass(frozen=True)
class ThreePlayer(RandomizableSolver):
    """Convex and ratio goals as a game of three players (Narasimhan, Cotter, Gupta 2019).

    A linear classifier is trained by gradient descent on hinge losses. Slack variables stand for
    the rates in non-affine terms. They are set to their best responses where these have a closed
    form, and follow gradient descent elsewhere. Multipliers follow gradient ascent on the true
    rates. The other rows of the paper's Table 2, and two related methods, are settings:

        Algorithm 1   {oracle: linear, steps: 50, every: 1}
        Algorithm 2   {}  where goals are convex
        Algorithm 3   {}  where goals are ratios, with signs and slacks corrected
        Frank-Wolfe   {oracle: linear, multipliers: leader, steps: 50, every: 1}
        SPADE         {rates: surrogate}
        NEMSIS        {rates: surrogate, multipliers: leader}
        swap regret   {multipliers: swap_regret}
        COCO          {oracle: {plugin: {groups: true}}, multipliers: leader, multiplier_rate: 3,
                       steps: 200, every: 2}, which is `coco`

    `optimizer: sgd` takes the steps of the paper's theory. The non-affine part of a goal must be
    monotone in each of its rates.

    With `model: lightgbm`, the classifier is one booster, and training takes about as long as one
    fit. A step adds a tree, fitted to log losses with the prices of decisions as weights, and
    multipliers follow the true violations.

    The model is the best classifier on lines between the members of the best mixture of iterates,
    with the best threshold. For boosted trees, it is the best prefix of the trees. With
    `randomize`, it is that mixture.

    Attributes
    ----------
    model
        `linear`, or `lightgbm` (an optional extra) with parameters of `LGBMClassifier`:
        `{lightgbm: {n_estimators: 200, num_leaves: 15}}`. Trees see categories and missing numbers
        as such.
    scores
        With `lightgbm`, the rows that multipliers follow and candidates are selected by.
        `in_sample`: all training rows. `{held_out: S}`: a share S of them, which no tree is fitted
        to. Trees overfit their own rows: a recall that holds on these is missed on new ones.
        Default: `{held_out: 0.2}`.
    steps
        Number of steps, each over all rows or a `batch`. Default: 5000, or 200 with an `oracle`.
    every
        Keep one candidate every so many steps and measure it on all rows. Default: 10, 1 with an
        `oracle`, 2 with `lightgbm`.
    batch
        Approximate number of rows sampled for each step when the classifier descends, stratified by
        group and label. All players then see the rates on the batch. Streamed rows are sampled from
        a pool of at least 2^15 rows in memory that is replaced regularly. Without `batch`, each
        step uses all rows (for streamed data, one pass).
    oracle
        Cost-sensitive learner that best-responds instead of descending: `linear`, `regression`,
        `plugin`, or a classifier of scikit-learn, as for `mixture`. It is called once per step and
        setting. With `{plugin: {groups: true}}`, the classifier uses the groups that the goals
        name, so they must be known at prediction time.
    learning_rate
        Step size of the classifier and the slacks.
    multiplier_rate
        Step size of the multipliers.
    tune
        If only `learning_rate` and `multiplier_rate` are tuned, all combinations are trained at
        once on the training set. Candidates are the settings whose stochastic classifier satisfies
        the constraints on the training set, or all settings if there is none. They are ranked by
        objective and by violation on the validation set, and the setting whose worse rank is
        smallest is chosen. If other options are tuned, too, the goals choose.
    optimizer
        `adam` or `sgd`, for the classifier and the multipliers.
    multipliers
        `ascent`: gradient ascent. `leader`: multipliers of slacks are the slopes of the goals at
        the mean of all rates so far. `swap_regret`: multipliers are the stationary distribution of
        a matrix that grows with the violations, and iterates are weighted by the objective's
        multiplier (Cotter, Jiang, Sridharan 2019).
    rates
        Rates that the multipliers see: `true` rates or their hinge `surrogate`.
    radius
        Upper bound on the sum of the multipliers.
    shrink
        How the stochastic classifier is made from the candidates: the best mixture by its own
        `rates`, or by the `metrics` of its members averaged, as published (which differs for
        ratios).
    """

    model: Annotated[str | dict[str, Any], BeforeValidator(check_boosted_model)] = LINEAR_MODEL
    scores: Annotated[Scores | None, BeforeValidator(check_held_out)] = None
    steps: Annotated[int, Ge(1)] | None = None
    every: Annotated[int, Ge(1)] | None = None
    batch: Annotated[int, Ge(1)] | None = None
    oracle: OracleOption | None = None
    learning_rate: LearningRate = 0.1
    multiplier_rate: LearningRate = 0.1
    tune: Mapping[TunedOption, Annotated[tuple[LearningRate, ...], MinLen(1)]] | None = None
    optimizer: Literal["adam", "sgd"] = "adam"
    multipliers: Literal["ascent", "leader", "swap_regret"] = "ascent"
    rates: Literal["true", "surrogate"] = "true"
    radius: LearningRate | None = None
    shrink: Literal["rates", "metrics"] = "rates"

    version: ClassVar[int] = 13
    runs: ClassVar[str] = "ratecli.solvers.players.training:solve"
    offers: ClassVar[Collection[Variant]] = get_args(Variant)
    one_sided: ClassVar[bool] = True
    tunes: ClassVar[Collection[str]] = get_args(TunedOption)
    streams: ClassVar[Mapping[str, Any] | None] = {"oracle": None, "model": LINEAR_MODEL}
    objectives: ClassVar[frozenset[str]] = PROGRAM_SHAPES
    constraints: ClassVar[frozenset[str]] = PROGRAM_SHAPES

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults: Mapping[str, Any] = RESPONSE_DEFAULTS if self.oracle else DESCENT_DEFAULTS
        if self.boosted:
            if self.oracle is not None:
                raise ValueError(
                    "'model: lightgbm' plays without an 'oracle', which 'coco' has: leave one out; "
                    "an oracle with boosted trees is {plugin: {probabilities: lightgbm}}"
                )
            trees = named_options(self.model)[1].get("n_estimators", DEFAULT_TREES)
            held_out = {"held_out": DEFAULT_HELD_OUT}
            defaults = {"steps": trees, "every": DEFAULT_TREES_EVERY, "scores": held_out}
        for name, value in defaults.items():
            if getattr(self, name) is None:  # record the resolved values, not None
                object.__setattr__(self, name, value)
        needed = "requires a classifier that descends: an 'oracle'"
        if self.oracle is not None and self.rates == "surrogate":
            raise ValueError(f"'rates: surrogate' {needed} has true rates")
        if self.oracle is not None and self.batch is not None:
            raise ValueError(f"'batch' {needed} sees all rows")

    @property
    def boosted(self) -> bool:
        """Whether the classifier is a booster."""
        return self.model != LINEAR_MODEL

    @property
    def idle(self) -> Mapping[str, str]:
        if self.boosted:
            return {key: f"'{key}' only applies to 'model: linear'" for key in ONLY_LINEAR}
        return {"scores": "'scores' only applies to 'model: lightgbm'"}

    @property
    def sees_slices(self) -> bool:
        return self.oracle is not None and oracle_uses_groups(self.oracle)

    @property
    def chooses_by(self) -> str:
        return "tune" if any(len(values) > 1 for values in (self.tune or {}).values()) else ""

    @property
    def most_together(self) -> int:
        """As many problems as share a pass well, if the classifier is linear and descends."""
        descends = self.oracle is None and not self.boosted
        return max(1, LANES_TOGETHER // len(self.settings())) if descends else 1

    def solve_together(
        self, problems: Sequence[Problem], rng: np.random.Generator, progress: Progress
    ) -> list[Callable[[], Solution] | None]:
        if self.most_together == 1:
            return super().solve_together(problems, rng, progress)
        train: Any = resolve_name("ratecli.solvers.players.training:train_together")
        found: list[Callable[[], Solution] | None] = train(self, problems, rng, progress)
        return found

    def settings(self) -> list[dict[str, float]]:
        """Return all settings: combinations of learning rate and multiplier rate."""
        rates = {"learning_rate": self.learning_rate, "multiplier_rate": self.multiplier_rate}
        tune = {str(name): each for name, each in (self.tune or {}).items()}
        values = [tune.get(name, (value,)) for name, value in rates.items()]
        return [dict(zip(rates, each, strict=True)) for each in itertools.product(*values)]

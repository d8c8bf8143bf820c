"""The solver `seldonian`: the best model that is expected to pass its safety test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt
from pydantic import BeforeValidator

from ratecli.errors import Diagnostic, InvalidValueError
from ratecli.rates import expression as ex
from ratecli.rates.analysis import MEASURABLE_SHAPES, Goal
from ratecli.solvers.base import Role, Solver

PASS_KEY = "pass"  # noqa: S105  not a password
DEFAULT_PASS_PROBABILITY = 0.9
"""Target probability of passing the test if the file specifies none."""


def check_inflation(value: Any) -> Any:
    """Return the value; raise E103 or E104 if it is neither a factor nor a probability."""
    hint = "write a factor such as 2, or {pass: 0.9}"
    loc: tuple[str, ...] = ()
    number, name, limits = value, "inflation", "at least 0"
    if isinstance(value, dict) and list(value) == [PASS_KEY]:
        number, name, loc = value[PASS_KEY], PASS_KEY, (PASS_KEY,)
        limits = "at least 0.5 and below 1"
    if not isinstance(number, int | float) or isinstance(number, bool):
        raise InvalidValueError(Diagnostic("E103", f"'{name}' must be a number", hint, loc=loc))
    if not (0.5 <= number < 1 if loc else number >= 0):
        message = f"'{name}' must be {limits}, not {number:g}"
        raise InvalidValueError(Diagnostic("E104", message, hint, loc=loc))
    return value


InflationOption = Annotated[float | dict[str, float], BeforeValidator(check_inflation)]
"""Type of a solver option: a factor of at least 0, or `{pass: probability}`."""


if TYPE_CHECKING:  # numpy is slow to import
    from ratecli.rates.matrix import RateMatrix

LAGRANGIAN_OPTIONS = ("step", "multiplier")
"""Options of `optimizer: lagrangian` alone."""


@dataclass(frozen=True)
class Seldonian(Solver):
    """The linear model of least objective that is expected to pass the safety test.

    The test's result on safety rows is predicted from the candidate rows (Thomas et al. 2019, and
    the tutorial of the Seldonian Toolkit). The prediction assumes that all measurements have the
    same moments on the safety rows, and that sample sizes are proportional. The predicted distance
    of bounds from estimates is increased by `inflation`. Labels of 0 and 1 get a logistic model,
    numbers a linear one. For `error`, the mean log loss is minimized, any other objective as it is.
    The bias is not regularized.

    For logged episodes, the model is a softmax policy that is linear in basis features, and rates
    are returns by importance sampling (Thomas et al. 2019).

    Only linear models are fitted. For other models, use `post_shift` or `thresholded` with a
    `model`, and `safety:` in the file. The thresholds are then certified on rows that the model is
    not fitted to.

    If no candidate is expected to pass, the one with the smallest bound is returned. The solution
    then reports that bound, its goal, and how many rows would be enough; the test decides.

    Attributes
    ----------
    decisions
        `randomized` decides positively with the probability that the logistic model gives, and the
        test is about these probabilities. `deterministic` decides positively if the score is above
        0, and the test is about these decisions; the candidate is then the best threshold on the
        scores of randomized models that are constrained more and more strictly.
    inflation
        A factor on the predicted distance of bounds from estimates (2 in the tutorial), or `{pass:
        0.9}`: a margin with which the test is passed with that probability, given the sampling
        errors of both samples. Default: the `aim` of the safety test, or else 0.9.
    optimizer
        Optimizer for randomized models and for numbers. `sequential`: quadratic programs (SciPy's
        SLSQP). `lagrangian`: descent on weights and ascent on multipliers, as in the toolkit.
        `cma`: derivative-free search with a barrier.
    iterations
        Maximum number of steps of the optimizer; `lagrangian` always takes all of them, the others
        usually far fewer.
    step
        Initial step size of `lagrangian`, for weights and multipliers.
    multiplier
        Initial multipliers of `lagrangian`.
    """

    decisions: Literal["randomized", "deterministic"] = "randomized"
    inflation: InflationOption | None = None
    optimizer: Literal["sequential", "lagrangian", "cma"] = "sequential"
    iterations: Annotated[int, Ge(1)] = 1000
    step: Annotated[float, Gt(0)] = 0.01
    multiplier: Annotated[float, Ge(0)] = 0.5

    version: ClassVar[int] = 8
    runs: ClassVar[str] = "ratecli.solvers.seldonian.hard:solve_seldonian"
    absent: ClassVar[Mapping[str, str]] = {
        "model": "only linear models are fitted; for others, give 'post_shift' the model, and the "
        "file a safety test"
    }
    role: ClassVar[Role] = "enforces"
    needs_safety_test: ClassVar[bool] = True
    numbers: ClassVar[Mapping[str, Any] | None] = {"decisions": "randomized"}
    episodes: ClassVar[Mapping[str, Any] | None] = {"decisions": "randomized"}
    objectives: ClassVar[frozenset[str]] = MEASURABLE_SHAPES
    constraints: ClassVar[frozenset[str]] = MEASURABLE_SHAPES

    @property
    def idle(self) -> Mapping[str, str]:
        """Options without effect.

        `deterministic` uses no optimizer options, and only `lagrangian` has step sizes.
        """
        keys: tuple[str, ...] = LAGRANGIAN_OPTIONS
        needed = "optimizer: lagrangian"
        if self.decisions == "deterministic":
            keys, needed = ("optimizer", "iterations", *keys), "decisions: randomized"
        elif self.optimizer == "lagrangian":
            return {}
        return {key: f"'{key}' only applies to '{needed}'" for key in keys}

    def obstacle(self, goal: Goal, rates: RateMatrix) -> Diagnostic | None:  # noqa: ARG002
        if self.decisions == "randomized":
            return None
        others = [leaf for leaf in ex.leaves(*goal.pieces) if leaf.rate.of != "decision"]
        if not others:
            return None
        message = (
            f"'{others[0]}' is not a rate of decisions, as 'decisions: deterministic' requires"
        )
        return Diagnostic("E308", message, "use decisions: randomized")

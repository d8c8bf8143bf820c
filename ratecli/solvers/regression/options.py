"""The solver `least_squares`: the smallest squared error under constraints on errors of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt

from ratecli.rates.analysis import Shape
from ratecli.solvers.base import Solver
from ratecli.solvers.oracles.choice import (
    DEFAULT_FOLDS,
    LINEAR_MODEL,
    RegressorOption,
    Scores,
    is_of_module,
)


@dataclass(frozen=True)
class LeastSquares(Solver):
    """The model of least squared error under constraints on errors of groups.

    Constraints bound sums of `mse` and `mean_error`, such as `mse[sex = a] <= 3` (bounded group
    loss: Agarwal, Dudik, Wu 2019) and `max_gap(mean_error, by=sex) <= 0.05`. No `mse` may be
    subtracted: a difference of two is not convex. The objective contains an `mse`. Estimates are
    clipped to the range of the label.

    Linear models have the penalty `l2 / 2 |w|^2`, bias excluded. The problem is a convex quadratic
    program with quadratic constraints, solved by an interior point method; the trace contains the
    duality gap, which is certified by the multipliers. If no linear model satisfies the
    constraints, the status is `infeasible`, and the result is the model with the smallest
    violation.

    Another model is fitted repeatedly, to weighted rows with shifted labels: column generation for
    the game of Agarwal et al. The estimate is the average of these fits. Trees have far smaller
    errors on the rows that they are fitted to than on new rows. Therefore objective and constraints
    are measured on estimates of models fitted in the same way to other rows (`scores`).

    Attributes
    ----------
    model
        `linear`, or a regressor whose fit takes sample weights: one of scikit-learn, such as
        `RandomForestRegressor` or `{HistGradientBoostingRegressor: {max_iter: 50}}`,
        `LGBMRegressor` or `XGBRegressor`.
    gap
        Duality gap at which fitting stops, relative to the objective of errors of one standard
        deviation of the labels. Linear models are solved exactly.
    iterations
        Maximum number of these fits.
    scores
        The estimates that the average is chosen by. `in_sample`: those of the models for their own
        rows. `{folds: K}`: each row's come from models fitted to the other K - 1 folds, 2 <= K <=
        100.
        Default: `in_sample` for the models of `sklearn.linear_model`, `{folds: 3}` for others.
    """

    model: RegressorOption = LINEAR_MODEL
    gap: Annotated[float, Gt(0)] = 1e-3
    iterations: Annotated[int, Ge(1)] = 50
    scores: Scores | None = None

    version: ClassVar[int] = 6
    runs: ClassVar[str] = "ratecli.solvers.regression.least_squares:solve_least_squares"
    numbers: ClassVar[Mapping[str, Any] | None] = {}
    objectives: ClassVar[frozenset[str]] = frozenset({Shape.QUADRATIC})
    constraints: ClassVar[frozenset[str]] = frozenset({Shape.QUADRATIC})

    def __post_init__(self) -> None:
        if self.scores is None and self.model != LINEAR_MODEL:  # record the resolved value
            folds: Scores = {"folds": DEFAULT_FOLDS}
            linear = is_of_module(self.model, "sklearn.linear_model")
            object.__setattr__(self, "scores", "in_sample" if linear else folds)
        if isinstance(self.scores, Mapping) and "held_out" in self.scores:
            raise ValueError("'held_out' is for classifiers: write scores: {folds: 3}")

    @property
    def takes_classes(self) -> bool:
        return False

    @property
    def idle(self) -> Mapping[str, str]:
        if self.model != LINEAR_MODEL:
            return {}
        return dict.fromkeys(("gap", "iterations", "scores"), "linear models are solved exactly")

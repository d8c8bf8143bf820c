"""The choice among settings of an algorithm by its goals, on rows that its models have not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.rates import expression as ex
from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Mask
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.baselines.label_model import unseen_loss
from ratecli.solvers.judges import MAX_IGNORED_SHORTFALL
from ratecli.solvers.margin import MarginSpec, solve_with_margin
from ratecli.solvers.oracles.unseen import TUNING_FOLDS, Indices, UnseenScores
from ratecli.solvers.problem import Problem

TUNING_VERSION = 3
"""Version in the key of each tuned trial; increased when its results change."""

Judged: TypeAlias = tuple[tuple[float, ...], dict[str, float]]
"""The rank of a setting, the smaller the better, and what the trace says of it."""

L2 = "l2"
"""Name of the penalty, which is tuned like an option."""


class Setting(NamedTuple):
    """A combination of tuned values by name, and the algorithm with these values.

    `l2` replaces the penalty of the problem if it is tuned: a number, or a text such as `1/n` until
    the number of training rows is known. `by_loss` says that settings differ in parameters of their
    model alone, so that its loss chooses, not the goals.
    """

    values: Mapping[str, Any]
    solver: Solver
    l2: float | str | None = None
    by_loss: bool = False

    def on(self, problem: Problem) -> Problem:
        """Return the problem with the setting's penalty."""
        return problem if self.l2 is None else replace(problem, l2=float(self.l2))


def solve_tuned(
    settings: Sequence[Setting],
    guard: MarginSpec,
    problem: Problem,
    make_rng: Callable[[], np.random.Generator],
) -> Solution:
    """Solve the problem with the setting that meets the goals best on unseen rows.

    These are the validation rows, or without any, the training rows: those of each of 5 folds are
    decided by a model of the other folds, and the decisions of all folds are measured together,
    because violations within a fold are mostly noise. Models are fitted with the margin of `guard`,
    and their main variants are judged. Settings `by_loss` are compared by the loss of their model
    (`unseen_loss`): algorithms that tune the same model to the same rows choose the same setting.

    The setting with the smallest objective is chosen among those that satisfy the constraints; if
    there are none, the one with the smallest violation. If the models of all folds satisfy the
    constraints on the rows that they are fitted to, violations on unseen rows are reduced by their
    standard errors: else a setting that is close to a constant decision would often be chosen, only
    because the others are at their limits. Settings that found a solution in more folds come first.
    Of equal settings, the first is chosen. The solution is that of the chosen setting alone; its
    trace begins with a row for each setting.

    Raises
    ------
    FaultError
        E410 if a rate has no training rows outside some fold.
    """
    if settings[0].by_loss:
        solvers: Any = [setting.solver for setting in settings]
        losses = [unseen_loss(solver, problem) for solver in solvers]
        judged: list[Judged] = [((loss,), {"loss": loss}) for loss in losses]
    else:
        judged = _judge(settings, guard, problem, make_rng)
    ranks = [rank for rank, _ in judged]
    best = ranks.index(min(ranks))
    rows = (
        {"setting": dict(setting.values), **result, "chosen": k == best}
        for k, (setting, (_, result)) in enumerate(zip(settings, judged, strict=True))
    )
    chosen = settings[best]
    solution = solve_with_margin(chosen.solver, guard, chosen.on(problem), make_rng())
    return replace(solution, trace=(*rows, *solution.trace))


def _judge(
    settings: Sequence[Setting],
    guard: MarginSpec,
    problem: Problem,
    make_rng: Callable[[], np.random.Generator],
) -> list[Judged]:
    """Return rank and row of each setting on unseen rows; raise FaultError as `solve_tuned`."""
    whole = problem.validation or problem
    tried = [_Tried.of(whole) for _ in settings]
    for fitted, unseen, own in _parts(problem):
        for found, setting in zip(tried, settings, strict=True):
            given, rng = setting.on(fitted), make_rng()
            part = solve_with_margin(setting.solver, guard, given, rng, path=False)
            found.add(part, fitted, unseen, own)
    return [found.judge(whole) for found in tried]


def _parts(problem: Problem) -> Iterator[tuple[Problem, Problem, Indices]]:
    """Yield the rows to fit to, and the unseen rows with their positions among all of these."""
    if problem.validation is not None:
        yield problem, problem.validation, np.arange(problem.validation.rates.sums.shape[1])
        return
    for rows, own in UnseenScores.of({"folds": TUNING_FOLDS}, problem).parts:
        fitted, unseen = problem.on(rows), problem.on(own)
        lost = (fitted.rates.totals == 0) & (problem.rates.totals > 0)
        for leaf in np.array(problem.rates.leaves)[lost]:
            message = f"all rows that '{ex.to_text(leaf)}' counts are in one fold"
            hint = "tune by validation rows: split: {validation: 0.2} in the data set"
            raise FaultError(Diagnostic("E410", message, hint))
        yield fitted, unseen, own


@dataclass
class _Tried:
    """The outputs of a setting's models on unseen rows.

    Attributes
    ----------
    outputs
        (2, n) decisions and estimated labels; the latter only count if a goal measures them.
    decided
        (n,) whether a model was found for the row.
    is_met
        Whether all models satisfy the constraints on the rows that they were chosen by.
    """

    outputs: Array
    decided: Mask
    is_met: bool = True
    unsolved: int = 0

    @classmethod
    def of(cls, problem: Problem) -> _Tried:
        n = problem.rates.sums.shape[1]
        return cls(np.zeros((2, n)), np.zeros(n, dtype=bool))

    def add(self, solution: Solution, fitted: Problem, unseen: Problem, own: Indices) -> None:
        """Add the outputs on unseen rows of a solution; `own` are their positions."""
        if not solution.variants:
            self.unsolved += 1
            return
        main = solution.main
        if solution.judged is None:
            violation = fitted.worst_violation(_Measured(fitted, _outputs(fitted, main)).rates)
        else:
            rows, decisions = solution.judged
            violation = rows.worst_violation(rows.measured(decisions))
        self.is_met &= violation <= MAX_IGNORED_SHORTFALL
        self.outputs[:, own] = _outputs(unseen, main)
        self.decided[own] = True

    def judge(self, problem: Problem) -> Judged:
        """Judge the rows that were decided."""
        if not self.decided.any():
            row = {"objective": math.nan, "violation": math.nan, "unsolved": self.unsolved}
            return (self.unsolved, math.inf, math.inf), row
        outputs = self.outputs
        if self.unsolved:
            problem, outputs = problem.on(np.flatnonzero(self.decided)), outputs[:, self.decided]
        measured = _Measured(problem, outputs)
        objective, violation = measured.objective, problem.worst_violation(measured.rates)
        excess = measured.excess() if violation and self.is_met else violation
        excess = excess if excess > MAX_IGNORED_SHORTFALL else 0.0
        row = {"objective": objective, "violation": violation, "unsolved": self.unsolved}
        return (self.unsolved, excess, math.inf if math.isnan(objective) else objective), row


def _outputs(problem: Problem, classifier: Classifier) -> Array:
    """Return decisions and estimated labels (2, n); the decisions twice if that is enough."""
    decisions = problem.decisions(classifier)
    if all(leaf.rate.of == "decision" for leaf in problem.rates.leaves):
        return np.stack([decisions, decisions])
    return np.stack([decisions, classifier.estimate(problem.inputs(classifier))])


class _Measured:
    """The rates of decisions and estimated labels (2, n), and what the goals make of them."""

    def __init__(self, problem: Problem, outputs: Array) -> None:
        self._problem, (decisions, estimates) = problem, outputs
        predicted = Predictions(decisions, decisions, estimates)
        self._measurements = predicted.measurements(problem.rates.leaves, problem.label)
        self.rates = problem.rates.measured(self._measurements)

    @property
    def objective(self) -> float:
        """The objective, NaN if it is undefined."""
        return self._problem.objective_at(self.rates)

    def excess(self) -> float:
        """Return the largest difference of a violation and its standard error, at least 0."""
        problem, rates = self._problem, self.rates
        slopes = problem.piece_function.tangents(rates).slopes
        errors = problem.rates.standard_error(slopes, self._measurements, problem.counts)
        excess = problem.piece_values(rates) - errors
        undefined = 1.0  # as in `Problem.worst_violation`
        return float(np.nan_to_num(excess, nan=undefined).max(initial=0.0))

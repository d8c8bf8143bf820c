"""The choice among settings of an algorithm by its goals, on rows that its models have not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.matrix import Predictions
from ratecli.rates.sample import Mask
from ratecli.rates.tangent import any_undefined, tangent, values
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.baselines.tuning import TUNING_FOLDS
from ratecli.solvers.margin import MarginSpec, solve_with_margin
from ratecli.solvers.oracles.unseen import folds_of
from ratecli.solvers.problem import Problem

TUNING_VERSION = 1
"""Version in the key of each trial tuned by its goals; increased when its results change."""


class Setting(NamedTuple):
    """A combination of tuned values by name, and the algorithm with these values."""

    values: Mapping[str, Any]
    solver: Solver


def solve_tuned(
    settings: Sequence[Setting],
    guard: MarginSpec,
    problem: Problem,
    make_rng: Callable[[], np.random.Generator],
    progress: Progress = lambda _: None,
) -> Solution:
    """Solve the problem with the setting that meets the goals best on unseen rows.

    These are the validation rows, or without any, the training rows: those of each of 5 folds are
    decided by a model of the other folds, and the decisions of all folds are measured together,
    because violations within a fold are mostly noise. Models are fitted with the margin of `guard`,
    and their main variants are judged.

    Of the settings without a violation larger than its standard error, the one with the smallest
    objective is chosen; if there are none, the one whose violation is the least above it. Settings
    that found a solution in more folds come first. Of equal settings, the first is chosen. The
    solution is that of the chosen setting alone; its trace begins with a row for each setting.

    Raises
    ------
    FaultError
        E410 if a rate has no training rows outside some fold.
    """
    whole = problem.validation or problem
    shape = len(settings), whole.rates.sums.shape[1]
    decisions, decided = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    estimates = decisions.copy() if _needs_estimates(whole) else decisions
    unsolved = [0] * len(settings)
    for fitted, unseen, own in _parts(problem):
        for k, (_, solver) in enumerate(settings):
            part = solve_with_margin(solver, guard, fitted, make_rng(), progress, path=False)
            if part.variants:
                main = next(iter(part.variants.values()))
                decisions[k, own], decided[k, own] = unseen.decisions(main), True
                if estimates is not decisions:
                    estimates[k, own] = main.estimate(unseen.inputs(main))
            else:
                unsolved[k] += 1
        progress(f"{len(settings)} settings tried")
    outputs = zip(decisions, estimates, decided, strict=True)
    judged = [_judge(whole, *each) for each in outputs]
    ranks = [(missing, *each.rank) for missing, each in zip(unsolved, judged, strict=True)]
    best = ranks.index(min(ranks))
    rows = (
        {"setting": dict(setting.values), "objective": each.objective}
        | {"violation": each.violation, "unsolved": missing, "chosen": k == best}
        for k, (setting, each, missing) in enumerate(zip(settings, judged, unsolved, strict=True))
    )
    found = solve_with_margin(settings[best].solver, guard, problem, make_rng(), progress)
    return replace(found, trace=(*rows, *found.trace))


def _parts(problem: Problem) -> Iterator[tuple[Problem, Problem, NDArray[np.intp]]]:
    """Yield the rows to fit to, and the unseen rows with their positions among all of these."""
    if problem.validation is not None:
        yield problem, problem.validation, np.arange(problem.validation.rates.sums.shape[1])
        return
    fold = folds_of(problem, TUNING_FOLDS)
    for k in np.unique(fold):
        fitted, unseen = (problem.on(np.flatnonzero(side)) for side in (fold != k, fold == k))
        lost = (fitted.rates.totals == 0) & (problem.rates.totals > 0)
        for leaf in np.array(problem.rates.leaves)[lost]:
            message = f"all rows that '{ex.to_text(leaf)}' averages over are in one fold"
            hint = "tune by validation rows: split: {validation: 0.2} in the data set"
            raise FaultError(Diagnostic("E410", message, hint))
        yield fitted, unseen, np.flatnonzero(fold == k)


class _Judgement(NamedTuple):
    """What a setting reaches on unseen rows: NaN if none of them was decided.

    `excess` is the largest difference of a violation and its standard error, at least 0.
    """

    objective: float = math.nan
    violation: float = math.nan
    excess: float = math.inf

    @property
    def rank(self) -> tuple[float, float]:
        return self.excess, math.inf if math.isnan(self.objective) else self.objective


def _needs_estimates(problem: Problem) -> bool:
    return any(leaf.rate.of != "decision" for leaf in problem.rates.leaves)


def _judge(problem: Problem, decisions: Array, estimates: Array, decided: Mask) -> _Judgement:
    """Judge decisions and estimated labels (n,) on the rows that were decided (n,)."""
    if not decided.any():
        return _Judgement()
    if not decided.all():
        problem = problem.on(np.flatnonzero(decided))
        decisions, estimates = decisions[decided], estimates[decided]
    matrix, index = problem.rates, problem.rates.index()
    outputs = Predictions(decisions, decisions, estimates)
    found = outputs.measurements(matrix.leaves, problem.label)
    rates, excess = matrix.measured(found), 0.0
    for goal in problem.constraints:
        if any_undefined(goal.ratios, rates[:, None], index).any():
            excess = 1.0  # as in `Problem.worst_violation`
            continue
        for piece in goal.pieces:
            value = float(values(piece, rates[:, None], index)[0])
            kinds = {leaf.rate.of for leaf in ex.leaves(piece)}
            slopes = tangent(piece, rates, index).slopes
            error = max(matrix.standard_error(slopes, found[of], problem.counts) for of in kinds)
            excess = max(excess, value - error)
    objective = float(values(problem.objective.expression, rates[:, None], index)[0])
    return _Judgement(objective, problem.worst_violation(rates), excess)

"""Enforce constraints with a margin or on validation rows, for any algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.tangent import any_undefined, tangent, values
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.scores import DecisionOutputs
from ratecli.solvers.seldonian.solver import PASS_KEY

GUARD_VERSION = 3
"""Version in the key of each guarded trial; increased when its results change."""
MAX_ROUNDS = 6
"""Maximum number of times that a problem is solved."""
MAX_SPARE_ROOM = 1e-3
"""Largest unneeded slack that a tightened constraint may end with."""
MAX_IGNORED_SHORTFALL = 1e-5
"""Largest shortfall that counts as none."""
UNDEFINED_SHORTFALL = 1.0
"""Shortfall of an undefined constraint: the most by which a rate can exceed a limit."""
USABLE_STATUSES = {"solved", "iteration_limit"}


@dataclass(frozen=True)
class MarginSpec:
    """How constraints are made to hold on new data.

    A model satisfies its constraints on the rows it was fitted to, but slightly less well on others
    (Cotter et al. 2019, "Training well-generalizing classifiers"). Therefore constraints are judged
    on other rows or with a margin, and are tightened on the training rows until no shortfall is
    left.

    Attributes
    ----------
    split
        The rows on which constraints are judged.
    margin
        Confidence level, above one half, of a one-sided normal interval whose upper end must
        satisfy the constraint.
    aim
        Required probability, at least one half, of passing the safety test that follows. The result
        of the test is predicted from training rows (see `seldonian.solver.calibrate_inflation`).
    """

    split: Literal["train", "validation"] = "train"
    margin: float | None = None
    aim: float | None = None


def solve_with_margin(
    solver: Solver,
    guard: MarginSpec,
    problem: Problem,
    rng: np.random.Generator,
    progress: Progress = lambda _: None,
) -> Solution:
    """Solve the problem with constraints tightened until they hold as `guard` requires.

    Each round adds the shortfall measured on the judging rows to the constraints. If they cannot be
    satisfied then, or only by models no better than a constant decision, the step was too large and
    is halved. Of the models tried that are better than a constant decision, return the one with the
    smallest objective whose main classifier has no shortfall. If there is none, the status is
    `no_solution_found` if a margin was required (there are too few rows for it), else
    `iteration_limit` with the model of the smallest shortfall.

    Algorithms that do not enforce constraints, and those that prepare for the safety test
    themselves, run unchanged.

    Raises
    ------
    FaultError
        E410 if constraints are judged on validation rows and there are none.
    """
    if (
        guard == MarginSpec()
        or solver.needs_safety_test
        or solver.role != "enforces"
        or not problem.constraints
    ):
        return solver.solve(problem, rng, progress)
    rows, judge = _make_judge(guard, problem)
    constant = _best_constant(problem, rows, judge)
    start = target = np.zeros(sum(len(goal.pieces) for goal in problem.constraints))
    step, tried = 1.0, list[_Attempt]()
    for attempt in range(MAX_ROUNDS):
        by = start + step * (target - start)
        solution = solver.solve(_tighten_problem(problem, by), rng, progress)
        if not tried and not (solution.variants and solution.status in USABLE_STATUSES):
            return solution  # infeasible constraints stay infeasible when tightened
        found = _evaluate_attempt(solution, problem, rows, judge) if solution.variants else None
        if found is not None:
            tried.append(found)
        if found is None or not _is_useful(found, constant):
            if attempt == 0:
                break  # no better than a constant decision even without tightening
            step /= 2
            continue
        missing = found.shortfalls
        if found.missed == 0 and not by[missing < -MAX_SPARE_ROOM].any():
            break
        extra = np.where(missing > 0, MAX_SPARE_ROOM / 2, 0.0)
        start, target = by, np.maximum(by + missing + extra, 0.0)
    return _choose_attempt(tried, guard, constant)


Judge = Callable[[Array], Array]
"""Returns by how much decisions (n,) violate each piece of the constraints (J,) with the required
margin; negative if slack.
"""


class _Attempt(NamedTuple):
    """A solution with its shortfalls and its objective on the training set.

    `missed` is the largest shortfall, reduced by `MAX_IGNORED_SHORTFALL` and at least 0; `name` is
    the constraint that has it.
    """

    missed: float
    objective: float
    name: str
    shortfalls: Array
    solution: Solution


def _evaluate_attempt(
    solution: Solution, problem: Problem, rows: Problem, judge: Judge
) -> _Attempt:
    main = next(iter(solution.variants.values()))
    shortfalls = judge(rows.decisions(main))
    worst = int(np.argmax(shortfalls))
    missed = max(float(shortfalls[worst]) - MAX_IGNORED_SHORTFALL, 0.0)
    owners = [goal.name for goal in problem.constraints for _ in goal.pieces]
    objective = float(np.nan_to_num(problem.value(main), nan=np.inf))
    return _Attempt(missed, objective, owners[worst], shortfalls, solution)


def _is_useful(attempt: _Attempt, constant: float) -> bool:
    """Whether a model satisfies the tightened constraints and is better than a constant decision.

    A model that misses them has the smallest violation instead of the smallest objective, and is
    close to a constant decision. It is accepted only if no constant satisfies the judge.
    """
    satisfied = attempt.solution.status in USABLE_STATUSES or math.isinf(constant)
    return satisfied and attempt.objective < constant


def _best_constant(problem: Problem, rows: Problem, judge: Judge) -> float:
    """Return the smallest training objective of a constant decision without shortfall, else inf."""
    trained, judged = (each.rates.sums.shape[1] for each in (problem, rows))
    found = [
        problem.value_of(np.full(trained, decision))
        for decision in (0.0, 1.0)
        if judge(np.full(judged, decision)).max() <= MAX_IGNORED_SHORTFALL
    ]
    return min((each for each in found if not math.isnan(each)), default=math.inf)


def _choose_attempt(tried: list[_Attempt], guard: MarginSpec, constant: float) -> Solution:
    useful = [each for each in tried if _is_useful(each, constant)]
    best = min(useful or tried, key=lambda each: (each.missed, each.objective))
    if guard.margin is not None and (best.missed or not useful):
        where = "training" if guard.split == "train" else guard.split
        reason = (
            f"too few {where} rows to satisfy '{best.name}' with a margin of {guard.margin:g}: "
            f"the best model found violates it by {best.missed:.3g}"
        )
        if not useful:
            reason = "no model found is better than a constant decision, even without a margin"
        return Solution({}, "no_solution_found", reason)
    if not best.missed and best.solution.status in USABLE_STATUSES:
        return best.solution
    judged = "in the predicted safety test" if guard.aim else f"on {guard.split} rows"
    reason = f"'{best.name}' is violated by {best.missed:.3g} {judged}"
    if not best.missed:  # only constraints tightened more than necessary could not be satisfied
        reason = "the constraints hold, but not at the smallest objective"
    return replace(best.solution, status="iteration_limit", reason=reason)


def _make_judge(guard: MarginSpec, problem: Problem) -> tuple[Problem, Judge]:
    """Return the rows on which constraints are judged, and their judge."""
    if guard.aim is not None:
        return problem, _safety_test_judge(problem, guard.aim)
    rows = problem if guard.split == "train" else problem.validation
    if rows is None:
        hint = "set split: {validation: 0.2} in the data set"
        message = "constraints are judged on validation rows, but there are none"
        raise FaultError(Diagnostic("E410", message, hint))
    return rows, _standard_error_judge(rows, guard.margin)


def _safety_test_judge(problem: Problem, aim: float) -> Judge:
    """Judge by the predicted result of a safety test, which must pass with probability `aim`.

    Each piece of the constraints is tested as a separate constraint. Unless the test's method is
    `pieces`, the pieces share their constraint's delta equally.
    """
    spec, alone, delta = problem.safety_test, list[Goal](), dict[str, float]()
    assert spec is not None
    for goal in problem.constraints:
        for piece in goal.pieces:
            name, shared = str(len(alone)), spec.method != "pieces"
            alone.append(replace(goal, name=name, expression=piece, pieces=(piece,)))
            delta[name] = spec.delta[goal.name] / (len(goal.pieces) if shared else 1)
    test = replace(spec, delta=delta)
    parts = replace(problem, constraints=tuple(alone), safety_test=test)

    def shortfalls(decisions: Array) -> Array:
        outputs = DecisionOutputs(decisions)
        prediction = predict_safety_test(parts, test, outputs, {PASS_KEY: aim})
        upper = prediction.at(outputs).upper
        starts = [prediction.owners.index(goal.name) for goal in alone]
        ends = np.where(np.isfinite(upper), upper, UNDEFINED_SHORTFALL)
        return np.asarray(np.maximum.reduceat(ends, starts))

    return shortfalls


def _standard_error_judge(problem: Problem, margin: float | None) -> Judge:
    """Judge by the values of the constraints plus a multiple of standard errors (delta method)."""
    deviates = 0.0 if margin is None else NormalDist().inv_cdf(margin)
    matrix, index = problem.rates, problem.rates.index()

    def shortfalls(decisions: Array) -> Array:
        rates, found = matrix.rates(decisions), list[float]()
        for goal in problem.constraints:
            undefined = any_undefined(goal.ratios, rates[:, None], index).any()
            for piece in goal.pieces:
                value = float(values(piece, rates[:, None], index)[0])
                if deviates and not undefined:
                    slopes = tangent(piece, rates, index).slopes
                    value += deviates * matrix.standard_error(slopes, decisions)
                found.append(np.nan if undefined else value)
        return np.nan_to_num(found, nan=UNDEFINED_SHORTFALL)

    return shortfalls


def _tighten_problem(problem: Problem, by: Array) -> Problem:
    """Return the problem with the pieces of its constraints tightened by amounts (J,)."""
    goals, amounts = [], iter(by.tolist())
    for goal in problem.constraints:
        pieces = [(piece, next(amounts)) for piece in goal.pieces]
        tight = tuple(ex.add(piece, ex.Constant(by)) if by else piece for piece, by in pieces)
        goals.append(replace(goal, pieces=tight))
    return replace(problem, constraints=tuple(goals))

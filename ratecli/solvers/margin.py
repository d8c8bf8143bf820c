"""Enforce constraints with a margin or on validation rows, for any algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from ratecli.certify.certificate import round_up
from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.tangent import any_undefined, tangent, values
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.scores import DecisionOutputs
from ratecli.solvers.seldonian.solver import calibrate_inflation

GUARD_VERSION = 3
"""Version in the key of each guarded trial; increased when its results change."""
MAX_ROUNDS = 6
"""Maximum number of times that a problem is solved."""
MAX_SPARE_ROOM = 1e-3
"""Largest unneeded slack that a tightened constraint may end with."""
MAX_IGNORED_SHORTFALL = 1e-5
"""Largest shortfall that counts as none."""
MAX_ROWS_FACTOR = 100
"""Largest multiple of the rows at hand that is reported as needed; larger estimates are noise."""
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
    judge = _make_judge(guard, problem)
    constant = _best_constant(problem, judge)
    start = target = np.zeros(sum(len(goal.pieces) for goal in problem.constraints))
    step, tried = 1.0, list[_Attempt]()
    for attempt in range(MAX_ROUNDS):
        by = start + step * (target - start)
        solution = solver.solve(_tighten_problem(problem, by), rng, progress)
        if not tried and not (solution.variants and solution.status in USABLE_STATUSES):
            return solution  # infeasible constraints stay infeasible when tightened
        found = _evaluate_attempt(solution, problem, judge) if solution.variants else None
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
    return _choose_attempt(tried, guard, judge, constant)


class _Attempt(NamedTuple):
    """A solution with its judged decisions and its objective on the training set.

    `missed` is the largest shortfall, reduced by `MAX_IGNORED_SHORTFALL` and at least 0; `name` is
    the constraint that has it.
    """

    missed: float
    objective: float
    name: str
    shortfalls: Array
    decisions: Array
    solution: Solution


def _evaluate_attempt(solution: Solution, problem: Problem, judge: _Judge) -> _Attempt:
    main = next(iter(solution.variants.values()))
    decisions = judge.problem.decisions(main)
    shortfalls = judge.shortfalls(decisions)
    worst = int(np.argmax(shortfalls))
    missed = max(float(shortfalls[worst]) - MAX_IGNORED_SHORTFALL, 0.0)
    owners = [goal.name for goal in problem.constraints for _ in goal.pieces]
    objective = float(np.nan_to_num(problem.value(main), nan=np.inf))
    return _Attempt(missed, objective, owners[worst], shortfalls, decisions, solution)


def _is_useful(attempt: _Attempt, constant: float) -> bool:
    """Whether a model satisfies the tightened constraints and is better than a constant decision.

    A model that misses them has the smallest violation instead of the smallest objective, and is
    close to a constant decision. It is accepted only if no constant satisfies the judge.
    """
    satisfied = attempt.solution.status in USABLE_STATUSES or math.isinf(constant)
    return satisfied and attempt.objective < constant


def _best_constant(problem: Problem, judge: _Judge) -> float:
    """Return the smallest training objective of a constant decision without shortfall, else inf."""
    rows, judged = (each.rates.sums.shape[1] for each in (problem, judge.problem))
    found = [
        problem.value_of(np.full(rows, decision))
        for decision in (0.0, 1.0)
        if judge.shortfalls(np.full(judged, decision)).max() <= MAX_IGNORED_SHORTFALL
    ]
    return min((each for each in found if not math.isnan(each)), default=math.inf)


def _choose_attempt(
    tried: list[_Attempt], guard: MarginSpec, judge: _Judge, constant: float
) -> Solution:
    useful = [each for each in tried if _is_useful(each, constant)]
    best = min(useful or tried, key=lambda each: (each.missed, each.objective))
    if guard.margin is not None and (best.missed or not useful):
        return Solution({}, "no_solution_found", _rows_needed_message(guard, judge, best, useful))
    if not best.missed and best.solution.status in USABLE_STATUSES:
        return best.solution
    judged = "by what the safety test will find" if guard.aim else f"on {guard.split} rows"
    reason = f"judged {judged} '{best.name}' is missed by {best.missed:.3g}"
    if not best.missed:  # only constraints tightened more than necessary could not be satisfied
        reason = "the constraints hold, but not at the smallest objective"
    return replace(best.solution, status="iteration_limit", reason=reason)


def _rows_needed_message(
    guard: MarginSpec, judge: _Judge, best: _Attempt, useful: list[_Attempt]
) -> str:
    """Return why the margin was not achieved and, if known, how many rows would suffice."""
    where = "training" if guard.split == "train" else guard.split
    if not useful:
        return "no model was found that is better than a constant decision, even without a margin"
    held = f"too few {where} rows to hold '{best.name}' with a margin of {guard.margin:g}"
    needed = min(judge.rows_needed(each.decisions) for each in useful)
    rows = ""
    if math.isfinite(needed):
        rows = f"; about {round_up(needed, digits=2):,} rows are needed"
    return f"{held}: the best model found misses it by {best.missed:.3g}{rows}"


@dataclass(frozen=True)
class _SafetyTestJudge:
    """Judges by the predicted result of a safety test, which must pass with probability `aim`.

    `problem` has each piece of the constraints as a separate constraint, in order. Unless the
    test's method is `pieces`, the pieces share their constraint's delta equally.
    """

    problem: Problem
    aim: float

    @classmethod
    def of(cls, problem: Problem, aim: float) -> _SafetyTestJudge:
        spec, alone, delta = problem.safety_test, list[Goal](), dict[str, float]()
        assert spec is not None
        for goal in problem.constraints:
            for piece in goal.pieces:
                name, shared = str(len(alone)), spec.method != "pieces"
                alone.append(replace(goal, name=name, expression=piece, pieces=(piece,)))
                delta[name] = spec.delta[goal.name] / (len(goal.pieces) if shared else 1)
        spec = replace(spec, delta=delta)
        return cls(replace(problem, constraints=tuple(alone), safety_test=spec), aim)

    def shortfalls(self, decisions: Array) -> Array:
        """Return the predicted violation of each piece (J,); negative if slack."""
        spec, outputs = self.problem.safety_test, DecisionOutputs(decisions)
        assert spec is not None
        prediction = predict_safety_test(self.problem, spec, outputs)
        inflation = calibrate_inflation(self.aim, prediction.bounds)
        upper = replace(prediction, inflation=inflation).at(outputs).upper
        starts = [prediction.owners.index(goal.name) for goal in self.problem.constraints]
        ends = np.where(np.isfinite(upper), upper, UNDEFINED_SHORTFALL)
        return np.asarray(np.maximum.reduceat(ends, starts))

    def rows_needed(self, decisions: Array) -> float:  # noqa: ARG002  the safety test reports it
        return math.inf


@dataclass(frozen=True)
class _StandardErrorJudge:
    """Judges by the values of the constraints plus `deviates` standard errors (delta method)."""

    problem: Problem
    deviates: float

    def shortfalls(self, decisions: Array) -> Array:
        """Return the violation of each piece (J,) with margin; negative if slack."""
        value, error = self._estimates(decisions)
        return np.nan_to_num(value + self.deviates * error, nan=UNDEFINED_SHORTFALL)

    def rows_needed(self, decisions: Array) -> float:
        """Return roughly how many rows remove the shortfall, infinity without an estimate.

        Standard errors are assumed to fall with the square root of the number of rows.
        """
        value, error = self._estimates(decisions)
        noisy = error > 0
        if not (value < np.where(noisy, -MAX_SPARE_ROOM, MAX_IGNORED_SHORTFALL)).all():
            return math.inf
        ratio = self.deviates * error[noisy] / -value[noisy]
        factor = float(ratio.max(initial=0.0)) ** 2
        return self.problem.rates.sums.shape[1] * factor if factor <= MAX_ROWS_FACTOR else math.inf

    def _estimates(self, decisions: Array) -> tuple[Array, Array]:
        """Return values and standard errors (0 if not used) of all pieces (J,)."""
        matrix = self.problem.rates
        rates, index = matrix.rates(decisions), matrix.index()
        found = []
        for goal in self.problem.constraints:
            undefined = any_undefined(goal.ratios, rates[:, None], index).any()
            for piece in goal.pieces:
                value, error = UNDEFINED_SHORTFALL, 0.0
                if not undefined:
                    value = float(values(piece, rates[:, None], index)[0])
                    slopes = tangent(piece, rates, index).slopes if self.deviates else None
                    error = 0.0 if slopes is None else matrix.standard_error(slopes, decisions)
                found.append((value, error))
        return tuple(np.array(found).T)


_Judge = _SafetyTestJudge | _StandardErrorJudge


def _make_judge(guard: MarginSpec, problem: Problem) -> _Judge:
    if guard.aim is not None:
        return _SafetyTestJudge.of(problem, guard.aim)
    deviates = 0.0 if guard.margin is None else NormalDist().inv_cdf(guard.margin)
    rows = problem if guard.split == "train" else problem.validation
    if rows is None:
        hint = "say under the data set: split: {validation: 0.2}"
        message = "constraints are judged on validation rows, and there are none"
        raise FaultError(Diagnostic("E410", message, hint))
    return _StandardErrorJudge(rows, deviates)


def _tighten_problem(problem: Problem, by: Array) -> Problem:
    """Return the problem with the pieces of its constraints tightened by amounts (J,)."""
    goals, amounts = [], iter(by.tolist())
    for goal in problem.constraints:
        pieces = [(piece, next(amounts)) for piece in goal.pieces]
        tight = tuple(ex.add(piece, ex.Constant(by)) if by else piece for piece, by in pieces)
        goals.append(replace(goal, pieces=tight))
    return replace(problem, constraints=tuple(goals))

"""Enforce constraints with a margin or on validation rows, for any algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, NamedTuple, Protocol

import numpy as np

from ratecli.errors import Diagnostic, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.tangent import any_undefined, tangent, values
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.inflation import calibrate_inflation
from ratecli.solvers.seldonian.prediction import predict_safety_test
from ratecli.solvers.seldonian.scores import DecisionOutputs

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
        of the test is predicted from training rows (see `seldonian.inflation.calibrate_inflation`).
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
        or solver.needs_promise
        or solver.role != "enforces"
        or not problem.constraints
    ):
        return solver.solve(problem, rng, progress)
    judge = _make_judge(guard, problem)
    constant = _best_constant(problem, judge)
    start = target = [np.zeros(len(goal.pieces)) for goal in problem.constraints]
    step, tried = 1.0, list[_Attempt]()
    for attempt in range(MAX_ROUNDS):
        by = [a + step * (b - a) for a, b in zip(start, target, strict=True)]
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
        if found.missed == 0 and _is_tight_enough(by, found.shortfalls):
            break
        start = by
        target = [
            np.maximum(each + missing + np.where(missing > 0, MAX_SPARE_ROOM / 2, 0.0), 0.0)
            for each, missing in zip(by, found.shortfalls, strict=True)
        ]
    return _choose_attempt(tried, guard, judge, constant)


class _Attempt(NamedTuple):
    """A solution with its judged decisions and its objective on the training set.

    `missed` is the largest shortfall, reduced by `MAX_IGNORED_SHORTFALL` and at least 0; `name` is
    the constraint that has it.
    """

    missed: float
    objective: float
    name: str
    shortfalls: list[Array]
    decisions: Array
    solution: Solution


def _evaluate_attempt(solution: Solution, problem: Problem, judge: _ShortfallJudge) -> _Attempt:
    main = next(iter(solution.variants.values()))
    decisions = judge.problem.decisions(main)
    shortfalls = judge.shortfalls(decisions)
    ends = [float(each.max()) for each in shortfalls]
    worst = int(np.argmax(ends))
    missed = max(ends[worst] - MAX_IGNORED_SHORTFALL, 0.0)
    name = problem.constraints[worst].name
    return _Attempt(
        missed, _training_objective(problem, main), name, shortfalls, decisions, solution
    )


def _is_useful(attempt: _Attempt, constant: float) -> bool:
    """Whether a model satisfies the tightened constraints and is better than a constant decision.

    A model that misses them has the smallest violation instead of the smallest objective, and is
    close to a constant decision. It is accepted only if no constant satisfies the judge.
    """
    satisfied = attempt.solution.status in USABLE_STATUSES or math.isinf(constant)
    return satisfied and attempt.objective < constant


def _is_tight_enough(by: list[Array], shortfalls: list[Array]) -> bool:
    """Whether no tightened constraint has unneeded slack above `MAX_SPARE_ROOM`."""
    return all(
        float(b[s < -MAX_SPARE_ROOM].max(initial=0.0)) == 0.0
        for b, s in zip(by, shortfalls, strict=True)
    )


def _best_constant(problem: Problem, judge: _ShortfallJudge) -> float:
    """Return the smallest training objective of a constant decision without shortfall, else inf."""
    rows, judged = (each.rates.sums.shape[1] for each in (problem, judge.problem))
    found = [
        problem.value_of(np.full(rows, decision))
        for decision in (0.0, 1.0)
        if max(float(each.max()) for each in judge.shortfalls(np.full(judged, decision)))
        <= MAX_IGNORED_SHORTFALL
    ]
    return min((each for each in found if not math.isnan(each)), default=math.inf)


def _choose_attempt(
    tried: list[_Attempt], guard: MarginSpec, judge: _ShortfallJudge, constant: float
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
    guard: MarginSpec, judge: _ShortfallJudge, best: _Attempt, useful: list[_Attempt]
) -> str:
    """Return why the margin was not achieved and, if known, how many rows would suffice."""
    where = "training" if guard.split == "train" else guard.split
    if not useful:
        return "no model was found that is better than a constant decision, even without a margin"
    held = f"too few {where} rows to hold '{best.name}' with a margin of {guard.margin:g}"
    needed = min(judge.rows_needed(each.decisions) for each in useful)
    rows = f"; about {_round_row_count(needed)} rows are needed" if math.isfinite(needed) else ""
    return f"{held}: the best model found misses it by {best.missed:.3g}{rows}"


def _round_row_count(count: float) -> str:
    """Format a number of rows, rounded up to two significant digits."""
    unit = 10 ** max(int(math.log10(count)) - 1, 0)
    return f"{math.ceil(count / unit) * unit:,}"


class _ShortfallJudge(Protocol):
    @property
    def problem(self) -> Problem:
        """The problem on the judging rows."""
        ...

    def shortfalls(self, decisions: Array) -> list[Array]:
        """Return violations of the pieces of each constraint with margin; negative if slack."""
        ...

    def rows_needed(self, decisions: Array) -> float:
        """Return roughly how many rows remove the shortfall, infinity without an estimate."""
        ...


@dataclass(frozen=True)
class _SafetyTestJudge:
    """Judges by the predicted result of a safety test, which must pass with probability `aim`.

    Attributes
    ----------
    problem
        The problem with each piece of the constraints as a separate constraint, in order. Unless
        the test's method is `pieces`, the pieces share their constraint's delta equally.
    counts
        The number of pieces of each constraint.
    """

    problem: Problem
    counts: list[int]
    aim: float

    @classmethod
    def of(cls, problem: Problem, aim: float) -> _SafetyTestJudge:
        promise, alone, delta = problem.promise, list[Goal](), dict[str, float]()
        assert promise is not None
        for goal in problem.constraints:
            for piece in goal.pieces:
                name, shared = str(len(alone)), promise.method != "pieces"
                alone.append(replace(goal, name=name, expression=piece, pieces=(piece,)))
                delta[name] = promise.delta[goal.name] / (len(goal.pieces) if shared else 1)
        apart = replace(problem, constraints=tuple(alone), promise=replace(promise, delta=delta))
        return cls(apart, [len(goal.pieces) for goal in problem.constraints], aim)

    def shortfalls(self, decisions: Array) -> list[Array]:
        promise, outputs = self.problem.promise, DecisionOutputs(decisions)
        assert promise is not None
        prediction = predict_safety_test(self.problem, promise, outputs)
        inflation = calibrate_inflation(self.aim, prediction.bounds)
        upper = prediction.inflated(inflation).at(outputs).upper
        starts = [prediction.owners.index(goal.name) for goal in self.problem.constraints]
        ends = np.maximum.reduceat(np.where(np.isfinite(upper), upper, UNDEFINED_SHORTFALL), starts)
        return np.split(ends, np.cumsum(self.counts)[:-1])

    def rows_needed(self, decisions: Array) -> float:  # noqa: ARG002  the safety test reports it
        return math.inf


@dataclass(frozen=True)
class _StandardErrorJudge:
    """Judges by the values of the constraints plus `deviates` standard errors (delta method)."""

    problem: Problem
    deviates: float

    def shortfalls(self, decisions: Array) -> list[Array]:
        return [
            np.nan_to_num(value + self.deviates * error, nan=UNDEFINED_SHORTFALL)
            for value, error in self._estimates(decisions)
        ]

    def rows_needed(self, decisions: Array) -> float:
        """Return the number of rows, assuming that standard errors fall with its square root."""
        value, error = map(np.concatenate, zip(*self._estimates(decisions), strict=True))
        noisy = error > 0
        if (
            not (value[noisy] < -MAX_SPARE_ROOM).all()
            or not (value[~noisy] <= MAX_IGNORED_SHORTFALL).all()
        ):
            return math.inf
        ratio = self.deviates * error[noisy] / -value[noisy]
        factor = float(ratio.max(initial=0.0)) ** 2
        return self.problem.rates.sums.shape[1] * factor if factor <= MAX_ROWS_FACTOR else math.inf

    def _estimates(self, decisions: Array) -> list[tuple[Array, Array]]:
        """Return values and standard errors (0 if not used) of the pieces of each constraint."""
        matrix = self.problem.rates
        rates, index = matrix.rates(decisions), matrix.index()

        def error(piece: ex.Expression) -> float:
            if not self.deviates:
                return 0.0
            return matrix.standard_error(tangent(piece, rates, index).slopes, decisions)

        def estimates(goal: Goal) -> tuple[Array, Array]:
            if any_undefined(goal.ratios, rates[:, None], index).any():
                return np.full(len(goal.pieces), UNDEFINED_SHORTFALL), np.zeros(len(goal.pieces))
            found = [float(values(piece, rates[:, None], index)[0]) for piece in goal.pieces]
            return np.array(found), np.array([error(piece) for piece in goal.pieces])

        return [estimates(goal) for goal in self.problem.constraints]


def _make_judge(guard: MarginSpec, problem: Problem) -> _ShortfallJudge:
    if guard.aim is not None:
        return _SafetyTestJudge.of(problem, guard.aim)
    deviates = 0.0 if guard.margin is None else NormalDist().inv_cdf(guard.margin)
    if guard.split == "train":
        return _StandardErrorJudge(problem, deviates)
    if problem.validation is None:
        hint = "say under the data set: split: {validation: 0.2}"
        raise FaultError(
            Diagnostic(
                "E410", "constraints are judged on validation rows, and there are none", hint
            )
        )
    return _StandardErrorJudge(problem.validation, deviates)


def _tighten_problem(problem: Problem, by: list[Array]) -> Problem:
    goals = tuple(
        _tighten_goal(goal, each) if each.any() else goal
        for goal, each in zip(problem.constraints, by, strict=True)
    )
    return replace(problem, constraints=goals)


def _tighten_goal(goal: Goal, by: Array) -> Goal:
    pieces = tuple(
        ex.add(piece, ex.Constant(float(amount)))
        for piece, amount in zip(goal.pieces, by, strict=True)
    )
    return replace(goal, pieces=pieces)


def _training_objective(problem: Problem, classifier: Classifier) -> float:
    return float(np.nan_to_num(problem.value(classifier), nan=np.inf))

"""Constraints that must hold with room to spare, or on validation rows, for any algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, NamedTuple, Protocol

import numpy as np

from ratecli.faults import Fault, FaultError
from ratecli.models.base import Array, Classifier
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal
from ratecli.rates.tangent import tangent, undefined, values
from ratecli.solvers.base import Progress, Solution, Solver
from ratecli.solvers.problem import Problem
from ratecli.solvers.seldonian.inflation import calibrated
from ratecli.solvers.seldonian.measures import DecisionSaid
from ratecli.solvers.seldonian.prediction import predicted

VERSION = 3
"""Part of the key of each guarded trial: counted up when its numbers change."""
ROUNDS = 6
"""Times a problem is solved, at most."""
ENOUGH = 1e-3
"""How much more room than required a tightened constraint may end with."""
EXCESS = 1e-5
"""Largest shortfall that counts as none."""
FARTHEST = 100
"""So many times the rows that there are, at most, are said to be needed: beyond, an estimate is noise."""
UNKNOWN = 1.0
"""Shortfall of a constraint without a value: as much as a rate can be too large."""
ANSWERED = {"solved", "iteration_limit"}


@dataclass(frozen=True)
class Guard:
    """How constraints are made to hold on new rows.

    A model satisfies its constraints on the rows it is fitted to, and on others a little less (Cotter
    et al. 2019, "Training well-generalizing classifiers"). So constraints are judged on other rows, or
    with a margin, and are tightened on the training rows until the judge finds no shortfall.

    Attributes
    ----------
    split
        The rows on which constraints are judged.
    margin
        Confidence of a one-sided normal interval whose upper end must satisfy the constraint; above a
        half.
    aim
        Probability with which the safety test that follows is to be passed, at least a half. Training
        rows predict the result of the test (see `seldonian.inflation.calibrated`).
    """

    split: Literal["train", "validation"] = "train"
    margin: float | None = None
    aim: float | None = None


def guarded(
    solver: Solver,
    guard: Guard,
    problem: Problem,
    rng: np.random.Generator,
    progress: Progress = lambda _: None,
) -> Solution:
    """Solve the problem with its constraints tightened until the guard's judge is satisfied.

    Each round adds the judged shortfall to the constraints. Where they cannot be met then, or by no
    model better than a constant decision, the step was too large and is halved. Of the models tried, return the one of the
    least objective whose main classifier satisfies the judge. If there is none, the status is
    `no_solution_found` where a margin was to be kept (there are too few rows for it), else
    `iteration_limit` with the model of the least shortfall.

    An algorithm that enforces nothing is run as it is, and so is one that prepares for the safety test
    itself.

    Raises
    ------
    FaultError
        E410 where constraints are judged on validation rows and there are none.
    """
    if (
        guard == Guard()
        or solver.needs_promise
        or solver.role != "enforces"
        or not problem.constraints
    ):
        return solver.solve(problem, rng, progress)
    judge = _judge(guard, problem)
    constant = _best_constant(problem, judge)
    start = target = [np.zeros(len(goal.pieces)) for goal in problem.constraints]
    step, tried = 1.0, list[_Tried]()
    for attempt in range(ROUNDS):
        by = [a + step * (b - a) for a, b in zip(start, target, strict=True)]
        solution = solver.solve(_tightened(problem, by), rng, progress)
        if not tried and not (solution.variants and solution.status in ANSWERED):
            return solution  # constraints that cannot be met cannot be met with room to spare
        found = _tried(solution, problem, judge) if solution.variants else None
        if found is not None:
            tried.append(found)
        if found is None or not _is_useful(found, constant):
            if attempt == 0:
                break  # untightened already: tightening cannot help
            step /= 2
            continue
        if found.missed == 0 and _is_tight(by, found.shortfalls):
            break
        start = by
        target = [
            np.maximum(each + missing + np.where(missing > 0, ENOUGH / 2, 0.0), 0.0)
            for each, missing in zip(by, found.shortfalls, strict=True)
        ]
    return _chosen(tried, guard, judge, constant)


class _Tried(NamedTuple):
    """A solution, the decisions that were judged, and its objective on training rows.

    `missed` is the largest shortfall, 0 up to `EXCESS`, and `name` the constraint that has it.
    """

    missed: float
    objective: float
    name: str
    shortfalls: list[Array]
    decisions: Array
    solution: Solution


def _tried(solution: Solution, problem: Problem, judge: _Judging) -> _Tried:
    main = next(iter(solution.variants.values()))
    decisions = judge.problem.decisions(main)
    shortfalls = judge.shortfalls(decisions)
    ends = [float(each.max()) for each in shortfalls]
    worst = int(np.argmax(ends))
    missed = max(ends[worst] - EXCESS, 0.0)
    name = problem.constraints[worst].name
    return _Tried(missed, _objective(problem, main), name, shortfalls, decisions, solution)


def _is_useful(found: _Tried, constant: float) -> bool:
    """Whether a model is better than the best constant decision and has the least objective it can have.

    One that its solver says misses the tightened constraints has the least violation instead, which is
    next to a constant decision. Where no constant satisfies the judge, it may be all that there is.
    """
    sought = found.solution.status in ANSWERED or math.isinf(constant)
    return sought and found.objective < constant


def _is_tight(by: list[Array], shortfalls: list[Array]) -> bool:
    """Whether no tightened constraint ends with more than `ENOUGH` room that is not needed."""
    return all(
        float(b[s < -ENOUGH].max(initial=0.0)) == 0.0 for b, s in zip(by, shortfalls, strict=True)
    )


def _best_constant(problem: Problem, judge: _Judging) -> float:
    """Least training objective of a constant decision that satisfies the judge, infinite if none does."""
    rows, judged = (each.rates.sums.shape[1] for each in (problem, judge.problem))
    found = [
        problem.value_of(np.full(rows, decision))
        for decision in (0.0, 1.0)
        if max(float(each.max()) for each in judge.shortfalls(np.full(judged, decision))) <= EXCESS
    ]
    return min((each for each in found if not math.isnan(each)), default=math.inf)


def _chosen(tried: list[_Tried], guard: Guard, judge: _Judging, constant: float) -> Solution:
    useful = [each for each in tried if _is_useful(each, constant)]
    best = min(useful or tried, key=lambda each: (each.missed, each.objective))
    if guard.margin is not None and (best.missed or not useful):
        return Solution({}, "no_solution_found", _too_few_rows(guard, judge, best, useful))
    if not best.missed and best.solution.status in ANSWERED:
        return best.solution
    judged = "by what the safety test will find" if guard.aim else f"on {guard.split} rows"
    reason = f"judged {judged} '{best.name}' is missed by {best.missed:.3g}"
    if not best.missed:  # only a constraint with more room than was needed could not be met
        reason = "the constraints hold with the room asked for, but not at the least objective"
    return replace(best.solution, status="iteration_limit", reason=reason)


def _too_few_rows(guard: Guard, judge: _Judging, best: _Tried, useful: list[_Tried]) -> str:
    """Why a margin cannot be kept, and with how many rows it could be."""
    where = "training" if guard.split == "train" else guard.split
    if not useful:
        return "no model was found that is better than a constant decision, even without a margin"
    held = f"too few {where} rows to hold '{best.name}' with a margin of {guard.margin:g}"
    needed = min(judge.rows_needed(each.decisions) for each in useful)
    rows = f"; about {_rounded(needed)} rows are needed" if math.isfinite(needed) else ""
    return f"{held}: the best model found misses it by {best.missed:.3g}{rows}"


def _rounded(count: float) -> str:
    """A number of rows, rounded up to two digits."""
    unit = 10 ** max(int(math.log10(count)) - 1, 0)
    return f"{math.ceil(count / unit) * unit:,}"


class _Judging(Protocol):
    @property
    def problem(self) -> Problem:
        """The rows that judge, with the goals there."""
        ...

    def shortfalls(self, decisions: Array) -> list[Array]:
        """By how much each piece of each constraint is missed, room included; negative if it is met."""
        ...

    def rows_needed(self, decisions: Array) -> float:
        """With about how many rows such decisions have no shortfall; infinite if there is no estimate."""
        ...


@dataclass(frozen=True)
class _Tester:
    """Judges by the predicted result of a safety test, which is to be passed with probability `aim`.

    Attributes
    ----------
    problem
        With each piece of the constraints as a constraint of its own, in order; where the method is not
        `pieces`, they share the delta as if each had bounds of its own.
    counts
        The number of pieces of each constraint.
    """

    problem: Problem
    counts: list[int]
    aim: float

    @classmethod
    def of(cls, problem: Problem, aim: float) -> _Tester:
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
        promise, said = self.problem.promise, DecisionSaid(decisions)
        assert promise is not None
        prediction = predicted(self.problem, promise, said)
        upper = prediction.inflated(calibrated(self.aim, prediction.asked)).at(said).upper
        starts = [prediction.owners.index(goal.name) for goal in self.problem.constraints]
        ends = np.maximum.reduceat(np.where(np.isfinite(upper), upper, UNKNOWN), starts)
        return np.split(ends, np.cumsum(self.counts)[:-1])

    def rows_needed(self, decisions: Array) -> float:  # noqa: ARG002  the safety test tells
        return math.inf


@dataclass(frozen=True)
class _Judge:
    """Judges by the values of the constraints plus `deviates` standard errors (delta method)."""

    problem: Problem
    deviates: float

    def shortfalls(self, decisions: Array) -> list[Array]:
        return [
            np.nan_to_num(value + self.deviates * error, nan=UNKNOWN)
            for value, error in self._estimates(decisions)
        ]

    def rows_needed(self, decisions: Array) -> float:
        """Standard errors fall with the square root of the number of rows; values stay as they are."""
        value, error = map(np.concatenate, zip(*self._estimates(decisions), strict=True))
        noisy = error > 0
        if not (value[noisy] < -ENOUGH).all() or not (value[~noisy] <= EXCESS).all():
            return math.inf
        ratio = self.deviates * error[noisy] / -value[noisy]
        times = float(ratio.max(initial=0.0)) ** 2
        return self.problem.rates.sums.shape[1] * times if times <= FARTHEST else math.inf

    def _estimates(self, decisions: Array) -> list[tuple[Array, Array]]:
        """Value and standard error of each piece of each constraint; 0 errors where none are used."""
        matrix = self.problem.rates
        rates, index = matrix.rates(decisions), matrix.index()

        def error(piece: ex.Expression) -> float:
            if not self.deviates:
                return 0.0
            return matrix.standard_error(tangent(piece, rates, index).slopes, decisions)

        def estimates(goal: Goal) -> tuple[Array, Array]:
            if undefined(goal.ratios, rates[:, None], index).any():
                return np.full(len(goal.pieces), UNKNOWN), np.zeros(len(goal.pieces))
            found = [float(values(piece, rates[:, None], index)[0]) for piece in goal.pieces]
            return np.array(found), np.array([error(piece) for piece in goal.pieces])

        return [estimates(goal) for goal in self.problem.constraints]


def _judge(guard: Guard, problem: Problem) -> _Judging:
    if guard.aim is not None:
        return _Tester.of(problem, guard.aim)
    deviates = 0.0 if guard.margin is None else NormalDist().inv_cdf(guard.margin)
    if guard.split == "train":
        return _Judge(problem, deviates)
    if problem.validation is None:
        hint = "say under the data set: split: {validation: 0.2}"
        raise FaultError(
            Fault("E410", "constraints are judged on validation rows, and there are none", hint)
        )
    return _Judge(problem.validation, deviates)


def _tightened(problem: Problem, by: list[Array]) -> Problem:
    goals = tuple(
        _tighter(goal, each) if each.any() else goal
        for goal, each in zip(problem.constraints, by, strict=True)
    )
    return replace(problem, constraints=goals)


def _tighter(goal: Goal, by: Array) -> Goal:
    pieces = tuple(
        ex.add(piece, ex.Constant(float(amount)))
        for piece, amount in zip(goal.pieces, by, strict=True)
    )
    return replace(goal, pieces=pieces)


def _objective(problem: Problem, classifier: Classifier) -> float:
    return float(np.nan_to_num(problem.value(classifier), nan=np.inf))

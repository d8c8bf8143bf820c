"""Constraints that are to hold on other rows than those a model is fitted to, for any algorithm."""

from __future__ import annotations

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

ROUNDS = 6
"""Times a problem is solved, at most."""
ENOUGH = 1e-3
"""How far a constraint may stay on the safe side of what is asked, where that cost a tightening."""
EXCESS = 1e-5
"""Up to which a judged constraint counts as met: tightenings approach that step by step."""
UNKNOWN = 1.0
"""What an end without a number counts as: as much as a rate can be too large."""
ANSWERED = {"solved", "iteration_limit"}


@dataclass(frozen=True)
class Guard:
    """How constraints are made to hold on new rows.

    A model keeps what is asked of it on the rows it is fitted to, and on others a little less (Cotter et
    al. 2019, "Training well-generalizing classifiers"). So constraints are judged on rows that it is
    not fitted to, or with a margin, and are tightened on training rows until the judgement is good.

    Attributes
    ----------
    split
        Whose rows judge.
    margin
        Confidence of a one-sided normal interval whose end must meet the constraint, above a half.
    aim
        Probability with which the safety test that follows is to be passed, at least a half; training
        rows judge what it is likely to find (see `seldonian.inflation.calibrated`).
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
    """The solution of the least tightened problem found whose main classifier is judged to be safe.

    Of those tried it is the one of least objective, or, if none is safe, the nearest to that, with the
    status `iteration_limit` and the amount that is missing. An algorithm that enforces nothing is left
    alone, and so is one that looks out for the safety test itself.

    Raises
    ------
    FaultError
        E410 where validation rows are to judge and there are none.
    """
    if (
        guard == Guard()
        or solver.needs_promise
        or solver.role != "enforces"
        or not problem.constraints
    ):
        return solver.solve(problem, rng, progress)
    judge = _judge(guard, problem)
    by = [np.zeros(len(goal.pieces)) for goal in problem.constraints]
    tried = list[_Tried]()
    for _ in range(ROUNDS):
        solution = solver.solve(_tightened(problem, by), rng, progress)
        if not (solution.variants and (tried or solution.status in ANSWERED)):
            break  # what cannot be met as it is cannot be met with room to spare
        main = next(iter(solution.variants.values()))
        short = judge.shortfalls(main)
        ends = [float(each.max()) for each in short]
        worst, name = max(ends), problem.constraints[int(np.argmax(ends))].name
        missed = max(worst - EXCESS, 0.0)
        tried.append(_Tried(missed, _objective(problem, main), name, solution))
        loose = all(
            float(b[s < -ENOUGH].max(initial=0.0)) == 0.0 for b, s in zip(by, short, strict=True)
        )
        if worst <= EXCESS and loose:
            break
        by = [np.maximum(each + missing, 0.0) for each, missing in zip(by, short, strict=True)]
    return _chosen(tried, guard) if tried else solution


class _Tried(NamedTuple):
    """A solution with its objective, and the constraint that is missed by most, by how much."""

    missed: float
    objective: float
    name: str
    solution: Solution


def _chosen(tried: list[_Tried], guard: Guard) -> Solution:
    missed, _, name, found = min(tried, key=lambda each: (each.missed, each.objective))
    if not missed and found.status in ANSWERED:
        return found
    judged = "by what the safety test will find" if guard.aim else f"on {guard.split} rows"
    reason = f"judged {judged} '{name}' is missed by {missed:.3g}"
    if not missed:  # what could not be met is a constraint with more room than was needed
        reason = "the constraints hold with the room asked for, but not at the least objective"
    return replace(found, status="iteration_limit", reason=reason)


class _Judging(Protocol):
    def shortfalls(self, classifier: Classifier) -> list[Array]:
        """By how much each piece of each constraint is missed, room and all; negative where it is met."""
        ...


@dataclass(frozen=True)
class _Tester:
    """Judges by what a safety test is expected to find, with room to pass it with probability `aim`.

    Attributes
    ----------
    problem
        With each piece of the constraints as a constraint of its own, in order; where the method is not
        `pieces`, they share the delta as if each had bounds of its own.
    counts
        Of each constraint, how many pieces it has.
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

    def shortfalls(self, classifier: Classifier) -> list[Array]:
        promise, said = self.problem.promise, DecisionSaid(self.problem.decisions(classifier))
        assert promise is not None
        prediction = predicted(self.problem, promise, said)
        upper = prediction.inflated(calibrated(self.aim, prediction.asked)).at(said).upper
        starts = [prediction.owners.index(goal.name) for goal in self.problem.constraints]
        ends = np.maximum.reduceat(np.where(np.isfinite(upper), upper, UNKNOWN), starts)
        return np.split(ends, np.cumsum(self.counts)[:-1])


@dataclass(frozen=True)
class _Judge:
    problem: Problem
    deviates: float

    def shortfalls(self, classifier: Classifier) -> list[Array]:
        matrix = self.problem.rates
        decisions = self.problem.decisions(classifier)
        rates, index = matrix.rates(decisions), matrix.index()

        def short(piece: ex.Expression) -> float:
            (value,) = values(piece, rates[:, None], index)
            if not self.deviates:
                return float(value)
            slopes = tangent(piece, rates, index).slopes
            return float(value) + self.deviates * matrix.standard_error(slopes, decisions)

        def all_short(goal: Goal) -> Array:
            if undefined(goal.ratios, rates[:, None], index).any():
                return np.full(len(goal.pieces), UNKNOWN)
            found = np.array([short(piece) for piece in goal.pieces])
            return np.asarray(np.nan_to_num(found, nan=UNKNOWN))

        return [all_short(goal) for goal in self.problem.constraints]


def _judge(guard: Guard, problem: Problem) -> _Judging:
    if guard.aim is not None:
        return _Tester.of(problem, guard.aim)
    deviates = 0.0 if guard.margin is None else NormalDist().inv_cdf(guard.margin)
    if guard.split == "train":
        return _Judge(problem, deviates)
    if problem.validation is None:
        hint = "say under the data set: split: {validation: 0.2}"
        raise FaultError(
            Fault("E410", "validation rows are to judge the constraints, and there are none", hint)
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

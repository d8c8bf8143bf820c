"""Run a solver on tiny problems and record its side effects."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ratecli.certify.safety_test import SafetyTestSpec
from ratecli.conformance.optimum import TINY_PROBLEM_GOALS, TinyProblemGoals, indistinguishable_rows
from ratecli.conformance.outcome import CheckFailedError, CheckSkippedError, exception_line
from ratecli.conformance.rows import TinyTable, plain_table
from ratecli.conformance.watch import SideEffects, watch_side_effects
from ratecli.errors import FaultError
from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.runner.trial import training_problem
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.problem import Problem

L2 = 0.01
SEED = 11


@dataclass(frozen=True)
class SolverRun:
    """One call of `solve`.

    Attributes
    ----------
    error
        The exception that it raised, if any; then there is no solution.
    told
        The arguments of each call of the progress callback.
    """

    goals: TinyProblemGoals
    rows: TinyTable
    problem: Problem
    solution: Solution | None
    error: Exception | None
    told: tuple[tuple[Any, ...], ...]
    seen: SideEffects
    seconds: float

    @property
    def main(self) -> Classifier | None:
        return next(iter(self.solution.variants.values()), None) if self.solution else None

    def answer(self) -> Solution:
        """Return the solution; raise CheckFailedError if `solve` raised or returned none."""
        if self.error is not None:
            raise CheckFailedError(f"on '{self.goals.name}' it raises {exception_line(self.error)}")
        if not isinstance(self.solution, Solution):
            raise CheckFailedError(
                f"on '{self.goals.name}' it gives {type(self.solution).__name__}"
            )
        return self.solution

    def decisions(self) -> Array | None:
        """Return the (n,) decisions of the main classifier."""
        return None if self.main is None else self.problem.decisions(self.main)

    def cells(self) -> Any:
        """Return (n,) cell numbers: rows in one cell are equal for the main classifier."""
        X = self.problem.X if isinstance(self.problem.X, np.ndarray) else self.problem.X.toarray()
        slices = self.main.slices if self.main is not None else ()
        members = [self.problem.slices[text].astype(float) for text in slices]
        return indistinguishable_rows(X, *members)


@dataclass
class SolverSubject:
    """A solver with its options, and its runs so far; each problem is solved once."""

    solver: Solver
    runs: dict[str, SolverRun] = field(default_factory=dict)

    @property
    def kind(self) -> type[Solver]:
        return type(self.solver)

    @cached_property
    def goals(self) -> list[TinyProblemGoals]:
        """The goals that it declares to take and that have no obstacle on the plain table."""
        return [
            goals
            for goals in TINY_PROBLEM_GOALS
            if goals.taken(self.kind) and not self._hindered(goals)
        ]

    def _hindered(self, goals: TinyProblemGoals) -> bool:
        problem = pose_problem(self.solver, goals, plain_table())
        return any(self.solver.obstacle(rule, problem.rates) for rule in problem.constraints)

    @property
    def first(self) -> TinyProblemGoals:
        """Goals with constraints, if it takes any; they are used for the odd tables."""
        taken = [goals for goals in self.goals if goals.possible]
        if not taken:
            raise CheckSkippedError(
                "it takes goals of none of the classes that the kit has tiny problems of"
            )
        return next((goals for goals in taken if goals.rules), taken[0])

    def on(self, goals: TinyProblemGoals) -> SolverRun:
        """Return the run on the plain table."""
        return self.run(goals.name, goals, plain_table())

    def all(self) -> list[SolverRun]:
        """Return the runs on all goals that it takes, and all other runs so far."""
        for goals in self.goals:
            self.on(goals)
        return list(self.runs.values())

    def run(
        self, name: str, goals: TinyProblemGoals, rows: TinyTable, solver: Solver | None = None
    ) -> SolverRun:
        if not self.runs:  # modules imported on first use may write files or use random numbers
            _run(self.solver, goals, rows)
        if name not in self.runs:
            self.runs[name] = _run(solver or self.solver, goals, rows)
        return self.runs[name]


def _run(solver: Solver, goals: TinyProblemGoals, rows: TinyTable) -> SolverRun:
    problem = pose_problem(solver, goals, rows)
    told: list[tuple[Any, ...]] = []
    solution, error = None, None
    begun = time.perf_counter()
    with watch_side_effects() as seen:
        try:
            solution = solver.solve(problem, np.random.default_rng(SEED), _callback_words(told))
        except Exception as raised:  # noqa: BLE001  plugins may raise anything
            error = raised
    seconds = time.perf_counter() - begun
    return SolverRun(goals, rows, problem, solution, error, tuple(told), seen, seconds)


def _callback_words(told: list[tuple[Any, ...]]) -> Callable[..., None]:
    """Return a progress callback that records any arguments, valid or not."""

    def progress(*arguments: Any, **named: Any) -> None:
        told.append((*arguments, *named.items()))

    return progress


def pose_problem(solver: Solver, goals: TinyProblemGoals, rows: TinyTable) -> Problem:
    """Return the problem as the runner would pose it."""
    objective, rules = goals.read()
    problem = training_problem(rows.world(), objective, rules, L2)
    if solver.needs_promise:
        delta = dict.fromkeys((rule.name for rule in rules), 0.2)
        problem = replace(problem, promise=SafetyTestSpec(delta, len(rows)))
    if solver.needs_deployed:
        weights = np.zeros(problem.X.shape[1])
        weights[0] = 1.0
        problem = replace(problem, deployed=Threshold(weights))
    return problem


def copy_solver(solver: Solver) -> Solver:
    """Return another solver with the same options."""
    values: Mapping[str, Any] = {
        each.name: getattr(solver, each.name)
        for each in fields(solver)  # type: ignore[arg-type]
    }
    return type(solver)(**values)


def is_refusal(error: BaseException | None) -> bool:
    """Return whether the exception means that the goals or rows are not supported."""
    return isinstance(error, FaultError | ValueError | NotImplementedError)

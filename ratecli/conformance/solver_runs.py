"""Run a solver on tiny problems and record its side effects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ratecli.certify.safety_test import SafetyTestSpec
from ratecli.conformance.outcome import (
    CheckFailedError,
    SideEffects,
    exception_line,
    skip,
    watch_side_effects,
)
from ratecli.conformance.problems import (
    TINY_PROBLEM_GOALS,
    TinyProblemGoals,
    TinyTable,
    dense,
    indistinguishable_rows,
    plain_table,
)
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
    progress
        The arguments of each call of the progress callback.
    """

    goals: TinyProblemGoals
    rows: TinyTable
    problem: Problem
    solution: Solution | None
    error: Exception | None
    progress: tuple[tuple[Any, ...], ...]
    effects: SideEffects
    seconds: float

    @property
    def main(self) -> Classifier | None:
        return next(iter(self.solution.variants.values()), None) if self.solution else None

    @property
    def required_solution(self) -> Solution:
        """The solution; raises CheckFailedError if `solve` raised or returned something else."""
        where = f"on '{self.goals.name}'"
        if self.error is not None:
            raise CheckFailedError(f"{where} it raises {exception_line(self.error)}")
        if not isinstance(self.solution, Solution):
            raise CheckFailedError(f"{where} it returns {type(self.solution).__name__}")
        return self.solution

    @property
    def decisions(self) -> Array | None:
        """The (n,) decisions of the main classifier."""
        return None if self.main is None else self.problem.decisions(self.main)

    @property
    def violation(self) -> float:
        """The violation of the main classifier; 0 without one."""
        return 0.0 if self.main is None else self.problem.violation(self.main)

    def cells(self) -> Any:
        """Return (n,) cell numbers: rows in one cell are equal for the main classifier."""
        slices = self.main.slices if self.main is not None else ()
        members = [self.problem.slices[text].astype(float) for text in slices]
        return indistinguishable_rows(dense(self.problem.X), *members)


@dataclass
class SolverSubject:
    """A solver with its options, and its runs so far; each problem is solved once."""

    solver: Solver
    runs: dict[str, SolverRun] = field(default_factory=dict)

    @property
    def kind(self) -> type[Solver]:
        return type(self.solver)

    @property
    def enforces(self) -> bool:
        return self.kind.role == "enforces"

    @cached_property
    def goals(self) -> list[TinyProblemGoals]:
        """The supported goals that have no obstacle on the plain table."""
        return [
            goals
            for goals in TINY_PROBLEM_GOALS
            if goals.supported_by(self.kind) and not self._has_obstacle(goals)
        ]

    def _has_obstacle(self, goals: TinyProblemGoals) -> bool:
        problem = pose_problem(self.solver, goals, plain_table())
        return any(self.solver.obstacle(rule, problem.rates) for rule in problem.constraints)

    @property
    def first(self) -> TinyProblemGoals:
        """Goals with constraints, if it supports any; they are used for the unusual tables."""
        possible = [goals for goals in self.goals if goals.possible]
        if not possible:
            skip("it supports no class of goals that there is a tiny problem of")
        return next((goals for goals in possible if goals.rules), possible[0])

    def plain_runs(self) -> list[SolverRun]:
        """Return the runs on the plain table."""
        _ = self.first
        return [self.run(goals.name, goals, plain_table()) for goals in self.goals]

    def all_runs(self) -> list[SolverRun]:
        """Return the runs on all supported goals, and all other runs so far."""
        self.plain_runs()
        return list(self.runs.values())

    def variants(self, runs: list[SolverRun]) -> Iterator[tuple[SolverRun, Classifier, str]]:
        """Yield each classifier of some runs, with its name for messages."""
        for run in runs:
            for name, variant in run.solution.variants.items() if run.solution else ():
                yield run, variant, f"variant '{name}' on '{run.goals.name}'"

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
    calls: list[tuple[Any, ...]] = []

    def progress(*arguments: Any, **named: Any) -> None:
        calls.append((*arguments, *named.items()))

    solution, error = None, None
    start = time.perf_counter()
    with watch_side_effects() as effects:
        try:
            solution = solver.solve(problem, np.random.default_rng(SEED), progress)
        except Exception as raised:  # noqa: BLE001  plugins may raise anything
            error = raised
    seconds = time.perf_counter() - start
    return SolverRun(goals, rows, problem, solution, error, tuple(calls), effects, seconds)


def pose_problem(solver: Solver, goals: TinyProblemGoals, rows: TinyTable) -> Problem:
    """Return the problem as the runner would pose it."""
    objective, rules = goals.read()
    problem = training_problem(rows.trial_data(), objective, rules, L2)
    if solver.needs_promise:
        delta = dict.fromkeys((rule.name for rule in rules), 0.2)
        problem = replace(problem, promise=SafetyTestSpec(delta, len(rows)))
    if solver.needs_deployed:
        problem = replace(problem, deployed=Threshold(np.eye(problem.X.shape[1])[0]))
    return problem

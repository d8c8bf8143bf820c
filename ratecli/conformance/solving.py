"""A solver at work on tiny problems, and what it did beside that."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ratecli.certify.safety_test import Promise
from ratecli.conformance.goals import GOALS, Goals
from ratecli.conformance.optimum import cells_of
from ratecli.conformance.outcome import FailsError, SkipsError, said
from ratecli.conformance.rows import Rows, plain
from ratecli.conformance.watch import Seen, watched
from ratecli.errors import FaultError
from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.runner.trial import training_problem
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.problem import Problem

L2 = 0.01
SEED = 11


@dataclass(frozen=True)
class Run:
    """One call of `solve`.

    Attributes
    ----------
    error
        What it raised, if it did: then there is no solution.
    told
        What the progress callback was called with.
    """

    goals: Goals
    rows: Rows
    problem: Problem
    solution: Solution | None
    error: Exception | None
    told: tuple[tuple[Any, ...], ...]
    seen: Seen
    seconds: float

    @property
    def main(self) -> Classifier | None:
        return next(iter(self.solution.variants.values()), None) if self.solution else None

    def answer(self) -> Solution:
        """Raises FailsError where it raised an exception, or gave no Solution."""
        if self.error is not None:
            raise FailsError(f"on '{self.goals.name}' it raises {said(self.error)}")
        if not isinstance(self.solution, Solution):
            raise FailsError(f"on '{self.goals.name}' it gives {type(self.solution).__name__}")
        return self.solution

    def decisions(self) -> Array | None:
        """(n,) of the main classifier."""
        return None if self.main is None else self.problem.decisions(self.main)

    def cells(self) -> Any:
        """(n,) which rows the main classifier cannot tell apart."""
        X = self.problem.X if isinstance(self.problem.X, np.ndarray) else self.problem.X.toarray()
        slices = self.main.slices if self.main is not None else ()
        members = [self.problem.slices[text].astype(float) for text in slices]
        return cells_of(X, *members)


@dataclass
class Subject:
    """A solver with its options, and what it has done so far: each problem is solved once."""

    solver: Solver
    runs: dict[str, Run] = field(default_factory=dict)

    @property
    def kind(self) -> type[Solver]:
        return type(self.solver)

    @cached_property
    def goals(self) -> list[Goals]:
        """Those it says that it takes, with no obstacle on the plain table."""
        return [goals for goals in GOALS if goals.taken(self.kind) and not self._hindered(goals)]

    def _hindered(self, goals: Goals) -> bool:
        problem = posed(self.solver, goals, plain())
        return any(self.solver.obstacle(rule, problem.rates) for rule in problem.constraints)

    @property
    def first(self) -> Goals:
        """Goals with constraints, if it takes any: what odd tables are tried with."""
        taken = [goals for goals in self.goals if goals.possible]
        if not taken:
            raise SkipsError(
                "it takes goals of none of the classes that the kit has tiny problems of"
            )
        return next((goals for goals in taken if goals.rules), taken[0])

    def on(self, goals: Goals) -> Run:
        """The plain table."""
        return self.run(goals.name, goals, plain())

    def all(self) -> list[Run]:
        """Of all goals that it takes, and all else that it was asked so far."""
        for goals in self.goals:
            self.on(goals)
        return list(self.runs.values())

    def run(self, name: str, goals: Goals, rows: Rows, solver: Solver | None = None) -> Run:
        if not self.runs:  # what is imported on first use draws, and writes, as it likes
            _run(self.solver, goals, rows)
        if name not in self.runs:
            self.runs[name] = _run(solver or self.solver, goals, rows)
        return self.runs[name]


def _run(solver: Solver, goals: Goals, rows: Rows) -> Run:
    problem = posed(solver, goals, rows)
    told: list[tuple[Any, ...]] = []
    solution, error = None, None
    begun = time.perf_counter()
    with watched() as seen:
        try:
            solution = solver.solve(problem, np.random.default_rng(SEED), _heard(told))
        except Exception as raised:  # noqa: BLE001  code of others raises what it likes
            error = raised
    seconds = time.perf_counter() - begun
    return Run(goals, rows, problem, solution, error, tuple(told), seen, seconds)


def _heard(told: list[tuple[Any, ...]]) -> Callable[..., None]:
    """What takes whatever a progress callback is wrongly given, too."""

    def progress(*arguments: Any, **named: Any) -> None:
        told.append((*arguments, *named.items()))

    return progress


def posed(solver: Solver, goals: Goals, rows: Rows) -> Problem:
    """The problem as the runner would pose it."""
    objective, rules = goals.read()
    problem = training_problem(rows.world(), objective, rules, L2)
    if solver.needs_promise:
        delta = dict.fromkeys((rule.name for rule in rules), 0.2)
        problem = replace(problem, promise=Promise(delta, len(rows)))
    if solver.needs_deployed:
        weights = np.zeros(problem.X.shape[1])
        weights[0] = 1.0
        problem = replace(problem, deployed=Threshold(weights))
    return problem


def fresh(solver: Solver) -> Solver:
    """Another solver with the same options."""
    values: Mapping[str, Any] = {each.name: getattr(solver, each.name) for each in fields(solver)}  # type: ignore[arg-type]
    return type(solver)(**values)


def refused(error: BaseException | None) -> bool:
    """Whether what was raised says that the goals or rows cannot be taken."""
    return isinstance(error, FaultError | ValueError | NotImplementedError)

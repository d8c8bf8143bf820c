"""Tiny tables, goals on them, their optima, and runs of a solver on them."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ratecli.certify.trees import SafetyTestSpec
from ratecli.conformance.checks import CheckSkippedError, OptimalityGap
from ratecli.errors import FaultError, exception_line
from ratecli.experiment.checks.goals import refusal_reason
from ratecli.models.base import Array, Classifier
from ratecli.models.linear import Threshold
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.sample import Sample
from ratecli.rates.scope import Scope
from ratecli.runner.training_problem import training_problem
from ratecli.sampling.rows import TrialData
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.hull.forms import RatePoints, RateProgram
from ratecli.solvers.hull.master import best_in_hull
from ratecli.solvers.problem import Problem

RowPositions = NDArray[np.intp]
POSITIVE_SHARES = np.array([0.08, 0.25, 0.5, 0.7, 0.92])
"""Share of positive labels for each value of the first feature, -2 to 2."""
TRAINING_ROWS, VALIDATION_ROWS = 60, 20
SPARSE = "sparse"
"""Attribute of tables whose features are a sparse matrix."""


def plain_table() -> pd.DataFrame:
    """Return rows whose features and group are informative; group `a` is selected less often.

    Columns are the features `x0` and `x1`, the group `g` (`a` or `b`), `label` (0, 1 or NaN),
    `weight` (positive) and `part` (train or validation).
    """
    rng, n = np.random.default_rng(5), TRAINING_ROWS + VALIDATION_ROWS
    places = rng.integers(10, size=n)
    group = np.where(rng.random(n) < 0.4 + 0.1 * (places < 4), "a", "b")
    chance = POSITIVE_SHARES[places // 2] + np.where(group == "a", -0.06, 0.06)
    label = (rng.random(n) < chance).astype(float)
    part = np.repeat(["train", "validation"], [TRAINING_ROWS, VALIDATION_ROWS])
    features = {"x0": places // 2 - 2.0, "x1": places % 2 + 0.0}
    return pd.DataFrame(features).assign(g=group, label=label, weight=1.0, part=part)


def training_table() -> pd.DataFrame:
    """Return the plain table without validation rows."""
    return plain_table()[:TRAINING_ROWS]


def weighted_table() -> pd.DataFrame:
    """Return a table whose weights change the best decisions: positive rows have a weight of 8."""
    return training_table().assign(weight=lambda rows: np.where(rows.label == 1, 8.0, 1.0))


def repeat_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Repeat each row as often as its integer weight says, with a weight of 1."""
    return rows.loc[rows.index.repeat(rows.weight.astype(int))].assign(weight=1.0)


def unusual_tables() -> dict[str, pd.DataFrame]:
    """Return unusual tables by a description of what is unusual."""
    rows = plain_table()
    gap, in_a = (rows.index % 5 == 0) & (rows.part == "train"), rows.g == "a"
    noise = pd.DataFrame(np.random.default_rng(6).normal(size=(16, 30))).add_prefix("x_")
    sparse_rows = rows.copy()
    sparse_rows.attrs[SPARSE] = True
    one_of_a = rows.g.mask(in_a & (in_a.cumsum() > 1), "b")
    return {
        "a constant feature": rows.assign(x1=1.0),
        "a group of one row, none to validate": rows.assign(g=one_of_a),
        "all labels positive": rows.assign(label=1.0),
        "all labels negative": rows.assign(label=0.0),
        "rows without a label": rows.assign(label=rows.label.mask(gap)),
        "more features than rows": rows[:16].join(noise),
        "a sparse matrix": sparse_rows,
        "no validation rows": training_table(),
        "all rows equal": rows.assign(x0=1.0, x1=1.0),
    }


def trial_data(rows: pd.DataFrame) -> TrialData:
    """Return the rows as the runner represents them."""
    X = rows.filter(regex="^x").to_numpy(dtype=float)
    groups = {"g": rows["g"].to_numpy(dtype=object)}
    label, weight = rows["label"].to_numpy(dtype=float), rows["weight"].to_numpy(dtype=float)
    names, part = np.full(len(rows), "tiny"), rows["part"].to_numpy(dtype=str)
    sample = Sample(groups, label, names, part, weight)
    return TrialData(sample, sparse.csr_array(X) if SPARSE in rows.attrs else X)


@dataclass(frozen=True)
class TinyProblemGoals:
    """An objective and rules as in a file; `possible` if the plain table can satisfy the rules."""

    name: str
    objective: str = "error"
    rules: Mapping[str, str] = field(default_factory=dict)
    possible: bool = True

    def read(self) -> tuple[Goal, tuple[Goal, ...]]:
        scope = Scope(values={"g": ("a", "b")}.get, columns=frozenset({"g"}))
        rules = []
        for name, text in self.rules.items():
            parts = rs.constraint_differences(parse_constraint(text), scope)
            rules.append(constraint_goal(name, text, parts, rs.violation_expression(parts)))
        objective = rs.resolve(parse_expression(self.objective), scope)
        return objective_goal(self.objective, objective), tuple(rules)

    def problem(self, solver: Solver, rows: TrialData) -> Problem:
        """Return the problem as the runner would pose it."""
        objective, rules = self.read()
        problem = training_problem(rows, objective, rules, L2)
        if solver.needs_safety_test:
            test = SafetyTestSpec(dict.fromkeys(self.rules, 0.2), len(rows.sample))
            problem = replace(problem, safety_test=test)
        if solver.needs_deployed:
            problem = replace(problem, deployed=Threshold(np.eye(problem.X.shape[1])[0]))
        return problem

    def suit(self, solver: Solver) -> bool:
        """Return whether the solver supports the goals and has no obstacle on the plain table."""
        objective, rules = self.read()
        if solver.role == "ignores":
            return not rules and self.objective == "error"
        pairs = [(objective, True), *((rule, False) for rule in rules)]
        if any(refusal_reason(type(solver), goal, objective=at)[0] for goal, at in pairs):
            return False
        if rules and solver.refusal(None, rules):
            return False
        rates = self.problem(solver, trial_data(plain_table())).rates
        return not any(solver.obstacle(rule, rates) for rule in rules)


FEW = {"few": "positive_rate <= 0.3"}
TINY_PROBLEM_GOALS = (
    TinyProblemGoals("least error"),
    TinyProblemGoals("parity", rules={"p": "positive_rate[g = a] >= 0.9 * positive_rate[g = b]"}),
    TinyProblemGoals("recall", rules={"r": "tpr[g = a] >= 0.6"} | FEW),
    TinyProblemGoals("equal errors", "1 - q_mean", {"few": "positive_rate <= 0.4"}),
    TinyProblemGoals("a divergence", rules={"near": "kl(0.6, positive_rate[g = a]) <= 0.01"}),
    TinyProblemGoals("f1", "1 - f1", FEW),
    TinyProblemGoals("two ratios", rules={"f": "f1[g = a] >= 0.9 * f1[g = b]"}),
    TinyProblemGoals("balanced groups", "imbalance(by=g)"),
    TinyProblemGoals(
        "out of reach", rules={"r": "tpr >= 0.95", "few": "positive_rate <= 0.1"}, possible=False
    ),
)
L2 = 0.01
SEED = 11
OPTIMUM_GAP = 1e-8


def best_objective(problem: Problem, cells: RowPositions, slack: float = 0.0) -> float:
    """Return the least objective of decisions that are equal within each cell, or a lower bound.

    `cells` (n,) has the cell of each row, numbered from 0; constraints may be violated by `slack`.
    It is a bound below the optimum for sums and comparisons of ratios. Return infinity if no
    decisions satisfy the constraints, NaN if the optimum is unknown.
    """
    groups = np.equal.outer(np.arange(cells.max() + 1), cells).astype(float)
    all_yes = problem.rates.A @ groups.T
    points = np.stack([np.zeros_like(all_yes), all_yes], axis=2).reshape(len(all_yes), -1)
    hull = RatePoints(points, np.repeat(np.arange(len(groups)), 2), problem.rates.c)
    try:
        program = RateProgram.of(problem).loosened(slack)
    except ValueError:  # neither convex nor a sum of ratios
        return math.nan
    if program.objective.smooth:
        return math.nan
    found = best_in_hull(program, hull, OPTIMUM_GAP)
    if found is not None and found.feasible:
        return found.bound
    unproven = not program.is_convex and (found is None or found.bound <= 0)
    return math.nan if unproven else math.inf


def indistinguishable_rows(*columns: Array) -> RowPositions:
    """Return (n,) cell numbers, equal for rows equal in all columns, each (n,) or (n, k)."""
    table = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    return np.unique(table, axis=0, return_inverse=True)[1].ravel()


class SolverRun:
    """One call of a solver: what it returned or raised, and sentences on its side effects."""

    answer: Solution | BaseException
    effects: tuple[str, ...] = ()

    def __init__(self, solver: Solver, goals: TinyProblemGoals, table: pd.DataFrame) -> None:
        """Run a solver on a table; the working directory is an empty folder."""
        self.solver, self.goals, self.rows = solver, goals, trial_data(table)
        self.problem = goals.problem(solver, self.rows)
        rng, printed = np.random.default_rng(SEED), io.StringIO()
        with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(printed):
            start = time.perf_counter()
            try:
                self.answer = solver.solution(self.problem, rng, self._progress)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  plugins may raise anything
                self.answer = error
            self.seconds = time.perf_counter() - start
            self.effects += tuple(f"it writes to '{each.name}'" for each in Path(folder).iterdir())
        if text := printed.getvalue().strip():
            self.effects += (f"it prints '{text[:40]}'",)
        self.solution = self.answer if isinstance(self.answer, Solution) else None
        self.variants: Mapping[str, Classifier] = self.solution.variants if self.solution else {}
        self.main = next(iter(self.variants.values()), None)

    def _progress(self, text: object) -> None:
        if not isinstance(text, str) or not text.strip():
            self.effects += (f"it calls progress({text!r}), not with one line of text",)

    @property
    def outcome(self) -> str:
        """The status of the solution, or the exception."""
        if isinstance(self.answer, BaseException):
            return exception_line(self.answer)
        return self.answer.status

    def gap(self) -> OptimalityGap:
        """Return how close the main classifier comes to the optimum; NaN without one."""
        value = violation = best = math.nan
        if self.main is not None:
            value, violation = self.problem.value(self.main), self.problem.violation(self.main)
            best = self.best(self.main.slices, violation)
        return OptimalityGap(self.goals.name, self.outcome, value, violation, best, self.seconds)

    def best(self, slices: Iterable[str], slack: float) -> float:
        """Return the least objective of decisions by the features and some slices."""
        members = (self.problem.slices[text].astype(float) for text in slices)
        dense = sparse.csr_array(self.problem.X).toarray()
        return best_objective(self.problem, indistinguishable_rows(dense, *members), slack)


class SolverRuns:
    """The runs of a solver so far, by name; each problem is solved once."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.known: dict[str, SolverRun] = {}

    @cached_property
    def goals(self) -> list[TinyProblemGoals]:
        """The goals that it supports."""
        return [goals for goals in TINY_PROBLEM_GOALS if goals.suit(self.solver)]

    @property
    def first(self) -> TinyProblemGoals:
        """Goals with constraints, if it supports any; they are used for the unusual tables."""
        possible = [goals for goals in self.goals if goals.possible]
        if not possible:
            raise CheckSkippedError("no tiny problem has goals that it supports")
        return next((goals for goals in possible if goals.rules), possible[0])

    def run(self, name: str, goals: TinyProblemGoals, table: pd.DataFrame) -> SolverRun:
        if not self.known:  # modules imported on first use may write files or use random numbers
            SolverRun(self.solver, goals, table)
        if name not in self.known:
            self.known[name] = SolverRun(self.solver, goals, table)
        return self.known[name]


Runs = Iterator[tuple[str, SolverRun]]
"""Runs, each with a description for messages."""


def plain_runs(runs: SolverRuns) -> Runs:
    """Yield the runs on the plain table, one for each of the supported goals.

    Raises CheckSkippedError if there are none.
    """
    _ = runs.first
    for goals in runs.goals:
        yield f"on '{goals.name}'", runs.run(goals.name, goals, plain_table())


def all_runs(runs: SolverRuns) -> Runs:
    """Yield the runs on the plain table, and all other runs so far."""
    yield from plain_runs(runs)
    plain = {goals.name for goals in runs.goals}
    yield from ((f"on '{name}'", run) for name, run in runs.known.items() if name not in plain)


def unusual_runs(runs: SolverRuns) -> Runs:
    """Yield the runs on unusual tables, except where the solver refuses them with a FaultError."""
    for name, table in unusual_tables().items():
        run = runs.run(name, runs.first, table)
        if not isinstance(run.answer, FaultError):
            yield f"on a table with {name}", run


def unsupported_runs(runs: SolverRuns) -> Runs:
    """Yield the runs on goals that the solver does not support, except where it raises."""
    others = [goals for goals in TINY_PROBLEM_GOALS if goals not in runs.goals]
    if not others or runs.solver.role != "enforces":
        raise CheckSkippedError("it supports all goals, or enforces none")
    for goals in others:
        run = runs.run(f"unsupported {goals.name}", goals, plain_table())
        if run.solution:
            yield f"on '{goals.name}'", run

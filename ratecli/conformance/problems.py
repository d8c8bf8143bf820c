"""Tiny tables, goals on them, their exact optima, and runs of a solver on them.

No code of the solvers and of `rates.matrix` is used, so that the optima are independent of what is
tested. Rates are counted from labels and groups; convex functions are replaced by their tangents at
`TANGENTS` points, so that each optimum is the solution of one linear program.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import expit

from ratecli.certify.trees import SafetyTestSpec
from ratecli.conformance.outcome import CheckFailedError, SideEffects, skip, watch_side_effects
from ratecli.errors import exception_line
from ratecli.experiment.goal_checks import refusal_reason
from ratecli.models.base import Array, Classifier, Features
from ratecli.models.linear import Threshold
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.resolve import Scope, constraint_differences, resolve, violation_expression
from ratecli.rates.sample import Mask, Sample
from ratecli.rates.table import RATES
from ratecli.runner.trial import training_problem
from ratecli.sampling.rows import TrialData
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.problem import Problem

TextArray = NDArray[np.str_]
RowPositions = NDArray[np.intp]
FEATURE_POINTS = np.array([[x, y] for x in (-2.0, -1.0, 0.0, 1.0, 2.0) for y in (0.0, 1.0)])
"""Values of the features in the plain table; they are informative about the label."""
POSITIVE_SHARES = np.array([0.08, 0.25, 0.5, 0.7, 0.92])
"""Share of positive labels for each value of the first feature."""
TANGENTS = 4000
"""Tangents to a convex function: its error is below 1e-6 where the function is below 1."""


@dataclass(frozen=True)
class TinyTable:
    """A table of n rows.

    Attributes
    ----------
    X
        (n, d) features, without the group.
    label
        (n,) 0, 1 or NaN.
    group
        (n,) `a` or `b`, the column `g`.
    weight
        (n,) positive.
    part
        (n,) "train" or "validation".
    """

    X: Features
    label: Array
    group: TextArray
    weight: Array
    part: TextArray

    def __len__(self) -> int:
        return len(self.label)

    def at(self, rows: RowPositions) -> TinyTable:
        """Return the given rows, in that order."""
        changed = {name: array[rows] for name, array in vars(self).items()}
        return replace(self, **changed)

    @property
    def training(self) -> TinyTable:
        return self.at(np.flatnonzero(self.part == "train"))

    def trial_data(self) -> TrialData:
        """Return the rows as the runner represents them."""
        columns = {"g": self.group.astype(object)}
        names = np.full(len(self), "tiny")
        return TrialData(Sample(columns, self.label, names, self.part, self.weight), self.X)


def plain_table(n: int = 60, held_out: int = 20) -> TinyTable:
    """Return rows whose features and group are informative; group `a` is selected less often."""
    rng = np.random.default_rng(5)
    places = rng.integers(len(FEATURE_POINTS), size=n + held_out)
    group = np.where(rng.random(n + held_out) < 0.4 + 0.1 * (places < 4), "a", "b")
    chance = POSITIVE_SHARES[places // 2] + np.where(group == "a", -0.06, 0.06)
    label = (rng.random(n + held_out) < chance).astype(float)
    part = np.where(np.arange(n + held_out) < n, "train", "validation")
    return TinyTable(FEATURE_POINTS[places], label, group, np.ones(n + held_out), part)


def weighted_table() -> TinyTable:
    """Return a table whose weights change the best decisions: positive rows have a weight of 8."""
    rows = plain_table(held_out=0)
    return replace(rows, weight=np.where(rows.label == 1, 8.0, 1.0))


def repeat_rows(rows: TinyTable) -> TinyTable:
    """Repeat each row as often as its integer weight says, with a weight of 1."""
    often = np.repeat(np.arange(len(rows)), rows.weight.astype(int))
    return replace(rows.at(often), weight=np.ones(len(often)))


def unusual_tables() -> dict[str, TinyTable]:
    """Return unusual tables by a description of what is unusual."""
    rows = plain_table()
    n = len(rows)
    one = np.where((rows.group == "a") & (np.cumsum(rows.group == "a") > 1), "b", rows.group)
    gaps = np.where((np.arange(n) % 5 == 0) & (rows.part == "train"), np.nan, rows.label)
    few = rows.at(np.arange(16))
    noise = np.random.default_rng(6).normal(size=(len(few), 30))
    return {
        "a constant feature": replace(rows, X=rows.X * [1, 0] + [0, 1]),
        "a group of one row, none to validate": replace(rows, group=one),
        "all labels positive": replace(rows, label=np.ones(n)),
        "all labels negative": replace(rows, label=np.zeros(n)),
        "rows without a label": replace(rows, label=gaps),
        "every row twice": rows.at(np.tile(np.arange(n), 2)),
        "more features than rows": replace(few, X=np.hstack([few.X, noise])),
        "a sparse matrix": replace(rows, X=sparse.csr_array(rows.X)),
        "no validation rows": rows.training,
        "all rows equal": replace(rows, X=np.ones((n, 2))),
    }


def linear_rate(rows: TinyTable, name: str, group: str = "") -> Array:
    """Return the function that maps decisions to a rate of all rows or of one group.

    A piecewise linear function of n decisions p is a matrix (K, n + 1): its value is the maximum of
    the K numbers `form[:, :n] @ p + form[:, n]`. For a rate, K is 1.
    """
    masks = {
        "all": np.ones(len(rows), dtype=bool),
        "none": np.zeros(len(rows), dtype=bool),
        "labelled": ~np.isnan(rows.label),
        "+": rows.label == 1,
        "-": rows.label == 0,
    }
    rate = RATES[name]
    among, yes, no = masks[rate.among], masks[rate.yes], masks[rate.no]
    share = np.where(among & (rows.group == group) if group else among, rows.weight, 0.0)
    share /= share.sum()
    return np.append(share * yes - share * no, share @ no)[None]


def _kl(target: float, rate: Array) -> Array:
    """Return tangents to KL(target || rate) of two Bernoulli distributions."""
    q = expit(np.linspace(-5, 5, TANGENTS))
    value = target * np.log(target / q) + (1 - target) * np.log((1 - target) / (1 - q))
    slope = (q - target) / (q * (1 - q))
    tangents: Array = slope[:, None] * rate
    tangents[:, -1] += value - slope * q
    return tangents


def _rms(first: Array, second: Array) -> Array:
    """Return tangents to the root mean square of two rates: projections on directions."""
    angles = np.linspace(0, np.pi / 2, TANGENTS)[:, None]
    tangents: Array = np.cos(angles) * first + np.sin(angles) * second
    return tangents / math.sqrt(2)


def _value(form: Array, decisions: Array) -> float:
    return float((form[:, :-1] @ decisions + form[:, -1]).max())


@dataclass(frozen=True)
class ExactProblem:
    """Minimize `objective / denominator` so that each `form` of the limits is at most its bound.

    All functions are piecewise linear (see `linear_rate`). The denominator is linear and never
    negative; None means 1.
    """

    objective: Array
    limits: tuple[tuple[Array, float], ...] = ()
    denominator: Array | None = None

    def value(self, decisions: Array) -> float:
        below = 1.0 if self.denominator is None else _value(self.denominator, decisions)
        return _value(self.objective, decisions) / below if below > 0 else math.nan

    def violation(self, decisions: Array) -> float:
        return max((_value(form, decisions) - bound for form, bound in self.limits), default=0.0)

    def best(self, cells: RowPositions, slack: float = 0.0) -> float:
        """Return the least objective of decisions that are equal within each cell.

        `cells` (n,) has the cell of each row, numbered from 0; limits may be violated by `slack`.
        Return infinity if no decisions satisfy the limits. A ratio becomes linear in the variables
        t = 1 / denominator and y = t q, for the decisions q of the cells (Charnes and Cooper 1962).
        """
        groups = np.equal.outer(np.arange(cells.max() + 1), cells).astype(float)
        count = len(groups)

        def rows(form: Array, bound: float, own: float) -> Array:
            """Return the coefficients of y, t and the objective's value in `form <= bound`."""
            ends = np.column_stack([form[:, -1] - bound, np.full(len(form), own)])
            return np.hstack([form[:, :-1] @ groups.T, ends])

        upper = np.vstack(
            [
                rows(self.objective, 0.0, -1.0),
                *(rows(form, bound + slack, 0.0) for form, bound in self.limits),
                np.hstack([np.eye(count), np.full((count, 1), -1.0), np.zeros((count, 1))]),
            ]
        )
        one = np.append(np.zeros(len(cells)), 1.0)[None]
        found = linprog(
            np.append(np.zeros(count + 1), 1.0),
            upper,
            np.zeros(len(upper)),
            rows(one if self.denominator is None else self.denominator, 0.0, 0.0),
            np.ones(1),
            bounds=[(0.0, None)] * (count + 1) + [(None, None)],
        )
        if found.status not in {0, 2}:
            raise ArithmeticError(f"a tiny linear program was not solved: {found.message}")
        return float(found.fun) if found.status == 0 else math.inf

    def best_line(self, masks: Mask, slack: float = 1e-9) -> float:
        """Return the smallest objective among M classifiers given as decisions (M, n).

        NaN if every one violates a constraint by more than `slack`.
        """
        decisions = masks.astype(float)
        values = [self.value(each) for each in decisions if self.violation(each) <= slack]
        return min((value for value in values if not math.isnan(value)), default=math.nan)


def indistinguishable_rows(*columns: Array) -> RowPositions:
    """Return (n,) cell numbers, equal for rows equal in all columns, each (n,) or (n, k)."""
    table = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    return np.unique(table, axis=0, return_inverse=True)[1].ravel()


def dense(X: Features) -> Array:
    return X if isinstance(X, np.ndarray) else X.toarray()


def linear_decisions(rows: TinyTable) -> Mask:
    """Return (M, n): the decisions of all linear thresholds on two features.

    Every direction between two critical ones, and every cut, is enumerated.
    """
    places, of = np.unique(dense(rows.X)[:, :2], axis=0, return_inverse=True)
    apart = (places[:, None] - places[None]).reshape(-1, 2)
    apart = apart[np.abs(apart).sum(axis=1) > 0]
    turns = np.unique(np.round(np.arctan2(apart[:, 0], -apart[:, 1]) % (2 * np.pi), 12))
    angles = turns + np.diff(turns, append=turns[0] + 2 * np.pi) / 2
    scores = places @ np.array([np.cos(angles), np.sin(angles)])
    above = scores[:, :, None] > scores.T[None] + 1e-9  # (places, angles, cuts)
    masks = above.reshape(len(places), -1).T
    masks = np.vstack([masks, np.ones(len(places), dtype=bool)])
    return np.asarray(np.unique(masks, axis=0)[:, of.ravel()])


RateFunction = Callable[..., Array]
"""`linear_rate` of a table."""


@dataclass(frozen=True)
class TinyProblemGoals:
    """An objective and rules as in a file, and the same problem in numbers on the training rows.

    `possible` is whether the plain table can satisfy the rules. `formula` is None if no lower bound
    of the objective but 0 is known.
    """

    name: str
    objective: str = "error"
    rules: Mapping[str, str] = field(default_factory=dict)
    formula: Callable[[RateFunction], ExactProblem] | None = None
    possible: bool = True

    def exact(self, rows: TinyTable) -> ExactProblem | None:
        """Return the problem in numbers, None if its optimum is not known."""
        return self.formula and self.formula(partial(linear_rate, rows))

    def read(self) -> tuple[Goal, tuple[Goal, ...]]:
        scope = Scope(values={"g": ("a", "b")}.get, columns=frozenset({"g"}))
        rules = []
        for name, text in self.rules.items():
            parts = constraint_differences(parse_constraint(text), scope)
            rules.append(constraint_goal(name, text, parts, violation_expression(parts)))
        objective = resolve(parse_expression(self.objective), scope)
        return objective_goal(self.objective, objective), tuple(rules)

    def supported_by(self, solver: type[Solver]) -> bool:
        """Return whether a solver declares to support these goals.

        A solver that ignores goals supports plain error.
        """
        objective, rules = self.read()
        if solver.role == "ignores":
            return not rules and self.objective == "error"
        refused = [refusal_reason(solver, rule, objective=False)[0] for rule in rules]
        return not any([refusal_reason(solver, objective, objective=True)[0], *refused])


TINY_PROBLEM_GOALS = (
    TinyProblemGoals("least error", formula=lambda rate: ExactProblem(rate("error"))),
    TinyProblemGoals(
        "parity",
        rules={"p": "positive_rate[g = a] >= 0.9 * positive_rate[g = b]"},
        formula=lambda rate: ExactProblem(
            rate("error"), ((0.9 * rate("positive_rate", "b") - rate("positive_rate", "a"), 0.0),)
        ),
    ),
    TinyProblemGoals(
        "recall",
        rules={"r": "tpr[g = a] >= 0.6", "few": "positive_rate <= 0.3"},
        formula=lambda rate: ExactProblem(
            rate("error"), ((-rate("tpr", "a"), -0.6), (rate("positive_rate"), 0.3))
        ),
    ),
    TinyProblemGoals(
        "equal errors",
        "1 - q_mean",
        {"few": "positive_rate <= 0.4"},
        lambda rate: ExactProblem(_rms(rate("fpr"), rate("fnr")), ((rate("positive_rate"), 0.4),)),
    ),
    TinyProblemGoals(
        "a divergence",
        rules={"near": "kl(0.6, positive_rate[g = a]) <= 0.01"},
        formula=lambda rate: ExactProblem(
            rate("error"), ((_kl(0.6, rate("positive_rate", "a")), 0.01),)
        ),
    ),
    TinyProblemGoals(
        "f1",
        "1 - f1",
        {"few": "positive_rate <= 0.3"},
        lambda rate: ExactProblem(
            rate("error"),
            ((rate("positive_rate"), 0.3),),
            2.0 * rate("true_positives") + rate("error"),
        ),
    ),
    TinyProblemGoals("two ratios", rules={"f": "f1[g = a] >= 0.9 * f1[g = b]"}),
    TinyProblemGoals("balanced groups", "imbalance(by=g)"),
    TinyProblemGoals(
        "out of reach",
        rules={"r": "tpr >= 0.95", "few": "positive_rate <= 0.1"},
        formula=lambda rate: ExactProblem(
            rate("error"), ((-rate("tpr"), -0.95), (rate("positive_rate"), 0.1))
        ),
        possible=False,
    ),
)


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
        """The solution; raises CheckFailedError if there is none."""
        if self.solution is None:
            assert self.error is not None
            reason = f"on '{self.goals.name}': {exception_line(self.error)}"
            raise CheckFailedError(reason)
        return self.solution

    @property
    def decisions(self) -> Array | None:
        """The (n,) decisions of the main classifier."""
        return None if self.main is None else self.problem.decisions(self.main)

    @property
    def violation(self) -> float:
        """The violation of the main classifier; 0 without one."""
        return 0.0 if self.main is None else self.problem.violation(self.main)

    def cells(self) -> RowPositions:
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

    def exact_runs(self) -> Iterator[tuple[SolverRun, Solution, ExactProblem]]:
        """Yield the plain runs with a solution on problems whose optimum is known."""
        for run in self.plain_runs():
            exact = run.goals.exact(run.rows.training)
            if exact is not None and run.solution is not None:
                yield run, run.solution, exact

    def all_runs(self) -> list[SolverRun]:
        """Return the runs on all supported goals, and all other runs so far."""
        self.plain_runs()
        return list(self.runs.values())

    def run(
        self, name: str, goals: TinyProblemGoals, rows: TinyTable, solver: Solver | None = None
    ) -> SolverRun:
        if not self.runs:  # modules imported on first use may write files or use random numbers
            _run(self.solver, goals, rows)
        if name not in self.runs:
            self.runs[name] = _run(solver or self.solver, goals, rows)
        return self.runs[name]


def all_variants(runs: Iterable[SolverRun]) -> Iterator[tuple[SolverRun, Classifier, str]]:
    """Yield each classifier of some runs, with its name for messages."""
    for run in runs:
        for name, variant in run.solution.variants.items() if run.solution else ():
            yield run, variant, f"variant '{name}' on '{run.goals.name}'"


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
    if not isinstance(solution, Solution):
        error = error or TypeError(f"solve returned {type(solution).__name__}, not a Solution")
        solution = None
    return SolverRun(goals, rows, problem, solution, error, tuple(calls), effects, seconds)


def pose_problem(solver: Solver, goals: TinyProblemGoals, rows: TinyTable) -> Problem:
    """Return the problem as the runner would pose it."""
    objective, rules = goals.read()
    problem = training_problem(rows.trial_data(), objective, rules, L2)
    if solver.needs_safety_test:
        delta = dict.fromkeys((rule.name for rule in rules), 0.2)
        problem = replace(problem, safety_test=SafetyTestSpec(delta, len(rows)))
    if solver.needs_deployed:
        problem = replace(problem, deployed=Threshold(np.eye(problem.X.shape[1])[0]))
    return problem

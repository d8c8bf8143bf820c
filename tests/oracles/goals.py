"""Problems for solvers, written as rules of a file, on arrays instead of tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ratecli.models.base import Array, Classifier, Features
from ratecli.models.composed import append_memberships
from ratecli.rates import expression as ex
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.matrix import RowKinds, build_rate_matrix
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.rate_function import RateFunction, Tangents
from ratecli.rates.resolve import constraint_differences, resolve, violation_expression
from ratecli.rates.sample import Logs, Sample
from ratecli.rates.scope import LoggedRanges, Scope
from ratecli.solvers.base import Solution, Solver
from ratecli.solvers.problem import ERROR_RATE, Problem

KL = "kl(base_rate, positive_rate[g=a]) + kl(base_rate, positive_rate[g=b])"


@dataclass(frozen=True)
class Rows:
    """Features, labels (NaN where there is none), a column `g`, row weights, deployed decisions.

    Outcomes of logged decisions, if there are any, have an unknown range.
    """

    X: Features
    label: Array
    group: NDArray[np.object_]
    weight: Array | None = None
    deployed: Array | None = None
    logs: Logs | None = None

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True)
class Rules:
    """An objective, and constraints by name."""

    constraints: Mapping[str, str] = field(default_factory=dict)
    objective: str = "error"


def problem(rows: Rows, rules: Rules, l2: float | None = None) -> Problem:
    """Return the `Problem` of rules on rows with a column `g`; l2 is 1 / n by default."""
    return problem_of(rows, rules, {"g": rows.group}, l2)


def problem_of(
    rows: Rows,
    rules: Rules,
    columns: Mapping[str, NDArray[np.object_]],
    l2: float | None = None,
    dataset: NDArray[np.str_] | None = None,
) -> Problem:
    """Return the problem of rules on rows with any columns, in one or several data sets."""
    n = len(rows)
    names = np.full(n, "d") if dataset is None else dataset
    weight = np.ones(n) if rows.weight is None else rows.weight
    parts = names, np.full(n, "train")
    sample = Sample(columns, rows.label, *parts, weight, rows.deployed, logs=rows.logs)
    values = {name: sorted({*column.tolist()} - {None}) for name, column in columns.items()}
    known = frozenset(names.tolist())
    outcomes = {} if rows.logs is None else rows.logs.outcomes
    logged = LoggedRanges(dict.fromkeys(outcomes, (-np.inf, np.inf)))
    scope = Scope(datasets=known, values=values.get, columns=frozenset(columns), logged=logged)
    objective = objective_goal(rules.objective, resolve(parse_expression(rules.objective), scope))
    goals = constraint_goals(rules.constraints, scope)
    pieces = [piece for goal in goals for piece in goal.pieces]
    written = [goal.expression for goal in goals]
    used = [*ex.leaves(objective.expression, *pieces), ERROR_RATE, *ex.leaves(*written)]
    matrix = build_rate_matrix(used, sample, "train")
    if np.isnan(matrix.c[matrix.index()[ERROR_RATE]]) and rows.logs is not None:
        matrix = matrix.zero(ERROR_RATE)
    wheres = [leaf.where.visible for leaf in matrix.leaves]
    slices = {str(where): sample.rows(where) for where in wheres}
    penalty = 1 / n if l2 is None else l2
    filled = {name: pd.notna(column) for name, column in columns.items()}
    more = {"slices": slices, "known": filled, "label": rows.label}
    return Problem(rows.X, matrix, objective, goals, penalty, **more)


def constraint_goals(texts: Mapping[str, str], scope: Scope) -> tuple[Goal, ...]:
    """Return the constraints of a file by their names and texts."""
    goals = []
    for name, text in texts.items():
        parts = constraint_differences(parse_constraint(text), scope)
        goals.append(constraint_goal(name, text, parts, violation_expression(parts)))
    return tuple(goals)


BOTH: Any = {"randomize": True, "variants": ("deterministic",)}
"""Options of a randomized model, with the deterministic one for comparison."""


def run(solver: Solver, given: Problem, seed: int = 0) -> Solution:
    """Solve a problem and ignore its progress."""
    return solver.solve(given, np.random.default_rng(seed), lambda _: None)


def shown(rows: Rows, classifier: Classifier) -> Features:
    """Return the features of a classifier whose slices are like `g = a`."""
    names = [text.removeprefix("g = ") for text in classifier.slices]
    return append_memberships(rows.X, [rows.group == name for name in names])


def values(node: ex.Expression, rates: Array, index: Mapping[ex.Leaf, int]) -> Any:
    """Return the value of an expression at rates (K,), or its values (T,) at (K, T)."""
    return RateFunction.of([node], index).values(rates)[0]


def tangent(node: ex.Expression, rates: Array, index: Mapping[ex.Leaf, int]) -> Tangents:
    """Return the tangent of an expression at rates (K,)."""
    return Tangents(*(each[0] for each in RateFunction.of([node], index).tangents(rates)))


def evaluate(node: ex.Expression, known: Mapping[Any, float]) -> float:
    """Return the value of an expression, given those of the nodes that it measures."""
    return RateFunction.of([node], {part: k for k, part in enumerate(known)}).values(
        np.array([*known.values()], dtype=float)
    )[0]


def rates_of(given: Problem, classifier: Classifier) -> Array:
    """Return the rates (K,) of a classifier."""
    return given.rates.rates(given.decisions(classifier))


def forms(problem: Problem) -> tuple[Array, Array]:
    """Return goals as `coefficients @ decisions + constants`; row 0 is the objective."""
    return problem.rows(problem.objective, *problem.constraints)


def measured(problem: Problem, classifier: Classifier) -> Array:
    """Return objective and constraint values of a classifier."""
    coefficients, constants = forms(problem)
    return coefficients @ classifier.decide(problem.X) + constants


def by_kind(kinds: RowKinds, measured: Array) -> Array:
    """Return the sums (Q, ...) of numbers (n, ...) over the rows of each kind, by their weights."""
    return np.eye(kinds.count)[kinds.of].T @ (kinds.weight * measured.T).T


def grid_rows(seed: int, n: int = 40, d: int = 2, reach: int = 3) -> Rows:
    """Return integral points in [-reach, reach]^d with 3 groups, noisy labels and decisions."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-reach, reach + 1, size=(n, d)).astype(float)
    group = np.array(["a", "b", "c"], dtype=object)[rng.integers(3, size=n)]
    score = X @ rng.normal(size=d) + 1.0 * (group == "a") - 1.0 * (group == "b")
    label = (score + rng.normal(size=n) > 0).astype(float)
    deployed = (score + 0.5 * rng.normal(size=n) > 0.5).astype(float)
    return Rows(X, label, group, deployed=deployed)


def smooth_rows(seed: int, n: int = 400, d: int = 5) -> Rows:
    """Return Gaussian features; their means and the base rates depend on the group."""
    rng = np.random.default_rng(seed)
    code = rng.integers(3, size=n)
    X = rng.normal(size=(n, d))
    X[:, 0] += 0.5 * code
    score = X @ rng.normal(size=d) + 0.5 * (code - 1)
    label = (score + rng.normal(size=n) > 0.3).astype(float)
    deployed = (score + rng.normal(size=n) > 0.6).astype(float)
    return Rows(X, label, np.array(["a", "b", "c"], dtype=object)[code], deployed=deployed)

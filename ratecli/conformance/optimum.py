"""Exact optima of tiny problems, found by linear programming and by enumerating linear classifiers.

No code of the solvers is used, so that the reference is independent of what is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ratecli.conformance.rows import (
    DecisionLinear,
    TinyTable,
    error_form,
    false_negative_form,
    label_share_form,
    positive_rate_form,
    selection_rate_form,
)
from ratecli.experiment.goal_checks import refusal_reason
from ratecli.models.base import Array
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.resolve import Scope, constraint_differences, resolve, violation_expression
from ratecli.solvers.base import Solver

OPTIMUM_TOLERANCE = 1e-9
BIG_M = 1e3
"""Larger than any ratio in these problems."""
MAX_CUT_ROUNDS = 200
DecisionMasks = NDArray[np.bool_]


@dataclass(frozen=True)
class DecisionRatio:
    """`top / bottom`; the bottom is never negative, and positive for some decisions."""

    top: DecisionLinear
    bottom: DecisionLinear

    def at(self, decisions: Array) -> float:
        bottom = self.bottom.at(decisions)
        return self.top.at(decisions) / bottom if bottom > 0 else math.nan


@dataclass(frozen=True)
class DecisionConvex:
    """A convex function of linear parts.

    `of` maps the values of the K parts to the function's value and its slopes (K,).
    """

    parts: tuple[DecisionLinear, ...]
    of: Callable[[Array], tuple[float, Array]]

    def at(self, decisions: Array) -> float:
        return self.of(np.array([part.at(decisions) for part in self.parts]))[0]


ObjectiveForm = DecisionLinear | DecisionRatio | DecisionConvex


@dataclass(frozen=True)
class ExactProblem:
    """Minimize the objective so that each of `limits` is at most 0.

    Limits may be convex, but not ratios.
    """

    objective: ObjectiveForm
    limits: tuple[DecisionLinear | DecisionConvex, ...]

    def violation(self, decisions: Array) -> float:
        return max((limit.at(decisions) for limit in self.limits), default=0.0)

    def best(self, cells: NDArray[np.intp], slack: float = 0.0) -> float:
        """Return the least objective of decisions that are equal within each cell.

        `cells` (n,) has the cell of each row, numbered from 0; limits may be violated by `slack`.
        Return infinity if no decisions satisfy the limits.
        """
        groups = np.equal.outer(np.arange(cells.max() + 1), cells).astype(float)
        return _Program(self, groups, slack).least()

    def best_line(self, masks: DecisionMasks, slack: float = 1e-9) -> float:
        """Return the smallest objective among M classifiers given as decisions (M, n).

        NaN if every one violates a constraint by more than `slack`.
        """
        values = [
            self.objective.at(mask.astype(float))
            for mask in masks
            if self.violation(mask.astype(float)) <= slack
        ]
        return min((value for value in values if not math.isnan(value)), default=math.nan)


@dataclass(frozen=True)
class _Program:
    """A linear program over q in [0, 1]^C, the decision of each cell.

    `groups` (C, n) indicates which rows are in each cell.
    """

    exact: ExactProblem
    groups: Array
    slack: float

    @cached_property
    def flat(self) -> list[DecisionLinear]:
        return [self.cell(each) for each in self.exact.limits if isinstance(each, DecisionLinear)]

    def cell(self, form: DecisionLinear) -> DecisionLinear:
        return DecisionLinear(self.groups @ form.coefficients, form.constant)

    def least(self) -> float:
        objective = self.exact.objective
        if isinstance(objective, DecisionRatio):
            return self.least_ratio(objective)
        if isinstance(objective, DecisionConvex):
            return self.cut([objective], None)
        return self.cut([], objective)

    def least_ratio(self, ratio: DecisionRatio) -> float:
        """Return the least ratio by Dinkelbach's method.

        It is the value at which the minimum of `top - value * bottom` is 0.
        """
        value = BIG_M
        for _ in range(MAX_CUT_ROUNDS):
            found, point = self.solved([], ratio.top - value * ratio.bottom)
            if point is None:
                return math.inf
            now = ratio.at(self.groups.T @ point)
            if math.isnan(now) or found >= -OPTIMUM_TOLERANCE:
                return value
            value = now
        return value

    def cut(self, objectives: list[DecisionConvex], linear: DecisionLinear | None) -> float:
        """Return the least value by Kelley's cutting planes for convex objectives and limits."""
        curved = [each for each in self.exact.limits if isinstance(each, DecisionConvex)]
        cuts: list[tuple[DecisionLinear, bool]] = []
        found = math.inf
        for _ in range(MAX_CUT_ROUNDS):
            found, point = self.solved(cuts, linear)
            if point is None:
                return math.inf
            if not objectives and not curved:
                return found
            decisions = self.groups.T @ point
            near = True
            for each, aim in [*((o, True) for o in objectives), *((c, False) for c in curved)]:
                touch = _tangent(each, decisions)
                over = touch.at(decisions) - (found if aim else self.slack)
                if over > OPTIMUM_TOLERANCE:
                    near = False
                    cuts.append((touch, aim))
            if near:
                return found
        return found

    def solved(
        self, cuts: Sequence[tuple[DecisionLinear, bool]], linear: DecisionLinear | None
    ) -> tuple[float, Array | None]:
        """Return the least value and its point (C,), or infinity and None if infeasible.

        Without a `linear` objective, minimize an upper bound of the cuts that are marked as
        objectives.
        """
        count = len(self.groups)
        rows, ends = [], []
        for form in self.flat:
            rows.append(np.append(form.coefficients, 0.0))
            ends.append(self.slack - form.constant)
        for form, aim in cuts:
            own = self.cell(form)
            rows.append(np.append(own.coefficients, -1.0 if aim else 0.0))
            ends.append((0.0 if aim else self.slack) - own.constant)
        costs = np.append(np.zeros(count), 1.0)
        if linear is not None:
            costs = np.append(self.cell(linear).coefficients, 0.0)
        bounds = [(0.0, 1.0)] * count + [(0.0, None)]  # convex objectives here are never negative
        found = linprog(costs, np.array(rows) if rows else None, ends or None, bounds=bounds)
        if found.status == 2:
            return math.inf, None
        if found.status != 0:
            raise ArithmeticError(f"a tiny linear program was not solved: {found.message}")
        constant = 0.0 if linear is None else linear.constant
        return float(found.fun) + constant, np.asarray(found.x[:count])


def _tangent(form: DecisionConvex, decisions: Array) -> DecisionLinear:
    at = np.array([part.at(decisions) for part in form.parts])
    value, slopes = form.of(at)
    total = DecisionLinear(np.zeros_like(decisions), value - float(slopes @ at))
    for slope, part in zip(slopes, form.parts, strict=True):
        total += float(slope) * part
    return total


def indistinguishable_rows(*columns: Array) -> NDArray[np.intp]:
    """Return (n,) cell numbers, equal for rows equal in all columns, each (n,) or (n, k)."""
    table = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    return np.unique(table, axis=0, return_inverse=True)[1].ravel()


def linear_decisions(rows: TinyTable) -> DecisionMasks:
    """Return (M, n): the decisions of all linear thresholds on two features.

    Every direction between two critical ones, and every cut, is enumerated.
    """
    X = rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray()
    places, of = np.unique(X[:, :2], axis=0, return_inverse=True)
    apart = (places[:, None] - places[None]).reshape(-1, 2)
    apart = apart[np.abs(apart).sum(axis=1) > 0]
    turns = np.unique(np.round(np.arctan2(apart[:, 0], -apart[:, 1]) % (2 * np.pi), 12))
    if not len(turns):
        turns = np.zeros(1)
    angles = turns + np.diff(turns, append=turns[0] + 2 * np.pi) / 2
    found = [np.zeros(len(places), dtype=bool), np.ones(len(places), dtype=bool)]
    for angle in angles:
        scores = places @ np.array([np.cos(angle), np.sin(angle)])
        found += [scores > cut + OPTIMUM_TOLERANCE for cut in scores]
    return np.asarray(np.unique(np.array(found), axis=0)[:, of.ravel()])


@dataclass(frozen=True)
class TinyProblemGoals:
    """An objective and rules as in a file, and the same problem in numbers on the training rows.

    `possible` is whether the plain table can satisfy the rules. `exact` is None if no lower bound
    of the objective but 0 is known.
    """

    name: str
    objective: str = "error"
    rules: Mapping[str, str] = field(default_factory=dict)
    exact: Callable[[TinyTable], ExactProblem] | None = None
    possible: bool = True

    def read(self) -> tuple[Goal, tuple[Goal, ...]]:
        scope = Scope(values={"g": ("a", "b")}.get, columns=frozenset({"g"}))
        made = []
        for name, text in self.rules.items():
            parts = constraint_differences(parse_constraint(text), scope)
            made.append(constraint_goal(name, text, parts, violation_expression(parts)))
        return objective_goal(
            self.objective, resolve(parse_expression(self.objective), scope)
        ), tuple(made)

    def taken(self, solver: type[Solver]) -> bool:
        """Return whether a solver declares to take these goals.

        A solver that ignores goals takes plain error.
        """
        objective, rules = self.read()
        if solver.role == "ignores":
            return not rules and self.objective == "error"
        refused = [refusal_reason(solver, rule, objective=False)[0] for rule in rules]
        return not any([refusal_reason(solver, objective, objective=True)[0], *refused])


def _kl(target: float) -> Callable[[Array], tuple[float, Array]]:
    """Return the sum of KL(target || x) over parts, with x clipped to [1e-10, 1 - 1e-10]."""

    def of(x: Array) -> tuple[float, Array]:
        q = np.clip(x, 1e-10, 1 - 1e-10)
        value = target * np.log(target / q) + (1 - target) * np.log((1 - target) / (1 - q))
        return float(value.sum()), (q - target) / (q * (1 - q))

    return of


def _rms(x: Array) -> tuple[float, Array]:
    size = math.sqrt(float((x**2).mean()))
    return size, x / (len(x) * size) if size else np.zeros_like(x)


def _parity(rows: TinyTable) -> ExactProblem:
    return ExactProblem(
        error_form(rows), (0.9 * selection_rate_form(rows, "b") - selection_rate_form(rows, "a"),)
    )


def _recall(rows: TinyTable) -> ExactProblem:
    few = selection_rate_form(rows).less(0.3)
    return ExactProblem(
        error_form(rows), ((-1.0 * positive_rate_form(rows, 1, "a")).less(-0.6), few)
    )


def _never(rows: TinyTable) -> ExactProblem:
    return ExactProblem(
        error_form(rows),
        ((-1.0 * positive_rate_form(rows, 1)).less(-0.95), selection_rate_form(rows).less(0.1)),
    )


def _balanced_errors(rows: TinyTable) -> ExactProblem:
    return ExactProblem(
        DecisionConvex((positive_rate_form(rows, 0), false_negative_form(rows)), _rms),
        (selection_rate_form(rows).less(0.4),),
    )


def _near(rows: TinyTable) -> ExactProblem:
    return ExactProblem(
        error_form(rows),
        (_less(DecisionConvex((selection_rate_form(rows, "a"),), _kl(0.6)), 0.01),),
    )


def _less(form: DecisionConvex, number: float) -> DecisionConvex:
    def of(x: Array) -> tuple[float, Array]:
        value, slopes = form.of(x)
        return value - number, slopes

    return DecisionConvex(form.parts, of)


def _f1(rows: TinyTable) -> ExactProblem:
    right, wrong = label_share_form(rows, 1, yes=True), label_share_form(rows, 0, yes=True)
    lost = label_share_form(rows, 1, yes=False)
    whole = 2.0 * right + wrong + lost
    return ExactProblem(DecisionRatio(wrong + lost, whole), (selection_rate_form(rows).less(0.3),))


TINY_PROBLEM_GOALS = (
    TinyProblemGoals("least error", exact=lambda rows: ExactProblem(error_form(rows), ())),
    TinyProblemGoals(
        "parity", rules={"p": "positive_rate[g = a] >= 0.9 * positive_rate[g = b]"}, exact=_parity
    ),
    TinyProblemGoals(
        "recall", rules={"r": "tpr[g = a] >= 0.6", "few": "positive_rate <= 0.3"}, exact=_recall
    ),
    TinyProblemGoals(
        "equal errors", "1 - q_mean", {"few": "positive_rate <= 0.4"}, _balanced_errors
    ),
    TinyProblemGoals(
        "a divergence", rules={"near": "kl(0.6, positive_rate[g = a]) <= 0.01"}, exact=_near
    ),
    TinyProblemGoals("f1", "1 - f1", {"few": "positive_rate <= 0.3"}, _f1),
    TinyProblemGoals("two ratios", rules={"f": "f1[g = a] >= 0.9 * f1[g = b]"}),
    TinyProblemGoals("balanced groups", "imbalance(by=g)"),
    TinyProblemGoals(
        "out of reach",
        rules={"r": "tpr >= 0.95", "few": "positive_rate <= 0.1"},
        exact=_never,
        possible=False,
    ),
)

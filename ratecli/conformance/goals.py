"""What solvers are asked on tiny tables: goals of each class, with their numbers and their optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ratecli.conformance.optimum import DecisionConvex, DecisionRatio, ExactProblem
from ratecli.conformance.rows import (
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


@dataclass(frozen=True)
class TinyProblemGoals:
    """An objective and rules as a file has them, and the same in numbers on the training rows.

    `possible` says whether the plain table can meet the rules; `exact` is None where nothing but 0 is
    known of the objective from below.
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
        """Whether a solver says that it takes them; one that ignores goals takes plain error."""
        objective, rules = self.read()
        if solver.role == "ignores":
            return not rules and self.objective == "error"
        refused = [refusal_reason(solver, rule, objective=False)[0] for rule in rules]
        return not any([refusal_reason(solver, objective, objective=True)[0], *refused])


def _kl(target: float) -> Callable[[Array], tuple[float, Array]]:
    """The sum of KL(target || x) over parts, x within [1e-10, 1 - 1e-10]."""

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
    TinyProblemGoals("parity", rules={"p": "positive_rate[g = a] >= 0.9 * positive_rate[g = b]"}, exact=_parity),
    TinyProblemGoals("recall", rules={"r": "tpr[g = a] >= 0.6", "few": "positive_rate <= 0.3"}, exact=_recall),
    TinyProblemGoals("equal errors", "1 - q_mean", {"few": "positive_rate <= 0.4"}, _balanced_errors),
    TinyProblemGoals("a divergence", rules={"near": "kl(0.6, positive_rate[g = a]) <= 0.01"}, exact=_near),
    TinyProblemGoals("f1", "1 - f1", {"few": "positive_rate <= 0.3"}, _f1),
    TinyProblemGoals("two ratios", rules={"f": "f1[g = a] >= 0.9 * f1[g = b]"}),
    TinyProblemGoals("balanced groups", "imbalance(by=g)"),
    TinyProblemGoals("out of reach", rules={"r": "tpr >= 0.95", "few": "positive_rate <= 0.1"}, exact=_never,
          possible=False),
)  # fmt: skip

"""What solvers are asked on tiny tables: goals of each class, with their numbers and their optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ratecli.conformance.optimum import Convex, Exact, Ratio
from ratecli.conformance.rows import Rows, counted, error, hit, missed, selected
from ratecli.experiment.goal_checks import refusal
from ratecli.models.base import Array
from ratecli.rates.analysis import Goal, objective_goal, rule_goal
from ratecli.rates.parser import parse_rule, parse_value
from ratecli.rates.resolve import Scope, differences, resolve, violation
from ratecli.solvers.base import Solver


@dataclass(frozen=True)
class Goals:
    """An objective and rules as a file has them, and the same in numbers on the training rows.

    `possible` says whether the plain table can meet the rules; `exact` is None where nothing but 0 is
    known of the objective from below.
    """

    name: str
    objective: str = "error"
    rules: Mapping[str, str] = field(default_factory=dict)
    exact: Callable[[Rows], Exact] | None = None
    possible: bool = True

    def read(self) -> tuple[Goal, tuple[Goal, ...]]:
        scope = Scope(values={"g": ("a", "b")}.get, columns=frozenset({"g"}))
        made = []
        for name, text in self.rules.items():
            parts = differences(parse_rule(text), scope)
            made.append(rule_goal(name, text, parts, violation(parts)))
        return objective_goal(self.objective, resolve(parse_value(self.objective), scope)), tuple(
            made
        )

    def taken(self, solver: type[Solver]) -> bool:
        """Whether a solver says that it takes them; one that ignores goals takes plain error."""
        objective, rules = self.read()
        if solver.role == "ignores":
            return not rules and self.objective == "error"
        refused = [refusal(solver, rule, objective=False)[0] for rule in rules]
        return not any([refusal(solver, objective, objective=True)[0], *refused])


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


def _parity(rows: Rows) -> Exact:
    return Exact(error(rows), (0.9 * selected(rows, "b") - selected(rows, "a"),))


def _recall(rows: Rows) -> Exact:
    few = selected(rows).less(0.3)
    return Exact(error(rows), ((-1.0 * hit(rows, 1, "a")).less(-0.6), few))


def _never(rows: Rows) -> Exact:
    return Exact(error(rows), ((-1.0 * hit(rows, 1)).less(-0.95), selected(rows).less(0.1)))


def _balanced_errors(rows: Rows) -> Exact:
    return Exact(Convex((hit(rows, 0), missed(rows)), _rms), (selected(rows).less(0.4),))


def _near(rows: Rows) -> Exact:
    return Exact(
        error(rows),
        (_less(Convex((selected(rows, "a"),), _kl(0.6)), 0.01),),
    )


def _less(form: Convex, number: float) -> Convex:
    def of(x: Array) -> tuple[float, Array]:
        value, slopes = form.of(x)
        return value - number, slopes

    return Convex(form.parts, of)


def _f1(rows: Rows) -> Exact:
    right, wrong = counted(rows, 1, yes=True), counted(rows, 0, yes=True)
    lost = counted(rows, 1, yes=False)
    whole = 2.0 * right + wrong + lost
    return Exact(Ratio(wrong + lost, whole), (selected(rows).less(0.3),))


GOALS = (
    Goals("least error", exact=lambda rows: Exact(error(rows), ())),
    Goals("parity", rules={"p": "positive_rate[g = a] >= 0.9 * positive_rate[g = b]"}, exact=_parity),
    Goals("recall", rules={"r": "tpr[g = a] >= 0.6", "few": "positive_rate <= 0.3"}, exact=_recall),
    Goals("equal errors", "1 - q_mean", {"few": "positive_rate <= 0.4"}, _balanced_errors),
    Goals("a divergence", rules={"near": "kl(0.6, positive_rate[g = a]) <= 0.01"}, exact=_near),
    Goals("f1", "1 - f1", {"few": "positive_rate <= 0.3"}, _f1),
    Goals("two ratios", rules={"f": "f1[g = a] >= 0.9 * f1[g = b]"}),
    Goals("balanced groups", "imbalance(by=g)"),
    Goals("out of reach", rules={"r": "tpr >= 0.95", "few": "positive_rate <= 0.1"}, exact=_never,
          possible=False),
)  # fmt: skip

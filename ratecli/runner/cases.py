"""What a file asks for: each algorithm at each sweep point, with its goals understood.

All that can be said without reading data is said here: names, syntax, classes of goals, and whether
each algorithm takes them. With the columns of the data, their names and values are checked too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from ratecli.faults import Fault, FaultError
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, Shape, objective_goal, rule_goal
from ratecli.rates.expression import Expression
from ratecli.rates.parser import parse_conditions, parse_rule, parse_value
from ratecli.rates.resolve import Scope
from ratecli.rates.syntax import Condition, Node, Relation
from ratecli.runner.options import OptionError, in_key, solver, solver_class
from ratecli.runner.preliminary import preliminary_faults
from ratecli.runner.ranges import violation_range
from ratecli.runner.shown import report_faults
from ratecli.solvers.base import Solver
from ratecli.solvers.registry import algorithms
from ratecli.spec.algorithm import Algorithm
from ratecli.spec.document import Document, Loc
from ratecli.spec.experiment import Experiment
from ratecli.spec.sweep import Point, points

T = TypeVar("T")

PLACEHOLDER = 0.5
"""Stands for `of(...)` while the class of a goal is found: any number would do."""


@dataclass(frozen=True)
class Columns:
    """The columns of all data sets: texts or floats that occur in each, sorted."""

    values: Mapping[str, Sequence[str | float]]


@dataclass(frozen=True)
class Case:
    """One algorithm at one sweep point: a trial but for its seed.

    `metrics` are all that is measured, by display name: `objective`, the file's, and
    `violation.<constraint>`.
    """

    label: str
    algorithm: str
    solver: Solver
    point: Point
    objective: Goal
    constraints: tuple[Goal, ...]
    metrics: Mapping[str, Expression]

    def goals(self) -> tuple[Goal, ...]:
        return (self.objective, *self.constraints)

    def texts(self) -> Iterator[tuple[Loc, Expression]]:
        """Where each expression of the file stands, and the expression."""
        yield ("objective",), self.objective.expression
        yield from ((("constraints", goal.name), goal.expression) for goal in self.constraints)
        names = (name for name in self.metrics if not name.startswith("violation."))
        yield from (
            (("metrics", name), self.metrics[name]) for name in names if name != "objective"
        )

    def of(self, *, goals_only: bool = False) -> list[str]:
        """Labels of the algorithms that must be measured for this one, in alphabetical order."""
        trees = [goal.expression for goal in self.goals()]
        trees += [] if goals_only else self.metrics.values()
        return sorted({node.algorithm for tree in trees for node in ex.walk(tree)
                       if isinstance(node, ex.Of)})  # fmt: skip


@dataclass
class Reading:
    """One reading of an experiment: gathers every fault and warning on the way."""

    experiment: Experiment
    document: Document
    columns: Columns | None = None
    faults: dict[Fault, None] = field(default_factory=dict)
    warnings: dict[Fault, None] = field(default_factory=dict)
    refusals: dict[Fault, None] = field(default_factory=dict)

    def cases(self, *, refuse: bool = True) -> list[Case]:
        """Every case; raises FaultError with all that is wrong.

        Goals that an algorithm does not take (E308) are warnings unless `refuse`: to explain them.
        """
        early = preliminary_faults(self.experiment, self.document)
        if early:
            raise FaultError(early)
        found = [
            case
            for index, entry in enumerate(self.experiment.algorithms)
            if self._known(index, entry)
            for point in points(self.experiment.sweep, entry.sweep)
            if (case := self._case(index, entry, point)) is not None
        ]
        self._check_ranges(found)
        self.faults |= dict.fromkeys(report_faults(self.experiment, self.document))
        if self.faults or (refuse and self.refusals):
            raise FaultError(self.faults | self.refusals)
        self.warnings |= self.refusals
        return found

    # names

    @cached_property
    def groups(self) -> dict[str, tuple[Condition, ...]]:
        found = {}
        for name, text in self.experiment.groups.items():
            with self._placing(("groups", name)):
                conditions = parse_conditions(text)
                rs.check_conditions(conditions, Scope(values=self._values, columns=self._names))
                found[name] = conditions
        return found

    @cached_property
    def trees(self) -> dict[str, Node]:
        """The objective and the metrics as written."""
        texts: dict[tuple[str, ...], str] = {("objective",): self.experiment.objective}
        texts |= {("metrics", name): text for name, text in self.experiment.metrics.items()}
        return {loc[-1]: tree for loc, text in texts.items()
                if (tree := self._parsed(loc, text, parse_value)) is not None}  # fmt: skip

    @cached_property
    def rules(self) -> dict[str, Relation]:
        return {name: rule for name, text in self.experiment.constraints.items()
                if (rule := self._parsed(("constraints", name), text, parse_rule))}  # fmt: skip

    @cached_property
    def _names(self) -> frozenset[str] | None:
        return None if self.columns is None else frozenset(self.columns.values)

    def _values(self, column: str) -> Sequence[str | float] | None:
        if self.columns is None:
            return rs.unknown_values(column)
        return self.columns.values.get(column)

    def _parsed(self, loc: Loc, text: str, parse: Callable[[str], T]) -> T | None:
        with self._placing(loc):
            return parse(text)
        return None

    def _placing(self, loc: Loc) -> _Placing:
        return _Placing(self, loc)

    def _fault(self, loc: Loc, fault: Fault, *, key: bool = False) -> None:
        self.faults[fault.at(self.document.place(loc, fault.span, key=key))] = None

    # algorithms

    def _known(self, index: int, entry: Algorithm) -> bool:
        before = len(self.faults)
        with self._placing(self._loc(index, entry)):
            solver_class(entry.name)
        return len(self.faults) == before

    def _loc(self, index: int, entry: Algorithm, *inside: str | int) -> Loc:
        raw = self.document.data["algorithms"][index]
        return ("algorithms", index, *((entry.name,) if isinstance(raw, dict) else ()), *inside)

    def _solver(self, index: int, entry: Algorithm, point: Point) -> Solver | None:
        """An option whose value is the name of a sweep takes the point's value."""
        options = {
            key: point.get(value, value) if isinstance(value, str) else value
            for key, value in entry.options.items()
        }
        try:
            return solver(entry.name, options, self.experiment.constraints)
        except OptionError as error:
            for complaint in error.complaints:
                fault = complaint.under(*self._loc(index, entry)).fault(self.document)
                self.faults[fault] = None
            return None

    # goals

    def _case(self, index: int, entry: Algorithm, point: Point) -> Case | None:
        before = len(self.faults)
        scope = Scope(
            datasets=frozenset(self.experiment.datasets),
            groups=self.groups,
            parameters=point,
            algorithms=frozenset(other.label for other in self.experiment.algorithms),
            values=self._values,
            columns=self._names,
        )
        made = self._solver(index, entry, point)
        values = {name: value for name, tree in self.trees.items()
                  if (value := self._value(name, tree, scope)) is not None}  # fmt: skip
        rules = {name: goal for name, rule in self.rules.items()
                 if (goal := self._rule(name, rule, scope))}  # fmt: skip
        if made is None or len(self.faults) > before or "objective" not in values:
            return None
        objective = objective_goal(ex.text(values["objective"]), values["objective"])
        case = Case(
            label=entry.label,
            algorithm=entry.name,
            solver=made,
            point=point,
            objective=objective,
            # a reordered file poses the same problem to the solver, number for number
            constraints=tuple(sorted(rules.values(), key=lambda goal: ex.text(goal.expression))),
            metrics=values | {f"violation.{name}": rules[name].expression for name in rules},
        )
        self._check_goals(entry, case)
        return case

    def _value(self, name: str, tree: Node, scope: Scope) -> Expression | None:
        loc = ("objective",) if name == "objective" else ("metrics", name)
        with self._placing(loc):
            value = rs.resolve(tree, scope)
            return ex.transform(value, _in_training) if name == "objective" else value
        return None

    def _rule(self, name: str, rule: Relation, scope: Scope) -> Goal | None:
        with self._placing(("constraints", name)):
            parts = tuple(ex.transform(d, _in_training) for d in rs.differences(rule, scope))
            known = tuple(ex.transform(part, _placeholder) for part in parts)
            shaped = rule_goal(name, str(rule), known, rs.violation(known))
            return Goal(name, str(rule), rs.violation(parts), parts, shaped.shape)
        return None

    def _check_goals(self, entry: Algorithm, case: Case) -> None:
        for goal in case.goals():
            loc = ("objective",) if goal is case.objective else ("constraints", goal.name)
            for leaf in _all_measured(goal.expression):
                self._check_leaf(loc, leaf)
            takes = case.solver.objectives if goal is case.objective else case.solver.constraints
            if case.solver.role != "ignores" and goal.shape not in takes:
                self._refuse(loc, entry, goal)
        for stands, expression in case.texts():
            for leaf in _all_measured(expression):
                self._check_deployed(stands, leaf)

    def _check_leaf(self, loc: Loc, leaf: ex.Leaf | ex.Ranking) -> None:
        if leaf.split not in {None, "train"}:
            message = f"a goal looks at the split '{leaf.split}': algorithms see training rows only"
            hint = "measure it under `metrics` instead"
            self._fault(loc, Fault("E309", message, hint, leaf.span))

    def _check_deployed(self, loc: Loc, leaf: ex.Leaf | ex.Ranking) -> None:
        if isinstance(leaf, ex.Leaf) and leaf.rate.needs_deployed and not self.experiment.deployed:
            message = f"'{leaf.rate.name}' compares with a deployed model, and none is given"
            hint = "say which under `deployed`: a column of its decisions, or an algorithm"
            self._fault(loc, Fault("E307", message, hint, leaf.span))

    def _refuse(self, loc: Loc, entry: Algorithm, goal: Goal) -> None:
        takes = solver_class(entry.name)
        verb = "enforce" if takes.role == "enforces" else "use"
        what = "minimize the objective" if loc == ("objective",) else f"{verb} '{goal.name}'"
        shapes = takes.objectives if loc == ("objective",) else takes.constraints
        message = (
            f"algorithm '{entry.label}' cannot {what}: it is {SHAPES[goal.shape]}, "
            f"the algorithm takes {' and '.join(sorted(shapes))} goals"
        )
        able = [
            name
            for name in algorithms()
            if _takes(name, goal.shape, objective=loc[0] == "objective")
        ]
        hint = f"algorithms that can: {', '.join(able)}" if able else "no algorithm here can yet"
        place = self.document.place(loc)
        self.refusals[Fault("E308", message, hint, place=place)] = None

    def _check_ranges(self, found: Sequence[Case]) -> None:
        """A goal that says nothing, or that nothing can meet, whatever the classifier."""
        aims = [case.objective.expression for case in found if case.solver.role != "ignores"]
        if aims and not any(True for aim in aims for _ in _measured(aim)):
            hint = "write what is to be small, such as error"
            self._fault(("objective",), Fault("E305", "the objective speaks of no rate", hint))
        for name in self.rules:
            goals = [goal for case in found for goal in case.constraints if goal.name == name]
            ranges = [violation_range(goal) for goal in goals]
            loc = ("constraints", name)
            if goals and not any(True for goal in goals for _ in _measured(goal.expression)):
                hint = "a rule compares a rate, such as positive_rate[women], with something"
                self._fault(loc, Fault("E305", f"'{name}' speaks of no rate", hint))
            elif ranges and all(high <= 0 for _, high in ranges):
                message = f"'{name}' always holds, whatever the classifier does"
                self._fault(loc, Fault("E305", message, "rates lie between 0 and 1"))
            elif ranges and all(low > 0 for low, _ in ranges):
                message = f"'{name}' can never hold, whatever the classifier does"
                self._fault(loc, Fault("E305", message, "rates lie between 0 and 1"))
            elif any(high <= 0 or low > 0 for low, high in ranges):
                message = f"'{name}' holds always or never at some sweep points"
                place = self.document.place(loc)
                self.warnings[Fault("W305", message, "rates lie between 0 and 1", place=place)] = (
                    None
                )


@dataclass(frozen=True)
class _Placing:
    """Faults raised inside get the place of `loc`, and the reading goes on."""

    reading: Reading
    loc: Loc

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, FaultError):
            return False
        for fault in error.faults:
            place = fault.place or self.reading.document.place(self.loc, fault.span)
            self.reading.faults[fault.at(place)] = None
        return True


SHAPES = {
    Shape.AFFINE: "affine",
    Shape.CONVEX: "convex in the rates",
    Shape.RATIO: "a ratio of rates",
    Shape.RATIO_SUM: "a comparison of ratios of rates",
    Shape.OTHER: "neither convex nor a sum of ratios",
    Shape.RANKING: "a measure of scores or estimates, which can only be reported",
}


def _takes(name: str, shape: Shape, *, objective: bool) -> bool:
    found = solver_class(name)
    return found.role == "enforces" and shape in (
        found.objectives if objective else found.constraints
    )


def _measured(node: Expression) -> Iterator[ex.Leaf | ex.Ranking]:
    return (part for part in ex.walk(node) if isinstance(part, ex.Leaf | ex.Ranking))


def _all_measured(node: Expression) -> Iterator[ex.Leaf | ex.Ranking]:
    """Also what `of(...)` measures."""
    yield from _measured(node)
    for part in ex.walk(node):
        if isinstance(part, ex.Of):
            yield from _measured(part.metric)


def _in_training(node: Expression) -> Expression | None:
    """A goal is held to what another algorithm reached on training rows, on whatever split it is
    measured itself.
    """
    if not isinstance(node, ex.Of):
        return None

    def train(part: Expression) -> Expression | None:
        if isinstance(part, ex.Leaf | ex.Ranking) and part.split is None:
            return replace(part, split="train")
        return None

    return replace(node, metric=ex.transform(node.metric, train))


def _placeholder(node: Expression) -> Expression | None:
    return ex.Constant(PLACEHOLDER) if isinstance(node, ex.Of) else None


def known_goals(case: Case, value_of: Callable[[ex.Of], float]) -> tuple[Goal, tuple[Goal, ...]]:
    """The case's goals with every `of(...)` a number, taken apart for the solver."""

    def number(node: Expression) -> Expression | None:
        return ex.Constant(value_of(node)) if isinstance(node, ex.Of) else None

    objective = ex.transform(case.objective.expression, number)
    rules = []
    for goal in case.constraints:
        parts = tuple(ex.transform(part, number) for part in goal.pieces)
        rules.append(rule_goal(goal.name, goal.text, parts, rs.violation(parts)))
    return objective_goal(case.objective.text, objective), tuple(rules)


def content(case: Case) -> dict[str, Any]:
    """All of a case that decides its numbers, for its key; names of goals and metrics do not."""
    rules = {goal.name: ex.text(goal.expression) for goal in case.constraints}
    return {
        "algorithm": case.algorithm,
        "version": type(case.solver).version,
        "options": in_key(case.solver, rules),
        "objective": ex.text(case.objective.expression),
        "constraints": list(rules.values()),
        "metrics": sorted({ex.text(metric) for metric in case.metrics.values()}),
    }

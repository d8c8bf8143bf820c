"""Reads an experiment into cases: each algorithm at each sweep point, with its goals resolved.

All checks that need no data are made here: names, syntax, shapes of goals, and whether each
algorithm supports them. If the columns of the data are given, their names and values are checked
too.

A name may vary for some algorithms only. Where it has no value, metrics that use it are left out,
and so are constraints for algorithms that ignore them; for other algorithms a missing value is an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar

from ratecli.config.algorithm import AlgorithmSpec
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.config.sweep import SweepPoint, sweep_points
from ratecli.errors import Diagnostic, FaultError, Loc, SourceLocation
from ratecli.experiment.cases import OF_PLACEHOLDER, Case, CaseFilter
from ratecli.experiment.filter_stage import FILTER_LOC, FilterStage, filter_stage_cases
from ratecli.experiment.goal_checks import (
    check_algorithm_entry,
    check_filter_compatibility,
    check_goal_ranges,
    check_goal_support,
    check_goals,
    check_swept_names,
    source_text,
)
from ratecli.experiment.options import (
    make_solver,
    option_names,
    solver_class,
    value_at_point,
)
from ratecli.experiment.report_checks import (
    check_expectations,
    check_filter_plots,
    check_panels,
    check_report,
    swept_names,
)
from ratecli.experiment.safety import (
    EntryAtPoint,
    SafetyTestSettings,
    inflation_options,
    needs_tightening,
)
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.expression import Expression
from ratecli.rates.parser import parse_conditions, parse_constraint, parse_expression
from ratecli.rates.resolve import Scope
from ratecli.rates.syntax import Condition, Relation, SyntaxNode
from ratecli.sampling.resampling import Holdout
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import MarginSpec
from ratecli.solvers.registry import all_algorithms

T = TypeVar("T")
COLUMN_CODES = ("E205", "E206")
DatasetNames = tuple[str, ...]
"""The names of data sets whose rows are pooled."""


@dataclass(frozen=True)
class ColumnValues:
    """The columns of some data sets: the distinct texts or floats of each, sorted."""

    values: Mapping[str, Sequence[str | float]]


@dataclass
class ExperimentReader:
    """Reads an experiment and collects all errors and warnings on the way."""

    experiment: Experiment
    document: Document
    columns: Mapping[DatasetNames, ColumnValues] | None = None
    groups: dict[DatasetNames, dict[str, tuple[Condition, ...]]] = field(default_factory=dict)
    faults: dict[Diagnostic, None] = field(default_factory=dict)
    warnings: dict[Diagnostic, None] = field(default_factory=dict)
    refusals: dict[Diagnostic, None] = field(default_factory=dict)
    left_out: dict[Loc, Diagnostic] = field(default_factory=dict)

    def cases(self, *, refuse: bool = True) -> list[Case]:
        """Return every case; raise FaultError with all errors.

        Without `refuse`, goals that an algorithm does not support (E308) are warnings, so that they
        can be explained.
        """
        early = list(check_swept_names(self.experiment, self.document))
        if early:
            raise FaultError(early)
        found = [
            case
            for index, entry in enumerate(self.experiment.algorithms)
            if self._known(index, entry)
            for point in sweep_points(self.experiment.sweep, entry.sweep)
            if (case := self._case(index, entry, point)) is not None
        ]
        self._sort(check_goal_ranges(self.document, found, self.rules))
        self._sort(self._written_nowhere(found))
        self._sort(check_report(self.experiment, self.document))
        self._sort(check_panels(self.experiment, self.document, found))
        everything = [*found, *filter_stage_cases(found).values()]
        self._sort(check_filter_plots(self.experiment, self.document, everything))
        self._sort(check_expectations(self.experiment, self.document, everything))
        if self.faults or (refuse and self.refusals):
            raise FaultError(self.faults | self.refusals)
        self.warnings |= self.refusals
        return found

    # names

    def _scope(self, pool: DatasetNames) -> Scope:
        """Return the scope of a pool of data sets; the groups of each pool are read once."""
        if self.columns is None:
            scope = Scope(datasets=frozenset(pool))
        else:
            values = self.columns[pool].values
            scope = Scope(datasets=frozenset(pool), values=values.get, columns=frozenset(values))
        if pool not in self.groups:
            self.groups[pool] = dict(self._groups(pool, scope))
        return replace(scope, groups=self.groups[pool])

    def _groups(
        self, pool: DatasetNames, scope: Scope
    ) -> Iterator[tuple[str, tuple[Condition, ...]]]:
        for name, loc, text in stated_groups(self.experiment, pool):
            with self._placing(loc, scope):
                conditions = parse_conditions(text)
                # define the group even if its values are wrong, so that this is reported only once
                yield name, conditions
                rs.check_conditions(conditions, scope)

    @cached_property
    def trees(self) -> dict[str, SyntaxNode]:
        """Syntax trees of the objective and the metrics, by name."""
        texts: dict[tuple[str, ...], str] = {("objective",): self.experiment.objective}
        texts |= {("metrics", name): text for name, text in self.experiment.metrics.items()}
        return {
            loc[-1]: tree
            for loc, text in texts.items()
            if (tree := self._parsed(loc, text, parse_expression)) is not None
        }

    @cached_property
    def rules(self) -> dict[str, Relation]:
        return {
            name: rule
            for name, text in self.experiment.constraints.items()
            if (rule := self._parsed(("constraints", name), text, parse_constraint))
        }

    def _parsed(self, loc: Loc, text: str, parse: Callable[[str], T]) -> T | None:
        with self._placing(loc):
            return parse(text)
        return None

    def _placing(
        self, loc: Loc, scope: Scope | None = None, *, needed: bool = True
    ) -> _DiagnosticsAt:
        several = self.columns is not None and len(self.columns) > 1
        return _DiagnosticsAt(
            self, loc, scope.datasets if several and scope else frozenset(), needed
        )

    def _sort(self, found: Iterable[Diagnostic]) -> None:
        for fault in found:
            (self.faults if fault.is_error else self.warnings)[fault] = None

    def _written(self, *loc: str) -> str:
        """Return a rule or value as written in the file, on one line."""
        return " ".join(source_text(self.experiment, loc).split())

    # names that vary

    @cached_property
    def _swept(self) -> list[str]:
        return swept_names(self.experiment)

    def _unset(self, entry: AlgorithmSpec, point: SweepPoint) -> dict[str, Diagnostic]:
        """Return an E203 for each name that varies elsewhere and has no value at this point."""
        return {name: self._no_value(name, entry) for name in self._swept if name not in point}

    def _no_value(self, name: str, entry: AlgorithmSpec) -> Diagnostic:
        others = [
            f"'{other.label}'"
            for other in self.experiment.algorithms
            if other.sweep and name in other.sweep.names
        ]
        hint = (
            f"only {' and '.join(others)} {'sweeps' if len(others) == 1 else 'sweep'} it: give "
            f"'{entry.label}' one too, as in sweep: {{{name}: [1]}}, or sweep it for all algorithms"
        )
        return Diagnostic("E203", f"'{name}' has no value for '{entry.label}'", hint)

    def _written_nowhere(self, found: Sequence[Case]) -> Iterator[Diagnostic]:
        """Yield the E203 of texts left out at every sweep point, unless there are other errors."""
        written = {loc for case in found for loc, _ in case.texts()}
        if not self.faults:
            yield from (fault for loc, fault in self.left_out.items() if loc not in written)

    # algorithms

    def _known(self, index: int, entry: AlgorithmSpec) -> bool:
        before = len(self.faults)
        with self._placing(self._loc(index, entry)):
            solver_class(entry.name)
            missing = all_algorithms()[entry.name].missing()
            if missing is not None:
                raise FaultError(missing)
        return len(self.faults) == before

    def option(self, label: str, key: str) -> SourceLocation:
        """Return the location of a key in the entry of an algorithm."""
        labels = [entry.label for entry in self.experiment.algorithms]
        index = labels.index(label)
        loc = self._loc(index, self.experiment.algorithms[index], key)
        return self.document.place(loc, key=True)

    def _loc(self, index: int, entry: AlgorithmSpec, *inside: str | int) -> Loc:
        raw = self.document.data["algorithms"][index]
        return ("algorithms", index, *((entry.name,) if isinstance(raw, dict) else ()), *inside)

    def _solver(
        self, index: int, entry: AlgorithmSpec, point: SweepPoint, common: Mapping[str, Any]
    ) -> Solver | None:
        """Return the solver with its options at a sweep point; None after collecting errors.

        An option whose value is a swept name takes the point's value. An option that the
        algorithm's own sweep names and the entry does not set takes it, too. `common` are options
        implied by the file's safety test.
        """
        options = {key: value_at_point(value, point) for key, value in entry.options.items()}
        own = set(entry.sweep.names if entry.sweep else ()) & point.keys()
        varied = own & set(option_names(entry.name)) - options.keys()
        options = {**common} | options | {n: point[n] for n in varied}
        try:
            return make_solver(entry.name, options, self.experiment.constraints)
        except FaultError as error:
            for fault in error.faults:
                inside = ("sweep",) if varied.intersection(fault.loc[:1]) else ()
                self.faults[self.document.placed(fault, *self._loc(index, entry, *inside))] = None
            return None

    # goals

    def _case(self, index: int, entry: AlgorithmSpec, point: SweepPoint) -> Case | None:
        before = len(self.faults)
        pool = self.experiment.pool(point)
        scope = replace(
            self._scope(pool),
            parameters=point,
            unset=self._unset(entry, point),
            algorithms=frozenset(other.label for other in self.experiment.algorithms),
        )
        share, test = self._rows(index, entry, point, scope.unset)
        found, aim = solver_class(entry.name), test.aim if test is not None and test.taken else None
        made = self._solver(index, entry, point, inflation_options(found, aim))
        at = self._loc(index, entry)
        self._sort(check_algorithm_entry(self.experiment, self.document, entry, at))
        values = {
            name: value
            for name, tree in self.trees.items()
            if (value := self._value(name, tree, scope)) is not None
        }
        holdout = None if test is None else test.holdout
        filtering = self._filtering(entry, point, scope, (share, holdout))
        if filtering is not None:
            said = (self.experiment, self.document, entry, at)
            self._sort(check_filter_compatibility(*said, take=filtering.take, aim=aim))
        test = test if test is not None and test.taken else None
        held = test is not None or found.role != "ignores"
        rules = {
            name: goal
            for name, rule in self.rules.items()
            if (goal := self._rule(name, rule, scope, needed=held))
        }
        if made is None or len(self.faults) > before or "objective" not in values:
            return None
        objective = objective_goal(self._written("objective"), values["objective"])
        case = Case(
            label=entry.label,
            algorithm=entry.name,
            solver=made,
            guard=MarginSpec(
                entry.constraints_on, entry.margin, aim if needs_tightening(found) else None
            ),
            share=share,
            holdout=holdout,
            safety=test,
            point=point,
            datasets=pool,
            objective=objective,
            # sorted, so that reordering the file gives the solver exactly the same problem
            constraints=tuple(sorted(rules.values(), key=lambda goal: ex.to_text(goal.expression))),
            metrics=values | {VIOLATION_PREFIX + name: rules[name].expression for name in rules},
            filtering=filtering,
        )
        self._sort(check_goals(self.experiment, self.document, case))
        self.refusals |= dict.fromkeys(check_goal_support(self.document, case))
        return case

    def _rows(
        self, index: int, entry: AlgorithmSpec, point: SweepPoint, unset: Mapping[str, Diagnostic]
    ) -> tuple[Fraction | None, SafetyTestSettings | None]:
        """Return the share of training rows to sample, and the safety test, at a sweep point."""
        said = EntryAtPoint(self.experiment, self.document, entry, point, unset)
        with self._placing(self._loc(index, entry)):
            return said.share(), said.test()
        return None, None

    def _filtering(
        self,
        entry: AlgorithmSpec,
        point: SweepPoint,
        scope: Scope,
        rows: tuple[Fraction | None, Holdout | None],
    ) -> CaseFilter | None:
        """Return the filter that training rows pass through before the algorithm sees them."""
        said = EntryAtPoint(self.experiment, self.document, entry, point, scope.unset)
        with self._placing(FILTER_LOC, scope):
            return FilterStage(said, scope, self.experiment.pool(point), *rows).filtering()
        return None

    def _value(self, name: str, tree: SyntaxNode, scope: Scope) -> Expression | None:
        loc = ("objective",) if name == "objective" else ("metrics", name)
        with self._placing(loc, scope, needed=name == "objective"):
            value = rs.resolve(tree, scope)
            return ex.transform(value, _on_training_rows) if name == "objective" else value
        return None

    def _rule(self, name: str, rule: Relation, scope: Scope, *, needed: bool) -> Goal | None:
        with self._placing(("constraints", name), scope, needed=needed):
            parts = tuple(
                ex.transform(d, _on_training_rows) for d in rs.constraint_differences(rule, scope)
            )
            known = tuple(ex.transform(part, _replace_of) for part in parts)
            text = self._written("constraints", name)
            shaped = constraint_goal(name, text, known, rs.violation_expression(known))
            return Goal(name, text, rs.violation_expression(parts), parts, shaped.shape)
        return None


def stated_groups(experiment: Experiment, pool: DatasetNames) -> Iterator[tuple[str, Loc, str]]:
    """Yield name, location and condition of every group, as defined for these data sets."""
    for name, group in experiment.groups.items():
        if isinstance(group, str):
            yield name, ("groups", name), group
        else:
            yield name, ("groups", name, *pool), group[pool[0]]


@dataclass(frozen=True)
class _DiagnosticsAt:
    """Context manager that collects errors, placed at `loc`, so that reading continues.

    If the text is not `needed`, it is left out where a name in it has no value. If there are
    several pools of data sets, errors about columns mention the one in `datasets`.
    """

    reading: ExperimentReader
    loc: Loc
    datasets: frozenset[str] = frozenset()
    needed: bool = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, FaultError):
            return False
        for fault in error.faults:
            placed = self.reading.document.placed(fault, *self.loc)
            if fault.code in COLUMN_CODES and self.datasets:
                names = " and ".join(sorted(self.datasets))
                placed = replace(placed, message=f"in '{names}' {placed.message}")
            if isinstance(error, rs.MissingSweepValueError) and not self.needed:
                self.reading.left_out[self.loc] = placed
            else:
                self.reading.faults[placed] = None
        return True


def _on_training_rows(node: Expression) -> Expression | None:
    """Restrict the rates inside `of(...)` to training rows, for use with `ex.transform`.

    A goal compares with what another algorithm reached on training rows, whatever split the goal
    itself is measured on.
    """
    if not isinstance(node, ex.AlgorithmMetric):
        return None

    def train(part: Expression) -> Expression | None:
        if isinstance(part, ex.MeasuredNode) and part.split is None:
            return replace(part, split="train")
        return None

    return replace(node, metric=ex.transform(node.metric, train))


def _replace_of(node: Expression) -> Expression | None:
    return ex.Constant(OF_PLACEHOLDER) if isinstance(node, ex.AlgorithmMetric) else None

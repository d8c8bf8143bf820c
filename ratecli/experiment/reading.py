"""Reads a problem into cases: each algorithm at each sweep point, with its goals resolved.

All checks that need no data are made here: names, syntax, shapes of goals, and whether each
algorithm supports them. If the columns of the data are given, their names and values are checked
too.

A name may vary for some algorithms only. Where it has no value, metrics that use it are left out,
and so are constraints for algorithms that ignore them; for other algorithms a missing value is an
error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from typing import TypeVar

from ratecli.config.dataset import DatasetSpec
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment, Goals, Problem
from ratecli.config.sweep import (
    CONSTRAINT_AXIS,
    DATASET_AXIS,
    SweepPoint,
    applied_constraints,
    number_ranges,
    sweep_points,
)
from ratecli.config.trials import FILTER, AlgorithmSpec
from ratecli.datasets.registry import label_range, logged_columns, true_returns
from ratecli.datasets.table import SliceColumns
from ratecli.errors import Diagnostic, FaultError, Loc, errors_at, errors_under
from ratecli.experiment.cases import Case, measured_rates, replace_of
from ratecli.experiment.checks.goals import (
    check_case,
    check_entry,
    check_goal_ranges,
    check_support,
)
from ratecli.experiment.checks.report import check_report_names, check_report_points
from ratecli.experiment.entries import (
    TUNE,
    EntryAtPoint,
    make_settings,
    make_solver,
    option_names,
    solver_class,
    usable_solver_class,
    value_at_point,
)
from ratecli.experiment.filters import filter_stage_cases, read_filter
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, constraint_goal, objective_goal
from ratecli.rates.expression import Expression, Slice
from ratecli.rates.functions import Interval
from ratecli.rates.metrics import Direction, direction
from ratecli.rates.parser import parse_conditions, parse_constraint, parse_expression
from ratecli.rates.scope import Conditions, LoggedRanges, Scope, check_condition
from ratecli.rates.syntax import Condition, SyntaxNode
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import DEFAULT_LEVEL, MarginSpec
from ratecli.solvers.tuned import Setting

T = TypeVar("T")
NO_USE_OF_NAMES = ("name", "description", "sweep", "report", "expect")
"""Keys of the file in which a swept name has no effect on trials."""
COLUMN_CODES = ("E205", "E206")
OBJECTIVE_LOC: Loc = ("objective",)
DatasetNames = tuple[str, ...]
"""The names of data sets whose rows are pooled."""


_parsed_value, _parsed_rule = cache(parse_expression), cache(parse_constraint)
_parsed_conditions = cache(parse_conditions)


def rule_trees(goals: Goals) -> Iterator[SyntaxNode]:
    """Yield the objective, every metric and each side of every constraint as written."""
    yield from map(_parsed_value, (goals.objective, *goals.metrics.values()))
    for text in goals.constraints.values():
        yield from _parsed_rule(text).operands


@dataclass
class ProblemReader:
    """Reads a problem and collects all errors and warnings on the way.

    Attributes
    ----------
    document
        The text that the problem was read from, which gives diagnostics their places.
    datasets
        The data sets by name.
    columns
        The columns of each pool of data sets; None if no data was read.
    scopes
        The meaning of names for each pool, without those of the sweep.
    refusals
        Errors about goals that an algorithm does not support.
    undefined
        For each text that is left out at some sweep points, why it is.
    """

    problem: Problem
    document: Document
    datasets: Mapping[str, DatasetSpec]
    columns: Mapping[DatasetNames, SliceColumns] | None = None
    scopes: dict[DatasetNames, Scope] = field(default_factory=dict)
    faults: dict[Diagnostic, None] = field(default_factory=dict)
    warnings: dict[Diagnostic, None] = field(default_factory=dict)
    refusals: dict[Diagnostic, None] = field(default_factory=dict)
    undefined: dict[Loc, Diagnostic] = field(default_factory=dict)

    def cases(self, *, refuse: bool = True) -> list[Case]:
        """Return every case; raise FaultError with all errors.

        Without `refuse`, goals that an algorithm does not support (E308) are warnings, so that they
        can be explained.
        """
        self._parse_texts()
        cases = [
            case
            for entry in self.problem.algorithms
            if self._is_usable(entry)
            for point in sweep_points(self.problem.sweep, entry.sweep)
            if (case := self._case(entry, point)) is not None
        ]
        if not self.faults:  # with a faulty group, a rule may always hold
            self.add(check_goal_ranges(cases, self.problem.constraints))
        self.add(self._unused_sweep_names())
        self.add(self._warn_of_direction())
        if not self.faults:
            defined = {loc for case in cases for loc, _ in case.expressions()}
            self.add(fault for loc, fault in self.undefined.items() if loc not in defined)
        if isinstance(self.problem, Experiment):
            self.add(check_report_names(self.problem))
            if not self.faults:
                every = [*cases, *filter_stage_cases(cases).values()]
                self.add(check_report_points(self.problem, every))
        (self.faults if refuse else self.warnings).update(self.refusals)
        self.finish()
        return cases

    def _parse_texts(self) -> None:
        """Collect the errors of every text, since no case may use it."""
        problem, groups = self.problem, dict[Loc, str]()
        for name, group in problem.groups.items():
            if isinstance(group, str):
                groups["groups", name] = group
            else:
                groups |= {("groups", name, pool): text for pool, text in group.items()}
        rules: dict[Loc, str] = {
            ("constraints", x): text for x, text in problem.constraints.items()
        }
        parsers: list[tuple[Callable[[str], object], dict[Loc, str]]] = [
            (_parsed_value, self._value_texts()),
            (_parsed_rule, rules),
            (_parsed_conditions, groups),
        ]
        for parse, texts in parsers:
            for loc, text in texts.items():
                with self.collecting(), errors_under(*loc):
                    parse(text)

    def _value_texts(self) -> dict[Loc, str]:
        """Return the texts of the objective and the metrics, by location."""
        found: dict[Loc, str] = {OBJECTIVE_LOC: self.problem.objective}
        return found | {("metrics", name): text for name, text in self.problem.metrics.items()}

    def _unused_sweep_names(self) -> Iterator[Diagnostic]:
        """Yield a W308 for each name of the file's sweep that nothing uses.

        Names of points, under `include` or `zip`, label the values of others.
        """
        sweep = self.problem.sweep
        kept = [v for k, v in self.document.data.items() if k not in NO_USE_OF_NAMES]
        labels = [*chain.from_iterable(sweep.zip), *chain.from_iterable(sweep.include)]
        written = re.findall(r"\w+", str(kept).replace("\\n", " "))
        words = {DATASET_AXIS, CONSTRAINT_AXIS, *labels, *written}
        for name in [each for each in sweep.axes if each not in words]:
            message = f"'{name}' is swept, but no rule, metric or option uses it"
            hint = "each of its values repeats all trials: leave it out, or correct the name"
            yield Diagnostic("W308", message, hint, loc=("sweep", name), key=True)

    def _warn_of_direction(self) -> Iterator[Diagnostic]:
        """Yield a W307 if larger values of the objective are better, as it is minimized."""
        text = _one_line(self.problem.objective)
        swept = number_ranges(self.problem.swept_values())
        if not self.faults and direction(_parsed_value(text), swept) is Direction.HIGH:
            message = f"the objective is minimized, but higher values of '{text}' are better"
            yield Diagnostic("W307", message, f"write -({text})", loc=OBJECTIVE_LOC)

    @cached_property
    def numeric(self) -> frozenset[str]:
        """The data sets whose labels are numbers."""
        return frozenset(x for x, each in self.datasets.items() if label_range(each) is not None)

    def add(self, found: Iterable[Diagnostic]) -> None:
        """Collect diagnostics with locations in the file."""
        for fault in map(self.document.placed, found):
            (self.faults if fault.is_error else self.warnings)[fault] = None

    def finish(self) -> tuple[Diagnostic, ...]:
        """Return all warnings; raise FaultError with all errors, if there are any."""
        if self.faults:
            raise FaultError(self.faults)
        return tuple(self.warnings)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect errors raised in the block, and go on after it."""
        try:
            yield
        except FaultError as error:
            self.add(error.faults)

    def compared_columns(self, cases: Iterable[Case]) -> dict[str, list[float]]:
        """Return the columns that define groups, and the numbers that each is compared with."""
        trees = [tree for case in cases for _, tree in case.expressions()]
        slices = [leaf.where for tree in trees for leaf in measured_rates(tree)]
        for scope in self.scopes.values():
            slices += (Slice((), conditions) for conditions in scope.groups.values())
        found: dict[str, set[float]] = {}
        for condition in chain.from_iterable(each.atoms for each in slices):
            numbers = found.setdefault(condition.column, set())
            for value in condition.values:
                with suppress(ValueError):
                    numbers.add(float(value))
        return {name: sorted(numbers) for name, numbers in sorted(found.items())}

    # names

    def pool(self, point: SweepPoint) -> DatasetNames:
        """Return the data sets whose rows are pooled at a sweep point, in alphabetical order."""
        one = point.get(DATASET_AXIS)
        return tuple(sorted(self.datasets)) if one is None else (str(one),)

    def _scope(self, entry: AlgorithmSpec, point: SweepPoint) -> Scope:
        """Return the scope of an entry at a point; the groups of each pool are checked once."""
        pool, unset = self.pool(point), {}
        if pool not in self.scopes:
            self.scopes[pool] = self._pool_scope(pool)
        for name in set(self.problem.swept_names()) - point.keys():  # varies for others only
            hint = f"say sweep: {{{name}: [1]}} in its entry, or sweep it for all algorithms"
            message = f"'{name}' has no value for '{entry.label}'"
            unset[name] = Diagnostic("E203", message, hint)
        return replace(self.scopes[pool], parameters=point, unset=unset)

    def _pool_scope(self, pool: DatasetNames) -> Scope:
        """Return what names mean for a pool of data sets, after checking groups and bins."""
        scope = Scope(datasets=frozenset(pool), logged=self._logged_ranges(pool))
        if self.columns is not None:
            known = self.columns[pool]
            count = None if known.streamed else known.count
            scope = replace(
                scope, values=known.values.get, columns=frozenset(known.values), count=count
            )
        groups, bins = dict[str, Conditions](), dict[str, Sequence[float]]()
        for name, group in self.problem.groups.items():
            # define the group even if it is wrong, so that it is reported once
            loc, groups[name] = self.group_loc(name, pool), ()
            with self._resolving(loc, pool):
                groups[name] = _parsed_conditions(
                    group if isinstance(group, str) else group[pool[0]]
                )
                for condition in Slice((), groups[name]).atoms:
                    check_condition(condition, scope)
        for name, cuts in self.problem.bins.items():
            pools = (self.columns or {}).values()
            if name in (scope.columns or ()) or not any(name in each.values for each in pools):
                bins[name] = cuts  # also if they are wrong, like groups
                with self._resolving(("bins", name), pool):
                    check_condition(Condition(name, ">=", cuts), scope)
        labels = frozenset(each.label for each in self.problem.algorithms)
        return replace(scope, groups=groups, bins=bins, algorithms=labels)

    def group_loc(self, name: str, pool: DatasetNames) -> Loc:
        """Return the location of a group's conditions for these data sets."""
        inside = () if isinstance(self.problem.groups[name], str) else (pool[0],)
        return ("groups", name, *inside)

    def _logged_ranges(self, pool: DatasetNames) -> LoggedRanges | None:
        """Return the outcomes of the logged decisions of some data sets, None without any."""
        known = [each for name in pool if (each := logged_columns(self.datasets[name])) is not None]
        if not known:
            return None
        outcomes: dict[str, Interval] = {}
        for name, (low, high) in chain.from_iterable(each.ranges.items() for each in known):
            least, most = outcomes.get(name, (low, high))
            outcomes[name] = min(least, low), max(most, high)
        return LoggedRanges(
            outcomes,
            weight=max(each.largest_weight for each in known),
            episodes=any(each.episode for each in known),
            span=max(each.span for each in known),
            true_returns=all(true_returns(self.datasets[name]) for name in pool),
            actions=frozenset(chain.from_iterable((each.action, *each.outcomes) for each in known)),
        )

    @contextmanager
    def _resolving(self, loc: Loc, pool: DatasetNames, *, needed: bool = True) -> Iterator[None]:
        """Collect the errors of the text at `loc`, and go on after the block.

        If the text is not `needed`, it is left out where a name in it has no value. If there are
        several pools of data sets, errors about columns mention the one at hand.
        """
        try:
            yield
        except FaultError as error:
            faults = [fault.under(*loc) for fault in error.faults]
            if isinstance(error, rs.MissingSweepValueError) and not needed:
                self.undefined[loc] = faults[-1]
                return
            if self.columns is not None and len(self.columns) > 1:
                names = " and ".join(sorted(pool))
                faults = [
                    replace(fault, message=f"in '{names}' {fault.message}")
                    if fault.code in COLUMN_CODES
                    else fault
                    for fault in faults
                ]
            self.add(faults)

    # algorithms

    def _is_usable(self, entry: AlgorithmSpec) -> bool:
        before = len(self.faults)
        with self.collecting(), errors_under(*self.problem.entry_loc(entry.label)):
            usable_solver_class(entry.name)
        return len(self.faults) == before

    def _settings(
        self, entry: AlgorithmSpec, point: SweepPoint, aim: float | None
    ) -> tuple[Setting, ...]:
        """Return the solver with its options at a sweep point: several settings if it is tuned.

        An option whose value is a swept name takes the point's value. An option that the
        algorithm's own sweep names and the entry does not set takes it, too. If options are swept,
        others may have no effect: they may have one at another point. `aim` is the probability with
        which the safety test should be passed.
        """
        options = {key: value_at_point(value, point) for key, value in entry.options.items()}
        swept = options != entry.options
        tune = value_at_point(entry.tune or {}, point)
        if aim is not None and solver_class(entry.name).needs_safety_test:
            options = ({} if "inflation" in tune else {"inflation": {"pass": aim}}) | options
        own = set(entry.sweep.names if entry.sweep else ()) & point.keys()
        varied = own & set(option_names(entry.name)) - options.keys()
        options |= {name: point[name] for name in varied}
        with errors_under(*self.problem.entry_loc(entry.label)):
            try:
                rules = applied_constraints(self.problem.constraints, point)
                settings = make_settings(entry.name, options, tune, rules) if tune else ()
                options |= {TUNE: tune} if tune else {}
                return settings or (
                    Setting({}, make_solver(entry.name, options, rules, idle=swept)),
                )
            except FaultError as error:
                raise FaultError(
                    fault.under("sweep") if varied.intersection(fault.loc[:1]) else fault
                    for fault in error.faults
                ) from None

    def _guard(self, entry: AlgorithmSpec, found: type[Solver], aim: float | None) -> MarginSpec:
        """Return where an algorithm has to make constraints hold."""
        if found.role != "enforces":
            return MarginSpec()
        if aim is not None:
            return MarginSpec(aim=aim)
        if found.needs_safety_test:
            return MarginSpec()
        holds = entry.holds or self.problem.holds
        if holds == "train":
            return MarginSpec()
        level = entry.level or self.problem.level
        return MarginSpec(holds, level or (DEFAULT_LEVEL if holds == "new_rows" else None))

    def _case(self, entry: AlgorithmSpec, point: SweepPoint) -> Case | None:
        """Return the case of an entry at a sweep point; None after collecting errors."""
        before, pool = len(self.faults), self.pool(point)
        at = EntryAtPoint(self.problem, entry, point, self._scope(entry, point))
        share = case_filter = holdout = test = aim = None
        settings: tuple[Setting, ...] = ()
        with self.collecting():
            share, (holdout, test, aim) = at.share(), at.safety()
        found = solver_class(entry.name)
        with self.collecting():
            settings = self._settings(entry, point, aim)
        with self._resolving((), pool), errors_at(FILTER):
            case_filter = read_filter(at, pool, share, holdout)
        take = None if case_filter is None else case_filter.take
        self.add(check_entry(self.problem, entry, found, take))
        values = self._values(at, pool)
        rules = self._constraints(at, pool, needed=test is not None or found.role != "ignores")
        if not settings or len(self.faults) > before or "objective" not in values:
            return None
        case = Case(
            label=entry.label,
            algorithm=entry.name,
            solver=settings[0].solver,
            guard=self._guard(entry, found, aim),
            share=share,
            holdout=holdout,
            safety=test,
            point=point,
            datasets=pool,
            objective=objective_goal(_one_line(self.problem.objective), values["objective"]),
            # sorted, so that reordering the file gives the solver exactly the same problem
            constraints=tuple(sorted(rules, key=lambda goal: ex.to_text(goal.expression))),
            metrics=values | {VIOLATION_PREFIX + goal.name: goal.expression for goal in rules},
            filtering=case_filter,
            settings=settings if settings[0].values else (),
            groups=tuple(Slice.of((), group) for group in at.scope.groups.values()),
        )
        for each in case.by_setting():
            self.add(check_case(self.problem, self.datasets, each, self.numeric))
            refusals = check_support(self.problem, self.datasets, each, self.numeric)
            self.refusals |= dict.fromkeys(map(self.document.placed, refusals))
        return case

    # goals

    def _values(self, at: EntryAtPoint, pool: DatasetNames) -> dict[str, Expression]:
        """Return the objective and the metrics that are defined at a sweep point, by name."""
        values = {}
        for loc, text in self._value_texts().items():
            with self._resolving(loc, pool, needed=loc == OBJECTIVE_LOC):
                tree = _parsed_value(text)
                values[str(loc[-1])] = rs.resolve(tree, at.scope)
                self._warn_of_small_groups(loc, tree, at.scope)
        return values

    def _constraints(self, at: EntryAtPoint, pool: DatasetNames, *, needed: bool) -> list[Goal]:
        """Return the constraints that are defined at a sweep point."""
        goals = []
        for name in applied_constraints(self.problem.constraints, at.point):
            loc, written = ("constraints", name), self.problem.constraints[name]
            with self._resolving(loc, pool, needed=needed):
                rule, text = _parsed_rule(written), _one_line(written)
                parts = rs.constraint_differences(rule, at.scope)
                known = tuple(ex.transform(part, replace_of) for part in parts)
                for operand in rule.operands:
                    self._warn_of_small_groups(loc, operand, at.scope)
                shaped = constraint_goal(name, text, known, rs.violation_expression(known))
                goals.append(Goal(name, text, rs.violation_expression(parts), parts, shaped.shape))
        return goals

    def _warn_of_small_groups(self, loc: Loc, tree: SyntaxNode, scope: Scope) -> None:
        known = {warning.message for warning in self.warnings}
        found = rs.left_out_groups(tree, scope)
        self.add(fault.under(*loc) for fault in found if fault.message not in known)


def _one_line(text: str) -> str:
    return " ".join(text.split())

"""The filter before training: reads `filter:` at a sweep point into a case of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.config.filter import DISCLOSIVITY_RANGE, FILTER, TAKE_CHOICES, FilterSpec
from ratecli.config.validation import describe_type, invalid_choice
from ratecli.errors import Diagnostic, FaultError, Loc, SourceLocation, did_you_mean
from ratecli.experiment.cases import Case, CaseFilter
from ratecli.experiment.goal_checks import SHAPE_NAMES
from ratecli.experiment.options import make_solver, solver_class, value_at_point
from ratecli.experiment.safety import EntryAtPoint
from ratecli.ledger.records import FILTER_STAGE_PREFIX, VIOLATION_PREFIX
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, Shape, constraint_goal, objective_goal
from ratecli.rates.expression import Disclosure, Expression
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import Scope
from ratecli.rates.syntax import NO_SPAN, NameNode
from ratecli.rates.table import DISCLOSIVITY, IMBALANCE
from ratecli.sampling.resampling import Holdout
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import MarginSpec
from ratecli.solvers.registry import all_algorithms, loadable_solvers

FILTER_LOC: Loc = (FILTER,)
"""Location of the filter in a file."""
KEPT_METRIC, LEAST_SHARE_METRIC = f"{FILTER_STAGE_PREFIX}kept", f"{FILTER_STAGE_PREFIX}least_share"


def is_filter(found: type[Solver]) -> bool:
    """Return whether an algorithm returns a filter that keeps rows so that groups are balanced."""
    return found.hides_groups and Shape.BALANCE in found.objectives


def filter_algorithm_names() -> list[str]:
    """Return the names of the algorithms that are filters."""
    there = (
        (name, found)
        for name, found in loadable_solvers()
        if all_algorithms()[name].missing() is None
    )
    return [name for name, found in there if is_filter(found)]


def filter_place(document: Document) -> SourceLocation:
    """Return the location of the filter's objective in a file."""
    return document.place(
        (*FILTER_LOC, "balance" if "balance" in document.data[FILTER] else "objective")
    )


def filter_metric_names(experiment: Experiment) -> list[str]:
    """Return the metrics of the file's filter, which trials of algorithms do not have."""
    stage = experiment.filter
    if stage is None:
        return []
    aim = "objective" if stage.balance is None else IMBALANCE
    broken = [VIOLATION_PREFIX + DISCLOSIVITY] if stage.disclosivity is not None else []
    return [
        f"{FILTER_STAGE_PREFIX}{aim}",
        f"{FILTER_STAGE_PREFIX}{DISCLOSIVITY}",
        KEPT_METRIC,
        LEAST_SHARE_METRIC,
        *broken,
    ]


def filter_trial_labels(cases: Sequence[Case]) -> list[str]:
    """Return the labels of the trials of the filters that cases use."""
    return list(dict.fromkeys(case.label for case in filter_stage_cases(cases).values()))


def filter_stage_cases(cases: Sequence[Case]) -> dict[str, Case]:
    """Return the filters that cases use, each once, by key (`CaseFilter.key`).

    Each gets the part of the sweep point that all its users share. If two filters share a point,
    because rows are held out for some users only, the label of the later one includes its first
    user's.
    """
    users: dict[str, list[Case]] = {}
    for case in cases:
        if case.filtering is not None:
            users.setdefault(case.filtering.key, []).append(case)
    found, taken = dict[str, Case](), set[str]()
    for key, own in users.items():
        first, *others = own
        point = {
            name: value
            for name, value in first.point.items()
            if all(repr(case.point.get(name)) == repr(value) for case in others)
        }
        label = FILTER if repr(point) not in taken else f"{FILTER}_{first.label}"
        taken.add(repr(point))
        assert first.filtering is not None
        found[key] = replace(first.filtering.case, label=label, point=point)
    return found


@dataclass(frozen=True)
class FilterStage:
    """The file's filter for one algorithm at one sweep point.

    Attributes
    ----------
    said
        The algorithm's entry and the point.
    scope
        Resolves names at that point.
    pool
        The data sets whose rows are filtered.
    share, holdout
        How training rows are sampled and held out before they are filtered.
    """

    said: EntryAtPoint
    scope: Scope
    pool: tuple[str, ...]
    share: Fraction | None
    holdout: Holdout | None

    def filtering(self) -> CaseFilter | None:
        """Return the filter that training rows pass through, if any.

        Raises
        ------
        FaultError
            E104, E202, E203, E205, E304, E308 and any other error of rules and options, with
            places.
        """
        stage = self.said.experiment.filter
        if stage is None or self.said.entry.filter is False:
            return None
        made = self._solver(stage)
        objective, aim = self._objective(stage)
        columns = tuple(dict.fromkeys(_group_columns(objective)))
        disclosed = self._disclosed(stage, columns)
        alpha = None
        if stage.disclosivity is not None:
            loc = (*FILTER_LOC, "disclosivity")
            alpha = float(self.said.number(stage.disclosivity, loc, DISCLOSIVITY_RANGE))
        rules = (
            () if alpha is None or disclosed is None else (_disclosivity_goal(disclosed, alpha),)
        )
        metrics = {
            aim: objective.expression,
            f"{FILTER_STAGE_PREFIX}{DISCLOSIVITY}": disclosed,
            KEPT_METRIC: self._plain("positive_rate"),
            LEAST_SHARE_METRIC: self._least(columns) if disclosed is not None else None,
        }
        measured = {name: metric for name, metric in metrics.items() if metric is not None}
        case = Case(
            label=FILTER,
            algorithm=stage.name,
            solver=made,
            guard=MarginSpec(),
            share=self.share,
            holdout=self.holdout,
            safety=None,
            point=self.said.point,
            datasets=self.pool,
            objective=objective,
            constraints=rules,
            metrics=measured | {VIOLATION_PREFIX + rule.name: rule.expression for rule in rules},
        )
        return CaseFilter(case, self._take(stage))

    def _solver(self, stage: FilterSpec) -> Solver:
        document, loc = self.said.document, (*FILTER_LOC, "algorithm")
        place = document.place(loc)
        if stage.name not in all_algorithms():
            hint = did_you_mean(stage.name, filter_algorithm_names(), "filters")
            message = f"no algorithm is called '{stage.name}'"
            raise FaultError(Diagnostic("E202", message, hint, place=place))
        try:
            found = solver_class(stage.name)
        except FaultError as error:
            raise FaultError(fault.at(place) for fault in error.faults) from None
        missing = all_algorithms()[stage.name].missing()
        if missing is not None:
            raise FaultError(missing.at(place))
        if not is_filter(found):
            hint = f"filters: {', '.join(filter_algorithm_names())}"
            message = (
                f"'{stage.name}' is no filter: it does not keep rows so that groups are balanced"
            )
            raise FaultError(Diagnostic("E308", message, hint, place=place))
        if stage.disclosivity is not None and found.role != "enforces":
            message = f"'{stage.name}' keeps no bound on disclosivity: it is measured anyway"
            hint = "leave 'disclosivity' out, or take balanced_tree"
            key = document.place((*FILTER_LOC, "disclosivity"), key=True)
            raise FaultError(Diagnostic("E308", message, hint, place=key))
        with document.placing(*loc, stage.name):
            return make_solver(
                stage.name, value_at_point(stage.algorithm[stage.name], self.said.point), ()
            )

    def _objective(self, stage: FilterSpec) -> tuple[Goal, str]:
        """Return the goal to minimize, and the name of its metric."""
        if stage.balance is None:
            return self._rule(str(stage.objective)), f"{FILTER_STAGE_PREFIX}objective"
        columns = list[str]()
        for k, name in enumerate(stage.balance):
            columns.append(self._column(k, name, columns))
        tree = _column_rate_name(IMBALANCE, columns)
        return objective_goal(
            str(tree), rs.resolve(tree, self.scope)
        ), f"{FILTER_STAGE_PREFIX}{IMBALANCE}"

    def _column(self, k: int, name: str, before: Sequence[str]) -> str:
        """Return column `k` of `balance`, or the column that a swept name stands for there.

        `before` are the columns before it; raises E104, E205, E304 with places.
        """
        given = self.said.point.get(name, name)
        stage = self.said.document.data[FILTER]["balance"]
        loc = (*FILTER_LOC, "balance", k) if isinstance(stage, list) else (*FILTER_LOC, "balance")
        place = self.said.document.place(loc)
        if not isinstance(given, str):
            message = f"'{name}' stands for a column to balance, not {describe_type(given)}"
            raise FaultError(Diagnostic("E104", message, place=place))
        if given in before:
            raise FaultError(Diagnostic("E304", f"'{given}' is named twice", place=place))
        try:
            rs.resolve(_column_rate_name(IMBALANCE, [given]), self.scope)
        except FaultError as error:
            raise FaultError(fault.at(place) for fault in error.faults) from None
        return given

    def _rule(self, text: str) -> Goal:
        """Return the goal of a rule; E308 if it is not a distance of shares from targets."""
        loc, place = (*FILTER_LOC, "objective"), self.said.document.place
        try:
            value = rs.resolve(parse_expression(text), self.scope)
        except FaultError as error:
            raise FaultError(fault.at(place(loc, fault.span)) for fault in error.faults) from None
        for leaf in ex.measured_nodes(value):
            if leaf.split not in {None, "train"}:
                message = (
                    f"the filter looks at the split '{leaf.split}': it sees training rows only"
                )
                raise FaultError(Diagnostic("E309", message, place=place(loc, leaf.span)))
        goal = objective_goal(" ".join(text.split()), value)
        if goal.shape is not Shape.BALANCE:
            message = f"the filter cannot minimize this: it is {SHAPE_NAMES[goal.shape]}"
            hint = "write a distance of shares from their targets, as in rms(share[women] - 0.5)"
            raise FaultError(Diagnostic("E308", message, hint, place=place(loc)))
        return goal

    def _disclosed(self, stage: FilterSpec, columns: Sequence[str]) -> Disclosure | None:
        """Return the disclosivity of the columns; None if it is not bounded and cannot be resolved.

        It cannot be resolved if the columns have too many values. The slices of a user's own
        objective may be of columns of any kind.
        """
        try:
            found = rs.resolve(_column_rate_name(DISCLOSIVITY, columns), self.scope)
        except FaultError as error:
            if stage.disclosivity is None:
                return None
            place = self.said.document.place((*FILTER_LOC, "disclosivity"), key=True)
            raise FaultError(fault.at(place) for fault in error.faults) from None
        assert isinstance(found, Disclosure)
        return found

    def _plain(self, text: str) -> Expression:
        return rs.resolve(parse_expression(text), self.scope)

    def _least(self, columns: Sequence[str]) -> Expression:
        """Return the smallest share of any value of the columns."""
        tree = replace(_column_rate_name("min", columns), arguments=(parse_expression("share"),))
        return rs.resolve(tree, self.scope)

    def _take(self, stage: FilterSpec) -> str:
        given = self.said.point.get(stage.take, stage.take)
        if given not in TAKE_CHOICES:
            with self.said.document.placing(*FILTER_LOC, "take"):
                raise invalid_choice(given, TAKE_CHOICES)
        return str(given)


def _column_rate_name(name: str, columns: Sequence[str]) -> NameNode:
    spans = (NO_SPAN,) * len(columns)
    return NameNode(name, arguments=(), by=tuple(columns), by_spans=spans)


def _group_columns(goal: Goal) -> Iterator[str]:
    """Yield the columns that define the groups of a goal, in its order."""
    for leaf in ex.leaves(goal.expression):
        yield from (condition.column for condition in leaf.where.conditions)


def _disclosivity_goal(disclosed: Disclosure, alpha: float) -> Goal:
    parts = (ex.subtract(disclosed, ex.Constant(alpha)),)
    text = f"{ex.to_text(disclosed)} <= {alpha:g}"
    return constraint_goal(DISCLOSIVITY, text, parts, rs.violation_expression(parts))

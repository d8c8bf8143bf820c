"""The filter before training: what the file says of it, at a sweep point, as a case of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ratecli.config.complaint import kind, no_choice
from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.config.filter import ALPHA, FILTER, TAKES, Filter
from ratecli.errors import Fault, FaultError, Place, did_you_mean
from ratecli.experiment.cases import Case, Filtering
from ratecli.experiment.goal_checks import SHAPES
from ratecli.experiment.options import OptionError, at_point, solver, solver_class
from ratecli.experiment.safety import AtPoint, Limits
from ratecli.ledger.records import STAGE, VIOLATION
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, Shape, objective_goal, rule_goal
from ratecli.rates.expression import Disclosure, Expression
from ratecli.rates.parser import parse_value
from ratecli.rates.resolve import Scope
from ratecli.rates.syntax import NOWHERE, Name
from ratecli.rates.table import DISCLOSIVITY, IMBALANCE
from ratecli.sampling.resampling import Holdout
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import Guard
from ratecli.solvers.registry import algorithms, working

AT: Loc = (FILTER,)
"""Where the stage stands in a file."""
ALPHAS = Limits(lambda n: 0 <= n <= 1, ALPHA)
KEPT, LEAST = f"{STAGE}kept", f"{STAGE}least_share"


def is_filter(found: type[Solver]) -> bool:
    """Whether what an algorithm finds keeps rows so that groups are balanced."""
    return found.hides_groups and Shape.BALANCE in found.objectives


def filters() -> list[str]:
    """The names of the algorithms that are filters."""
    there = ((name, found) for name, found in working() if algorithms()[name].missing() is None)
    return [name for name, found in there if is_filter(found)]


def stage_place(document: Document) -> Place:
    """Where a file says what its filter is to reach."""
    return document.place((*AT, "balance" if "balance" in document.data[FILTER] else "objective"))


def stage_metrics(experiment: Experiment) -> list[str]:
    """The names of what is measured of the file's filter; it has nothing else, nobody else has these."""
    stage = experiment.filter
    if stage is None:
        return []
    aim = "objective" if stage.balance is None else IMBALANCE
    broken = [VIOLATION + DISCLOSIVITY] if stage.disclosivity is not None else []
    return [f"{STAGE}{aim}", f"{STAGE}{DISCLOSIVITY}", KEPT, LEAST, *broken]


def stage_labels(cases: Sequence[Case]) -> list[str]:
    """What the trials of the filters are called that cases go through."""
    return list(dict.fromkeys(case.label for case in stage_cases(cases).values()))


def stage_cases(cases: Sequence[Case]) -> dict[str, Case]:
    """The filters that cases go through, each once, by its key (`Filtering.key`).

    Each is shown at the sweep point that those who use it have in common. Two that differ though they have
    one point, since rows are put aside for some only, are told apart by the first algorithm that uses the
    latter.
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
class Stage:
    """The file's filter for one algorithm at one sweep point.

    Attributes
    ----------
    said
        The algorithm's entry and the point.
    scope
        What names mean there.
    share, holdout
        What becomes of the training rows before they are filtered.
    """

    said: AtPoint
    scope: Scope
    pool: tuple[str, ...]
    share: Fraction | None
    holdout: Holdout | None

    def filtering(self) -> Filtering | None:
        """What training rows go through, if they do.

        Raises
        ------
        FaultError
            E104, E202, E203, E205, E304, E308 and what else is wrong with rules and options; with places.
        """
        stage = self.said.experiment.filter
        if stage is None or self.said.entry.filter is False:
            return None
        made = self._solver(stage)
        objective, aim = self._objective(stage)
        columns = tuple(dict.fromkeys(_columns(objective)))
        disclosed = self._disclosed(stage, columns)
        alpha = None
        if stage.disclosivity is not None:
            alpha = float(self.said.number(stage.disclosivity, (*AT, "disclosivity"), ALPHAS))
        rules = () if alpha is None or disclosed is None else (_bound(disclosed, alpha),)
        metrics = {
            aim: objective.expression,
            f"{STAGE}{DISCLOSIVITY}": disclosed,
            KEPT: self._plain("positive_rate"),
            LEAST: self._least(columns) if disclosed is not None else None,
        }
        measured = {name: metric for name, metric in metrics.items() if metric is not None}
        case = Case(
            label=FILTER,
            algorithm=stage.name,
            solver=made,
            guard=Guard(),
            share=self.share,
            holdout=self.holdout,
            safety=None,
            point=self.said.point,
            datasets=self.pool,
            objective=objective,
            constraints=rules,
            metrics=measured | {VIOLATION + rule.name: rule.expression for rule in rules},
        )
        return Filtering(case, self._take(stage))

    def _solver(self, stage: Filter) -> Solver:
        document, loc = self.said.document, (*AT, "algorithm")
        place = document.place(loc)
        if stage.name not in algorithms():
            hint = did_you_mean(stage.name, filters(), "filters")
            message = f"no algorithm is called '{stage.name}'"
            raise FaultError(Fault("E202", message, hint, place=place))
        try:
            found = solver_class(stage.name)
        except FaultError as error:
            raise FaultError(fault.at(place) for fault in error.faults) from None
        missing = algorithms()[stage.name].missing()
        if missing is not None:
            raise FaultError(missing.at(place))
        if not is_filter(found):
            hint = f"filters: {', '.join(filters())}"
            message = (
                f"'{stage.name}' is no filter: it does not keep rows so that groups are balanced"
            )
            raise FaultError(Fault("E308", message, hint, place=place))
        if stage.disclosivity is not None and found.role != "enforces":
            message = f"'{stage.name}' keeps no bound on disclosivity: it is measured anyway"
            hint = "leave 'disclosivity' out, or take balanced_tree"
            key = document.place((*AT, "disclosivity"), key=True)
            raise FaultError(Fault("E308", message, hint, place=key))
        try:
            return solver(stage.name, at_point(stage.algorithm[stage.name], self.said.point), ())
        except OptionError as error:
            at = (*loc, stage.name)
            raise FaultError(each.under(*at).fault(document) for each in error.complaints) from None

    def _objective(self, stage: Filter) -> tuple[Goal, str]:
        """What is to be small, and the name of the metric that it is."""
        if stage.balance is None:
            return self._rule(str(stage.objective)), f"{STAGE}objective"
        columns = list[str]()
        for k, name in enumerate(stage.balance):
            columns.append(self._column(k, name, columns))
        tree = _of_columns(IMBALANCE, columns)
        return objective_goal(str(tree), rs.resolve(tree, self.scope)), f"{STAGE}{IMBALANCE}"

    def _column(self, k: int, name: str, before: Sequence[str]) -> str:
        """A column to balance behind others, or the one that a swept name stands for; E104, E205, E304 at its place."""
        given = self.said.point.get(name, name)
        stage = self.said.document.data[FILTER]["balance"]
        loc = (*AT, "balance", k) if isinstance(stage, list) else (*AT, "balance")
        place = self.said.document.place(loc)
        if not isinstance(given, str):
            message = f"'{name}' stands for a column to balance, not {kind(given)}"
            raise FaultError(Fault("E104", message, place=place))
        if given in before:
            raise FaultError(Fault("E304", f"'{given}' is named twice", place=place))
        try:
            rs.resolve(_of_columns(IMBALANCE, [given]), self.scope)
        except FaultError as error:
            raise FaultError(fault.at(place) for fault in error.faults) from None
        return given

    def _rule(self, text: str) -> Goal:
        """E308 where the rule is no distance of shares from targets."""
        loc, place = (*AT, "objective"), self.said.document.place
        try:
            value = rs.resolve(parse_value(text), self.scope)
        except FaultError as error:
            raise FaultError(fault.at(place(loc, fault.span)) for fault in error.faults) from None
        for leaf in ex.measured(value):
            if leaf.split not in {None, "train"}:
                message = (
                    f"the filter looks at the split '{leaf.split}': it sees training rows only"
                )
                raise FaultError(Fault("E309", message, place=place(loc, leaf.span)))
        goal = objective_goal(" ".join(text.split()), value)
        if goal.shape is not Shape.BALANCE:
            message = f"the filter cannot minimize this: it is {SHAPES[goal.shape]}"
            hint = "write a distance of shares from their targets, as in rms(share[women] - 0.5)"
            raise FaultError(Fault("E308", message, hint, place=place(loc)))
        return goal

    def _disclosed(self, stage: Filter, columns: Sequence[str]) -> Disclosure | None:
        """How much a row's value of the columns is disclosed; None where nobody asks and they have too many.

        With an objective of one's own its slices may be of columns of any kind.
        """
        try:
            found = rs.resolve(_of_columns(DISCLOSIVITY, columns), self.scope)
        except FaultError as error:
            if stage.disclosivity is None:
                return None
            place = self.said.document.place((*AT, "disclosivity"), key=True)
            raise FaultError(fault.at(place) for fault in error.faults) from None
        assert isinstance(found, Disclosure)
        return found

    def _plain(self, text: str) -> Expression:
        return rs.resolve(parse_value(text), self.scope)

    def _least(self, columns: Sequence[str]) -> Expression:
        """The least share of any value of the columns."""
        tree = replace(_of_columns("min", columns), arguments=(parse_value("share"),))
        return rs.resolve(tree, self.scope)

    def _take(self, stage: Filter) -> str:
        given, document = self.said.point.get(stage.take, stage.take), self.said.document
        if given not in TAKES:
            raise FaultError(no_choice((*AT, "take"), given, TAKES).fault(document))
        return str(given)


def _of_columns(name: str, columns: Sequence[str]) -> Name:
    spans = (NOWHERE,) * len(columns)
    return Name(name, arguments=(), by=tuple(columns), by_spans=spans)


def _columns(goal: Goal) -> Iterator[str]:
    """The columns by which a goal tells groups, in its order."""
    for leaf in ex.leaves(goal.expression):
        yield from (condition.column for condition in leaf.where.conditions)


def _bound(disclosed: Disclosure, alpha: float) -> Goal:
    parts = (ex.subtract(disclosed, ex.Constant(alpha)),)
    text = f"{ex.text(disclosed)} <= {alpha:g}"
    return rule_goal(DISCLOSIVITY, text, parts, rs.violation(parts))

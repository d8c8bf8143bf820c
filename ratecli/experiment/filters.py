"""Filters: the stage of a file before training, and filters that are learned for their own sake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pandas as pd

from ratecli.config.base import describe_type, invalid_choice
from ratecli.config.experiment import Problem
from ratecli.config.trials import DISCLOSIVITY_RANGE, FILTER, TAKE_CHOICES, FilterSpec
from ratecli.datasets.split import Holdout
from ratecli.errors import Diagnostic, FaultError, Loc, errors_at, errors_under
from ratecli.experiment.cases import Case, CaseFilter
from ratecli.experiment.checks.goals import SHAPE_NAMES, check_goal_splits
from ratecli.experiment.entries import (
    EntryAtPoint,
    make_solver,
    option_names,
    usable_solver_class,
    usable_solvers,
    value_at_point,
)
from ratecli.ledger.records import FILTER_STAGE_PREFIX, VIOLATION_PREFIX, is_violated
from ratecli.rates import expression as ex
from ratecli.rates import resolve as rs
from ratecli.rates.analysis import Goal, Shape, constraint_goal, objective_goal
from ratecli.rates.expression import Expression
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.syntax import value_text
from ratecli.rates.table import DISCLOSIVITY, IMBALANCE
from ratecli.solvers.base import Solver
from ratecli.solvers.margin import MarginSpec

KEPT_METRIC, LEAST_SHARE_METRIC = f"{FILTER_STAGE_PREFIX}kept", f"{FILTER_STAGE_PREFIX}least_share"
MAIN_VARIANT = "expected"
"""Name of the variant that a filter's trial returns."""
DISCLOSED_METRIC = f"{FILTER_STAGE_PREFIX}{DISCLOSIVITY}"


def is_filter(found: type[Solver]) -> bool:
    """Return whether an algorithm returns a filter that keeps rows so that groups are balanced."""
    return found.hides_groups and Shape.BALANCE in found.objectives


def filter_class(name: str) -> type[Solver]:
    """Return the class of a filter; raise E202 or E308 if there is none of this name."""
    found = usable_solver_class(name)
    if not is_filter(found):
        filters = [each for each, solver in usable_solvers() if is_filter(solver)]
        message = f"'{name}' is not a filter: it does not balance groups"
        raise FaultError(Diagnostic("E308", message, f"filters: {', '.join(filters)}"))
    return found


def filter_goal_loc(stage: FilterSpec) -> Loc:
    """Return the location of the filter's objective in a file."""
    return (FILTER, "objective" if stage.balance is None else "balance")


def filter_metric_names(experiment: Problem) -> list[str]:
    """Return the metrics of the file's filter, which trials of algorithms do not have."""
    stage = experiment.filter
    if stage is None:
        return []
    aim = FILTER_STAGE_PREFIX + ("objective" if stage.balance is None else IMBALANCE)
    bounded = [] if stage.disclosivity is None else [VIOLATION_PREFIX + DISCLOSIVITY]
    return [aim, DISCLOSED_METRIC, KEPT_METRIC, LEAST_SHARE_METRIC, *bounded]


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


def read_filter(
    at: EntryAtPoint, pool: tuple[str, ...], share: Fraction | None, holdout: Holdout | None
) -> CaseFilter | None:
    """Return the filter that the training rows of an entry pass through at a point, if any.

    `pool` are the data sets whose rows are filtered; `share` and `holdout` say how rows are sampled
    and held out before.

    Raises
    ------
    FaultError
        E104, E202, E203, E205, E304, E308 and any other error of rules and options, with locations.
    """
    stage = at.problem.filter
    if stage is None or not at.entry.filter:
        return None
    solver = _solver(at, stage)
    name, objective, columns = _objective(at, stage)
    rule, metrics = _disclosivity(at, stage, columns)
    take = at.point.get(stage.take, stage.take)
    if take not in TAKE_CHOICES:
        with errors_at(FILTER, "take"):
            raise invalid_choice(take, TAKE_CHOICES)
    case = Case(
        label=FILTER,
        algorithm=stage.name,
        solver=solver,
        guard=MarginSpec(),
        share=share,
        holdout=holdout,
        safety=None,
        point=at.point,
        datasets=pool,
        objective=objective,
        constraints=() if rule is None else (rule,),
        metrics={f"{FILTER_STAGE_PREFIX}{name}": objective.expression, **metrics},
    )
    return CaseFilter(case, str(take))


def filter_goals(columns: Sequence[str], limit: float | None = None) -> dict[str, Any]:
    """Return the objective, constraints and metrics of a filter that balances columns, as texts.

    `limit` bounds the disclosivity of the columns.
    """
    over = f"by={ex.by_text(columns)}"
    disclosed = f"{DISCLOSIVITY}({over})"
    rule = {} if limit is None else {DISCLOSIVITY: f"{disclosed} <= {value_text(limit)}"}
    return {
        "objective": f"{IMBALANCE}({over})",
        "constraints": rule,
        "metrics": {DISCLOSIVITY: disclosed, "kept": "positive_rate"},
    }


def filter_alone(
    algorithm: str, by: Sequence[str], limit: float, kept: float | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options and the goals of a filter that is learned for its own sake.

    Parameters
    ----------
    by
        The columns to balance.
    limit
        Upper limit on the disclosivity; 1 for none.
    kept
        Minimum share of the rows to keep, None for a tenth: a filter that keeps hardly any row is
        of little use. Ignored for a filter without this option.

    Raises
    ------
    FaultError
        E104 for a limit that is no probability, E202 or E308 if there is no such filter.
    """
    filter_class(algorithm)
    if not 0 <= limit <= 1:
        message = f"disclosivity must be from 0 to 1, not {limit:g}"
        raise FaultError(Diagnostic("E104", message))
    has_least = (
        "kept" in option_names(algorithm) and "kept" not in make_solver(algorithm, {}, ()).idle
    )
    least = {"kept": 0.1 if kept is None else kept} if has_least else {}
    return {"missing": "leave_out", **least}, filter_goals(by, limit if limit < 1 else None)


def why_unusable(algorithm: str, disclosed: float | None, limit: float, ending: str) -> str:
    """Return why a filter cannot be used, "" if it can.

    `disclosed` is its disclosivity on the training rows, None if no filter was found, for the
    reason `ending`.
    """
    if disclosed is None:
        return f"{algorithm} found no filter: {ending}"
    if not is_violated(disclosed, limit):
        return ""
    return (
        f"the output of {algorithm} shifts the probability of a row's group by up to "
        f"{disclosed:.4f}, more than {limit:g}: allow more, or use balanced_tree"
    )


def empty_group_warning(name: str, column: Any) -> list[Diagnostic]:
    """Return a W401 if a column of groups is empty in some rows, as a list."""
    count = int(pd.isna(column).sum())
    if not count:
        return []
    rows = "1 row" if count == 1 else f"{count} rows"
    return [Diagnostic("W401", f"'{name}' is empty in {rows}: the filter is fitted to the others")]


def _objective(at: EntryAtPoint, stage: FilterSpec) -> tuple[str, Goal, list[str]]:
    """Return the name of what the filter minimizes, the goal, and the columns of its groups."""
    if stage.balance is None:
        goal = _custom_objective(at, str(stage.objective))
        leaves = ex.leaves(goal.expression)
        columns = dict.fromkeys(each.column for leaf in leaves for each in leaf.where.atoms)
        return "objective", goal, list(columns)
    with _errors_in_columns(FILTER, "balance"):
        balanced = _columns(at, stage.balance)
        text = filter_goals(balanced)["objective"]
        return IMBALANCE, objective_goal(text, _resolved(at, text)), balanced


def _disclosivity(
    at: EntryAtPoint, stage: FilterSpec, columns: Sequence[str]
) -> tuple[Goal | None, dict[str, Expression]]:
    """Return the limit on the filter's disclosivity, if any, and the metrics of the filter."""
    kept = {KEPT_METRIC: _resolved(at, "positive_rate")}
    try:
        with _errors_in_columns(FILTER, "disclosivity", key=True):
            disclosed = _resolved(at, filter_goals(columns)["metrics"][DISCLOSIVITY])
    except FaultError:
        # an objective of the user's own may have slices by columns of any kind, of many values
        if stage.disclosivity is not None:
            raise
        return None, kept
    least = _resolved(at, f"min(share, by={ex.by_text(columns)})")
    metrics = {DISCLOSED_METRIC: disclosed, **kept, LEAST_SHARE_METRIC: least}
    if stage.disclosivity is None:
        return None, metrics
    alpha = at.number(stage.disclosivity, (FILTER, "disclosivity"), DISCLOSIVITY_RANGE)
    text = filter_goals(columns, float(alpha))["constraints"][DISCLOSIVITY]
    parts = rs.constraint_differences(parse_constraint(text), at.scope)
    rule = constraint_goal(DISCLOSIVITY, text, parts, rs.violation_expression(parts))
    return rule, {**metrics, VIOLATION_PREFIX + DISCLOSIVITY: rule.expression}


def _resolved(at: EntryAtPoint, text: str) -> ex.Expression:
    return rs.resolve(parse_expression(text), at.scope)


def _solver(at: EntryAtPoint, stage: FilterSpec) -> Solver:
    with errors_at(FILTER, "algorithm"):
        found = filter_class(stage.name)
    if stage.disclosivity is not None and found.role != "enforces":
        message = f"'{stage.name}' does not bound disclosivity; it is measured anyway"
        hint, loc = "leave 'disclosivity' out, or use balanced_tree", (FILTER, "disclosivity")
        raise FaultError(Diagnostic("E308", message, hint, loc=loc, key=True))
    options = value_at_point(stage.algorithm[stage.name], at.point)
    with errors_under(FILTER, "algorithm", stage.name):
        return make_solver(stage.name, options, ())


def _columns(at: EntryAtPoint, balance: Sequence[str]) -> list[str]:
    """Return the columns of `balance`, with columns in place of swept names."""
    columns: list[str] = []
    for name in balance:
        column = at.point.get(name, name)
        if not isinstance(column, str):
            message = f"'{name}' must be a column to balance, not {describe_type(column)}"
            raise FaultError(Diagnostic("E104", message))
        columns.append(column)
    return columns


def _custom_objective(at: EntryAtPoint, text: str) -> Goal:
    """Return the goal of a rule; E308 if it is not a distance of shares from targets."""
    with errors_at(FILTER, "objective"):
        value = _resolved(at, text)
        if faults := list(check_goal_splits(value)):
            raise FaultError(faults)
        goal = objective_goal(" ".join(text.split()), value)
        if goal.shape is not Shape.BALANCE:
            message = f"the filter cannot minimize this: it is {SHAPE_NAMES[goal.shape]}"
            hint = "write a distance of shares from targets, as in rms(share[women] - 0.5)"
            raise FaultError(Diagnostic("E308", message, hint))
    return goal


@contextmanager
def _errors_in_columns(*loc: str | int, key: bool = False) -> Iterator[None]:
    """Set the location of errors about columns, which have no span in a rule of the file."""
    try:
        yield
    except FaultError as error:
        faults = [replace(fault, loc=loc, key=key, span=None) for fault in error.faults]
        raise type(error)(faults) from None

"""What names in rules mean: groups, columns with their values, sweep names, logged decisions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ratecli.errors import MAX_LISTED, Diagnostic, Span, did_you_mean
from ratecli.rates import syntax
from ratecli.rates.functions import Interval
from ratecli.rates.syntax import Clause, Condition, refuse
from ratecli.rates.table import Rate

ValueLookup = Callable[[str], Sequence[str | float] | None]
Conditions = tuple[Clause, ...]
NUMBER_LIKE = re.compile(r"[+-]?\d+(?:[.,' ]\d{3})*(?:[.,]\d*)?")
"""Words that may be numbers with a decimal comma or signs between thousands."""


def placeholder_values(column: str) -> Sequence[str | float]:
    """Return two made-up values for a column of unread data: enough to find the class of a goal."""
    return (f"{column}_1", f"{column}_2")


@dataclass(frozen=True)
class LoggedRanges:
    """Smallest and largest possible value of each logged outcome, and the largest weight.

    The weights are importance weights. All are infinite where unknown. `episodes` says whether the
    decisions form episodes, `span` is the largest sum of the discounts of an episode's steps, and
    `true_returns` whether expected returns of policies are known. `actions` are columns that are
    known only after the logged decision: actions and outcomes.
    """

    outcomes: Mapping[str, Interval]
    weight: float = math.inf
    episodes: bool = False
    span: float = math.inf
    true_returns: bool = False
    actions: frozenset[str] = frozenset()

    def of(self, rate: Rate) -> Interval:
        """Return the smallest and largest possible value of a row in a rate of logged decisions."""
        if rate.outcome_source == "model" or (self.episodes and not rate.outcome):
            return -math.inf, math.inf
        low, high = self.outcomes[rate.outcome] if rate.outcome else (0.0, 1.0)
        if self.episodes:
            return min(0.0, low and low * self.span), max(0.0, high and high * self.span)
        if not rate.weight_power:
            return low, high
        weight = self.weight**rate.weight_power
        return min(0.0, low and low * weight), max(0.0, high and high * weight)


@dataclass(frozen=True)
class Scope:
    """The meaning of names in an experiment.

    Attributes
    ----------
    datasets, groups, algorithms
        Names of data sets; groups with their conditions; labels of algorithms that `of` may name.
    parameters
        Sweep names with their values at the current sweep point.
    unset
        Sweep names without a value at this point, each with the diagnostic to raise if it is used.
    values
        Return the values of a column over all data sets, None if there is no such column.
    columns
        All column names, for suggestions in messages; None if no data was read.
    count
        Return the number of rows for which conditions hold; None if rows are not counted.
    bins
        For columns of numbers, the increasing values at which `by=` cuts them.
    logged
        What is known about logged decisions, None if no data set has any.
    """

    datasets: frozenset[str] = frozenset()
    groups: Mapping[str, Conditions] = field(default_factory=dict)
    parameters: Mapping[str, object] = field(default_factory=dict)
    unset: Mapping[str, Diagnostic] = field(default_factory=dict)
    algorithms: frozenset[str] = frozenset()
    values: ValueLookup = placeholder_values
    columns: frozenset[str] | None = None
    count: Callable[[Conditions], int] | None = None
    bins: Mapping[str, Sequence[float]] = field(default_factory=dict)
    logged: LoggedRanges | None = None


def check_condition(condition: Condition, scope: Scope) -> None:
    """Raise E205 for an unknown column, E206 for a value that no data set contains."""
    column, span = condition.column, condition.span
    known = column_values(column, span, scope)
    if scope.columns is None:
        return
    texts = list(map(syntax.value_text, known))
    if condition.op in {"=", "!="}:
        numeric = bool(known) and not isinstance(known[0], str)
        for value in map(syntax.value_text, condition.values):
            if (syntax.parse_number(value) if numeric else value) not in known:
                help_ = _similar_values(column, value, known)
                refuse("E206", f"'{value}' is not a value of '{column}'", span, help_)
    elif condition.date:
        if wrong := [text for text in texts if not condition.has_date(text)]:
            message = f"'{condition}' compares dates, but '{column}' contains '{wrong[0]}'"
            refuse("E206", message, span, "write dates as year-month-day, as in 2024-05-31")
    elif words := [str(value) for value in known if math.isnan(syntax.parse_number(value))]:
        message = f"'{condition.op}' compares numbers, but '{column}' contains text"
        hint = f"compare with = or !=; values: {', '.join(words[:12])}"
        if all(map(syntax.is_date, words)):
            hint = f"write a date, as in {column} {condition.op} {words[0][:10]}"
        elif all(map(NUMBER_LIKE.fullmatch, words)):
            hint = f"if '{words[0]}' is a number, set 'decimal' or 'thousands' of the data set"
        refuse("E206", message, span, hint)


def _similar_values(column: str, value: str, known: Sequence[str | float]) -> str:
    """Return help for a value that a column does not contain."""
    if value.lower() in syntax.MISSING_WORDS or value == syntax.PYTHON_NONE:
        return "it stands for a missing value, which belongs to no group"
    texts = list(map(syntax.value_text, known))
    if known and not isinstance(known[0], str):  # in numeric order
        return f"values: {', '.join(texts[:MAX_LISTED])}{', ...' * (len(texts) > MAX_LISTED)}"
    if syntax.DATE.fullmatch(value) and all(map(syntax.has_time, texts)):
        return f"its values are times: write {column} >= {value} and {column} < ..."
    return did_you_mean(value, texts, "values")


def column_values(column: str, span: Span, scope: Scope) -> Sequence[str | float]:
    values = scope.values(column)
    if values is None:
        help_ = did_you_mean(column, scope.columns or (), "columns")
        refuse("E205", f"there is no column '{column}'", span, help_)
    return values

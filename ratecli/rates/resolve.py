"""Resolve a parsed rule: look up every name and expand templates into arithmetic over rates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ratecli.errors import Diagnostic, FaultError, Span, did_you_mean
from ratecli.rates import expression as ex
from ratecli.rates import syntax
from ratecli.rates.expression import (
    COLUMN_FUNCTIONS,
    JOINT_RATE,
    SINGLE_COLUMN_TEMPLATES,
    VARIADIC_FUNCTIONS,
    Expression,
    Slice,
    apply_template,
    imbalance_expression,
)
from ratecli.rates.functions import FUNCTIONS
from ratecli.rates.metrics import BUILTIN_NAMES, find_metric, find_rate, plugin_metric_names
from ratecli.rates.parser import parse_expression
from ratecli.rates.syntax import Condition, NameNode, SyntaxNode
from ratecli.rates.table import (
    BALANCE_METRICS,
    DEPLOYED,
    DISCLOSIVITY,
    OF,
    RANKINGS,
    TEMPLATES,
    Composite,
    Rate,
    canonical_name,
)

SPLITS = ("train", "validation", "test", "safety")
MAX_VALUES = 30
"""Templates refuse columns with more values than this: there would be too many pairs."""
MAX_NODES = 50_000
"""Largest tree that nested templates may expand to; larger ones are refused."""

ValueLookup = Callable[[str], Sequence[str | float] | None]


def placeholder_values(column: str) -> Sequence[str | float]:
    """Return two made-up values for a column of unread data: enough to find the class of a goal."""
    return (f"{column}_1", f"{column}_2")


class MissingSweepValueError(FaultError):
    """A sweep name has no value at this sweep point, so its expression cannot be resolved."""


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
    """

    datasets: frozenset[str] = frozenset()
    groups: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    parameters: Mapping[str, object] = field(default_factory=dict)
    unset: Mapping[str, Diagnostic] = field(default_factory=dict)
    algorithms: frozenset[str] = frozenset()
    values: ValueLookup = placeholder_values
    columns: frozenset[str] | None = None


def resolve(node: SyntaxNode, scope: Scope) -> Expression:
    """Look up every name of a tree and return the resulting expression.

    Raises
    ------
    FaultError
        E202-E206, E209 and E210 (names and plugins), E302 (too large), E304 (arguments), E311
        (arithmetic); with spans in the rule's text. A `MissingSweepValueError` for an `unset` name.
    """
    return _check_finite(_Resolver(scope).value(node))


def constraint_differences(relation: syntax.Relation, scope: Scope) -> tuple[Expression, ...]:
    """Return expressions that must be at most 0, one for each comparison of the chain."""
    resolver = _Resolver(scope)
    values = [resolver.value(operand) for operand in relation.operands]
    pairs = zip(relation.ops, values[:-1], values[1:], strict=True)
    ordered = ((left, right) if op == "<=" else (right, left) for op, left, right in pairs)
    return tuple(
        _check_finite(ex.subtract(small, large, relation.span)) for small, large in ordered
    )


def _check_finite(node: Expression) -> Expression:
    for part in ex.walk(node):
        if isinstance(part, ex.Constant) and not math.isfinite(part.value):
            _raise_diagnostic("E311", "a number here is too large or not defined", part.span)
    return node


def violation_expression(differences: tuple[Expression, ...]) -> Expression:
    """Return a constraint's violation: its largest difference, at most 0 if it is satisfied."""
    return differences[0] if len(differences) == 1 else ex.apply("max", differences)


def check_conditions(conditions: Sequence[Condition], scope: Scope) -> None:
    """Raise E205 for an unknown column, E206 for a value that no data set contains."""
    for condition in conditions:
        _check_condition(condition, scope)


def _check_condition(condition: Condition, scope: Scope) -> None:
    known = scope.values(condition.column)
    if known is None:
        _raise_diagnostic(
            "E205",
            f"there is no column '{condition.column}'",
            condition.span,
            did_you_mean(condition.column, scope.columns or (), "columns"),
        )
    if scope.columns is None:
        return
    if condition.op not in {"=", "!="}:
        _check_order(condition, known)
        return
    texts = {value if isinstance(value, str) else syntax.number_text(value) for value in known}
    for value in condition.values:
        shown = value if isinstance(value, str) else syntax.number_text(value)
        if shown not in texts:
            _raise_diagnostic(
                "E206",
                f"'{shown}' is not a value of '{condition.column}'",
                condition.span,
                did_you_mean(shown, texts, "values"),
            )


def _check_order(condition: Condition, known: Sequence[str | float]) -> None:
    words = [str(value) for value in known if math.isnan(syntax.parse_number(value))]
    if words:
        listed = ", ".join(words[:12])
        _raise_diagnostic(
            "E206",
            f"'{condition.op}' compares numbers, '{condition.column}' holds words",
            condition.span,
            f"compare with = or !=; values: {listed}",
        )


def _raise_diagnostic(code: str, message: str, span: Span, help_: str | None = None) -> NoReturn:
    raise FaultError(Diagnostic(code, message, help_, span))


@dataclass(frozen=True)
class _Resolver:
    scope: Scope
    where: Slice = ex.ALL_ROWS
    split: str | None = None
    local: Mapping[str, Expression] = field(default_factory=dict)

    def value(self, node: SyntaxNode) -> Expression:
        found = self.part(node)
        return _check_finite(found) if isinstance(found, ex.Constant) else found

    def part(self, node: SyntaxNode) -> Expression:
        match node:
            case syntax.NumberLiteral():
                return ex.Constant(node.value, node.span)
            case syntax.Negation():
                return ex.negate(self.value(node.operand), node.span)
            case syntax.BinaryOperation():
                return _combine(node, self.value(node.left), self.value(node.right))
            case NameNode():
                return self.name(node)

    def name(self, node: NameNode) -> Expression:
        if node.by and node.name not in COLUMN_FUNCTIONS:
            whole = Span(node.by_spans[0].start, node.by_spans[-1].end)
            _raise_diagnostic("E304", f"`by=` belongs to {', '.join(COLUMN_FUNCTIONS)}", whole)
        if node.name in TEMPLATES or (node.by and node.name in VARIADIC_FUNCTIONS):
            return self.template(node)
        if node.name in BALANCE_METRICS:
            return self.spread(node)
        if node.name in FUNCTIONS:
            return self.function(node)
        if node.name == OF:
            return self.of(node)
        if node.name in self.local or node.name in self.scope.parameters:
            return self.parameter(node)
        if node.name in self.scope.unset:
            raise MissingSweepValueError(replace(self.scope.unset[node.name], span=node.span))
        return self.metric(node)

    def metric(self, node: NameNode) -> Expression:
        name = canonical_name(node.name)
        found = _find_metric(name, node.span)
        if found is None and name not in RANKINGS:
            self.unknown(node)
        parameters = found.parameters if isinstance(found, Composite) else ()
        if len(node.arguments or ()) != len(parameters):
            wanted = f"{node.name}({', '.join(parameters)})" if parameters else node.name
            _raise_diagnostic(
                "E304",
                f"'{node.name}' takes {len(parameters) or 'no'} arguments",
                node.span,
                f"write {wanted}",
            )
        where, split = self.slice(node)
        match found:
            case None:
                return ex.RankingMeasure(name, where, split, node.span)
            case Rate():
                return ex.Leaf(found, where, split, node.span)
            case Composite():
                return self.composite(found, node, where, split)

    def composite(
        self, metric: Composite, node: NameNode, where: Slice, split: str | None
    ) -> Expression:
        arguments = tuple(map(self.value, node.arguments or ()))
        for argument in arguments:
            if not isinstance(argument, ex.Constant):
                _raise_diagnostic(
                    "E304",
                    f"'{node.name}' takes a number, not a rate",
                    argument.span,
                    f"write {node.name}(2)",
                )
        local = dict(zip(metric.parameters, arguments, strict=True))
        inside = replace(self, where=where, split=split, local=local)
        # the metric's text is not in the file: its nodes get the span where the metric is named
        found = inside.value(syntax.with_span(parse_expression(metric.text), node.span))
        if not metric.over:
            return found
        bottom = ex.Leaf(find_rate(metric.over), where.everyone, split, node.span)
        return ex.divide(found, bottom, node.span)

    def unknown(self, node: NameNode) -> NoReturn:
        span = Span(node.span.start, node.span.start + len(node.name))
        if node.name in self.scope.groups or node.name in self.scope.datasets:
            _raise_diagnostic(
                "E203",
                f"'{node.name}' is a slice, not a number",
                span,
                f"write a rate of it, such as positive_rate[{node.name}]",
            )
        known = {*BUILTIN_NAMES, *plugin_metric_names(), *self.scope.parameters, *self.scope.unset}
        _raise_diagnostic(
            "E203",
            f"nothing is called '{node.name}'",
            span,
            did_you_mean(node.name, known, "metrics, functions and sweep names"),
        )

    def parameter(self, node: NameNode) -> Expression:
        if node.items or node.split or node.arguments is not None:
            _raise_diagnostic(
                "E304", f"'{node.name}' is a number, it has no slice and no arguments", node.span
            )
        if node.name in self.local:
            return self.local[node.name]
        value = self.scope.parameters[node.name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            _raise_diagnostic(
                "E304", f"'{node.name}' stands for {value!r}, a rule needs a number", node.span
            )
        return ex.Constant(float(value), node.span)

    def function(self, node: NameNode) -> Expression:
        self.plain(node)
        row, arguments = FUNCTIONS[node.name], node.arguments or ()
        if not arguments or (row.arity is not None and len(arguments) != row.arity):
            wanted = "1 or more arguments" if row.arity is None else f"{row.arity} argument(s)"
            _raise_diagnostic(
                "E304", f"'{node.name}' takes {wanted}, not {len(arguments)}", node.span
            )
        return ex.apply(node.name, tuple(map(self.value, arguments)), node.span)

    def template(self, node: NameNode) -> Expression:
        """Expand a template over the values of a column, or of several columns in sequence."""
        self.plain(node)
        if not node.by or len(node.arguments or ()) != 1:
            _raise_diagnostic(
                "E304",
                f"'{node.name}' takes one metric and a column",
                node.span,
                f"write {node.name}(tpr, by=sex)",
            )
        assert node.arguments is not None
        if len(node.by) > 1 and node.name in SINGLE_COLUMN_TEMPLATES:
            worse = SINGLE_COLUMN_TEMPLATES[node.name]
            _raise_diagnostic(
                "E304",
                f"'{node.name}' compares the values of one column",
                node.by_spans[1],
                f"write {worse}({node.name}(tpr, by=sex), {node.name}(tpr, by=race))",
            )
        found = [condition for column in self.columns(node) for condition in column]
        parts = [self.under(condition).value(node.arguments[0]) for condition in found]
        sizes = (1 for part in parts for _ in ex.walk(part))
        if sum(itertools.islice(sizes, MAX_NODES)) * len(parts) > MAX_NODES:
            _raise_diagnostic(
                "E302",
                f"'{node.name}' makes too many parts",
                node.span,
                "take a column with fewer values, or one template at a time",
            )
        return apply_template(node.name, parts, node.span)

    def spread(self, node: NameNode) -> Expression:
        """Expand `imbalance` or `disclosivity`, which use all values of their columns."""
        if not node.by or node.arguments:
            _raise_diagnostic(
                "E304",
                f"'{node.name}' takes a column and no metric",
                node.span,
                f"write {node.name}(by=sex)",
            )
        where, split = self.slice(node)
        if where.conditions:
            _raise_diagnostic(
                "E304",
                f"'{node.name}' is of all rows, not of those where {where.visible}",
                node.span,
                "a slice of it can name data sets only",
            )
        kept = None if node.name == DISCLOSIVITY else split
        columns = [
            [
                ex.Leaf(JOINT_RATE, Slice.of(where.datasets, (condition,)), kept, node.span)
                for condition in column
            ]
            for column in self.columns(node)
        ]
        if node.name == DISCLOSIVITY:
            groups = tuple(group for column in columns for group in column)
            return ex.Disclosure(node.by, groups, split, node.span)
        return imbalance_expression(columns, node.span)

    def columns(self, node: NameNode) -> list[list[Condition]]:
        """Return one condition for each value of each column in `by=`."""
        return [
            [Condition(column, "=", (value,)) for value in self.values(node, k)]
            for k, column in enumerate(node.by)
        ]

    def values(self, node: NameNode, k: int) -> Sequence[str | float]:
        column, span = node.by[k], node.by_spans[k]
        if column in node.by[:k]:
            _raise_diagnostic("E304", f"'{column}' is named twice", span)
        values = self.scope.values(column)
        if values is None:
            _raise_diagnostic(
                "E205",
                f"there is no column '{column}'",
                span,
                did_you_mean(column, self.scope.columns or (), "columns"),
            )
        if not 2 <= len(values) <= MAX_VALUES:
            plural = "" if len(values) == 1 else "s"
            _raise_diagnostic(
                "E304",
                f"'{column}' has {len(values)} value{plural}, '{node.name}' takes 2 to "
                f"{MAX_VALUES}",
                span,
            )
        return values

    def under(self, condition: Condition) -> _Resolver:
        conditions = (*self.where.conditions, condition)
        return replace(self, where=Slice.of(self.where.datasets, conditions))

    def of(self, node: NameNode) -> Expression:
        self.plain(node)
        arguments = node.arguments or ()
        if len(arguments) != 2 or not isinstance(arguments[0], NameNode):
            _raise_diagnostic(
                "E304",
                "'of' takes an algorithm and a metric",
                node.span,
                "write of(unconstrained, error)",
            )
        algorithm = arguments[0].name
        known = {*self.scope.algorithms, DEPLOYED}
        if algorithm not in known:
            _raise_diagnostic(
                "E202",
                f"no algorithm of this file is called '{algorithm}'",
                arguments[0].span,
                did_you_mean(algorithm, known, "algorithms here"),
            )
        metric = self.value(arguments[1])
        for part in ex.walk(metric):
            if isinstance(part, ex.AlgorithmMetric):
                _raise_diagnostic("E304", "'of' takes a metric, not another 'of'", part.span)
            if algorithm == DEPLOYED:
                _check_decides(part)
        return ex.AlgorithmMetric(algorithm, metric, node.span)

    def plain(self, node: NameNode) -> None:
        if node.items or node.split:
            _raise_diagnostic(
                "E304",
                f"a slice belongs to a rate, not to '{node.name}'",
                node.span,
                f"write {node.name}(tpr[...])",
            )

    def slice(self, node: NameNode) -> tuple[Slice, str | None]:
        datasets = set(self.where.datasets)
        conditions = list(self.where.conditions)
        for item in node.items:
            if isinstance(item, Condition):
                _check_condition(item, self.scope)
                conditions.append(item)
            elif item.name in self.scope.groups:
                conditions += self.scope.groups[item.name]
            elif item.name in self.scope.datasets:
                datasets.add(item.name)
            else:
                known = {*self.scope.groups, *self.scope.datasets}
                _raise_diagnostic(
                    "E204",
                    f"'{item.name}' is neither a group nor a data set",
                    item.span,
                    did_you_mean(item.name, known, "groups and data sets"),
                )
        if node.split is not None and node.split not in SPLITS:
            _raise_diagnostic(
                "E209",
                f"'{node.split}' is not a split",
                node.split_span,
                did_you_mean(node.split, SPLITS, "splits"),
            )
        return Slice.of(datasets, conditions), node.split or self.split


def _find_metric(name: str, span: Span) -> Rate | Composite | None:
    """Call `rates.metrics.find_metric`; report errors of a plugin at the place that names it."""
    try:
        return find_metric(name)
    except FaultError as error:
        raise FaultError(replace(fault, span=span) for fault in error.faults) from None


def _check_decides(part: Expression) -> None:
    """Reject metrics of scores or estimates: only decisions of the deployed model are known."""
    if isinstance(part, ex.RankingMeasure) or (
        isinstance(part, ex.Leaf) and part.rate.of != "decision"
    ):
        name = part.name if isinstance(part, ex.RankingMeasure) else part.rate.name
        _raise_diagnostic(
            "E304",
            f"'{name}' needs scores or estimates, the deployed model has decisions only",
            part.span,
            "take a metric of decisions, such as error, or of(LABEL, ...) of an algorithm",
        )


def _combine(node: syntax.BinaryOperation, left: Expression, right: Expression) -> Expression:
    match node.op:
        case "+":
            return ex.add(left, right, span=node.span)
        case "-":
            return ex.subtract(left, right, node.span)
        case "*":
            return ex.multiply(left, right, node.span)
        case "/":
            return ex.divide(left, right, node.span)
        case "**":
            return ex.power(left, right, node.span)

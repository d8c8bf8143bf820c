"""Resolve a parsed rule: look up every name and expand templates into arithmetic over rates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from ratecli.errors import Diagnostic, FaultError, Span, did_you_mean
from ratecli.rates import expression as ex
from ratecli.rates import syntax
from ratecli.rates.analysis import interval
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
from ratecli.rates.metrics import (
    BUILTIN_NAMES,
    comparison_hint,
    find_metric,
    find_rate,
    plugin_metric_names,
)
from ratecli.rates.parser import parse_expression
from ratecli.rates.scope import Conditions, Scope, check_condition, column_values
from ratecli.rates.syntax import SPLITS, Condition, NameNode, SyntaxNode, refuse
from ratecli.rates.table import (
    BALANCE_METRICS,
    DECISION_MEASUREMENTS,
    DEPLOYED,
    DISCLOSIVITY,
    EPISODE_RATES,
    MEASURES,
    METRICS,
    OF,
    OUTCOME,
    RANKINGS,
    SYNONYMS,
    TEMPLATES,
    Composite,
    Rate,
    canonical_name,
    return_key,
)

MAX_GROUPS = 1000
"""Largest number of values of a column, or of combinations in `by=[...]`."""
MAX_NUMBERS = 30
"""Largest number of values of a column with numbers that are not whole."""
MIN_ROWS = 30
"""Smallest number of rows of a combination of values in `by=[...]`, unless `min_rows` is set."""
GAP_WORDS = dict.fromkeys(("difference", "diff", "gap"), "max_gap") | {"ratio": "min_ratio"}
"""The template to suggest for an unknown name with a last word: `max_gap` for `tpr_gap`."""
MAX_NODES = 50_000
"""Largest tree that nested templates may expand to; larger ones are refused."""

LOGGED_HINT = "add logged: {action: COLUMN, propensity: COLUMN, outcomes: [COLUMN]} to the data set"
EPISODES_HINT = "name the columns of episodes: logged: {episode: COLUMN, step: COLUMN, ...}"


class MissingSweepValueError(FaultError):
    """A sweep name has no value at this sweep point, so its expression cannot be resolved."""


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
    differences = (ex.subtract(small, large, relation.span) for small, large in ordered)
    return tuple(map(_check_finite, differences))


def _check_finite(node: Expression) -> Expression:
    for part in ex.walk(node):
        if isinstance(part, ex.Constant) and not math.isfinite(part.value):
            refuse("E311", "a number here is too large or not defined", part.span)
    return node


def violation_expression(differences: tuple[Expression, ...]) -> Expression:
    """Return a constraint's violation: its largest difference, at most 0 if it is satisfied."""
    return differences[0] if len(differences) == 1 else ex.apply("max", differences)


def left_out_groups(node: SyntaxNode, scope: Scope) -> Iterator[Diagnostic]:
    """Yield a W401 for each `by=` of a tree that leaves out combinations with too few rows."""
    resolver = _Resolver(scope)
    for part in syntax.walk(node):
        if isinstance(part, NameNode) and part.by:
            left_out = [
                f"{Slice.of((), group)} ({count})" for group, count in resolver.small_groups(part)
            ]
            if left_out:
                columns = ", ".join(name.text for name in part.by)
                message = (
                    f"'{part.name}' by {columns} leaves out groups with fewer than "
                    f"{_min_rows(part):g} rows: " + "; ".join(left_out)
                )
                hint = "set another limit with min_rows, as in by=[sex, race], min_rows=10"
                yield Diagnostic("W401", message, hint, part.span)


def _min_rows(node: NameNode) -> float:
    if node.min_rows is not None:
        return node.min_rows.value
    return MIN_ROWS if node.joint else 0


@dataclass(frozen=True)
class _Resolver:
    scope: Scope
    where: Slice = ex.ALL_ROWS
    split: str | None = None
    local: Mapping[str, Expression] = field(default_factory=dict)
    outcome: SyntaxNode | None = None
    """What `outcome` stands for in the text of a composite."""
    grouped: NameNode | None = None
    """The node whose columns `by=columns` stands for in the text of a fairness measure."""

    def value(self, node: SyntaxNode) -> Expression:
        found: Expression
        match node:
            case syntax.NumberLiteral():
                found = ex.Constant(node.value, node.span)
            case syntax.Operation(operands=(operand,)):
                found = ex.negate(self.value(operand), node.span)
            case syntax.Operation():
                found = ex.OPERATORS[node.op](*map(self.value, node.operands), span=node.span)
            case NameNode():
                own = self.grouped if node.by and self.grouped else node
                found = self.name(replace(node, by=own.by, joint=own.joint, min_rows=own.min_rows))
        # a later step may hide an infinite number: 1 / log(0) is 0
        return _check_finite(found) if isinstance(found, ex.Constant) else found

    def name(self, node: NameNode) -> Expression:
        name = canonical_name(node.name)
        if name in MEASURES:
            return self.measure(node, MEASURES[name])
        if node.by and name not in COLUMN_FUNCTIONS:
            self.not_by_columns(node, name)
        is_template = name in TEMPLATES or (node.by and name in VARIADIC_FUNCTIONS)
        if (is_template or name in FUNCTIONS or name == OF) and (node.items or node.split):
            place = "[...]" * bool(node.items) + (f"@{node.split.text}" if node.split else "")
            example = f"of(unconstrained, error{place})" if name == OF else f"tpr{place}"
            message = f"'{name}' cannot have a slice or a split, only a rate can"
            refuse("E304", message, node.span, f"write it after each rate inside: {example}")
        if is_template:
            return self.template(node)
        if name in BALANCE_METRICS:
            return self.balance_metric(node)
        if name in FUNCTIONS:
            return self.function(node)
        if name == OF:
            return self.of(node)
        if name in self.local or name in self.scope.parameters:
            return self.parameter(node)
        if name in self.scope.unset:
            raise MissingSweepValueError(replace(self.scope.unset[name], span=node.span))
        return self.metric(node)

    def not_by_columns(self, node: NameNode, name: str) -> NoReturn:
        if name not in {*BUILTIN_NAMES, *plugin_metric_names()}:
            self.unknown(node)
        span = Span(node.by[0].span.start, node.by[-1].span.end)
        accepted = ", ".join((*COLUMN_FUNCTIONS, *MEASURES))
        refuse("E304", f"only these accept `by=`: {accepted}", span, comparison_hint(name))

    def metric(self, node: NameNode) -> Expression:
        name = canonical_name(node.name)
        try:
            found = find_metric(name)
        except FaultError as error:  # of a plugin
            raise FaultError(replace(each, span=node.span) for each in error.faults) from None
        if found is None and name not in RANKINGS:
            self.unknown(node)
        parameters: Sequence[str] = found.parameters if isinstance(found, Composite) else ()
        if isinstance(found, Rate) and found.outcome:
            parameters = (OUTCOME,)
        if len(node.arguments or ()) != len(parameters):
            usage = f"{node.name}({', '.join(parameters)})" if parameters else node.name
            match node.arguments:
                case (NameNode(name=group),) if group in self.scope.groups and not parameters:
                    usage = f"{node.name}[{group}]"
            _refuse_use(node, f"takes {_arguments(len(parameters))}", usage)
        where, split = self.slice(node)
        match found:
            case None:
                return ex.RankingMeasure(name, where, split, node.span)
            case Rate():
                rate = self.rate_of_outcome(found, node)
                self.check_logged_slice(rate, where, node)
                return ex.Leaf(rate, where, split, node.span)
            case Composite():
                return self.composite(found, node, where, split)

    def rate_of_outcome(self, rate: Rate, node: NameNode) -> Rate:
        """Return a rate of logged decisions with its outcome and range; other rates as they are."""
        logged, episodes = self.scope.logged, rate.of not in DECISION_MEASUREMENTS
        if logged is not None and logged.episodes and not episodes:
            message = f"'{node.name}' is a rate of decisions, but rows are episodes"
            refuse("E304", message, node.span, f"rates of episodes: {', '.join(EPISODE_RATES)}")
        if not (rate.outcome or rate.weight_power or episodes):
            return rate
        if logged is None or logged.episodes != episodes:
            what = "logged episodes" if episodes else "logged decisions"
            message = f"'{node.name}' needs {what}, but no data set has any"
            refuse("E304", message, node.span, EPISODES_HINT if episodes else LOGGED_HINT)
        if rate.name == "return_true" and not logged.true_returns:
            message = "the true return of a policy is known in generated environments only"
            refuse("E304", message, node.span, "write return(...)")
        if rate.outcome:
            argument = self.outcome_argument(node)
            name = argument.name if isinstance(argument, NameNode) else ""
            if name not in logged.outcomes:
                hint = did_you_mean(name, logged.outcomes, "outcomes")
                message = f"'{node.name}' takes a logged outcome"
                refuse("E304", message, argument.span, hint)
            of = return_key(rate.of, name) if episodes else rate.of
            rate = replace(rate, outcome=name, of=of)
        return replace(rate, ends=logged.of(rate))

    def outcome_argument(self, node: NameNode) -> SyntaxNode:
        """Return the outcome that a node names as its argument."""
        (argument,) = node.arguments or ()
        named = isinstance(argument, NameNode) and argument.name == OUTCOME
        return self.outcome if named and self.outcome else argument

    def check_logged_slice(self, rate: Rate, where: Slice, node: NameNode) -> None:
        """Raise an E304 for an importance-weighted rate of rows with a certain action or outcome.

        The weights of such rows do not make up for the other rows.
        """
        if not rate.is_weighted or self.scope.logged is None:
            return
        for atom in where.atoms:
            if atom.column in self.scope.logged.actions:
                message = (
                    f"'{node.name}' cannot be restricted by '{atom.column}', which is known only "
                    "after the logged decision"
                )
                hint = "use a column that is known before, or the mean of the log: "
                hint += "return_logged(...)" if self.scope.logged.episodes else "value_logged(...)"
                refuse("E304", message, node.span, hint)

    def composite(
        self, metric: Composite, node: NameNode, where: Slice, split: str | None
    ) -> Expression:
        # the metric's text is not in the file: its nodes get the span where the metric is named
        tree = parse_expression(metric.text, node.span)
        if metric.parameters == (OUTCOME,):
            outcome = self.outcome_argument(node)
            return replace(self, where=where, split=split, outcome=outcome).value(tree)
        arguments = tuple(map(self.value, node.arguments or ()))
        for argument in arguments:
            if not isinstance(argument, ex.Constant):
                message = f"'{node.name}' takes a number, not a rate"
                refuse("E304", message, argument.span, f"write {node.name}(2)")
        local = dict(zip(metric.parameters, arguments, strict=True))
        found = replace(self, where=where, split=split, local=local).value(tree)
        if not metric.over:
            return found
        bottom = ex.Leaf(find_rate(metric.over), where.everyone, split, node.span)
        return ex.divide(found, bottom, node.span)

    def measure(self, node: NameNode, measure: Composite) -> Expression:
        """Expand a fairness measure over the columns of the node."""
        if not node.by or node.arguments:
            _refuse_use(node, "takes a column and no metric", f"{node.name}(by=sex)")
        if len(node.by) > 1 and not node.joint:
            _refuse_several(node)
        where, split = self.slice(node)
        inside = replace(self, where=where, split=split, grouped=node)
        return inside.value(parse_expression(measure.text, node.span))

    def unknown(self, node: NameNode) -> NoReturn:
        name, span = node.name, Span(node.span.start, node.span.start + len(node.name))
        if name in self.scope.groups or name in self.scope.datasets:
            help_ = f"use it in a rate, such as positive_rate[{name}]"
            refuse("E203", f"'{name}' is a slice, not a number", span, help_)
        known = {*BUILTIN_NAMES, *plugin_metric_names(), *self.scope.parameters, *self.scope.unset}
        metric, _, ending = name.rpartition("_")
        template = GAP_WORDS.get(ending)
        if template and metric in {*METRICS, *SYNONYMS}:
            help_ = f"write {template}({metric}, by=COLUMN)"
        else:
            measures = [each for each in (*MEASURES, *SYNONYMS) if each.startswith(f"{name}_")]
            help_ = f"write {' or '.join(measures)}, with (by=COLUMN)" if measures else ""
            help_ = help_ or did_you_mean(name, known, "metrics, functions and sweep names")
        refuse("E203", f"the name '{name}' is unknown", span, help_)

    def parameter(self, node: NameNode) -> Expression:
        if node.items or node.split or node.arguments is not None:
            _refuse_use(node, "is a number and has no slice or arguments")
        if node.name in self.local:
            return self.local[node.name]
        value = self.scope.parameters[node.name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse_use(node, f"has the value {value!r}, but a rule needs a number")
        return ex.Constant(float(value), node.span)

    def function(self, node: NameNode) -> Expression:
        row, arguments = FUNCTIONS[node.name], node.arguments or ()
        if not arguments or (row.arity is not None and len(arguments) != row.arity):
            wanted = "1 or more arguments" if row.arity is None else _arguments(row.arity)
            _refuse_use(node, f"takes {wanted}, not {len(arguments)}")
        return ex.apply(node.name, tuple(map(self.value, arguments)), node.span)

    def template(self, node: NameNode) -> Expression:
        """Expand a template over the values of a column, or of several columns in sequence."""
        name, arguments = node.name, node.arguments or ()
        if not node.by or len(arguments) != 1:
            _refuse_use(node, "takes one metric and a column", f"{name}(tpr, by=sex)")
        if len(node.by) > 1 and not node.joint and name in SINGLE_COLUMN_TEMPLATES:
            _refuse_several(node)
        groups = [group for column in self.columns(node) for group in column]
        parts = [self.under(group).value(arguments[0]) for group in groups]
        negative = name == "min_ratio" and any(interval(part)[0] < 0 for part in parts)
        sizes = (1 for part in parts for _ in ex.walk(part))
        copies = len(parts) if negative else 2
        if copies * sum(itertools.islice(sizes, MAX_NODES)) > MAX_NODES:
            help_ = "use a column with fewer values, or one template at a time"
            refuse("E302", f"'{name}' expands to too many parts", node.span, help_)
        if negative:  # the quotient of the smallest and the largest may not be the smallest one
            return ex.apply("min", ex.compare_pairs(ex.divide, parts, node.span), node.span)
        return apply_template(name, parts, node.span)

    def under(self, group: Conditions) -> _Resolver:
        conditions = (*self.where.conditions, *group)
        return replace(self, where=Slice.of(self.where.datasets, conditions))

    def balance_metric(self, node: NameNode) -> Expression:
        """Expand `imbalance` or `disclosivity`, which use all values of their columns."""
        if not node.by or node.arguments:
            _refuse_use(node, "takes a column and no metric", f"{node.name}(by=sex)")
        where, split = self.slice(node)
        if where.conditions:
            message = f"'{node.name}' is measured on all rows, not on those where {where.visible}"
            refuse("E304", message, node.span, "its slice can only name data sets")
        disclosivity = node.name == DISCLOSIVITY

        def group(conditions: Conditions) -> ex.Leaf:
            inside = Slice.of(where.datasets, conditions)
            return ex.Leaf(JOINT_RATE, inside, None if disclosivity else split, node.span)

        columns = [list(map(group, column)) for column in self.columns(node)]
        if disclosivity:
            names = tuple(name.text for name in node.by)
            if node.joint and len(names) > 1:
                help_ = f"write (by={ex.by_text(names)}): the largest of the columns counts"
                refuse("E304", f"'{node.name}' takes no combinations of columns", node.span, help_)
            return ex.Disclosure(names, tuple(map(tuple, columns)), split, node.span)
        return imbalance_expression(columns, node.span)

    def columns(self, node: NameNode) -> list[list[Conditions]]:
        """Return the groups of each column in `by=`, or of their combinations as one column.

        Groups with fewer rows than `min_rows` are left out.
        """
        small = {group for group, _ in self.small_groups(node)}
        columns = [
            [group for group in column if group not in small] for column in self._all_groups(node)
        ]
        for column in columns if small else ():
            if len(column) < 2:
                span = node.span if node.min_rows is None else node.min_rows.span
                count = "only one group has" if column else "no group has"
                message = f"{count} at least {_min_rows(node):g} rows"
                refuse("E304", message, span, "compare by fewer columns, or set min_rows")
        return columns

    def small_groups(self, node: NameNode) -> list[tuple[Conditions, int]]:
        """Return the groups of `by=` that are left out, with their numbers of rows."""
        least, count = _min_rows(node), self.scope.count
        if count is None and node.min_rows is not None and self.scope.columns is not None:
            message = "the rows of groups of a streamed table are not counted"
            refuse("E414", message, node.min_rows.span, "leave out min_rows")
        if not least or count is None:
            return []
        groups = [group for column in self._all_groups(node) for group in column]
        counts = [(group, count(group)) for group in groups]
        return [(group, rows) for group, rows in counts if rows < least]

    def _all_groups(self, node: NameNode) -> list[list[Conditions]]:
        found = []
        for k, (column, span) in enumerate((name.text, name.span) for name in node.by):
            if any(column == other.text for other in node.by[:k]):
                refuse("E304", f"'{column}' is named twice", span)
            found.append(self._column_groups(node, column, span))
        if not node.joint:
            return found
        size = math.prod(map(len, found))
        if size > MAX_GROUPS:
            message = f"these columns have {size} combinations of values, at most"
            refuse("E302", f"{message} {MAX_GROUPS} are allowed", node.span, "use fewer")
        return [[tuple(itertools.chain(*parts)) for parts in itertools.product(*found)]]

    def _column_groups(self, node: NameNode, column: str, span: Span) -> list[Conditions]:
        """Return a group for each value of a column, or for each of its bins."""
        values = column_values(column, span, self.scope)
        if column in self.scope.bins:
            return cut_groups(column, self.scope.bins[column])
        most = max_groups(values)
        if not 2 <= len(values) <= most:
            count = f"{len(values)} value{'s' * (len(values) != 1)}"
            takes = f"'{node.name}' takes 2 to {most}"
            many = len(values) > most and not isinstance(values[0], str)
            help_ = f"cut it in an experiment file: bins: {{{column}: [...]}}" if many else None
            if len(values) < 2:
                help_ = (
                    "a group needs rows that count; empty fields and words such as NA are no groups"
                )
            refuse("E304", f"'{column}' has {count}, {takes}", span, help_)
        return [(Condition(column, "=", (syntax.value_text(value),)),) for value in values]

    def of(self, node: NameNode) -> Expression:
        arguments = node.arguments or ()
        if len(arguments) != 2 or not isinstance(arguments[0], NameNode):
            _refuse_use(node, "takes an algorithm and a metric", "of(unconstrained, error)")
        algorithm, known = arguments[0].name, {*self.scope.algorithms, DEPLOYED}
        if algorithm not in known:
            message = f"no algorithm of this file is called '{algorithm}'"
            help_ = did_you_mean(algorithm, known, "algorithms here")
            refuse("E202", message, arguments[0].span, help_)
        metric = self.value(arguments[1])
        for part in ex.walk(metric):
            if isinstance(part, ex.AlgorithmMetric):
                refuse("E304", "'of' takes a metric, not another 'of'", part.span)
            if algorithm == DEPLOYED:
                _check_decides(part)
        return ex.AlgorithmMetric(algorithm, metric, node.span)

    def slice(self, node: NameNode) -> tuple[Slice, str | None]:
        datasets, conditions = set(self.where.datasets), list(self.where.conditions)
        for item in node.items:
            if (
                isinstance(item, syntax.Name)
                and item.text in self.scope.datasets
                and item.text not in self.scope.groups
            ):
                datasets.add(item.text)
                continue
            clauses = syntax.item_clauses(item, self.group)
            for atom in itertools.chain(*(clause.atoms for clause in clauses)):
                if not isinstance(item, syntax.Name):
                    check_condition(atom, self.scope)
            conditions += clauses
        if node.split is None:
            return Slice.of(datasets, conditions), self.split
        split = node.split.text
        if split not in SPLITS:
            help_ = did_you_mean(split, SPLITS, "splits")
            refuse("E209", f"'{split}' is not a split", node.split.span, help_)
        return Slice.of(datasets, conditions), split

    def group(self, name: syntax.Name) -> Conditions:
        """Return the conditions of a group; raise E204 for another name."""
        if name.text in self.scope.groups:
            return self.scope.groups[name.text]
        if name.text in self.scope.datasets:
            message = f"the data set '{name.text}' cannot be combined with `and`, `or` or `not`"
            refuse("E204", message, name.span, "separate it by a comma")
        known = {*self.scope.groups, *self.scope.datasets}
        help_ = did_you_mean(name.text, known, "groups and data sets")
        help_ += f"; a column needs a comparison: {name.text} = VALUE"
        return refuse("E204", f"'{name.text}' is neither a group nor a data set", name.span, help_)


def max_groups(values: Iterable[str | float]) -> int:
    """Return the largest number of groups that a column with these values may have."""
    fractions = (isinstance(value, float) and not value.is_integer() for value in values)
    return MAX_NUMBERS if any(fractions) else MAX_GROUPS


def cut_groups(column: str, cuts: Sequence[float]) -> list[Conditions]:
    """Return the groups of a column of numbers that is cut at increasing values."""
    below = [None, *(Condition(column, ">=", (float(cut),)) for cut in cuts)]
    above = [*(Condition(column, "<", (float(cut),)) for cut in cuts), None]
    pairs = zip(below, above, strict=True)
    return [tuple(each for each in pair if each is not None) for pair in pairs]


def _refuse_several(node: NameNode) -> NoReturn:
    """Raise E304 for several columns in parentheses where groups are compared with each other."""
    names = ", ".join(syntax.quote(name.text) for name in node.by)
    message = f"'{node.name}' compares the groups of one column, or all combinations of several"
    refuse("E304", message, node.by[1].span, f"write by=[{names}] for the combinations")


def _arguments(count: int) -> str:
    return f"{count or 'no'} argument{'s' * (count != 1)}"


def _refuse_use(node: NameNode, reason: str, usage: str = "") -> NoReturn:
    """Raise an E304 about how a name is used; `usage` is a correct example."""
    refuse("E304", f"'{node.name}' {reason}", node.span, f"write {usage}" if usage else None)


def _check_decides(part: Expression) -> None:
    """Reject metrics of scores or estimates: only decisions of the deployed model are known."""
    scored = isinstance(part, ex.RankingMeasure)
    if scored or (isinstance(part, ex.Leaf) and part.rate.of != "decision"):
        message = f"'{ex.to_text(part)}' needs scores or estimates; a deployed model has decisions"
        help_ = "use a metric of decisions, such as error, or of(LABEL, ...) of an algorithm"
        refuse("E304", message, part.span, help_)

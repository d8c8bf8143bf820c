"""Metrics by name: built-in rates and composites, and those of plugin packages.

A plugin in the entry point group `ratecli.metrics` is an instance of one of the data classes of
`rates.table`:

`Rate`
    A new rate: the rows to average over, and which of them count when decided positively and when
    decided negatively.
`Composite`
    An expression over known rates, such as `tpr + tnr - 1`, optionally with arguments.

Everything else (class of a goal, intervals, `A p + c`) follows, as for built-in metrics. The module
also determines whether high or low values of a metric are better (`direction`).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, reduce
from types import MappingProxyType
from typing import Any, NamedTuple

from ratecli.errors import FaultError
from ratecli.plugins import PLUGIN_NAME_PATTERN, Plugin, find_plugin, plugins_by_name
from ratecli.rates import syntax
from ratecli.rates.functions import (
    FUNCTIONS,
    POSITIVE,
    POWER,
    PRODUCT,
    QUOTIENT,
    REAL_LINE,
    SUM,
    Function,
    Interval,
    sign,
)
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.syntax import NameNode, NumberLiteral, Operation, Relation, SyntaxNode
from ratecli.rates.table import (
    BALANCE_METRICS,
    COMPOSITES,
    DECISION_MEASUREMENTS,
    MEASURES,
    METRICS,
    OF,
    RANKINGS,
    RATES,
    SYNONYMS,
    TEMPLATES,
    Composite,
    Rate,
    canonical_name,
)


class Direction(StrEnum):
    """`FIXED`: no classifier changes the value. `EITHER`: unknown whether high or low is better."""

    LOW = "low"
    HIGH = "high"
    FIXED = "fixed"
    EITHER = "either"

    def turned(self) -> Direction:
        return {Direction.LOW: Direction.HIGH, Direction.HIGH: Direction.LOW}.get(self, self)

    def and_(self, other: Direction) -> Direction:
        """Return the direction of an expression that increases in parts with these directions."""
        if Direction.FIXED in {self, other}:
            return other if self is Direction.FIXED else self
        return self if self is other else Direction.EITHER


_LOW = "error fnr fpr false_positives false_negatives losses mse log_loss max_gap"
_HIGH = "accuracy tpr tnr true_positives true_negatives wins min_ratio"
DIRECTIONS = {
    **dict.fromkeys(RATES, Direction.EITHER),
    **dict.fromkeys((*_HIGH.split(), *RANKINGS, *COMPOSITES), Direction.HIGH),
    **dict.fromkeys((*_LOW.split(), *BALANCE_METRICS), Direction.LOW),
    **{name: Direction.LOW if name.endswith("difference") else Direction.HIGH for name in MEASURES},
    "share": Direction.EITHER,
    "value_self_normalized": Direction.EITHER,
    "return_weighted": Direction.EITHER,
    "effective_share": Direction.EITHER,
    "value_logged": Direction.FIXED,
    "base_rate": Direction.FIXED,
}
"""Directions of built-in metrics and templates."""


_RANGES: Mapping[str, Interval] = {
    **{name: rate.range for name, rate in RATES.items()},
    **dict.fromkeys((*COMPOSITES, *RANKINGS, *MEASURES, "disclosivity"), (0.0, 1.0)),
    "mcc": (-1.0, 1.0),
    "win_loss_ratio": POSITIVE,
    "imbalance": POSITIVE,
    **dict.fromkeys(("value_self_normalized", "return_weighted"), REAL_LINE),
}
"""Ranges of built-in metrics."""
_OPERATORS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": QUOTIENT, "**": POWER}


class _Trend(NamedTuple):
    """The direction of an expression, and a range that contains its values."""

    direction: Direction
    range: Interval

    def negated(self) -> _Trend:
        low, high = self.range
        return _Trend(self.direction.turned(), (-high, -low))


def direction(
    node: SyntaxNode, numbers: Mapping[str, Interval] = MappingProxyType({})
) -> Direction:
    """Return the direction of a parsed metric.

    `numbers` are the ranges of sweep names; others count as positive numbers.
    """
    return _trend(node, numbers).direction


def limit_direction(rule: Relation, name: str, numbers: Mapping[str, Interval]) -> Direction:
    """Return which values of a sweep name make a constraint stricter.

    HIGH if a classifier that satisfies it satisfies it for smaller values, too; LOW for larger
    values; FIXED if the name is not in the rule. `numbers` are as in `direction`.
    """
    ends = [_trend(each, numbers, name).direction for each in rule.operands]
    ends = [each.turned() if rule.ops[0] == ">=" else each for each in ends]
    pairs = (small.and_(large.turned()) for small, large in itertools.pairwise(ends))
    return reduce(Direction.and_, pairs)


def fixed_side(rule: Relation, values: Mapping[str, Any]) -> tuple[bool, float] | None:
    """Return (whether the limit is a lower one, the limit) of a constraint at values of the sweep.

    The constraint compares a quantity with a number. None unless exactly one of two sides is a
    number.
    """
    numbers = {k: (v, v) for k, v in values.items() if type(v) in {int, float}}
    ranges = [_trend(each, numbers).range for each in rule.operands]
    numeric = [low == high for low, high in ranges]
    if len(ranges) > 2 or sum(numeric) != 1:
        return None
    left = numeric[0]
    return (rule.ops[0] == ">=") != left, ranges[not left][0]


def _trend(
    node: SyntaxNode, numbers: Mapping[str, Interval], sweep_name: str | None = None
) -> _Trend:
    """Return the trend of an expression in the decisions, or, if `sweep_name` is given, its trend
    in that number.
    """
    if isinstance(node, NumberLiteral):
        return _Trend(Direction.FIXED, (node.value, node.value))
    if isinstance(node, NameNode):
        return _trend_of_name(node, numbers, sweep_name)
    parts = [_trend(each, numbers, sweep_name) for each in node.operands]
    if node.op == "-":
        parts[-1] = parts[-1].negated()
    return parts[0] if len(parts) == 1 else _applied(_OPERATORS[node.op], node, parts, sweep_name)


def _trend_of_name(
    node: NameNode, numbers: Mapping[str, Interval], sweep_name: str | None
) -> _Trend:
    name = canonical_name(node.name)
    parts = [_trend(each, numbers, sweep_name) for each in node.arguments or ()]
    if name in FUNCTIONS and parts:
        return _applied(FUNCTIONS[name], node, parts, sweep_name)
    if name == "mean" and parts:
        return parts[0]
    if name == OF and parts:
        return parts[-1] if sweep_name else _Trend(Direction.FIXED, parts[-1].range)
    inside = any(each.direction is not Direction.FIXED for each in parts)
    in_name = Direction.EITHER if inside else Direction.FIXED
    if name in DIRECTIONS:
        return _Trend(in_name if sweep_name else DIRECTIONS[name], _RANGES.get(name, POSITIVE))
    if node.arguments is None and name not in plugins_by_name("metric"):
        own = Direction.HIGH if name == sweep_name else Direction.FIXED
        return _Trend(own, numbers.get(name, POSITIVE))
    return _Trend(in_name if sweep_name else Direction.EITHER, REAL_LINE)


def _applied(
    function: Function, node: SyntaxNode, parts: Sequence[_Trend], sweep_name: str | None
) -> _Trend:
    """Return the trend of a function; low values of a distance from 0 or of `kl` are better.

    `mcc ** 2` is no such distance: low values of a difference or of `mean_error` are better.
    """
    ranges = [each.range for each in parts]
    values = function(*ranges)
    if values[0] == values[1]:
        return _Trend(Direction.FIXED, values)
    signs = function.directions(ranges)
    if function is POWER and ranges[0][0] >= 0:  # whatever exponent of that sign
        signs = sign(ranges[1]), 0
    moved = [
        (each.direction, up)
        for each, up in zip(parts, signs, strict=True)
        if each.direction is not Direction.FIXED
    ]
    even = function is POWER and ranges[1][0] == ranges[1][1] > 0 == ranges[1][0] % 2
    found = [(one if up > 0 else one.turned()) if up else Direction.EITHER for one, up in moved]
    distance = not sweep_name and (even or function.name in {"abs", "rms", "kl"})
    distance &= function.name == "kl" or any(map(_is_difference, syntax.walk(node)))
    if distance and not all(up for _, up in moved):
        found = [Direction.LOW]
    return _Trend(reduce(Direction.and_, found, Direction.FIXED), values)


def _is_difference(node: SyntaxNode) -> bool:
    if isinstance(node, NameNode):
        return node.name == "mean_error"
    return isinstance(node, Operation) and node.op in {"+", "-"} and len(node.operands) == 2


LOG_MASKS = frozenset({"logged", "taken", "not_taken"})
ROW_MASKS = LOG_MASKS | {
    *("all", "none", "labelled", "+", "-", "deployed", "deployed_yes", "deployed_no"),
}
"""Allowed masks in `among`, `yes` and `no` of a rate; several may be combined with `&`."""
BUILTIN_NAMES = frozenset(
    {*METRICS, *SYNONYMS, *FUNCTIONS, *TEMPLATES, *MEASURES, *BALANCE_METRICS, OF}
)
"""Names that plugins cannot use."""


def comparison_hint(name: str) -> str:
    """Return how to write a comparison of groups by a metric: by the gap, or by the worst value."""
    if name not in METRICS:
        return "compare a metric: max_gap(tpr, by=COLUMN)"
    worst = "max" if DIRECTIONS[name] is Direction.LOW else "min"
    return f"write max_gap({name}, by=COLUMN) or {worst}({name}, by=COLUMN)"


def find_metric(name: str) -> Rate | Composite | None:
    """Return the rate or composite of a canonical name, None if there is none.

    Raises
    ------
    FaultError
        E210 for an unusable plugin.
    """
    if name in BUILTIN_NAMES:
        return RATES.get(name) or COMPOSITES.get(name)
    plugin = find_plugin("metric", name)
    return None if plugin is None else load_plugin_metric(plugin)


def find_rate(name: str) -> Rate:
    """Return the rate of a name that is known to be one."""
    found = find_metric(name)
    assert isinstance(found, Rate), name
    return found


def plugin_metric_names() -> list[str]:
    """Return the names of plugin metrics that do not collide with built-in names."""
    return [name for name in plugins_by_name("metric") if name not in BUILTIN_NAMES]


@cache
def load_plugin_metric(plugin: Plugin) -> Rate | Composite:
    """Load and check a plugin metric. Raise E210 if it is unusable."""
    found = plugin.load()
    if not isinstance(found, Rate | Composite):
        raise plugin.broken("it is neither a Rate nor a Composite of ratecli.rates.table")
    why = metric_error(plugin.name, found)
    if why:
        raise plugin.broken(why)
    return found


def metric_error(name: str, row: Rate | Composite) -> str:
    """Return why a metric cannot be used under a name, "" if it can."""
    found = _rate_errors(name, row) if isinstance(row, Rate) else _composite_errors(name, row)
    return next(found, "")


def _rate_errors(name: str, row: Rate) -> Iterator[str]:
    if row.name != name:
        yield f"the name of the rate is '{row.name}'"
    for mask in set(f"{row.among}&{row.yes}&{row.no}".split("&")) - ROW_MASKS:
        yield f"it has the mask '{mask}', not one of {', '.join(sorted(ROW_MASKS))}"
    if row.of not in DECISION_MEASUREMENTS:
        yield f"'of' is '{row.of}', not one of {', '.join(DECISION_MEASUREMENTS)}"


def _composite_errors(name: str, row: Composite) -> Iterator[str]:
    if row.over and not isinstance(_find_unchecked(row.over), Rate):
        yield f"it is divided by '{row.over}', which is not a rate"
    for each in row.parameters:
        if not PLUGIN_NAME_PATTERN.fullmatch(each) or each in BUILTIN_NAMES:
            yield f"its argument '{each}' is not a new name"
    waiting = {name: row}
    seen = set[str]()
    while waiting:
        own, line = waiting.popitem()
        seen.add(own)
        try:
            tree = parse_expression(line.text)
        except FaultError as error:
            yield f"'{line.text}' is not an expression: {error.faults[0].message}"
            return
        for part in sorted(expression_names(tree) - set(line.parameters)):
            found = _find_unchecked(part)
            if part == name:
                yield f"it is defined by itself, in '{own}'"
            elif found is None and part not in BUILTIN_NAMES:
                yield f"in '{line.text}' the name '{part}' is unknown"
            elif isinstance(found, Composite) and part not in seen:
                waiting[part] = found


def _find_unchecked(name: str) -> object:
    """Like `find_metric`, but without checking a plugin's definition, and for synonyms too."""
    name = canonical_name(name)
    plugin = None if name in BUILTIN_NAMES else find_plugin("metric", name)
    return RATES.get(name) or COMPOSITES.get(name) or (plugin and plugin.load())


def plugins_used_in(tree: syntax.SyntaxNode, numbers: Collection[str]) -> set[str]:
    """Return the plugin metrics that a tree uses, directly or inside other plugin metrics.

    `numbers` are names that stand for numbers in the tree, even if plugins share them.
    """
    found = set[str]()
    for name in sorted(expression_names(tree) - set(numbers) - BUILTIN_NAMES):
        row = find_metric(name)
        found |= {name} if row is not None else set()
        if isinstance(row, Composite):
            found |= plugins_used_in(parse_expression(row.text), row.parameters)
    return found


def expression_names(node: syntax.SyntaxNode) -> set[str]:
    """Return all names in a tree except those inside slices."""
    return {part.name for part in syntax.walk(node) if isinstance(part, NameNode)}


def goal_names(objective: str = "", constraints: Iterable[str] = ()) -> set[str]:
    """Return all names in an objective (if any) and in constraints except those inside slices."""
    trees = [each for rule in constraints for each in parse_constraint(rule).operands]
    trees += [parse_expression(objective)] if objective else []
    return set[str]().union(*map(expression_names, trees))

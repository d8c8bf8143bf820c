"""Which other packages an experiment's names come from: for the record, and for the keys of trials."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ratecli.config.experiment import Experiment
from ratecli.datasets import registry
from ratecli.plugins import Plugin, find_plugin
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression
from ratecli.rates.metrics import plugin_metric_names, plugins_used_in
from ratecli.rates.parser import parse_constraint, parse_expression
from ratecli.rates.syntax import SyntaxNode
from ratecli.rates.table import RATES
from ratecli.solvers.registry import all_algorithms


def used_plugins(experiment: Experiment, swept: Collection[str]) -> list[dict[str, str]]:
    """The plugins that a file names, or whose metrics it is made of, for the manifest.

    `swept` are the names that stand for numbers.
    """
    return [
        {"kind": each.kind, "name": each.name, "package": each.package, "version": each.version}
        for each in _named_plugins(experiment, swept)
    ]


def _named_plugins(experiment: Experiment, swept: Collection[str]) -> Iterator[Plugin]:
    stage = [] if experiment.filter is None else [experiment.filter.name]
    for name in dict.fromkeys([*(each.name for each in experiment.algorithms), *stage]):
        plugin = all_algorithms()[name].plugin
        if plugin is not None:
            yield plugin
    sources = [entry.source for entry in experiment.datasets.values()]
    for source in dict.fromkeys(each for each in sources if each is not None):
        plugin = registry.providing_plugin(registry.find_source(source))
        if plugin is not None:
            yield plugin
    if plugin_metric_names():
        found = set[str]().union(
            *(plugins_used_in(tree, swept) for tree in _experiment_trees(experiment))
        )
        yield from (
            each for name in sorted(found) if (each := find_plugin("metric", name)) is not None
        )


def _experiment_trees(experiment: Experiment) -> Iterator[SyntaxNode]:
    yield from map(parse_expression, [experiment.objective, *experiment.metrics.values()])
    for rule in experiment.constraints.values():
        yield from parse_constraint(rule).operands


def plugin_rate_versions(expressions: Iterable[Expression]) -> dict[str, Any]:
    """Of a trial's key, what says which rates of other packages are measured.

    What is composed of rates is spelt out in the goals and metrics themselves.
    """
    if not plugin_metric_names():
        return {}
    parts = (part for tree in expressions for part in ex.walk(tree))
    trees = (each for part in parts for each in (part, *_measured_elsewhere(part)))
    rates = {leaf.rate.name: leaf.rate for leaf in ex.leaves(*trees)}
    return {
        name: {**asdict(row), "from": plugin.origin}
        for name, row in sorted(rates.items())
        if name not in RATES and (plugin := find_plugin("metric", name)) is not None
    }


def _measured_elsewhere(part: Expression) -> tuple[Expression, ...]:
    """What `of(...)` measures of another trial."""
    return (part.metric,) if isinstance(part, ex.AlgorithmMetric) else ()

"""Which other packages an experiment's names come from: for the record, and for the keys of trials."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ratecli.config.experiment import Experiment
from ratecli.datasets import registry
from ratecli.plugins import Plugin, sole
from ratecli.rates import expression as ex
from ratecli.rates.expression import Expression
from ratecli.rates.metrics import plugged, used
from ratecli.rates.parser import parse_rule, parse_value
from ratecli.rates.syntax import Node
from ratecli.rates.table import RATES
from ratecli.solvers.registry import algorithms


def brought(experiment: Experiment, swept: Collection[str]) -> list[dict[str, str]]:
    """The plugins that a file names, or whose metrics it is made of, for the manifest.

    `swept` are the names that stand for numbers.
    """
    return [
        {"kind": each.kind, "name": each.name, "package": each.package, "version": each.version}
        for each in _plugins(experiment, swept)
    ]


def _plugins(experiment: Experiment, swept: Collection[str]) -> Iterator[Plugin]:
    stage = [] if experiment.filter is None else [experiment.filter.name]
    for name in dict.fromkeys([*(each.name for each in experiment.algorithms), *stage]):
        plugin = algorithms()[name].plugin
        if plugin is not None:
            yield plugin
    sources = [entry.source for entry in experiment.datasets.values()]
    for source in dict.fromkeys(each for each in sources if each is not None):
        plugin = registry.brought(registry.find(source))
        if plugin is not None:
            yield plugin
    if plugged():
        found = set[str]().union(*(used(tree, swept) for tree in _trees(experiment)))
        yield from (each for name in sorted(found) if (each := sole("metric", name)) is not None)


def _trees(experiment: Experiment) -> Iterator[Node]:
    yield from map(parse_value, [experiment.objective, *experiment.metrics.values()])
    for rule in experiment.constraints.values():
        yield from parse_rule(rule).operands


def of_rates(expressions: Iterable[Expression]) -> dict[str, Any]:
    """Of a trial's key, what says which rates of other packages are measured.

    What is composed of rates is spelt out in the goals and metrics themselves.
    """
    if not plugged():
        return {}
    parts = (part for tree in expressions for part in ex.walk(tree))
    trees = (each for part in parts for each in (part, *_measured_elsewhere(part)))
    rates = {leaf.rate.name: leaf.rate for leaf in ex.leaves(*trees)}
    return {
        name: {**asdict(row), "from": plugin.origin}
        for name, row in sorted(rates.items())
        if name not in RATES and (plugin := sole("metric", name)) is not None
    }


def _measured_elsewhere(part: Expression) -> tuple[Expression, ...]:
    """What `of(...)` measures of another trial."""
    return (part.metric,) if isinstance(part, ex.Of) else ()

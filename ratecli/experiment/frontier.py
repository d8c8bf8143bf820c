"""The best possible trade-off that a plot asks for, where a data set knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.config.report import TradeoffPlot
from ratecli.datasets import registry
from ratecli.datasets.source import Frontier
from ratecli.datasets.sources import SOURCES
from ratecli.errors import Fault
from ratecli.experiment.cases import Case, metrics_of
from ratecli.experiment.report_checks import tradeoffs
from ratecli.rates import expression as ex
from ratecli.rates.parser import parse_value
from ratecli.rates.resolve import Scope, resolve
from ratecli.sampling.rows import Data


def known_frontier(plot: TradeoffPlot, cases: Sequence[Case], data: Data) -> Frontier | None:
    """What all data sets know alike: a metric without a slice is one over all of them."""
    metrics = metrics_of(cases)
    asked = [ex.text(metrics[name]) for name in (plot.x, plot.y) if name in metrics]
    first, *others = {_frontier(entry) for entry in data.options().values()}
    if first is None or others or asked != [_canonical(first.x), _canonical(first.y)]:
        return None
    return first


def _frontier(entry: Mapping[str, Any]) -> Frontier | None:
    """That of a data set, if its preparation leaves the rows as they were drawn."""
    known = registry.find(entry["source"]).frontier if "source" in entry else None
    if known is None or registry.settle(entry)["preparation"] not in known.preparations:
        return None
    return known


def unknown_optima(
    experiment: Experiment, document: Document, cases: Sequence[Case], data: Data
) -> Iterator[Fault]:
    """A W306 for each plot that asks for an optimum which no data set knows."""
    for index, plot in tradeoffs(experiment):
        if plot.optimum and known_frontier(plot, cases, data) is None:
            message = f"no data set here knows the best possible '{plot.y}' for each '{plot.x}'"
            place = document.place(("report", "plots", index, "optimum"))
            yield Fault("W306", message, "; ".join(_hints()), place=place)


def _hints() -> Iterator[str]:
    for source in SOURCES.values():
        if source.frontier is not None:
            yield f"'{source.name}' knows it for x: {source.frontier.x}, y: {source.frontier.y}"


def _canonical(text: str) -> str:
    return ex.text(resolve(parse_value(text), Scope()))

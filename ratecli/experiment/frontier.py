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
from ratecli.errors import Diagnostic
from ratecli.experiment.cases import Case, case_metrics
from ratecli.experiment.report_checks import tradeoff_plots
from ratecli.rates import expression as ex
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import Scope, resolve
from ratecli.sampling.rows import ExperimentData


def find_frontier(
    plot: TradeoffPlot, cases: Sequence[Case], data: ExperimentData
) -> Frontier | None:
    """What all data sets know alike: a metric without a slice is one over all of them."""
    metrics = case_metrics(cases)
    asked = [ex.to_text(metrics[name]) for name in (plot.x, plot.y) if name in metrics]
    first, *others = {_dataset_frontier(entry) for entry in data.options().values()}
    if first is None or others or asked != [_canonical_metric(first.x), _canonical_metric(first.y)]:
        return None
    return first


def _dataset_frontier(entry: Mapping[str, Any]) -> Frontier | None:
    """That of a data set, if its preparation leaves the rows as they were drawn."""
    known = registry.find_source(entry["source"]).frontier if "source" in entry else None
    if known is None or registry.settle_options(entry)["preparation"] not in known.preparations:
        return None
    return known


def check_known_optima(
    experiment: Experiment, document: Document, cases: Sequence[Case], data: ExperimentData
) -> Iterator[Diagnostic]:
    """A W306 for each plot that asks for an optimum which no data set knows."""
    for index, plot in tradeoff_plots(experiment):
        if plot.optimum and find_frontier(plot, cases, data) is None:
            message = f"no data set here knows the best possible '{plot.y}' for each '{plot.x}'"
            place = document.place(("report", "plots", index, "optimum"))
            yield Diagnostic("W306", message, "; ".join(_frontier_hints()), place=place)


def _frontier_hints() -> Iterator[str]:
    for source in SOURCES.values():
        if source.frontier is not None:
            yield f"'{source.name}' knows it for x: {source.frontier.x}, y: {source.frontier.y}"


def _canonical_metric(text: str) -> str:
    return ex.to_text(resolve(parse_expression(text), Scope()))

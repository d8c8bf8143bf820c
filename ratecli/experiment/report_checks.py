"""Checks of `report:` and `expect:` against the metrics, splits and sweep points."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.experiment import Experiment
from ratecli.config.filter import FILTER
from ratecli.config.report import (
    BaseFilterPlot,
    BasePaneledPlot,
    BasePlot,
    Expectation,
    GroupSharesPlot,
    GuaranteePlot,
    PosteriorsPlot,
    TradeoffPlot,
)
from ratecli.config.sweep import DATASET_AXIS, SweepValue, has_one_of_values, has_values
from ratecli.datasets import registry
from ratecli.datasets.entry import DatasetEntry
from ratecli.datasets.source import Frontier
from ratecli.datasets.sources import SOURCES
from ratecli.errors import Diagnostic, Loc, did_you_mean
from ratecli.experiment.cases import Case, case_metrics
from ratecli.experiment.filter_stage import filter_metric_names
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates import expression as ex
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import Scope, resolve
from ratecli.sampling.filter_summary import joint_rate_groups
from ratecli.sampling.rows import ExperimentData

TRIAL_COLUMNS = ("algorithm", "variant", "seed")
"""Columns that identify a trial, in addition to the swept names."""
MAX_PANELS = 12
"""Maximum number of panels of one plot, and of a swept name's values that a message lists."""

AnyPlot = TypeVar("AnyPlot", bound=BasePlot)


def plots_of(experiment: Experiment, kind: type[AnyPlot]) -> Iterator[tuple[Loc, AnyPlot]]:
    """Yield the plots of a kind, with their locations."""
    for index, plot in enumerate(experiment.report.plots):
        if isinstance(plot, kind):
            yield ("report", "plots", index), plot


@dataclass(frozen=True)
class ReportNames:
    """The names that a report may show.

    Attributes
    ----------
    labels
        Labels of the algorithms, and those that trials of the file's filter may get.
    metrics
        All numbers that a trial records.
    rates
        Solution and failure rates, which tables and expectations may name.
    swept, numeric
        Swept names, and those among them whose values are all numbers.
    """

    labels: list[str]
    metrics: list[str]
    rates: list[str]
    swept: list[str]
    numeric: list[str]

    @classmethod
    def of(cls, experiment: Experiment) -> ReportNames:
        labels = [entry.label for entry in experiment.algorithms]
        if experiment.filter is not None:
            own = [each for each in experiment.algorithms if each.safety is not None or each.sweep]
            labels += [FILTER, *(f"{FILTER}_{entry.label}" for entry in own)]
        names = experiment.constraints
        violations = [VIOLATION_PREFIX + name for name in names]
        metrics = ["objective", *experiment.metrics, *violations, *filter_metric_names(experiment)]
        failures = [FAILURE_RATE, *(f"{FAILURE_RATE}.{name}" for name in names)] if names else []
        swept = experiment.swept_names()
        words = {
            name
            for _, sweep in experiment.sweeps()
            for name in sweep.names
            for _, value in sweep.value_locs(name)
            if isinstance(value, str | bool)
        }
        numeric = [name for name in swept if name not in words]
        return cls(labels, list(dict.fromkeys(metrics)), [SOLUTION_RATE, *failures], swept, numeric)


def check_report(experiment: Experiment, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield the errors of tables, plots and expectations.

    E101 for a key of an expectation that is not swept, E104 for sweep points that are not run or
    too many panels, E202 for an unknown algorithm of an expectation, E208 for anything else that
    does not exist. `cases` includes those of filters, and may lack those of algorithms with errors
    of their own.
    """
    names = ReportNames.of(experiment)
    for loc, name, known, what in (
        *_table_references(experiment, names),
        *_plot_references(experiment, names),
        *_filter_plot_references(experiment, names),
        *_expectation_references(experiment, names),
    ):
        if name not in known:
            message, hint = f"there is no '{name}' here", did_you_mean(name, known, what)
            if loc[-1] == "x" and name in names.swept:
                message = f"the values of '{name}' are not all numbers, so it cannot be an axis"
            if loc[1] == "plots" and name in names.rates:
                hint = "tables show it, and plots of `kind: guarantee` draw it"
            code = "E202" if loc[0] == "expect" and what == "algorithms" else "E208"
            yield Diagnostic(code, message, hint, loc=loc)
    for loc, _ in () if experiment.constraints else plots_of(experiment, GuaranteePlot):
        message = "there is no constraint whose failures could be drawn"
        yield Diagnostic("E208", message, "name one under 'constraints'", loc=(*loc, "kind"))
    for loc, plot in plots_of(experiment, BasePaneledPlot):
        values = {repr(case.point[plot.by]) for case in cases if plot.by in case.point}
        splits = plot.split if isinstance(plot, TradeoffPlot) else ("test",)
        yield from _check_panel_count(len(values), splits, (*loc, "by"), f"'{plot.by}'")
    for loc, each in plots_of(experiment, BaseFilterPlot):
        yield from _check_filter_plot(experiment, names, loc, each, cases)
    for index, entry in enumerate(experiment.expect):
        yield from _check_expectation(experiment, names, ("expect", index), entry, cases)


def _check_panel_count(
    count: int, splits: Sequence[str], loc: Loc, what: str
) -> Iterator[Diagnostic]:
    """Yield an E104 if a plot would have more than `MAX_PANELS` panels."""
    if count * len(splits) > MAX_PANELS:
        each = f", each on {len(splits)} splits" if len(splits) > 1 else ""
        message = f"{what} has {count} values{each}: a plot has at most {MAX_PANELS} panels"
        hint = "show fewer values, or make panels by another name"
        yield Diagnostic("E104", message, hint, loc=loc)


ReportReference = tuple[Loc, str, Collection[str], str]
"""A name in the report: its location, the name, the valid names, and a noun for them."""


def _table_references(experiment: Experiment, names: ReportNames) -> Iterator[ReportReference]:
    rows = [*TRIAL_COLUMNS, *names.swept]
    for index, table in enumerate(experiment.report.tables):
        loc: Loc = ("report", "tables", index)
        for k, name in enumerate(table.rows):
            yield (*loc, "rows", k), name, rows, "names of rows"
        for k, name in enumerate(table.columns):
            yield (*loc, "columns", k), name, [*names.metrics, *names.rates], "metrics"


def _plot_references(experiment: Experiment, names: ReportNames) -> Iterator[ReportReference]:
    for loc, plot in plots_of(experiment, BasePlot):
        for k, name in enumerate(plot.algorithms or ()):
            yield (*loc, "algorithms", k), name, names.labels, "algorithms"
    for loc, panels in plots_of(experiment, BasePaneledPlot):
        if panels.by is not None:
            yield (*loc, "by"), panels.by, names.swept, "swept names"
    for loc, tradeoff in plots_of(experiment, TradeoffPlot):
        axes = [*names.metrics, *names.numeric]
        yield (*loc, "x"), tradeoff.x, axes, "metrics and swept numbers"
        yield (*loc, "y"), tradeoff.y, names.metrics, "metrics"
        for k, name in enumerate(tradeoff.lines):
            yield (*loc, "lines", k), name, names.labels, "algorithms"
    for loc, guarantee in plots_of(experiment, GuaranteePlot):
        yield (*loc, "x"), guarantee.x, names.numeric, "swept numbers"
        yield (*loc, "y"), guarantee.y, names.metrics, "metrics"
        if guarantee.constraint is not None:
            yield (*loc, "constraint"), guarantee.constraint, experiment.constraints, "constraints"


def _filter_plot_references(
    experiment: Experiment, names: ReportNames
) -> Iterator[ReportReference]:
    for loc, each in plots_of(experiment, BaseFilterPlot):
        for name in each.at:
            yield (*loc, "at", name), name, names.swept, "swept names"
    for loc, posteriors in plots_of(experiment, PosteriorsPlot):
        if posteriors.seed is not None:
            yield (*loc, "seed"), str(posteriors.seed), [*map(str, experiment.seeds)], "seeds"


def _expectation_references(
    experiment: Experiment, names: ReportNames
) -> Iterator[ReportReference]:
    for index, entry in enumerate(experiment.expect):
        yield ("expect", index, "algorithm"), entry.algorithm, names.labels, "algorithms"
        yield ("expect", index, "metric"), entry.metric, [*names.metrics, *names.rates], "metrics"


def _check_filter_plot(
    experiment: Experiment,
    names: ReportNames,
    loc: Loc,
    plot: BaseFilterPlot,
    cases: Sequence[Case],
) -> Iterator[Diagnostic]:
    """Yield an E208 or E104 if a plot of filters has nothing to show, or too much."""
    filters = [case for case in cases if type(case.solver).hides_groups]
    known, labels = {case.label for case in cases}, dict.fromkeys(case.label for case in filters)
    for k, label in enumerate(plot.algorithms or ()):
        if label in known and label not in labels:
            hint = f"filters here: {', '.join(labels) or 'none'}"
            message = f"'{label}' is no filter, whose groups could be shown"
            yield Diagnostic("E208", message, hint, loc=(*loc, "algorithms", k))
    complete = known >= {entry.label for entry in experiment.algorithms}
    if plot.algorithms is None and complete and not labels:
        hint = "name one under 'algorithms', as balanced_tree"
        message = "there is no filter whose groups could be shown"
        yield Diagnostic("E208", message, hint, loc=(*loc, "kind"))
    own = [case for case in filters if case.label in (plot.algorithms or labels)]
    if not own:
        return
    columns = list(dict.fromkeys(name for case in own for name in joint_rate_groups(case.goals())))
    if plot.column is not None and plot.column not in columns:
        hint = did_you_mean(plot.column, columns, "columns of groups")
        message = f"no goal has groups of '{plot.column}'"
        yield Diagnostic("E208", message, hint, loc=(*loc, "column"))
    if plot.column is None and len(columns) != 1:
        listed = " and ".join(f"'{name}'" for name in columns)
        message = f"goals have groups of {listed or 'no single column'}"
        way_out = f"say column: {columns[0]}, and draw a plot for each" if columns else None
        yield Diagnostic("E208", message, way_out, loc=(*loc, "kind"))
    if plot.at.keys() <= set(names.swept):
        yield from _check_points("a filter", plot.at, own, (*loc, "at"))
        points = {(c.label, repr(c.point)) for c in own if has_one_of_values(c.point, plot.at)}
        splits = plot.split if isinstance(plot, GroupSharesPlot) else ("train",)
        yield from _check_panel_count(len(points), splits, (*loc, "kind"), "the plot")


def _check_points(
    who: str, points: Mapping[str, Sequence[SweepValue]], cases: Sequence[Case], loc: Loc
) -> Iterator[Diagnostic]:
    """Yield an E104 for each value of a swept name at which no case is run, or for all together.

    `loc` is the location of the mapping from names to a value or a list of values.
    """
    absent = False
    for name, wanted in points.items():
        values = list(dict.fromkeys(case.point[name] for case in cases if name in case.point))
        for k, value in enumerate(wanted):
            if not any(has_values(case.point, {name: value}) for case in cases):
                absent = True
                listed = ", ".join(map(_format_value, values[:MAX_PANELS]))
                hint = f"values: {listed}{', ...' if len(values) > MAX_PANELS else ''}"
                message = f"{who} is not run at {name} = {_format_value(value)}"
                yield Diagnostic("E104", message, hint, loc=(*loc, name, k))
    if not absent and not any(has_one_of_values(case.point, points) for case in cases):
        message = f"{who} is not run at these values of {', '.join(points)} together"
        yield Diagnostic("E104", message, "`ratecli plan` lists what is run", loc=loc, key=True)


def _format_value(value: SweepValue) -> str:
    """Format a value as in a file: true, and '1' for a text that looks like a number."""
    if isinstance(value, bool):
        return json.dumps(value)
    numeric = isinstance(value, str) and value.replace(".", "", 1).isdigit()
    return f"'{value}'" if numeric else f"{value}"


def _check_expectation(
    experiment: Experiment,
    names: ReportNames,
    loc: Loc,
    entry: Expectation,
    cases: Sequence[Case],
) -> Iterator[Diagnostic]:
    """Yield an error for each part of an expectation's sweep point that no trial has."""
    own = [case for case in cases if case.label == entry.algorithm]
    varies = {name for case in own for name in case.point}
    for key in entry.point if own else ():
        if key not in names.swept:
            hint = did_you_mean(key, [*type(entry).model_fields, *names.swept], "keys")
            yield Diagnostic("E101", f"unknown key '{key}'", hint, loc=(*loc, key), key=True)
        elif key not in varies:
            message = f"'{key}' does not vary for '{entry.algorithm}'"
            yield Diagnostic("E104", message, "remove it", loc=(*loc, key), key=True)
    name = entry.point.get(DATASET_AXIS)
    restricted = name in experiment.datasets and not any(c.datasets == (name,) for c in cases)
    if restricted or not own:  # a run may be restricted to other data sets
        return
    points = {name: (value,) for name, value in entry.point.items() if name in varies}
    yield from _check_points(f"'{entry.algorithm}'", points, own, loc)
    matching = [case for case in own if has_one_of_values(case.point, points)]
    known = entry.metric in {*names.metrics, *names.rates}
    if known and matching and not any(_measures(case, entry.metric) for case in matching):
        message = f"'{entry.metric}' is not measured for '{entry.algorithm}' there"
        hint = "it contains a name that has no value there"
        yield Diagnostic("E208", message, hint, loc=(*loc, "metric"))


def _measures(case: Case, metric: str) -> bool:
    """Return whether the case's trials record the metric, or what an outcome share needs."""
    if metric == FAILURE_RATE:
        return any(name.startswith(VIOLATION_PREFIX) for name in case.metrics)
    name = metric.replace(f"{FAILURE_RATE}.", VIOLATION_PREFIX)
    return metric == SOLUTION_RATE or name in case.metrics


def check_splits(
    experiment: Experiment, splits: Mapping[tuple[str, ...], Collection[str]]
) -> Iterator[Diagnostic]:
    """Yield an E208 for each table, plot or expectation of a split without rows.

    `splits` maps each pool of data sets to the splits that have rows. Tables with only violations
    and solution rates are exempt: violations are reported for all splits, whichever the table
    selects, and solution rates have no split.
    """
    violations = (SOLUTION_RATE, VIOLATION_PREFIX)
    used: list[tuple[Loc, SweepValue | None, str]] = [
        (("report", "tables", index, "split"), None, table.split)
        for index, table in enumerate(experiment.report.tables)
        if not all(name.startswith(violations) for name in table.columns)
    ]
    for loc, plot in plots_of(experiment, BasePlot):
        if isinstance(plot, TradeoffPlot | PosteriorsPlot | GroupSharesPlot):
            names = [plot.split] if isinstance(plot.split, str) else plot.split
            used += [((*loc, "split"), None, split) for split in names]
        if isinstance(plot, GuaranteePlot):
            used.append(((*loc, "truth"), None, plot.truth))
    for index, entry in enumerate(experiment.expect):
        if entry.metric != SOLUTION_RATE:
            used.append((("expect", index, "split"), entry.point.get(DATASET_AXIS), entry.split))
    for loc, dataset, split in used:
        own = [known for pool, known in splits.items() if dataset in {None, *pool}]
        existing = dict.fromkeys(each for known in own for each in known)
        if own and split not in existing:
            who = "no data set has" if dataset is None else f"'{dataset}' has no"
            message = f"{who} {split} rows to {'compare' if loc[0] == 'expect' else 'show here'}"
            hint = f"say {loc[-1]}: {' or '.join(existing)}, or give a data set such rows"
            yield Diagnostic("E208", message, f"{hint} by its split", loc=loc)


def check_variants(
    experiment: Experiment, found: Collection[tuple[str, str]]
) -> Iterator[Diagnostic]:
    """Yield a W208 for each variant that a plot or an expectation names and no trial returned.

    `found` are the (label, variant) pairs of the trials. An expectation of an algorithm without
    trials is not checked.
    """
    every = list(dict.fromkeys(variant for _, variant in found))
    named: list[tuple[Loc, str, list[str], str]] = []
    for loc, plot in plots_of(experiment, BasePlot):
        if isinstance(plot, TradeoffPlot | GuaranteePlot):
            for k, name in enumerate(plot.variants or ()):
                named.append(((*loc, "variants", k), name, every, ""))
        if isinstance(plot, BaseFilterPlot) and plot.variant is not None:
            named.append(((*loc, "variant"), plot.variant, every, ""))
    for index, entry in enumerate(experiment.expect):
        if entry.variant is not None:
            own = [variant for label, variant in found if label == entry.algorithm]
            of = f" of '{entry.algorithm}'"
            named.append((("expect", index, "variant"), entry.variant, own, of))
    for loc, name, known, of in named:
        if known and name not in known:
            hint = did_you_mean(name, known, "variants")
            yield Diagnostic("W208", f"no trial{of} returned a variant '{name}'", hint, loc=loc)


def find_frontier(
    plot: TradeoffPlot, cases: Sequence[Case], data: ExperimentData
) -> Frontier | None:
    """Return the frontier that all data sets share if it matches the axes, else None.

    It must be the same for all, since a metric without a slice is measured over all of them
    together.
    """
    metrics = case_metrics(cases)
    axes = [ex.to_text(metrics[name]) for name in (plot.x, plot.y) if name in metrics]
    first, *others = {_dataset_frontier(entry) for entry in data.entries.values()}
    if first is None or others:
        return None
    known = [ex.to_text(resolve(parse_expression(text), Scope())) for text in (first.x, first.y)]
    return first if axes == known else None


def _dataset_frontier(entry: DatasetEntry) -> Frontier | None:
    """Return the known frontier of a data set, None if its preparation selects rows."""
    known = None if entry.source is None else registry.find_source(entry.source).frontier
    if known is None or registry.settle_options(entry)["preparation"] not in known.preparations:
        return None
    return known


def check_known_optima(
    experiment: Experiment, cases: Sequence[Case], data: ExperimentData
) -> Iterator[Diagnostic]:
    """Yield a W306 for each plot with `optimum` whose axes have no known optimum."""
    for loc, plot in plots_of(experiment, TradeoffPlot):
        if plot.optimum and find_frontier(plot, cases, data) is None:
            message = f"no data set here has a known optimum of '{plot.y}' for each '{plot.x}'"
            known = "; ".join(
                f"'{source.name}' has one for x: {source.frontier.x}, y: {source.frontier.y}"
                for source in SOURCES.values()
                if source.frontier is not None
            )
            yield Diagnostic("W306", message, known, loc=(*loc, "optimum"))

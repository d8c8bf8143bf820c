"""Checks of `report:` and `expect:` against the metrics, splits and sweep points."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from ratecli.config.sweep import (
    DATASET_AXIS,
    SweepValue,
    has_one_of_values,
    has_values,
    sweep_points,
)
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


def swept_names(experiment: Experiment) -> list[str]:
    """Return the swept names, including those of the algorithms' own sweeps."""
    sweeps = [experiment.sweep, *(entry.sweep for entry in experiment.algorithms if entry.sweep)]
    return list(dict.fromkeys(name for sweep in sweeps for name in sweep.names))


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
            own = (
                entry for entry in experiment.algorithms if entry.safety is not None or entry.sweep
            )
            labels += [FILTER, *(f"{FILTER}_{entry.label}" for entry in own)]
        names = experiment.constraints
        violations = [VIOLATION_PREFIX + name for name in names]
        metrics = ["objective", *experiment.metrics, *violations, *filter_metric_names(experiment)]
        failures = [FAILURE_RATE, *(f"{FAILURE_RATE}.{name}" for name in names)] if names else []
        sweeps = [experiment.sweep, *(each.sweep for each in experiment.algorithms if each.sweep)]
        values = [
            pair for sweep in sweeps for point in sweep_points(sweep) for pair in point.items()
        ]
        words = {name for name, value in values if isinstance(value, str | bool)}
        swept = swept_names(experiment)
        numeric = [name for name in swept if name not in words]
        metrics = list(dict.fromkeys(metrics))
        return cls(labels, metrics, [SOLUTION_RATE, *failures], swept, numeric)


def check_report(experiment: Experiment, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield the errors of tables, plots and expectations.

    E101 for a key of an expectation that is not swept, E104 for sweep points that are not run or
    too many panels, E202 for an unknown algorithm, E208 for anything else that does not exist.
    `cases` includes those of filters, and may lack those of algorithms with errors of their own.
    """
    names = ReportNames.of(experiment)
    for loc, name, known, what in (
        *_table_references(experiment, names),
        *_plot_references(experiment, names),
    ):
        if name not in known:
            message, hint = (
                f"the report has no '{name}' to show here",
                did_you_mean(name, known, what),
            )
            if loc[-1] == "x" and name in names.swept:
                message = f"the values of '{name}' are not all numbers, so it cannot be an axis"
            if loc[1] == "plots" and name in names.rates:
                hint = "tables show it, and plots of `kind: guarantee` draw it"
            yield Diagnostic("E208", message, hint, loc=loc)
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
    if isinstance(plot, PosteriorsPlot) and plot.seed not in {None, *experiment.seeds}:
        hint = f"seeds: {', '.join(map(str, experiment.seeds))}"
        message = f"the report has no seed {plot.seed} to show here"
        yield Diagnostic("E208", message, hint, loc=(*loc, "seed"))
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
    yield from _check_filter_points(names, loc, plot, own)


def _check_filter_points(
    names: ReportNames, loc: Loc, plot: BaseFilterPlot, own: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Check `at` of a plot of filters: unknown names, points that are not run, too many panels."""
    for name in plot.at.keys() - set(names.swept):
        hint = did_you_mean(name, names.swept, "swept names")
        message = f"the report has no '{name}' to choose by here"
        yield Diagnostic("E208", message, hint, loc=(*loc, "at", name), key=True)
    if plot.at.keys() <= set(names.swept):
        wanted = [
            ((*loc, "at", name, k), name, value)
            for name, values in plot.at.items()
            for k, value in enumerate(values)
        ]
        absent = list(_check_values("a filter", wanted, own))
        yield from absent
        points = {(c.label, repr(c.point)) for c in own if has_one_of_values(c.point, plot.at)}
        if not (absent or points):
            message, hint = "no filter is run at these points", "`ratecli plan` lists what is run"
            yield Diagnostic("E104", message, hint, loc=(*loc, "at"), key=True)
        splits = plot.split if isinstance(plot, GroupSharesPlot) else ("train",)
        yield from _check_panel_count(len(points), splits, (*loc, "kind"), "the plot")


def _check_values(
    who: str, wanted: Iterable[tuple[Loc, str, SweepValue]], cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E104 for each value of a swept name, at a location, at which no case is run."""
    for loc, name, value in wanted:
        if not any(has_values(case.point, {name: value}) for case in cases):
            values = list(dict.fromkeys(case.point[name] for case in cases if name in case.point))
            listed = ", ".join(map(_format_value, values[:MAX_PANELS]))
            hint = f"values: {listed}{', ...' if len(values) > MAX_PANELS else ''}"
            message = f"{who} is not run at {name} = {_format_value(value)}"
            yield Diagnostic("E104", message, hint, loc=loc)


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
    """Yield a diagnostic for whatever in an expectation no recorded number can match."""
    if entry.algorithm not in names.labels:
        hint = did_you_mean(entry.algorithm, names.labels, "algorithms")
        message = f"no algorithm of this file is called '{entry.algorithm}'"
        yield Diagnostic("E202", message, hint, loc=(*loc, "algorithm"))
    metrics = [*names.metrics, *names.rates]
    if entry.metric not in metrics:
        message = f"no metric is called '{entry.metric}'"
        hint = did_you_mean(entry.metric, metrics, "metrics")
        yield Diagnostic("E208", message, hint, loc=(*loc, "metric"))
    own = [case for case in cases if case.label == entry.algorithm]
    if not own:
        return
    swept = {name for case in cases for name in case.point}
    varies = {name for case in own for name in case.point}
    for key in entry.point:
        if key not in swept:
            hint = did_you_mean(key, [*type(entry).model_fields, *swept], "keys and swept names")
            yield Diagnostic("E101", f"unknown key '{key}'", hint, loc=(*loc, key), key=True)
        elif key not in varies:
            message = f"'{key}' does not vary for '{entry.algorithm}'"
            yield Diagnostic("E104", message, "remove it", loc=(*loc, key), key=True)
    name = entry.point.get(DATASET_AXIS)
    if name in experiment.datasets and not any(case.datasets == (name,) for case in cases):
        return  # the run is restricted to other data sets
    point = {name: value for name, value in entry.point.items() if name in varies}
    wanted = [((*loc, name), name, value) for name, value in point.items()]
    absent = list(_check_values(f"'{entry.algorithm}'", wanted, own))
    yield from absent
    matching = [case for case in own if has_values(case.point, point)]
    if not absent and not matching:
        pairs = ", ".join(f"{name} = {_format_value(value)}" for name, value in point.items())
        message = f"'{entry.algorithm}' is not run at {pairs} together"
        yield Diagnostic("E104", message, "`ratecli plan` lists what is run", loc=loc, key=True)
    if (
        matching
        and entry.metric in metrics
        and not any(_measures(c, entry.metric) for c in matching)
    ):
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
    used: list[tuple[Loc, str]] = [
        (("report", "tables", index, "split"), table.split)
        for index, table in enumerate(experiment.report.tables)
        if not all(
            name.startswith(VIOLATION_PREFIX) or name == SOLUTION_RATE for name in table.columns
        )
    ]
    for loc, plot in plots_of(experiment, BasePlot):
        if isinstance(plot, TradeoffPlot | PosteriorsPlot | GroupSharesPlot):
            names = [plot.split] if isinstance(plot.split, str) else plot.split
            used += [((*loc, "split"), split) for split in names]
        if isinstance(plot, GuaranteePlot):
            used.append(((*loc, "truth"), plot.truth))
    existing = dict.fromkeys(split for own in splits.values() for split in own)
    for loc, split in used:
        if split not in existing:
            message = f"no data set has {split} rows to show here"
            yield Diagnostic("E208", message, _split_hint(loc, existing), loc=loc)
    for index, entry in enumerate(experiment.expect):
        name, loc = entry.point.get(DATASET_AXIS), ("expect", index, "split")
        known = dict.fromkeys(
            split for pool, own in splits.items() if name in {None, *pool} for split in own
        )
        if known and entry.split not in known and entry.metric != SOLUTION_RATE:
            who = "no data set has" if name is None else f"'{name}' has no"
            message = f"{who} {entry.split} rows to compare"
            yield Diagnostic("E208", message, _split_hint(loc, known), loc=loc)


def _split_hint(loc: Loc, splits: Iterable[str]) -> str:
    return f"say {loc[-1]}: {' or '.join(splits)}, or give a data set such rows by its split"


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

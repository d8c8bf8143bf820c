"""Checks of `report:` and `expect:` against the metrics, splits and sweep points."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.document import Document
from ratecli.config.experiment import Experiment
from ratecli.config.filter import FILTER
from ratecli.config.report import (
    AnyFilterPlot,
    BasePaneledPlot,
    Expectation,
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
"""Maximum number of panels of one plot."""

ReportReference = tuple[Loc, str, Collection[str], str]
"""A name in the report: its location, the name, the valid names, and a noun for them."""


def check_report(experiment: Experiment, document: Document) -> Iterator[Diagnostic]:
    """Yield an E208 for each table row or column, axis, line or panel without a matching name."""
    for loc, name, known, what in (*_table_references(experiment), *_plot_references(experiment)):
        if name not in known:
            message = f"the report has no '{name}' to show here"
            if loc[-1] == "x" and name in swept_names(experiment):
                message = f"the values of '{name}' are not all numbers, so that no axis holds them"
            hint = did_you_mean(name, known, what)
            if loc[1] == "plots" and name in outcome_share_names(experiment):
                hint = "tables show it, and plots of `kind: guarantee` draw it"
            yield Diagnostic("E208", message, hint, place=document.place(loc))
    for index, _ in () if experiment.constraints else guarantee_plots(experiment):
        message = "there is no constraint whose failures could be drawn"
        place = document.place(("report", "plots", index, "kind"))
        yield Diagnostic("E208", message, "name one under 'constraints'", place=place)


def check_report_splits(
    experiment: Experiment, document: Document, splits: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield an E208 for each table or plot of a split that is not in `splits`, those with rows.

    Tables with only violations and solution rates are exempt: violations are reported for all
    splits, whichever the table selects, and solution rates have no split.
    """
    tables = [
        (("report", "tables", index), table.split)
        for index, table in enumerate(experiment.report.tables)
        if not all(
            name.startswith(VIOLATION_PREFIX) or name == SOLUTION_RATE for name in table.columns
        )
    ]
    plots = [
        (("report", "plots", index), split)
        for index, plot in (*tradeoff_plots(experiment), *filter_plots(experiment))
        for split in ([plot.split] if isinstance(plot.split, str) else plot.split)
    ]
    truths = [
        (("report", "plots", index), plot.truth) for index, plot in guarantee_plots(experiment)
    ]
    asked = [(loc, "split", split) for loc, split in (*tables, *plots)]
    for loc, key, split in (*asked, *((loc, "truth", split) for loc, split in truths)):
        if split not in splits:
            message = f"no data set has {split} rows to show here"
            hint = f"say {key}: {' or '.join(splits)}, or give a data set such rows by its split"
            yield Diagnostic("E208", message, hint, place=document.place((*loc, key)))


def check_plot_variants(
    experiment: Experiment, document: Document, given: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield a W208 for each variant that a plot selects and no trial returned.

    `given` are the variants of the trials. If it is empty, nothing is checked: variants are known
    only once trials have run.
    """
    plots: list[tuple[int, TradeoffPlot | GuaranteePlot]]
    plots = [*tradeoff_plots(experiment), *guarantee_plots(experiment)]
    asked: list[tuple[Loc, str]] = [
        (("report", "plots", index, "variants", k), name)
        for index, plot in plots
        for k, name in enumerate(plot.variants or ())
    ]
    asked += [
        (("report", "plots", index, "variant"), each.variant)
        for index, each in filter_plots(experiment)
        if each.variant is not None
    ]
    for loc, name in asked:
        if given and name not in given:
            hint = did_you_mean(name, given, "variants")
            message = f"no trial gave a variant '{name}'"
            yield Diagnostic("W208", message, hint, place=document.place(loc))


def tradeoff_plots(experiment: Experiment) -> Iterator[tuple[int, TradeoffPlot]]:
    """Yield (index, plot) for the tradeoff plots; the index counts all plots of the report."""
    for index, plot in enumerate(experiment.report.plots):
        if isinstance(plot, TradeoffPlot):
            yield index, plot


def guarantee_plots(experiment: Experiment) -> Iterator[tuple[int, GuaranteePlot]]:
    """Yield (index, plot) for the guarantee plots; the index counts all plots of the report."""
    for index, plot in enumerate(experiment.report.plots):
        if isinstance(plot, GuaranteePlot):
            yield index, plot


def filter_plots(experiment: Experiment) -> Iterator[tuple[int, AnyFilterPlot]]:
    """Yield (index, plot) for the plots of filters, of either kind; the index counts all plots."""
    for index, plot in enumerate(experiment.report.plots):
        if isinstance(plot, AnyFilterPlot):
            yield index, plot


def check_panels(
    experiment: Experiment, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E104 for each plot that would have more than `MAX_PANELS` panels."""
    for index, plot in enumerate(experiment.report.plots):
        if not isinstance(plot, BasePaneledPlot):
            continue
        values = {repr(case.point[plot.by]) for case in cases if plot.by in case.point}
        splits = len(plot.split) if isinstance(plot, TradeoffPlot) else 1
        if len(values) * splits > MAX_PANELS:
            each = f", each on {splits} splits" if splits > 1 else ""
            message = (
                f"'{plot.by}' has {len(values)} values{each}, a plot room for {MAX_PANELS} panels"
            )
            place = document.place(("report", "plots", index, "by"))
            yield Diagnostic(
                "E104", message, "sweep fewer, or make panels by another name", place=place
            )


def measured_names(experiment: Experiment) -> list[str]:
    """Return the names of all numbers that a trial records."""
    violations = [VIOLATION_PREFIX + name for name in experiment.constraints]
    own = filter_metric_names(experiment)
    return list(dict.fromkeys(["objective", *experiment.metrics, *violations, *own]))


def possible_filter_labels(experiment: Experiment) -> list[str]:
    """Return the labels that trials of the file's filter may get: see `filter_stage_cases`."""
    if experiment.filter is None:
        return []
    entries = (each for each in experiment.algorithms if each.safety is not None or each.sweep)
    return [FILTER, *(f"{FILTER}_{entry.label}" for entry in entries)]


def outcome_share_names(experiment: Experiment) -> list[str]:
    """Return the solution and failure rates that tables and expectations may name."""
    failures = [f"{FAILURE_RATE}.{name}" for name in experiment.constraints]
    return [SOLUTION_RATE, *([FAILURE_RATE, *failures] if failures else [])]


def swept_names(experiment: Experiment) -> list[str]:
    """Return the swept names, including those of the algorithms' own sweeps."""
    sweeps = [experiment.sweep, *(entry.sweep for entry in experiment.algorithms if entry.sweep)]
    return list(dict.fromkeys(name for sweep in sweeps for name in sweep.names))


def _numeric_swept_names(experiment: Experiment) -> list[str]:
    """Return the swept names whose values are all numbers."""
    sweeps = (experiment.sweep, *(entry.sweep for entry in experiment.algorithms if entry.sweep))
    values = [pair for sweep in sweeps for point in sweep_points(sweep) for pair in point.items()]
    words = {name for name, value in values if isinstance(value, str | bool)}
    return [name for name in dict.fromkeys(name for name, _ in values) if name not in words]


def _table_references(experiment: Experiment) -> Iterator[ReportReference]:
    metrics = [*measured_names(experiment), *outcome_share_names(experiment)]
    rows = [*TRIAL_COLUMNS, *swept_names(experiment)]
    for index, table in enumerate(experiment.report.tables):
        loc: Loc = ("report", "tables", index)
        for k, name in enumerate(table.rows):
            yield (*loc, "rows", k), name, rows, "rows are told apart by"
        for k, name in enumerate(table.columns):
            yield (*loc, "columns", k), name, metrics, "metrics"


def _plot_references(experiment: Experiment) -> Iterator[ReportReference]:
    labels = [
        *(entry.label for entry in experiment.algorithms),
        *possible_filter_labels(experiment),
    ]
    for index, plot in enumerate(experiment.report.plots):
        loc: Loc = ("report", "plots", index)
        for k, name in enumerate(plot.algorithms or ()):
            yield (*loc, "algorithms", k), name, labels, "algorithms"
        if isinstance(plot, BasePaneledPlot) and plot.by is not None:
            yield (*loc, "by"), plot.by, swept_names(experiment), "names that vary"
    metrics = measured_names(experiment)
    for index, axes in tradeoff_plots(experiment):
        loc = ("report", "plots", index)
        yield (
            (*loc, "x"),
            axes.x,
            [*metrics, *_numeric_swept_names(experiment)],
            "metrics and swept numbers",
        )
        yield (*loc, "y"), axes.y, metrics, "metrics"
        for k, name in enumerate(axes.lines):
            yield (*loc, "lines", k), name, labels, "algorithms"
    for index, panels in guarantee_plots(experiment):
        loc = ("report", "plots", index)
        yield (*loc, "x"), panels.x, _numeric_swept_names(experiment), "swept numbers"
        yield (*loc, "y"), panels.y, metrics, "metrics"
        if panels.constraint is not None:
            yield (*loc, "constraint"), panels.constraint, experiment.constraints, "constraints"


MAX_LISTED_VALUES = 12
"""Maximum number of a swept name's values that a message lists."""


def check_expectations(
    experiment: Experiment, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each expectation that no recorded number can match.

    E101 for a key that is not swept, E104 for a sweep point that is not run, E202 for an unknown
    algorithm, E208 for an unknown metric. `cases` may lack those of algorithms with errors of their
    own.
    """
    labels = [
        *(entry.label for entry in experiment.algorithms),
        *possible_filter_labels(experiment),
    ]
    metrics = [*measured_names(experiment), *outcome_share_names(experiment)]
    for index, entry in enumerate(experiment.expect):
        loc: Loc = ("expect", index)
        if entry.algorithm not in labels:
            message = f"no algorithm of this file is called '{entry.algorithm}'"
            hint = did_you_mean(entry.algorithm, labels, "algorithms")
            yield Diagnostic("E202", message, hint, place=document.place((*loc, "algorithm")))
        if entry.metric not in metrics:
            message = f"nothing that is measured is called '{entry.metric}'"
            hint = did_you_mean(entry.metric, metrics, "metrics")
            yield Diagnostic("E208", message, hint, place=document.place((*loc, "metric")))
        own = [case for case in cases if case.label == entry.algorithm]
        if own:
            yield from _check_expected_keys(document, loc, entry, cases)
        if own and not _left_out(experiment, entry, cases):
            yield from _check_expected_number(document, loc, entry, own, metrics)


def _left_out(experiment: Experiment, entry: Expectation, cases: Sequence[Case]) -> bool:
    """Return whether the expectation names a data set of the file that the sweep skips.

    This happens when a run is restricted to some of the data sets.
    """
    name = entry.point.get(DATASET_AXIS)
    return name in experiment.datasets and not any(case.datasets == (name,) for case in cases)


def check_expected_splits(
    experiment: Experiment, document: Document, splits: Mapping[tuple[str, ...], Collection[str]]
) -> Iterator[Diagnostic]:
    """Yield an E208 for each expectation on a split without rows in any data set that it covers.

    `splits` maps each pool of data sets to the splits that have rows.
    """
    for index, entry in enumerate(experiment.expect):
        name = entry.point.get(DATASET_AXIS)
        known = [split for pool, own in splits.items() if name in {None, *pool} for split in own]
        if known and entry.split not in known and entry.metric != SOLUTION_RATE:
            who = "no data set has" if name is None else f"'{name}' has no"
            message = f"{who} {entry.split} rows to compare"
            listed = " or ".join(dict.fromkeys(known))
            hint = f"say split: {listed}, or give a data set such rows by its split"
            place = document.place(("expect", index, "split"))
            yield Diagnostic("E208", message, hint, place=place)


def check_expected_variants(
    experiment: Experiment, document: Document, given: Collection[tuple[str, str]]
) -> Iterator[Diagnostic]:
    """Yield a W208 for each expectation of a variant that no trial of its algorithm returned.

    `given` are the (label, variant) pairs of the trials. An algorithm without trials is not
    checked.
    """
    for index, entry in enumerate(experiment.expect):
        known = [variant for label, variant in given if label == entry.algorithm]
        if entry.variant is not None and known and entry.variant not in known:
            message = f"no trial of '{entry.algorithm}' gave a variant '{entry.variant}'"
            hint = did_you_mean(entry.variant, known, "variants")
            place = document.place(("expect", index, "variant"))
            yield Diagnostic("W208", message, hint, place=place)


def _check_expected_keys(
    document: Document, loc: Loc, entry: Expectation, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    names = {name for case in cases for name in case.point}
    for key in (key for key in entry.point if key not in names):
        hint = did_you_mean(key, [*type(entry).model_fields, *names], "keys and names that vary")
        place = document.place((*loc, key), key=True)
        yield Diagnostic("E101", f"unknown key '{key}'", hint, place=place)
    own = {name for case in cases if case.label == entry.algorithm for name in case.point}
    for key in (key for key in entry.point if key in names - own):
        message = f"'{key}' does not vary for '{entry.algorithm}'"
        place = document.place((*loc, key), key=True)
        yield Diagnostic("E104", message, "remove it", place=place)


def _check_expected_number(
    document: Document, loc: Loc, entry: Expectation, own: Sequence[Case], metrics: Collection[str]
) -> Iterator[Diagnostic]:
    """Check an expectation's values, point and metric against the algorithm's cases."""
    point = {
        name: value for name, value in entry.point.items() if any(name in c.point for c in own)
    }
    absent = [
        name
        for name, value in point.items()
        if not any(has_values(case.point, {name: value}) for case in own)
    ]
    for name in absent:
        values = dict.fromkeys(case.point[name] for case in own if name in case.point)
        message = (
            f"'{entry.algorithm}' is not run at {name} = {_format_expected_value(point[name])}"
        )
        place = document.place((*loc, name))
        yield Diagnostic("E104", message, _format_value_list(list(values)), place=place)
    there = [case for case in own if has_values(case.point, point)]
    if not absent and not there:
        pairs = ", ".join(
            f"{name} = {_format_expected_value(value)}" for name, value in point.items()
        )
        message = f"'{entry.algorithm}' is not run at {pairs} together"
        place = document.place(loc, key=True)
        yield Diagnostic("E104", message, "`ratecli plan` lists what is run", place=place)
    if there and entry.metric in metrics and not any(_measures(c, entry.metric) for c in there):
        message = f"'{entry.metric}' is not measured for '{entry.algorithm}' there"
        hint = "it speaks of a name that has no value there"
        yield Diagnostic("E208", message, hint, place=document.place((*loc, "metric")))


def _measures(case: Case, metric: str) -> bool:
    """Return whether the case's trials record the metric, or what an outcome share needs."""
    if metric == FAILURE_RATE:
        return any(name.startswith(VIOLATION_PREFIX) for name in case.metrics)
    name = metric.replace(f"{FAILURE_RATE}.", VIOLATION_PREFIX)
    return metric == SOLUTION_RATE or name in case.metrics


def _format_expected_value(value: SweepValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    numeric = isinstance(value, str) and value.replace(".", "", 1).isdigit()
    return f"'{value}'" if numeric else f"{value}"


def _format_value_list(values: Sequence[SweepValue]) -> str:
    more = ", ..." if len(values) > MAX_LISTED_VALUES else ""
    return f"values: {', '.join(map(_format_expected_value, values[:MAX_LISTED_VALUES]))}{more}"


def check_filter_plots(
    experiment: Experiment, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield diagnostics for the plots of filters.

    E208 for an algorithm, column, seed or swept name without anything to plot; E104 for sweep
    points that are not run, or for too many panels. `cases` may lack those of algorithms with
    errors of their own.
    """
    for index, plot in filter_plots(experiment):
        loc: Loc = ("report", "plots", index)
        yield from _check_filter_plot(experiment, document, loc, plot, cases)
        if isinstance(plot, PosteriorsPlot) and plot.seed not in {None, *experiment.seeds}:
            hint = f"seeds: {', '.join(map(str, experiment.seeds))}"
            message = f"the report has no seed {plot.seed} to show here"
            yield Diagnostic("E208", message, hint, place=document.place((*loc, "seed")))
        own = [
            case for case in filter_cases(cases) if case.label in (plot.algorithms or [case.label])
        ]
        if own:
            yield from _check_plot_column(document, loc, plot, own)
            yield from _check_plot_point(experiment, document, loc, plot, own)


def filter_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the cases whose algorithm returns a filter, that is, must not see the groups."""
    return [case for case in cases if type(case.solver).hides_groups]


def _check_filter_plot(
    experiment: Experiment, document: Document, loc: Loc, plot: AnyFilterPlot, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    known = {case.label for case in cases}
    given = dict.fromkeys(case.label for case in filter_cases(cases))
    for k, label in enumerate(plot.algorithms or ()):
        if label in known and label not in given:
            message = f"'{label}' gives no filter, of which there were groups to show"
            hint = f"filters here: {', '.join(given) or 'none'}"
            yield Diagnostic("E208", message, hint, place=document.place((*loc, "algorithms", k)))
    complete = known >= {entry.label for entry in experiment.algorithms}
    if plot.algorithms is None and complete and not given:
        message = "there is no filter whose groups could be shown"
        place = document.place((*loc, "kind"))
        yield Diagnostic(
            "E208", message, "name one under 'algorithms', as balanced_tree", place=place
        )


def _check_plot_column(
    document: Document, loc: Loc, plot: AnyFilterPlot, own: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E208 if the column defines no groups in the goals, or if it is ambiguous."""
    columns = list(dict.fromkeys(name for case in own for name in joint_rate_groups(case.goals())))
    if plot.column is not None and plot.column not in columns:
        message = f"no goal tells groups by '{plot.column}'"
        hint = did_you_mean(plot.column, columns, "columns of groups")
        yield Diagnostic("E208", message, hint, place=document.place((*loc, "column")))
    if plot.column is None and len(columns) != 1:
        listed = " and ".join(f"'{name}'" for name in columns)
        message = f"goals tell groups by {listed or 'no column alone'}"
        way_out = f"say column: {columns[0]}, and draw a plot for each" if columns else None
        yield Diagnostic("E208", message, way_out, place=document.place((*loc, "kind")))


def _check_plot_point(
    experiment: Experiment,
    document: Document,
    loc: Loc,
    plot: AnyFilterPlot,
    own: Sequence[Case],
) -> Iterator[Diagnostic]:
    """Check `at` of a filter plot: unknown names, points that are not run, too many panels."""
    names = swept_names(experiment)
    for name in (name for name in plot.at if name not in names):
        message = f"the report has no '{name}' to choose by here"
        hint = did_you_mean(name, names, "names that vary")
        place = document.place((*loc, "at", name), key=True)
        yield Diagnostic("E208", message, hint, place=place)
    absent = list(_absent_swept_names(plot, own, names))
    for name, k in absent:
        values = list(dict.fromkeys(case.point[name] for case in own if name in case.point))
        message = f"no filter is run at {name} = {plot.at[name][k]}"
        listed = f"values: {', '.join(map(str, values[:MAX_PANELS]))}" if values else None
        yield Diagnostic("E104", message, listed, place=document.place((*loc, "at", name, k)))
    if absent or plot.at.keys() - names:
        return
    points = {
        (case.label, repr(case.point)) for case in own if has_one_of_values(case.point, plot.at)
    }
    splits = 1 if isinstance(plot.split, str) else len(plot.split)
    if not points:
        message, hint = "no filter is run at these points", "`ratecli plan` lists what is run"
        yield Diagnostic("E104", message, hint, place=document.place((*loc, "at"), key=True))
    if len(points) * splits > MAX_PANELS:
        each = f", each on {splits} splits" if splits > 1 else ""
        message = f"{len(points)} filters to show{each}: a plot has room for {MAX_PANELS} panels"
        hint = "choose some by 'at', as at: {alpha: [0, 0.1, 0.2]}, or by 'algorithms'"
        yield Diagnostic("E104", message, hint, place=document.place((*loc, "kind")))


def _absent_swept_names(
    plot: AnyFilterPlot, own: Sequence[Case], names: Collection[str]
) -> Iterator[tuple[str, int]]:
    for name, values in plot.at.items():
        for k, value in enumerate(values):
            if name in names and not any(has_values(case.point, {name: value}) for case in own):
                yield name, k


def find_frontier(
    plot: TradeoffPlot, cases: Sequence[Case], data: ExperimentData
) -> Frontier | None:
    """Return the frontier that all data sets share if it matches the axes, else None.

    It must be the same for all, since a metric without a slice is measured over all of them
    together.
    """
    metrics = case_metrics(cases)
    asked = [ex.to_text(metrics[name]) for name in (plot.x, plot.y) if name in metrics]
    first, *others = {_dataset_frontier(item.entry) for item in data.items}
    if first is None or others or asked != [_canonical_metric(first.x), _canonical_metric(first.y)]:
        return None
    return first


def _dataset_frontier(entry: DatasetEntry) -> Frontier | None:
    """Return the known frontier of a data set, None if its preparation selects rows."""
    known = None if entry.source is None else registry.find_source(entry.source).frontier
    if known is None or registry.settle_options(entry)["preparation"] not in known.preparations:
        return None
    return known


def check_known_optima(
    experiment: Experiment, document: Document, cases: Sequence[Case], data: ExperimentData
) -> Iterator[Diagnostic]:
    """Yield a W306 for each plot with `optimum` whose axes have no known optimum."""
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

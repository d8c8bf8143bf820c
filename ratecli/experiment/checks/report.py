"""Checks of `report:` and `expect:` against the metrics, splits and sweep points."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ratecli.config import report
from ratecli.config.base import FAILURE_RATE, SOLUTION_RATE, Spec, unknown_key
from ratecli.config.dataset import DatasetSpec
from ratecli.config.experiment import Experiment
from ratecli.config.sweep import DATASET_AXIS, SweepValue, has_one_of_values, has_values
from ratecli.config.trials import FILTER
from ratecli.datasets import registry
from ratecli.datasets.source import Frontier
from ratecli.errors import Diagnostic, Loc, Span, did_you_mean
from ratecli.experiment.cases import Case, case_metrics, measured_rates
from ratecli.experiment.filters import filter_metric_names
from ratecli.ledger.records import VIOLATION_PREFIX
from ratecli.rates import expression as ex
from ratecli.rates.parser import parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.scope import Scope
from ratecli.sampling.rows import ExperimentData
from ratecli.sampling.summaries import joint_rate_groups

TRIAL_COLUMNS = ("algorithm", "variant", "seed")
"""Columns that identify a trial, in addition to the swept names."""
MAX_PANELS = 12
"""Maximum number of panels of one plot."""
PLAN_HINT = "`ratecli plan` lists what is run"

AnyPlot = TypeVar("AnyPlot", bound=report.BasePlot)


def plots_of(experiment: Experiment, kind: type[AnyPlot]) -> Iterator[tuple[Loc, AnyPlot]]:
    """Yield the plots of a kind, with their locations."""
    for index, plot in enumerate(experiment.report.plots or ()):
        if isinstance(plot, kind):
            yield ("report", "plots", index), plot


TABLE_NAMES = {"rows": "names of rows", "columns": "metrics and rates"}
PLOT_NAMES = {
    "algorithms": "algorithms",
    "lines": "algorithms",
    "by": "swept names",
    "at": "swept names",
    "x": "metrics and swept numbers",
    "y": "metrics",
    "constraint": "constraints",
    "seed": "seeds",
}
EXPECTATION_NAMES = {"algorithm": "algorithms", "metric": "metrics and rates"}
"""Keys of tables, plots and expectations, with the kind of name that each requires."""


def _report_parts(experiment: Experiment) -> Iterator[tuple[Loc, Spec, dict[str, str]]]:
    """Yield each table, plot and expectation with its location and the kinds of its names."""
    for index, table in enumerate(experiment.report.tables):
        yield ("report", "tables", index), table, TABLE_NAMES
    for loc, plot in plots_of(experiment, report.BasePlot):
        kinds = dict(PLOT_NAMES)
        if isinstance(plot, report.GuaranteePlot):
            kinds["x"] = "swept numbers"
        if isinstance(plot, report.ConvergencePlot):
            del kinds["x"]
        yield loc, plot, kinds
    for index, entry in enumerate(experiment.expect):
        yield ("expect", index), entry, EXPECTATION_NAMES


def _names_in(part: Spec, keys: Iterable[str]) -> Iterator[tuple[Loc, str]]:
    """Yield the names under some keys, with their locations in the part."""
    for key in keys:
        value = getattr(part, key, None)
        if isinstance(value, tuple):
            yield from (((key, k), name) for k, name in enumerate(value))
        elif isinstance(value, dict):
            yield from (((key, name), name) for name in value)
        elif value is not None:
            yield (key,), str(value)


def _known_names(experiment: Experiment) -> dict[str, list[str]]:
    """Return the names of each kind that a report may use."""
    labels = [entry.label for entry in experiment.algorithms]
    if experiment.filter is not None:
        own = [each for each in experiment.algorithms if each.safety is not None or each.sweep]
        labels += [FILTER, *(f"{FILTER}_{entry.label}" for entry in own)]
    rules = experiment.constraints
    metrics = ["objective", *experiment.metrics, *filter_metric_names(experiment)]
    metrics += [VIOLATION_PREFIX + name for name in rules]
    failures = [FAILURE_RATE, *(f"{FAILURE_RATE}.{name}" for name in rules)] if rules else []
    swept = experiment.swept_names()
    words = {
        name
        for _, sweep in experiment.sweeps()
        for name in sweep.names
        for _, value in sweep.value_locs(name)
        if isinstance(value, str | bool)
    }
    numbers = [name for name in swept if name not in words]
    return {
        "algorithms": labels,
        "metrics": metrics,
        "metrics and rates": [*metrics, SOLUTION_RATE, *failures],
        "metrics and swept numbers": [*metrics, *numbers],
        "names of rows": [*TRIAL_COLUMNS, *swept],
        "swept names": swept,
        "swept numbers": numbers,
        "constraints": list(rules),
        "seeds": [str(seed) for seed in experiment.seeds],
    }


def check_report_names(experiment: Experiment) -> Iterator[Diagnostic]:
    """Yield an E208 for each name in a table, plot or expectation that does not exist.

    E101 for a key of an expectation that is not swept.
    """
    known = _known_names(experiment)
    for loc, part, kinds in _report_parts(experiment):
        for inside, name in _names_in(part, kinds):
            kind = kinds[str(inside[0])]
            if name not in known[kind]:
                hint = did_you_mean(name, known[kind], kind)
                message = f"there is no '{name}' here"
                yield Diagnostic("E208", message, hint, loc=(*loc, *inside))
    for loc, _ in () if experiment.constraints else plots_of(experiment, report.GuaranteePlot):
        message = "there is no constraint whose failures could be plotted"
        yield Diagnostic("E208", message, "name one under 'constraints'", loc=(*loc, "kind"))
    for index, entry in enumerate(experiment.expect):
        keys = [*type(entry).model_fields, *known["swept names"]]
        for key in entry.point:
            if key not in keys:
                yield unknown_key(("expect", index, key), keys)


def check_report_points(experiment: Experiment, cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield the errors of plots and expectations whose names exist; `cases` includes filters.

    E104 for sweep points that are not run or too many panels, E208 for a plot of filters without
    one or without a column, and for a metric that is not measured at an expectation's point.
    """
    for loc, plot in plots_of(experiment, report.BasePlot):
        if isinstance(plot, report.BaseFilterPlot):
            yield from _check_filter_plot(loc, plot, cases)
        count = _panel_count(plot, cases)
        if count > MAX_PANELS:
            message = f"the plot has {count} panels, and at most {MAX_PANELS} are allowed"
            hint = "show fewer values or splits, or make panels by another name"
            yield Diagnostic("E104", message, hint, loc=(*loc, "kind"))
    for index, entry in enumerate(experiment.expect):
        yield from _check_expectation(experiment, ("expect", index), entry, cases)


def _panel_count(plot: report.BasePlot, cases: Sequence[Case]) -> int:
    panels = {""}
    if isinstance(plot, report.BasePaneledPlot) and plot.by is not None:
        panels = {repr(case.point[plot.by]) for case in cases if plot.by in case.point}
    if isinstance(plot, report.BaseFilterPlot):
        panels = {repr((case.label, case.point)) for case in _filters_of(plot, cases)}
    splits = plot.split if isinstance(plot, report.TradeoffPlot | report.GroupSharesPlot) else ("",)
    return len(panels) * len(splits)


def _filters_of(plot: report.BaseFilterPlot, cases: Sequence[Case]) -> list[Case]:
    """Return the cases of filters that a plot shows."""
    return [
        case
        for case in cases
        if type(case.solver).hides_groups
        and case.label in (plot.algorithms or [case.label])
        and has_one_of_values(case.point, plot.at)
    ]


def _check_filter_plot(
    loc: Loc, plot: report.BaseFilterPlot, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an E104 or E208 if a plot of filters has nothing to show."""
    filters = list(dict.fromkeys(case.label for case in cases if type(case.solver).hides_groups))
    if not filters or not set(plot.algorithms or ()) <= set(filters):
        message, listed = "the plot shows groups of filters only", ", ".join(filters)
        hint = f"filters here: {listed or 'none; balanced_tree is one'}"
        yield Diagnostic("E208", message, hint, loc=(*loc, "algorithms"))
        return
    own = _filters_of(plot, cases)
    if not own:
        message = f"no filter is run at these values of {', '.join(plot.at)}"
        yield Diagnostic("E104", message, PLAN_HINT, loc=(*loc, "at"), key=True)
        return
    for name, values in plot.at.items():
        for k, value in enumerate(values):
            if not any(has_values(case.point, {name: value}) for case in own):
                message = f"no filter is run at {name}={value}"
                yield Diagnostic("E104", message, PLAN_HINT, loc=(*loc, "at", name, k))
    columns = list(dict.fromkeys(name for case in own for name in joint_rate_groups(case.goals())))
    if plot.column not in columns and not (plot.column is None and len(columns) == 1):
        hint = f"say column: NAME; columns here: {', '.join(columns)}"
        message = "the plot shows the groups of one column"
        yield Diagnostic("E208", message, hint, loc=(*loc, "column"))


def _check_expectation(
    experiment: Experiment, loc: Loc, entry: report.Expectation, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """Yield an error if no trial of an expectation's sweep point measures its metric."""
    name, own = entry.point.get(DATASET_AXIS), [c for c in cases if c.label == entry.algorithm]
    if name in experiment.datasets and not any(case.datasets == (name,) for case in cases):
        return  # a run may be restricted to other data sets
    matching = [case for case in own if has_values(case.point, entry.point)]
    if not matching:
        values = f" at these values of {', '.join(entry.point)}" if entry.point else ""
        yield Diagnostic("E104", f"'{entry.algorithm}' is not run{values}", PLAN_HINT, loc=loc)
    elif not any(_measures(case, entry.metric) for case in matching):
        message = f"'{entry.metric}' is not measured for '{entry.algorithm}' at this point"
        hint = "it contains a name that has no value at this point"
        yield Diagnostic("E208", message, hint, loc=(*loc, "metric"))


def _measures(case: Case, metric: str) -> bool:
    """Return whether trials of a case record a metric, or what a solution or failure rate needs."""
    if metric == FAILURE_RATE:
        return any(name.startswith(VIOLATION_PREFIX) for name in case.metrics)
    name = metric.replace(f"{FAILURE_RATE}.", VIOLATION_PREFIX)
    return metric == SOLUTION_RATE or name in case.metrics


def check_splits(
    experiment: Experiment, cases: Iterable[Case], splits: Mapping[str, Collection[str]]
) -> Iterator[Diagnostic]:
    """Yield an E208 for each metric, table, plot or expectation of a split without rows.

    `splits` has the splits of each data set that have rows. Tables with only violations and
    solution rates are exempt: violations are reported for all splits, whichever the table selects,
    and solution rates have no split.
    """
    used: list[tuple[Loc, str, Sequence[SweepValue], Span | None]] = [
        (loc, leaf.split, leaf.where.datasets, leaf.span)
        for case in cases
        for loc, tree in case.expressions()
        for leaf in measured_rates(tree)
        if loc[0] == "metrics" and leaf.split is not None
    ]
    for loc, part, _ in _report_parts(experiment):
        columns = getattr(part, "columns", [getattr(part, "metric", "")])
        tabled = isinstance(part, report.TableSpec)
        exempt = (SOLUTION_RATE, VIOLATION_PREFIX) if tabled else (SOLUTION_RATE,)
        point = part.point if isinstance(part, report.Expectation) else {}
        datasets: Sequence[SweepValue] = [point[DATASET_AXIS]] if DATASET_AXIS in point else []
        for inside, split in _names_in(part, ("split", "truth")):
            if not all(name.startswith(exempt) for name in columns):
                used.append(((*loc, inside[0]), split, datasets, None))
    for loc, split, datasets, span in used:
        own = [known for name, known in splits.items() if not datasets or name in datasets]
        existing = dict.fromkeys(each for known in own for each in known)
        if own and split not in existing:
            listed = " and ".join(f"'{name}'" for name in datasets)
            where = f"of {listed}" if datasets else "here"
            hint = f"splits {where}: {', '.join(existing)}"
            hint += "; the `split` of a data set, or `safety`, adds others"
            yield Diagnostic("E208", f"there are no {split} rows {where}", hint, loc=loc, span=span)


def check_variants(
    experiment: Experiment, found: Collection[tuple[str, str]]
) -> Iterator[Diagnostic]:
    """Yield a W208 for each variant that a plot or an expectation names and no trial returned.

    `found` are the (label, variant) pairs of the trials. An expectation of an algorithm without
    trials is not checked.
    """
    for loc, part, _ in _report_parts(experiment):
        label = part.algorithm if isinstance(part, report.Expectation) else None
        known = {variant for each, variant in found if label in {None, each}}
        for inside, name in _names_in(part, ("variant", "variants")):
            if known and name not in known:
                of = "" if label is None else f" of '{label}'"
                message = f"no trial{of} returned a variant '{name}'"
                hint = did_you_mean(name, known, "variants")
                yield Diagnostic("W208", message, hint, loc=(*loc, *inside))


def find_frontier(
    plot: report.TradeoffPlot, cases: Sequence[Case], data: ExperimentData
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


def _dataset_frontier(entry: DatasetSpec) -> Frontier | None:
    """Return the known frontier of a data set, None if its preparation selects rows."""
    known = None if entry.source is None else registry.find_source(entry.source).frontier
    if known is None or registry.settle_options(entry)["preparation"] not in known.preparations:
        return None
    return known


def check_known_optima(
    experiment: Experiment, cases: Sequence[Case], data: ExperimentData
) -> Iterator[Diagnostic]:
    """Yield a W306 for each plot with `optimum` whose axes have no known optimum."""
    for loc, plot in plots_of(experiment, report.TradeoffPlot):
        if plot.optimum and find_frontier(plot, cases, data) is None:
            message = f"no data set here has a known optimum of '{plot.y}' for each '{plot.x}'"
            yield Diagnostic("W306", message, "remove `optimum: true`", loc=(*loc, "optimum"))

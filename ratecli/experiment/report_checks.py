"""What a `report:` asks to be shown, checked against what there will be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.config.filter import FILTER
from ratecli.config.names import FAILURE_RATE, SOLUTION_RATE
from ratecli.config.report import AnyFilterPlot, BasePaneledPlot, GuaranteePlot, TradeoffPlot
from ratecli.config.sweep import sweep_points
from ratecli.errors import Diagnostic, did_you_mean
from ratecli.experiment.cases import Case
from ratecli.experiment.filter_stage import filter_metric_names
from ratecli.ledger.records import VIOLATION_PREFIX

TRIAL_COLUMNS = ("algorithm", "variant", "seed")
"""What tells trials apart beside the names of the sweep."""

MAX_PANELS = 12
"""Of one plot."""

ReportReference = tuple[Loc, str, Collection[str], str]
"""A name of the report: where it stands, the name, among which it must be, and what those are."""


def check_report(experiment: Experiment, document: Document) -> Iterator[Diagnostic]:
    """An E208 for every row or column of a table, axis, line or panel of a plot, that nothing fills."""
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
    """An E208 for every table or plot of rows that there are none of; `splits` have some.

    A violation is shown for all splits, whichever a table asks for, and solutions have none.
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
    """A W208 for every variant that a plot asks for and that is none of those that trials gave.

    Which there are only the trials tell; where none gave any, nothing is known.
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
    """The plots of this kind, each with its position among all."""
    for index, plot in enumerate(experiment.report.plots):
        if isinstance(plot, TradeoffPlot):
            yield index, plot


def guarantee_plots(experiment: Experiment) -> Iterator[tuple[int, GuaranteePlot]]:
    """As `tradeoff_plots`, of the other kind."""
    for index, plot in enumerate(experiment.report.plots):
        if isinstance(plot, GuaranteePlot):
            yield index, plot


def filter_plots(experiment: Experiment) -> Iterator[tuple[int, AnyFilterPlot]]:
    """As `tradeoff_plots`, of both kinds that show filters."""
    for index, plot in enumerate(experiment.report.plots):
        if isinstance(plot, AnyFilterPlot):
            yield index, plot


def check_panels(
    experiment: Experiment, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """An E104 for every plot that asks for more panels than there is room for."""
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
    """The names of all numbers that a trial gives."""
    violations = [VIOLATION_PREFIX + name for name in experiment.constraints]
    own = filter_metric_names(experiment)
    return list(dict.fromkeys(["objective", *experiment.metrics, *violations, *own]))


def possible_filter_labels(experiment: Experiment) -> list[str]:
    """What the trials of the file's filter may be called: see `stage.stage_cases`."""
    if experiment.filter is None:
        return []
    entries = (each for each in experiment.algorithms if each.safety is not None or each.sweep)
    return [FILTER, *(f"{FILTER}_{entry.label}" for entry in entries)]


def outcome_share_names(experiment: Experiment) -> list[str]:
    """What tables and expectations may ask of how trials ended."""
    failures = [f"{FAILURE_RATE}.{name}" for name in experiment.constraints]
    return [SOLUTION_RATE, *([FAILURE_RATE, *failures] if failures else [])]


def swept_names(experiment: Experiment) -> list[str]:
    """The names that vary, those of algorithms' own sweeps too."""
    sweeps = [experiment.sweep, *(entry.sweep for entry in experiment.algorithms if entry.sweep)]
    return list(dict.fromkeys(name for sweep in sweeps for name in sweep.names))


def _numeric_swept_names(experiment: Experiment) -> list[str]:
    """The swept names whose values are all numbers."""
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

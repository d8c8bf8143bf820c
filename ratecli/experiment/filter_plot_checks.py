"""What plots of filters ask for, checked against the filters that there will be."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ratecli.config.document import Document, Loc
from ratecli.config.experiment import Experiment
from ratecli.config.report import AnyFilterPlot, PosteriorsPlot
from ratecli.config.sweep import has_one_of_values, has_values
from ratecli.errors import Diagnostic, did_you_mean
from ratecli.experiment.cases import Case
from ratecli.experiment.report_checks import MAX_PANELS, filter_plots, swept_names
from ratecli.sampling.filter_summary import joint_rate_groups


def check_filter_plots(
    experiment: Experiment, document: Document, cases: Sequence[Case]
) -> Iterator[Diagnostic]:
    """An E208 for every plot of filters that names an algorithm, column, seed or swept name of which there
    is nothing to show, an E104 for sweep points that are not run, or that are too many.

    `cases` may lack those of algorithms that have faults of their own.
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
    """Those whose algorithm is not to see the groups: it gives a filter."""
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
    """Of filters' cases: a column by which no goal tells groups, or several of which none is named."""
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
    """Of filters' cases: swept names that there are none of, points that none is at, too many panels."""
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

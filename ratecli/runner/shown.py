"""What a `report:` asks to be shown, checked against what there will be."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ratecli.faults import Fault, did_you_mean
from ratecli.spec.document import Document, Loc
from ratecli.spec.experiment import Experiment

TRIAL = ("algorithm", "variant", "seed")
"""What tells trials apart beside the names of the sweep."""


def report_faults(experiment: Experiment, document: Document) -> Iterator[Fault]:
    """An E208 for every row or column of a table, or axis of a plot, that nothing fills."""
    metrics = measured(experiment)
    rows = [*TRIAL, *swept(experiment)]
    for loc, name, known, what in _asked(experiment, metrics, rows):
        if name not in known:
            hint = did_you_mean(name, known, what)
            place = document.place(loc)
            yield Fault("E208", f"the report has no '{name}' to show here", hint, place=place)


def measured(experiment: Experiment) -> list[str]:
    """The names of all numbers that a trial gives."""
    violations = [f"violation.{name}" for name in experiment.constraints]
    return ["objective", *experiment.metrics, *violations]


def swept(experiment: Experiment) -> list[str]:
    """The names that vary, those of algorithms' own sweeps too."""
    sweeps = [experiment.sweep, *(entry.sweep for entry in experiment.algorithms if entry.sweep)]
    return list(dict.fromkeys(name for sweep in sweeps for name in sweep.names))


def _asked(
    experiment: Experiment, metrics: Collection[str], rows: Collection[str]
) -> Iterator[tuple[Loc, str, Collection[str], str]]:
    """Every name of the report: where it stands, and among which it must be."""
    for index, table in enumerate(experiment.report.tables):
        loc: Loc = ("report", "tables", index)
        for k, name in enumerate(table.rows):
            yield (*loc, "rows", k), name, rows, "rows are told apart by"
        for k, name in enumerate(table.columns):
            yield (*loc, "columns", k), name, metrics, "metrics"
    for index, plot in enumerate(experiment.report.plots):
        yield ("report", "plots", index, "x"), plot.x, metrics, "metrics"
        yield ("report", "plots", index, "y"), plot.y, metrics, "metrics"

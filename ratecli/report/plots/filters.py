"""What plots of filters show: which filters, and what their trials kept of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratecli.config.sweep import SweepValue, has_one_of_values
from ratecli.ledger.records import FILTERS_KEY, PlannedTrial
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.file_names import plot_file_name
from ratecli.report.plots.series import SELECT_ALL, PlotSelection
from ratecli.report.sheet import format_scalar

POSTERIORS = "posteriors"
GROUP_SHARES = "group_shares"
EDGE = 0.08
"""Inches that stay free on either side: row labels of panels may be wider than their layout thinks."""
MISSING_SUMMARY = "left out, stored when trials kept nothing of filters (run them afresh)"


@dataclass(frozen=True)
class FilterEffect:
    """What a filter does on the rows of a split that are in one of K groups (`sampling.filter_summary`).

    Attributes
    ----------
    groups, base
        (K,) names, and shares of all these rows.
    size, keep
        (L,) of the proxy's values: shares of the rows, and the chances that they are kept.
    posterior
        (L, K) shares of the groups among the rows of a value, None where it has none.
    after
        (K,) shares of the groups among the rows that are expected to be kept, None where none are.
    """

    groups: tuple[str, ...]
    base: tuple[float, ...]
    size: tuple[float, ...]
    keep: tuple[float, ...]
    posterior: tuple[tuple[float, ...] | None, ...]
    after: tuple[float, ...] | None


@dataclass(frozen=True)
class FilterPlotOptions:
    """A plot as the file asks for it; `seed` None is the first, `variant` and `column` '' the main ones."""

    name: str
    title: str
    choice: PlotSelection = SELECT_ALL
    variant: str = ""
    column: str = ""
    splits: tuple[str, ...] = ("train",)
    at: Mapping[str, Sequence[SweepValue]] = field(default_factory=dict)
    seed: int | None = None


@dataclass(frozen=True)
class FilterPanel:
    """An algorithm at a sweep point: a trial for each seed."""

    title: str
    trials: tuple[PlannedTrial, ...]


def read_filter_plot(ledger: Ledger, position: int, splits: tuple[str, ...]) -> FilterPlotOptions:
    """The plot at a position among all that the file asks for; `splits` are those of its kind."""
    every = ledger.asked("plots")
    asked = every[position]
    split = asked.get("split") or splits
    return FilterPlotOptions(
        name=plot_file_name(every, position),
        title=asked.get("title") or "",
        choice=PlotSelection(tuple(asked.get("algorithms") or ())),
        variant=asked.get("variant") or "",
        column=asked.get("column") or "",
        splits=(split,) if isinstance(split, str) else tuple(split),
        at=asked.get("at") or {},
        seed=asked.get("seed"),
    )


def filter_panels(ledger: Ledger, plot: FilterPlotOptions) -> list[FilterPanel]:
    """In the order of the plan. What is no filter has none, unless it is asked for."""
    labels = list(dict.fromkeys(trial.label for trial in ledger.plan))
    shown = [label for label in labels if _is_shown(ledger, plot, label)]
    found: dict[tuple[str, str], list[PlannedTrial]] = {}
    for trial in ledger.plan:
        if trial.label in shown and has_one_of_values(trial.point, plot.at):
            found.setdefault((trial.label, repr(trial.point)), []).append(trial)
    several = len({label for label, _ in found}) > 1
    return [
        FilterPanel(_title(ledger, trials[0], several), tuple(trials)) for trials in found.values()
    ]


def _is_shown(ledger: Ledger, plot: FilterPlotOptions, label: str) -> bool:
    if plot.choice.algorithms:
        return plot.choice.takes(label)
    return any(_filters(ledger, trial) for trial in ledger.plan if trial.label == label)


def _title(ledger: Ledger, trial: PlannedTrial, several: bool) -> str:
    """What tells a panel from the others: the algorithm, and what varies for it."""
    points = [other.point for other in ledger.plan if other.label == trial.label]
    pairs = [
        f"{name} = {format_scalar(value)}"
        for name, value in trial.point.items()
        if len({repr(point.get(name)) for point in points}) > 1
    ]
    return ", ".join([trial.label, *pairs] if several or not pairs else pairs)


def read_filter_effect(
    ledger: Ledger, plot: FilterPlotOptions, trial: PlannedTrial, split: str
) -> FilterEffect | None:
    """What a trial kept of its filter; None if it has no answer, or no such variant, column or split."""
    variants = _filters(ledger, trial)
    main = next(iter(variants), "")
    named = plot.variant if len(variants) > 1 else ""  # a single one is itself, as in other plots
    variant = variants.get(named or main, {})
    columns = variant.get("columns") or {}
    column = columns.get(plot.column or next(iter(columns), ""), {})
    found = (column.get("splits") or {}).get(split)
    if found is None:
        return None
    return FilterEffect(
        groups=tuple(column["groups"]),
        base=tuple(found["base"]),
        size=tuple(found["size"]),
        keep=tuple(variant["keep"]),
        posterior=tuple(None if row is None else tuple(row) for row in found["posterior"]),
        after=None if found["after"] is None else tuple(found["after"]),
    )


def group_column(ledger: Ledger, plot: FilterPlotOptions) -> str:
    """The column whose groups are shown, 'groups' where no trial tells."""
    kept = (
        column
        for trial in ledger.plan
        for variant in _filters(ledger, trial).values()
        for column in variant["columns"]
    )
    return plot.column or next(kept, "groups")


def missing_summary_note(ledger: Ledger, found: Sequence[FilterPanel]) -> list[str]:
    """A note on trials that were stored without what these plots show, if there are any."""
    lacking = sum(
        ledger.status(trial) in MEASURED_STATUSES
        and FILTERS_KEY not in ledger.results[trial.key].info
        for panel in found
        for trial in panel.trials
    )
    return [f"{MISSING_SUMMARY}: {lacking}"] if lacking else []


def _filters(ledger: Ledger, trial: PlannedTrial) -> Mapping[str, Any]:
    if ledger.status(trial) not in MEASURED_STATUSES:
        return {}
    return ledger.results[trial.key].info.get(FILTERS_KEY) or {}

"""Common parts of the plots of filters: their panels, and the stored effects of filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratecli.config.report import BaseFilterPlot
from ratecli.config.sweep import has_one_of_values
from ratecli.ledger.records import FILTERS_KEY, PlannedTrial
from ratecli.ledger.view import MEASURED_STATUSES, Ledger
from ratecli.report.groups import group_by
from ratecli.report.plots.options import PlotSelection
from ratecli.report.sheet import format_point

MARGIN = 0.08
"""Margin in inches on either side, as row labels may be wider than the layout assumes."""
MISSING_SUMMARY = "trials stored without a summary of their filter (run them again)"


@dataclass(frozen=True)
class FilterEffect:
    """The effect of a filter on the rows of a split in one of K groups.

    See `ratecli.sampling.filter_summary`.

    Attributes
    ----------
    groups, base
        (K,) names of the groups, and their shares of all these rows.
    size, keep
        (L,) for each value of the proxy, its share of the rows and their probability of being kept.
    posterior
        (L, K) shares of the groups among the rows with a value of the proxy, None if there are
        none.
    after
        (K,) shares of the groups among the rows expected to be kept, None if there are none.
    """

    groups: Sequence[str]
    base: Sequence[float]
    size: Sequence[float]
    keep: Sequence[float]
    posterior: Sequence[Sequence[float] | None]
    after: Sequence[float] | None


@dataclass(frozen=True)
class FilterPanel:
    """An algorithm at a sweep point, with a trial for each seed."""

    title: str
    trials: Sequence[PlannedTrial]


def filter_panels(ledger: Ledger, options: BaseFilterPlot) -> list[FilterPanel]:
    """Return the panels in plan order, of other algorithms than filters only if requested."""
    selection = PlotSelection.of(options)
    filters = {trial.label for trial in ledger.plan if _filters(ledger, trial)}
    shown = [
        trial
        for trial in ledger.plan
        if has_one_of_values(trial.point, options.at)
        if (selection.includes(trial.label) if selection.algorithms else trial.label in filters)
    ]
    found = group_by(shown, lambda trial: (trial.label, repr(trial.point)))
    several = len({label for label, _ in found}) > 1
    return [FilterPanel(_title(ledger, each[0], several), each) for each in found.values()]


def _title(ledger: Ledger, trial: PlannedTrial, several: bool) -> str:
    """Return a title that distinguishes the panel: the algorithm and its varying names."""
    points = [other.point for other in ledger.plan if other.label == trial.label]
    varying = {
        name: value
        for name, value in trial.point.items()
        if len({repr(point.get(name)) for point in points}) > 1
    }
    label = trial.label if several or not varying else ""
    return ", ".join(filter(None, [label, format_point(varying)]))


def filter_effect(
    ledger: Ledger, options: BaseFilterPlot, trial: PlannedTrial, split: str
) -> FilterEffect | None:
    """Return a trial's stored filter effect.

    None without results or without the plot's variant or column or the split.
    """
    variants = _filters(ledger, trial)
    named = options.variant if len(variants) > 1 else None  # an only variant always counts
    variant = variants.get(named or next(iter(variants), ""), {})
    columns = variant.get("columns") or {}
    column = columns.get(options.column or next(iter(columns), ""), {})
    stored = column.get("splits", {}).get(split)
    if stored is None:
        return None
    shares = {key: stored[key] for key in ("base", "size", "posterior", "after")}
    return FilterEffect(groups=column["groups"], keep=variant["keep"], **shares)


def group_column(ledger: Ledger, options: BaseFilterPlot) -> str:
    """Return the column of the plotted groups, or "groups" if it is unknown."""
    columns = (
        column
        for trial in ledger.plan
        for variant in _filters(ledger, trial).values()
        for column in variant["columns"]
    )
    return options.column or next(columns, "groups")


def missing_summary_note(ledger: Ledger, panels: Sequence[FilterPanel]) -> list[str]:
    """Return a note on trials that were stored without filter summaries, if there are any."""
    missing = sum(
        ledger.status(trial) in MEASURED_STATUSES
        and FILTERS_KEY not in ledger.results[trial.key].info
        for panel in panels
        for trial in panel.trials
    )
    return [f"{MISSING_SUMMARY}: {missing}"] if missing else []


def _filters(ledger: Ledger, trial: PlannedTrial) -> Mapping[str, Any]:
    """Return the stored summaries of a trial's filters, by variant."""
    if ledger.status(trial) not in MEASURED_STATUSES:
        return {}
    return ledger.results[trial.key].info.get(FILTERS_KEY) or {}

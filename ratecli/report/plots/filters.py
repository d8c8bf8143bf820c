"""Common parts of the plots of filters: their options, panels and stored filter effects."""

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
"""Margin in inches on either side, as row labels may be wider than the layout assumes."""
MISSING_SUMMARY = "left out, stored when trials kept nothing of filters (run them afresh)"


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

    groups: tuple[str, ...]
    base: tuple[float, ...]
    size: tuple[float, ...]
    keep: tuple[float, ...]
    posterior: tuple[tuple[float, ...] | None, ...]
    after: tuple[float, ...] | None


@dataclass(frozen=True)
class FilterPlotOptions:
    """A filter plot of the experiment file.

    `seed` None means the first seed; `variant` and `column` "" mean the main ones.
    """

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
    """An algorithm at a sweep point, with a trial for each seed."""

    title: str
    trials: tuple[PlannedTrial, ...]


def read_filter_plot(ledger: Ledger, position: int, splits: tuple[str, ...]) -> FilterPlotOptions:
    """Read the plot at a position in the file's list of plots; `splits` are the default splits."""
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
    """Return the panels in plan order, of other algorithms than filters only if requested."""
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
    """Return a title that distinguishes the panel: the algorithm and its varying names."""
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
    """Return a trial's stored filter effect.

    None without results or without the plot's variant or column or the split.
    """
    variants = _filters(ledger, trial)
    main = next(iter(variants), "")
    named = plot.variant if len(variants) > 1 else ""  # an only variant always counts
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
    """Return the column of the plotted groups, or "groups" if it is unknown."""
    kept = (
        column
        for trial in ledger.plan
        for variant in _filters(ledger, trial).values()
        for column in variant["columns"]
    )
    return plot.column or next(kept, "groups")


def missing_summary_note(ledger: Ledger, found: Sequence[FilterPanel]) -> list[str]:
    """Return a note on trials that were stored without filter summaries, if there are any."""
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

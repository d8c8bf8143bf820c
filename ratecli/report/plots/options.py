"""The plots that an experiment file requests: their options, selections and panels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from ratecli.config.report import PLOT_TYPES, BasePlot
from ratecli.files import unique_file_name
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.sheet import format_point

PlotT = TypeVar("PlotT", bound=BasePlot)


@dataclass(frozen=True)
class PlotRequest(Generic[PlotT]):
    """A plot of the experiment file: its options, file name and position in the list of plots."""

    options: PlotT
    name: str
    position: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """The measured splits, which may be stored as a string or a list."""
        split: str | Sequence[str] = getattr(self.options, "split", None) or "test"
        return (split,) if isinstance(split, str) else tuple(split)


class PlotDescription(NamedTuple):
    """The default caption of a plot, and an explanation for readers who are new to its kind."""

    caption: str
    what: str


def requested_plots(ledger: Ledger) -> list[PlotRequest[Any]]:
    """Return the plots of the experiment file; no two share a file name.

    The options were validated before the run.
    """
    found: list[PlotRequest[Any]] = []
    for position, stored in enumerate(ledger.report_entries("plots")):
        kind = stored.get("kind", "tradeoff")
        axes = [stored[axis] for axis in ("x", "y") if axis in stored]
        wish = stored.get("file") or "-".join([kind, *axes])
        name = unique_file_name(wish, [plot.name for plot in found])
        options = PLOT_TYPES[kind].model_construct(**{**stored, "kind": kind})
        found.append(PlotRequest(options, name, position))
    return found


@dataclass(frozen=True)
class PlotSelection:
    """The algorithms, variants (all if empty) and flat lines that a plot or a panel shows.

    With `at`, a name and a value, only points with this value or without this name are shown.
    """

    algorithms: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    at: tuple[str, Any] | None = None

    @classmethod
    def of(cls, options: BasePlot) -> PlotSelection:
        names = ("algorithms", "variants", "lines")
        return cls(*(tuple(getattr(options, name, None) or ()) for name in names))

    @property
    def title(self) -> str:
        """The title of the panel: the value that it shows."""
        return format_point(dict([self.at])) if self.at else ""

    def includes(self, label: str) -> bool:
        """Return whether the plot shows an algorithm, as a curve or as a flat line."""
        return not self.algorithms or label in (*self.algorithms, *self.lines)

    def includes_variant(self, variant: str, siblings: Collection[str]) -> bool:
        """Return whether the plot shows a variant; an algorithm's only variant always counts."""
        return not self.variants or len(siblings) == 1 or variant in self.variants

    def includes_point(self, point: Mapping[str, Any]) -> bool:
        name, value = self.at or ("", None)
        return name not in point or repr(point[name]) == repr(value)

    def includes_trial(self, trial: PlannedTrial) -> bool:
        return self.includes(trial.label) and self.includes_point(trial.point)


def panel_selections(ledger: Ledger, options: BasePlot) -> list[PlotSelection]:
    """Return the selection of each panel: one for each value of `by`, in plan order.

    Without values of `by`, there is a single panel.
    """
    whole, by = PlotSelection.of(options), getattr(options, "by", None) or ""
    values = {
        repr(trial.point[by]): trial.point[by]
        for trial in ledger.plan
        if by in trial.point and whole.includes(trial.label)
    }
    return [replace(whole, at=(by, value)) for value in values.values()] or [whole]


def missing_variant_notes(ledger: Ledger, selection: PlotSelection) -> list[str]:
    """Return a note for each variant that a plot requests and no trial returned."""
    if not selection.variants:
        return []
    known = {item.variant for item in ledger.measurements()}
    missing = [name for name in selection.variants if name not in known]
    return [f"no trial returned a variant '{name}'" for name in missing]

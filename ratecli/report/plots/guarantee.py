"""What a plot of guarantees shows: performance, solution rate and failure rate along a swept number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratecli.config.names import FAILURE_RATE, SOLUTION_RATE
from ratecli.ledger.records import PlannedTrial
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import collect_certificates
from ratecli.report.estimates import IntervalEstimate
from ratecli.report.file_names import plot_file_name
from ratecli.report.groups import SeedGroup, seed_groups, select_variant
from ratecli.report.outcomes import CONCLUSIVE
from ratecli.report.plots.series import SELECT_ALL, PlotSelection
from ratecli.report.plots.settings import LineSetting, line_settings
from ratecli.report.plots.tradeoff import panel_values
from ratecli.report.sheet import format_scalar

GUARANTEE = "guarantee"


@dataclass(frozen=True)
class GuaranteePlotOptions:
    """A plot as the file asks for it; `truth` is the split on which a classifier fails or not."""

    name: str
    title: str
    x: str
    y: str
    truth: str = "test"
    constraint: str = ""
    choice: PlotSelection = SELECT_ALL
    by: str = ""
    panels: tuple[Any, ...] = ()

    @property
    def caption(self) -> str:
        rates = "solution rate and failure rate"
        return self.title or f"{self.y}, {rates} by {self.x} ({self.truth} rows as the truth)"

    @property
    def what(self) -> str:
        """What the three panels show."""
        rule = self.constraint or "a constraint"
        return (
            f"By {self.x}: {self.y} on {self.truth} rows; how often a classifier was given; how often one "
            f"was given that breaks {rule} on {self.truth} rows, with the rate that was allowed dotted."
        )

    @property
    def metrics(self) -> tuple[str, str, str]:
        """What the three panels show."""
        failure = f"{FAILURE_RATE}.{self.constraint}" if self.constraint else FAILURE_RATE
        return self.y, SOLUTION_RATE, failure

    def parts(self) -> list[GuaranteePlotOptions]:
        """Each value of the name `by` as a plot of its own; the plot itself without one."""
        values = [self.choice.in_panel(self.by, value) for value in self.panels]
        return [replace(self, **each) for each in values] or [self]

    def panel(self, position: int) -> tuple[tuple[str, str], ...]:
        """The value of the name `by` in a panel; nothing without one."""
        return ((self.by, format_scalar(self.panels[position])),) if self.panels else ()

    def takes(self, trial: PlannedTrial) -> bool:
        return self.choice.takes(trial.label) and self.choice.takes_point(trial.point)


@dataclass(frozen=True)
class GuaranteePoint:
    """What the three panels show at a swept number; None where the algorithm has no such."""

    x: float | None
    shown: tuple[IntervalEstimate, IntervalEstimate, IntervalEstimate]


@dataclass(frozen=True)
class GuaranteeLine:
    """One variant of one algorithm, along the swept number, at one setting of what else is swept."""

    name: str
    algorithm: int
    variant: int
    setting: LineSetting
    spots: tuple[GuaranteePoint, ...]


def read_guarantee(ledger: Ledger, position: int) -> GuaranteePlotOptions:
    """The plot at a position among all that the file asks for."""
    every = ledger.asked("plots")
    asked = every[position]
    choice = PlotSelection(*(tuple(asked.get(key) or ()) for key in ("algorithms", "variants")))
    by = asked.get("by") or ""
    return GuaranteePlotOptions(
        name=plot_file_name(every, position),
        title=asked.get("title") or "",
        x=asked["x"],
        y=asked["y"],
        truth=asked.get("truth") or "test",
        constraint=asked.get("constraint") or "",
        choice=choice,
        by=by,
        panels=panel_values(ledger, by, choice),
    )


def guarantee_lines(ledger: Ledger, plot: GuaranteePlotOptions) -> list[GuaranteeLine]:
    """One for each variant, and for each setting of what else is swept, in the order of the plan."""
    own: dict[str, list[SeedGroup]] = {}
    for group in seed_groups(ledger.algorithms):
        own.setdefault(group.label, []).append(group)
    found = []
    for position, (label, several) in enumerate(own.items()):
        # of trials that never gave a classifier the variant has no name
        variants = sorted({group.variant for group in several} - {""}) or [""]
        for number, variant in enumerate(variants):
            if plot.choice.takes(label) and plot.choice.takes_variant(variant, variants):
                name = f"{label} ({variant})" if len(variants) > 1 else label
                found += [
                    GuaranteeLine(setting.of(name), position, number, setting, spots)
                    for setting, spots in _settings(plot, several, variant)
                ]
    return found


def allowed_failure_rates(ledger: Ledger, plot: GuaranteePlotOptions) -> dict[float, str]:
    """The failure rates that were allowed, as certificates have them, each with how its line is called.

    What was never tested was allowed nothing.
    """
    wanted = [plot.constraint] if plot.constraint else list(ledger.constraints)
    found: dict[float, dict[str, None]] = {}
    for each in collect_certificates(ledger):
        *_, name = each.about
        if name in wanted and plot.takes(each.trial):
            found.setdefault(float(each.record["delta"]), {})[name] = None
    alike = all(len(names) == len(wanted) for names in found.values())
    return {
        value: f"delta {value:g}" if alike else f"delta {value:g}: {', '.join(names)}"
        for value, names in sorted(found.items())
    }


def inconclusive_trials(ledger: Ledger, plot: GuaranteePlotOptions) -> Mapping[str, int]:
    """How many of the trials that are drawn said nothing, by what became of them."""
    statuses = (ledger.status(trial) for trial in ledger.algorithms.plan if plot.takes(trial))
    return Counter(status for status in statuses if status not in CONCLUSIVE)


def _settings(
    plot: GuaranteePlotOptions, several: Sequence[SeedGroup], variant: str
) -> list[tuple[LineSetting, tuple[GuaranteePoint, ...]]]:
    """The points along x of one variant, apart for each setting of the other swept names."""
    points: dict[str, list[SeedGroup]] = {}
    for group in several:
        if plot.choice.takes_point(group.point):
            points.setdefault(repr(group.point), []).append(group)
    found: dict[str, list[GuaranteePoint]] = {}
    others: dict[str, Mapping[str, Any]] = {}
    for here in points.values():
        group = select_variant(here, variant)
        x = group.point.get(plot.x)
        performance, solution, failure = (group.estimate(plot.truth, m) for m in plot.metrics)
        spot = GuaranteePoint(None if x is None else float(x), (performance, solution, failure))
        other = {name: value for name, value in group.point.items() if name != plot.x}
        others[repr(other)] = other
        found.setdefault(repr(other), []).append(spot)
    ordered = [tuple(sorted(spots, key=lambda spot: spot.x or 0.0)) for spots in found.values()]
    return list(zip(line_settings(list(others.values())), ordered, strict=True))

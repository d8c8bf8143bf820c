"""What a plot of guarantees shows: performance, solution rate and failure rate along a swept number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ratecli.config.names import FAILURE_RATE, SOLUTION_RATE
from ratecli.ledger.records import Planned
from ratecli.ledger.view import Ledger
from ratecli.report.certificates import certificates
from ratecli.report.estimates import Estimate
from ratecli.report.file_names import plot_name
from ratecli.report.groups import Group, groups, of_variant
from ratecli.report.outcomes import ANSWERED
from ratecli.report.plots.series import EVERYTHING, Choice
from ratecli.report.plots.settings import Setting, settings
from ratecli.report.plots.tradeoff import panels
from ratecli.report.sheet import scalar

GUARANTEE = "guarantee"


@dataclass(frozen=True)
class Guarantee:
    """A plot as the file asks for it; `truth` is the split on which a classifier fails or not."""

    name: str
    title: str
    x: str
    y: str
    truth: str = "test"
    constraint: str = ""
    choice: Choice = EVERYTHING
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

    def parts(self) -> list[Guarantee]:
        """Each value of the name `by` as a plot of its own; the plot itself without one."""
        values = [self.choice.in_panel(self.by, value) for value in self.panels]
        return [replace(self, **each) for each in values] or [self]

    def panel(self, position: int) -> tuple[tuple[str, str], ...]:
        """The value of the name `by` in a panel; nothing without one."""
        return ((self.by, scalar(self.panels[position])),) if self.panels else ()

    def takes(self, trial: Planned) -> bool:
        return self.choice.takes(trial.label) and self.choice.takes_point(trial.point)


@dataclass(frozen=True)
class Spot:
    """What the three panels show at a swept number; None where the algorithm has no such."""

    x: float | None
    shown: tuple[Estimate, Estimate, Estimate]


@dataclass(frozen=True)
class Line:
    """One variant of one algorithm, along the swept number, at one setting of what else is swept."""

    name: str
    algorithm: int
    variant: int
    setting: Setting
    spots: tuple[Spot, ...]


def guarantee(ledger: Ledger, position: int) -> Guarantee:
    """The plot at a position among all that the file asks for."""
    every = ledger.asked("plots")
    asked = every[position]
    choice = Choice(*(tuple(asked.get(key) or ()) for key in ("algorithms", "variants")))
    by = asked.get("by") or ""
    return Guarantee(
        name=plot_name(every, position),
        title=asked.get("title") or "",
        x=asked["x"],
        y=asked["y"],
        truth=asked.get("truth") or "test",
        constraint=asked.get("constraint") or "",
        choice=choice,
        by=by,
        panels=panels(ledger, by, choice),
    )


def lines(ledger: Ledger, plot: Guarantee) -> list[Line]:
    """One for each variant, and for each setting of what else is swept, in the order of the plan."""
    own: dict[str, list[Group]] = {}
    for group in groups(ledger.algorithms):
        own.setdefault(group.label, []).append(group)
    found = []
    for position, (label, several) in enumerate(own.items()):
        # of trials that never gave a classifier the variant has no name
        variants = sorted({group.variant for group in several} - {""}) or [""]
        for number, variant in enumerate(variants):
            if plot.choice.takes(label) and plot.choice.takes_variant(variant, variants):
                name = f"{label} ({variant})" if len(variants) > 1 else label
                found += [
                    Line(setting.of(name), position, number, setting, spots)
                    for setting, spots in _settings(plot, several, variant)
                ]
    return found


def deltas(ledger: Ledger, plot: Guarantee) -> dict[float, str]:
    """The failure rates that were allowed, as certificates have them, each with how its line is called.

    What was never tested was allowed nothing.
    """
    wanted = [plot.constraint] if plot.constraint else list(ledger.constraints)
    found: dict[float, dict[str, None]] = {}
    for each in certificates(ledger):
        *_, name = each.about
        if name in wanted and plot.takes(each.trial):
            found.setdefault(float(each.record["delta"]), {})[name] = None
    alike = all(len(names) == len(wanted) for names in found.values())
    return {
        value: f"delta {value:g}" if alike else f"delta {value:g}: {', '.join(names)}"
        for value, names in sorted(found.items())
    }


def unanswered(ledger: Ledger, plot: Guarantee) -> Mapping[str, int]:
    """How many of the trials that are drawn said nothing, by what became of them."""
    statuses = (ledger.status(trial) for trial in ledger.algorithms.plan if plot.takes(trial))
    return Counter(status for status in statuses if status not in ANSWERED)


def _settings(
    plot: Guarantee, several: Sequence[Group], variant: str
) -> list[tuple[Setting, tuple[Spot, ...]]]:
    """The points along x of one variant, apart for each setting of the other swept names."""
    points: dict[str, list[Group]] = {}
    for group in several:
        if plot.choice.takes_point(group.point):
            points.setdefault(repr(group.point), []).append(group)
    found: dict[str, list[Spot]] = {}
    others: dict[str, Mapping[str, Any]] = {}
    for here in points.values():
        group = of_variant(here, variant)
        x = group.point.get(plot.x)
        performance, solution, failure = (group.estimate(plot.truth, m) for m in plot.metrics)
        spot = Spot(None if x is None else float(x), (performance, solution, failure))
        other = {name: value for name, value in group.point.items() if name != plot.x}
        others[repr(other)] = other
        found.setdefault(repr(other), []).append(spot)
    ordered = [tuple(sorted(spots, key=lambda spot: spot.x or 0.0)) for spots in found.values()]
    return list(zip(settings(list(others.values())), ordered, strict=True))

"""The series and lines of a trade-off plot, and the selection of what a plot shows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ratecli.ledger.view import Ledger
from ratecli.report.estimates import NO_ESTIMATE, IntervalEstimate
from ratecli.report.groups import SeedGroup, seed_groups
from ratecli.report.sheet import format_scalar

MAX_NAMED_LINES = 8
"""A legend lists up to this many lines of an algorithm; of more it names the first and the last."""
UNNAMED_LINES = (
    f"of more than {MAX_NAMED_LINES} lines of a kind the first, dark, and the last, light, "
    "are named"
)


@dataclass(frozen=True)
class LineSetting:
    """Distinguishes a line from other lines of the same algorithm or variant.

    Attributes
    ----------
    name
        The values specific to this line, such as `task = gpa, k = 2`; empty for a single line.
    shade
        From 0 (dark) to 1 (light); None for the plain colour of a single line.
    told
        Whether the legend names the line.
    """

    name: str = ""
    shade: float | None = None
    told: bool = True

    def of(self, who: str) -> str:
        """Return the line's legend label, given the name of its algorithm or variant."""
        return f"{who}, {self.name}" if self.name else who


SINGLE_LINE = LineSetting()


def line_settings(
    points: Sequence[Mapping[str, Any]], along: Collection[str] = ()
) -> list[LineSetting]:
    """Return the settings of lines given by a sweep point on each.

    Names in `along`, which vary within lines, do not distinguish lines.
    """
    last = len(points) - 1
    if last < 1:
        return [SINGLE_LINE] * len(points)
    names = dict.fromkeys(name for point in points for name in point if name not in along)
    varying = [name for name in names if len({repr(point.get(name)) for point in points}) > 1]
    return [
        LineSetting(
            ", ".join(
                f"{name} = {format_scalar(point[name])}" for name in varying if name in point
            ),
            k / last,
            last < MAX_NAMED_LINES or k in {0, last},
        )
        for k, point in enumerate(points)
    ]


def unnamed_lines_note(found: Iterable[LineSetting]) -> list[str]:
    """Return a note if the legend does not name all lines."""
    return [] if all(setting.told for setting in found) else [UNNAMED_LINES]


@dataclass(frozen=True)
class PlotAxes:
    """The axes and split of a plot: two metrics, or a metric over the values of a swept name."""

    x: str
    y: str
    split: str
    swept: bool = False

    @property
    def along(self) -> str:
        """The label of the x axis."""
        return self.x if self.swept else f"{self.x} ({self.split})"

    @property
    def up(self) -> str:
        return f"{self.y} ({self.split})"

    def point(self, group: SeedGroup) -> TradeoffPoint:
        x = (
            _exact_estimate(group.point.get(self.x))
            if self.swept
            else group.estimate(self.split, self.x)
        )
        return TradeoffPoint(x, group.estimate(self.split, self.y), group.point)


@dataclass(frozen=True)
class PlotSelection:
    """The algorithms, variants (all if empty) and flat lines that a plot shows.

    With `at`, a name and a value, only points with this value or without this name are shown.
    """

    algorithms: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    at: tuple[str, Any] | None = None

    def takes(self, label: str) -> bool:
        """Return whether the plot shows an algorithm, as a curve or as a flat line."""
        return not self.algorithms or label in (*self.algorithms, *self.lines)

    def takes_variant(self, variant: str, siblings: Collection[str]) -> bool:
        """Return whether the plot shows a variant; an algorithm's only variant always counts."""
        return not self.variants or len(siblings) == 1 or variant in self.variants

    def in_panel(self, by: str, value: Any) -> dict[str, Any]:
        """Return the changes to a plot's options for the panel at one value of the name `by`."""
        own = replace(self, at=(by, value))
        return {"title": f"{by} = {format_scalar(value)}", "choice": own, "panels": ()}

    def takes_point(self, point: Mapping[str, Any]) -> bool:
        name, value = self.at or ("", None)
        return name not in point or repr(point[name]) == repr(value)


SELECT_ALL = PlotSelection()


@dataclass(frozen=True)
class TradeoffPoint:
    """Two estimates at the sweep point `at`, which is empty if the sweep does not affect them."""

    x: IntervalEstimate
    y: IntervalEstimate
    at: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> tuple[float, float] | None:
        """The position of the point, or None unless both means are finite."""
        x, y = self.x.mean, self.y.mean
        if x is None or y is None or not (math.isfinite(x) and math.isfinite(y)):
            return None
        return x, y


TradeoffLine = tuple[TradeoffPoint, ...]
LinesWithSettings = list[tuple[TradeoffLine, LineSetting]]


@dataclass(frozen=True)
class TradeoffSeries:
    """One variant of one algorithm, with several lines if more than one name is swept.

    A `flat` series is drawn as one horizontal line for each of its points. These points have a
    position only if x is a metric. `settings` has the values of the other swept names for each
    line.
    """

    name: str
    algorithm: int
    variant: int
    lines: tuple[TradeoffLine, ...]
    settings: tuple[LineSetting, ...]
    flat: bool = False


def collect_series(
    ledger: Ledger, plane: PlotAxes, choice: PlotSelection = SELECT_ALL
) -> list[TradeoffSeries]:
    """Return the series that have points.

    Their positions, which determine colours and markers, do not depend on the results.
    """
    ledger = ledger.of([plane.y] if plane.swept else [plane.x, plane.y])
    labels = list(dict.fromkeys(trial.label for trial in ledger.plan))
    members: dict[tuple[str, str], list[SeedGroup]] = {}
    for group in seed_groups(ledger):
        members.setdefault((group.label, group.variant), []).append(group)
    found = []
    for (label, variant), several in members.items():
        variants = sorted(name for other, name in members if other == label and name)
        if not (variant and choice.takes(label) and choice.takes_variant(variant, variants)):
            continue
        here = [group for group in several if choice.takes_point(group.point)]
        flat = label in choice.lines or (
            plane.swept and _is_flat(here, plane, _points(ledger, label, choice))
        )
        told = _flat_lines(here, plane) if flat else _lines(ledger.sweep, here, plane)
        if told:
            lines, settings = zip(*told, strict=True)
            name = f"{label} ({variant})" if len(variants) > 1 else label
            position = variants.index(variant)
            place = labels.index(label)
            found.append(TradeoffSeries(name, place, position, lines, settings, flat))
    return found


def missing_variants(ledger: Ledger, choice: PlotSelection) -> list[str]:
    """Return the variants that a plot requests and no trial returned."""
    given = {item.variant for item in ledger.measurements()} if choice.variants else set()
    return [variant for variant in choice.variants if variant not in given]


def swept_range(
    ledger: Ledger, plane: PlotAxes, choice: PlotSelection = SELECT_ALL
) -> tuple[float, float] | None:
    """Return the smallest and largest planned value of a swept x for the selected algorithms."""
    values = [
        float(trial.point[plane.x])
        for trial in ledger.plan
        if plane.swept and plane.x in trial.point
        if choice.takes(trial.label) and trial.label not in choice.lines
        if choice.takes_point(trial.point)
    ]
    return (min(values), max(values)) if values else None


def _exact_estimate(value: Any) -> IntervalEstimate:
    """Return a swept value as an exact estimate, or no estimate if it is missing."""
    return NO_ESTIMATE if value is None else IntervalEstimate(float(value), None, 1)


def _points(ledger: Ledger, label: str, choice: PlotSelection) -> int:
    """Return the number of sweep points at which an algorithm was planned."""
    points = (trial.point for trial in ledger.plan if trial.label == label)
    return len({repr(point) for point in points if choice.takes_point(point)})


def _is_flat(several: Sequence[SeedGroup], plane: PlotAxes, planned: int) -> bool:
    """Return whether x does not apply to the algorithm, or y is the same at all planned points."""
    points = [plane.point(group) for group in several]
    if all(point.x.mean is None for point in points):
        return True
    ends = [end for point in points for end in (point.y.low, point.y.mean, point.y.high)]
    return (
        len(points) == planned
        and len({point.x.mean for point in points}) > 1
        and all(point.place for point in points)
        and all(_same(a, b) for a, b in zip(ends, ends[3:], strict=False))
    )


def _same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _flat_lines(several: Sequence[SeedGroup], plane: PlotAxes) -> LinesWithSettings:
    """Return each distinct point once, with a position if x is a metric."""
    found: dict[str, tuple[TradeoffPoint, SeedGroup]] = {}
    for group in several:
        point = plane.point(group)
        point = TradeoffPoint(NO_ESTIMATE if plane.swept else point.x, point.y)
        if point.y.mean is not None and math.isfinite(point.y.mean):
            # nine digits: values that do not depend on the sweep may differ in the last bits
            found.setdefault(f"{point.y.mean:.9g} {point.x.mean or 0:.9g}", (point, group))
    told = line_settings([group.point for _, group in found.values()])
    return [((point,), each) for (point, _), each in zip(found.values(), told, strict=True)]


def _lines(
    sweep: Sequence[str], several: Sequence[SeedGroup], plane: PlotAxes
) -> LinesWithSettings:
    """Return lines along x, or along the fastest-varying name, for each setting of the others."""
    varying = [
        name for name in sweep if len({repr(group.point.get(name)) for group in several}) > 1
    ]
    along = plane.x if plane.swept else varying[-1] if varying else None
    others = [name for name in varying if name != along]
    lines: dict[str, list[SeedGroup]] = {}
    for group in several:
        rest = repr([group.point.get(name) for name in others])
        lines.setdefault(rest, []).append(group)
    drawn = []
    for line in lines.values():
        points = (plane.point(group) for group in (_ordered(line, along) if along else line))
        if placed := tuple(point for point in points if point.place):
            drawn.append((placed, line[0].point))
    if _is_single_point([line for line, _ in drawn]):
        return [((replace(drawn[0][0][0], at={}),), SINGLE_LINE)]
    told = line_settings([point for _, point in drawn], along=(along,) if along else ())
    return [(line, each) for (line, _), each in zip(drawn, told, strict=True)]


def _ordered(line: Sequence[SeedGroup], along: str) -> list[SeedGroup]:
    """Sort by the swept value if it is numeric, otherwise keep the order of the file."""
    values = [group.point.get(along) for group in line]
    if not all(isinstance(value, int | float) for value in values):
        return list(line)
    return sorted(line, key=lambda group: float(group.point[along]))


def _is_single_point(lines: Sequence[TradeoffLine]) -> bool:
    """Return whether the sweep has no effect, so that all points coincide."""
    places = [point.place for line in lines for point in line if point.place]
    return len(places) > 1 and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
        for place in places
        for a, b in zip(place, places[0], strict=True)
    )

"""The points of a trade-off plot, in the order in which a line goes through them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ratecli.report.groups import Estimate, Group, groups
from ratecli.report.ledger import Ledger


@dataclass(frozen=True)
class Plane:
    """Which metrics are drawn over each other, and of which split."""

    x: str
    y: str
    split: str

    def point(self, group: Group) -> Point:
        return Point(group.estimate(self.split, self.x), group.estimate(self.split, self.y))


@dataclass(frozen=True)
class Point:
    x: Estimate
    y: Estimate

    @property
    def place(self) -> tuple[float, float] | None:
        """Where to draw it; nowhere without two finite means."""
        x, y = self.x.mean, self.y.mean
        if x is None or y is None or not (math.isfinite(x) and math.isfinite(y)):
            return None
        return x, y


@dataclass(frozen=True)
class Series:
    """One variant of one algorithm; several lines if more than one name is swept."""

    name: str
    algorithm: int
    variant: int
    lines: tuple[tuple[Point, ...], ...]


def every_series(ledger: Ledger, plane: Plane) -> list[Series]:
    """Those with something to draw. Positions (of colour and marker) do not depend on the data."""
    labels = list(dict.fromkeys(trial.label for trial in ledger.plan))
    members: dict[tuple[str, str], list[Group]] = {}
    for group in groups(ledger):
        members.setdefault((group.label, group.variant), []).append(group)
    found = []
    for (label, variant), several in members.items():
        variants = sorted(name for other, name in members if other == label and name)
        lines = _lines(ledger.sweep, several, plane)
        if lines and variant:
            name = f"{label} ({variant})" if len(variants) > 1 else label
            position = variants.index(variant)
            found.append(Series(name, labels.index(label), position, lines))
    return found


def _lines(
    sweep: Sequence[str], several: Sequence[Group], plane: Plane
) -> tuple[tuple[Point, ...], ...]:
    """A line along the name that varies fastest for each setting of the others."""
    varying = [
        name for name in sweep if len({repr(group.point.get(name)) for group in several}) > 1
    ]
    along = varying[-1] if varying else None
    lines: dict[str, list[Group]] = {}
    for group in several:
        rest = repr([group.point.get(name) for name in varying[:-1]])
        lines.setdefault(rest, []).append(group)
    points = [
        [plane.point(group) for group in (_ordered(line, along) if along else line)]
        for line in lines.values()
    ]
    drawn = [tuple(point for point in line if point.place) for line in points]
    return _once(tuple(line for line in drawn if line))


def _ordered(line: Sequence[Group], along: str) -> list[Group]:
    """By the swept value where it is a number, else as the file lists it."""
    values = [group.point.get(along) for group in line]
    if not all(isinstance(value, int | float) for value in values):
        return list(line)
    return sorted(line, key=lambda group: float(group.point[along]))


def _once(lines: tuple[tuple[Point, ...], ...]) -> tuple[tuple[Point, ...], ...]:
    """What the sweep does not move is one point."""
    places = [point.place for line in lines for point in line if point.place]
    if len(places) > 1 and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
        for place in places
        for a, b in zip(place, places[0], strict=True)
    ):
        return ((lines[0][0],),)
    return lines

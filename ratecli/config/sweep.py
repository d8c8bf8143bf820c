"""Sweeps: from a `sweep:` of the file to the points of a grid.

The rules are those of CI matrices. The grid is the product of all axes in the order of the file;
`zip` advances axes together; `exclude` removes points that match all its pairs; `include` extends
the points it agrees with, or adds one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from typing import Any

SweepValue = str | int | float | bool
SweepPoint = dict[str, SweepValue]

NUMBER_PATTERN = r"\s*([-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d{1,3})?)\s*"
SPACE_PATTERN = re.compile(
    rf"\s*(linspace|logspace)\s*\({NUMBER_PATTERN},{NUMBER_PATTERN},\s*(\d{{1,9}})\s*\)\s*"
)


@dataclass(frozen=True)
class Sweep:
    """A validated `sweep:`; an axis that is text is a `linspace` or `logspace`, expanded on use."""

    axes: Mapping[str, tuple[SweepValue, ...] | str] = field(default_factory=dict)
    zip: tuple[tuple[str, ...], ...] = ()
    include: tuple[SweepPoint, ...] = ()
    exclude: tuple[SweepPoint, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names to which points of this sweep assign a value."""
        extra = (name for point in self.include for name in point)
        return tuple(dict.fromkeys((*self.axes, *extra)))

    def as_file(self) -> dict[str, Any]:
        """Return the sweep as written in a file."""
        axes = {
            name: axis if isinstance(axis, str) else list(axis) for name, axis in self.axes.items()
        }
        rest = {
            "zip": [list(group) for group in self.zip],
            "include": [dict(point) for point in self.include],
            "exclude": [dict(point) for point in self.exclude],
        }
        return axes | {key: value for key, value in rest.items() if value}


def sweep_value_loc(sweep: Sweep, name: str, value: SweepValue) -> tuple[str | int, ...]:
    """Return the location in a sweep where a name gets a value.

    That is an entry of a list or of `include`, or the whole axis.
    """
    axis = sweep.axes.get(name, ())
    for k, each in enumerate(axis if isinstance(axis, tuple) else ()):
        if _value_identity(each) == _value_identity(value):
            return name, k
    for k, point in enumerate(sweep.include):
        if name in point and _value_identity(point[name]) == _value_identity(value):
            return "include", k, name
    return (name,)


def sweep_points(sweep: Sweep, own: Sweep | None = None) -> list[SweepPoint]:
    """Return all points without duplicates.

    The product with an algorithm's `own` sweep is taken; its names replace axes of the same name.
    """
    if own is None:
        return _unique_points(_with_included(sweep, _kept_points(sweep)))
    inner = sweep_points(own)
    replaced = set(own.names)
    outer = [
        {name: value for name, value in point.items() if name not in replaced}
        for point in sweep_points(sweep)
    ]
    return _unique_points(before | after for before in _unique_points(outer) for after in inner)


def _kept_points(sweep: Sweep) -> Iterator[SweepPoint]:
    if not sweep.axes and sweep.include:
        return
    for parts in product(*_axis_factors(sweep)):
        point = {name: value for part in parts for name, value in part.items()}
        if not any(_points_agree(point, pairs, pairs) for pairs in sweep.exclude):
            yield {name: point[name] for name in sweep.axes}


def _axis_factors(sweep: Sweep) -> list[list[SweepPoint]]:
    """Return the factors of the product; a zipped group takes the position of its first name."""
    groups = {group_name: group for group in sweep.zip for group_name in group}
    chosen = dict.fromkeys(groups.get(name, (name,)) for name in sweep.axes)
    return [
        [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        for names in chosen
        for columns in [[expand_axis(sweep.axes[name]) for name in names]]
    ]


def _with_included(sweep: Sweep, kept: Iterator[SweepPoint]) -> list[SweepPoint]:
    found = list(kept)
    originals = [dict(point) for point in found]
    for extra in sweep.include:
        shared = [name for name in extra if name in sweep.axes]
        matches = [k for k, point in enumerate(originals) if _points_agree(point, extra, shared)]
        for k in matches:
            found[k] |= extra
        if not matches:
            found.append(dict(extra))
    return found


def has_values(point: Mapping[str, SweepValue], pairs: Mapping[str, SweepValue]) -> bool:
    """Return whether a point has all these values."""
    return pairs.keys() <= point.keys() and _points_agree(point, pairs, pairs)


def has_one_of_values(
    point: Mapping[str, SweepValue], some: Mapping[str, Sequence[SweepValue]]
) -> bool:
    """Return whether a point has one of the listed values for each name."""
    return all(
        any(has_values(point, {name: each}) for each in values) for name, values in some.items()
    )


def _points_agree(
    point: Mapping[str, SweepValue], pairs: Mapping[str, SweepValue], names: Iterable[str]
) -> bool:
    return all(_value_identity(point[name]) == _value_identity(pairs[name]) for name in names)


def _value_identity(value: SweepValue) -> tuple[bool, SweepValue]:
    """Return a key that distinguishes true from 1, but not 1 from 1.0."""
    return isinstance(value, bool), value


def _unique_points(found: Sequence[SweepPoint] | Iterator[SweepPoint]) -> list[SweepPoint]:
    by_value = {
        tuple((name, _value_identity(value)) for name, value in sorted(each.items())): each
        for each in reversed(list(found))
    }
    return list(reversed(by_value.values()))


def expand_axis(axis: tuple[SweepValue, ...] | str) -> tuple[SweepValue, ...]:
    """Return the values of an axis; ends are exact, other values correctly rounded."""
    if not isinstance(axis, str):
        return axis
    found = SPACE_PATTERN.fullmatch(axis)
    assert found is not None
    name, first, last, count = found.groups()
    return SPACE_FUNCTIONS[name](first, last, int(count))


def _linspace(first: str, last: str, count: int) -> tuple[float, ...]:
    low, high = Fraction(Decimal(first)), Fraction(Decimal(last))
    if count == 1:
        return (float(low),)
    return tuple(float(low + (high - low) * k / (count - 1)) for k in range(count))


def _logspace(first: str, last: str, count: int) -> tuple[float, ...]:
    context = Context(prec=30)
    low, high = context.ln(Decimal(first)), context.ln(Decimal(last))
    step = context.divide(context.subtract(high, low), max(count - 1, 1))
    inner = [float(context.exp(context.fma(step, k, low))) for k in range(1, count - 1)]
    return (float(first), *inner, float(last))[:count]


SPACE_FUNCTIONS: dict[str, Callable[[str, str, int], tuple[float, ...]]] = {
    "linspace": _linspace,
    "logspace": _logspace,
}

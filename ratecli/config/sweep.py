"""Sweeps: from a `sweep:` of the file to the points of a grid.

The rules are those of CI matrices. The grid is the product of all axes in the order of the file;
`zip` advances axes together; `exclude` removes points that match all its pairs; `include` extends
the points it agrees with, or adds one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_serializer

from ratecli.config.base import NameText, ScalarValue, Spec, StrictText, check_name, quote_value
from ratecli.errors import Diagnostic, InvalidValueError, Loc

SweepValue = str | int | float | bool
SweepPoint = dict[str, SweepValue]

NUMBER_PATTERN = r"\s*([-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d{1,3})?)\s*"
SPACE_PATTERN = re.compile(
    rf"\s*(linspace|logspace)\s*\({NUMBER_PATTERN},{NUMBER_PATTERN},\s*(\d{{1,9}})\s*\)\s*"
)
SPACE_NAMES = ("linspace(", "logspace(")
MAX_SPACE_LENGTH = 200
MAX_POINTS = 10_000
"""Limit on the number of points: each takes milliseconds before anything runs."""
SWEEP_KEYWORDS = ("zip", "include", "exclude")
DATASET_AXIS = "dataset"
"""The swept name whose values are names of data sets; each is then a separate problem."""
CONSTRAINT_AXIS = "constraint"
"""The swept name whose values are names of constraints; each then applies alone."""
AXIS_HINT = "write a list, linspace(first, last, count) or logspace(first, last, count)"


def expand_space(text: object) -> object:
    """Return the values of a `linspace` or `logspace`, and anything that is no text unchanged.

    Ends are exact, other values correctly rounded. Raises InvalidValueError with E105.
    """
    if isinstance(text, list) and any(str(each).startswith(SPACE_NAMES) for each in text):
        message = "a list cannot contain linspace or logspace"
        raise InvalidValueError(Diagnostic("E105", message, AXIS_HINT))
    if not isinstance(text, str):
        return text
    found = SPACE_PATTERN.fullmatch(text) if len(text) <= MAX_SPACE_LENGTH else None
    if found is None:
        message = f"{quote_value(text)} is not a list of values"
        raise InvalidValueError(Diagnostic("E105", message, AXIS_HINT))
    name, first, last, count = found.groups()
    ends = (float(first), float(last))
    positive = name == "linspace" or min(ends) > 0
    if not (1 <= int(count) <= MAX_POINTS and all(map(math.isfinite, ends)) and positive):
        message = f"{quote_value(text)} is out of range"
        hint = f"ends are finite, those of logspace positive, and the count is 1 to {MAX_POINTS}"
        raise InvalidValueError(Diagnostic("E105", message, hint))
    return (_linspace if name == "linspace" else _logspace)(first, last, int(count))


def _linspace(first: str, last: str, count: int) -> tuple[float, ...]:
    low, high = Fraction(Decimal(first)), Fraction(Decimal(last))
    return tuple(float(low + (high - low) * k / max(count - 1, 1)) for k in range(count))


def _logspace(first: str, last: str, count: int) -> tuple[float, ...]:
    context = Context(prec=30)
    low, high = context.ln(Decimal(first)), context.ln(Decimal(last))
    step = context.divide(context.subtract(high, low), max(count - 1, 1))
    inner = [float(context.exp(context.fma(step, k, low))) for k in range(1, count - 1)]
    return (float(first), *inner, float(last))[:count]


AxisInput = (
    Annotated[tuple[ScalarValue, ...], Field(min_length=1)]
    | Annotated[str, Field(pattern=r"^\s*(linspace|logspace)\s*\(.*\)\s*$")]
)
Axis = Annotated[
    tuple[ScalarValue, ...],
    Field(min_length=1, description="The values of one name."),
    BeforeValidator(expand_space, json_schema_input_type=AxisInput),
]
"""The values of a name, written as a list, a `linspace` or a `logspace`."""
Points = tuple[Annotated[dict[NameText, ScalarValue], Field(min_length=1)], ...]


class Sweep(Spec):
    """Names with their values, and how they are combined; additional keys are the names."""

    model_config = ConfigDict(extra="allow")
    error_code = "E105"
    __pydantic_extra__: dict[str, Axis] = Field(init=False)

    zip: tuple[Annotated[tuple[StrictText, ...], Field(min_length=1)], ...] = ()
    """Groups of names that vary together."""
    include: Points = ()
    """Points to add or to complete."""
    exclude: Points = ()
    """Points to leave out."""

    @property
    def axes(self) -> dict[str, tuple[SweepValue, ...]]:
        return dict(self.model_extra or {})

    @property
    def names(self) -> tuple[str, ...]:
        """All names to which points of this sweep assign a value."""
        extra = (name for point in self.include for name in point)
        return tuple(dict.fromkeys((*self.axes, *extra)))

    def value_locs(self, name: str) -> Iterator[tuple[Loc, SweepValue]]:
        """Yield each value of a name with its location in the sweep."""
        for k, value in enumerate(self.axes.get(name, ())):
            yield (name, k), value
        for keyword in ("include", "exclude"):
            for k, point in enumerate(getattr(self, keyword)):
                if name in point:
                    yield (keyword, k, name), point[name]

    @model_serializer
    def _as_file(self) -> dict[str, Any]:
        """Return the sweep as written in a file."""
        keywords = {key: getattr(self, key) for key in SWEEP_KEYWORDS if getattr(self, key)}
        return self.axes | keywords

    def conflicts(self) -> list[Diagnostic]:
        names = [each for name in self.axes for each in check_name(name, (name,), key=True)]
        return names or [*_name_errors(self)] or [*_grid_errors(self)]


def _error(message: str, hint: str | None, *loc: str | int, key: bool = False) -> Diagnostic:
    return Diagnostic("E105", message, hint, loc=loc, key=key)


def _name_errors(sweep: Sweep) -> Iterator[Diagnostic]:
    """Yield errors of names under `zip` and `exclude`."""
    seen: set[str] = set()
    names = f"names: {', '.join(sweep.axes) or 'none'}"
    for k, group in enumerate(sweep.zip):
        lengths = {name: len(sweep.axes[name]) for name in group if name in sweep.axes}
        for j, name in enumerate(group):
            if name not in sweep.axes:
                yield _error(f"{quote_value(name)} is not a name of this sweep", names, "zip", k, j)
            elif name in seen:
                yield _error(f"'{name}' is zipped twice", None, "zip", k, j)
            seen.add(name)
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            yield _error(f"zipped names need equally many values: {listed}", None, "zip", k)
    for k, point in enumerate(sweep.exclude):
        for name in point.keys() - sweep.axes.keys():
            message = f"{quote_value(name)} is not a name of this sweep"
            yield _error(message, names, "exclude", k, name, key=True)


def _grid_errors(sweep: Sweep) -> Iterator[Diagnostic]:
    followers = {name for group in sweep.zip for name in group[1:]}
    lengths = (len(axis) for name, axis in sweep.axes.items() if name not in followers)
    size = math.prod(lengths)  # without creating the points
    if size > MAX_POINTS:
        message = f"the sweep has {size} points; at most {MAX_POINTS} are allowed"
        yield _error(message, None, key=True)
        return
    found = sweep_points(sweep)
    if not found:
        yield _error("every point of the sweep is excluded", None, "exclude", key=True)
    points = {_identity(point, point) for point in found}
    names = sweep.names
    everywhere = set(names).intersection(*found)
    for k, extra in enumerate(sweep.include):
        added = _identity(extra, extra) in points
        lacking = [name for name in names if name not in extra] if added else []
        partly = [name for name in extra if name not in everywhere]
        for name in [*lacking, *partly][:1]:
            message = f"only some points give a value to '{name}'"
            yield _error(message, "every point must have the same names", "include", k)


def sweep_points(sweep: Sweep, own: Sweep | None = None) -> list[SweepPoint]:
    """Return all points without duplicates.

    The product with an algorithm's `own` sweep is taken; its names replace axes of the same name.
    """
    if own is None:
        return _unique_points(_with_included(sweep, list(_kept_points(sweep))))
    replaced = {*own.names}
    outer = [
        {name: value for name, value in point.items() if name not in replaced}
        for point in sweep_points(sweep)
    ]
    inner = sweep_points(own)
    return _unique_points(before | after for before in _unique_points(outer) for after in inner)


def _kept_points(sweep: Sweep) -> Iterator[SweepPoint]:
    if not sweep.axes and sweep.include:
        return
    excluded: dict[tuple[str, ...], set[object]] = {}
    for pairs in sweep.exclude:
        excluded.setdefault(tuple(pairs), set()).add(_identity(pairs, pairs))
    for parts in product(*_axis_factors(sweep)):
        point = {name: value for part in parts for name, value in part.items()}
        if not any(_identity(point, names) in some for names, some in excluded.items()):
            yield {name: point[name] for name in sweep.axes}


def _axis_factors(sweep: Sweep) -> Iterator[list[SweepPoint]]:
    """Yield the factors of the product; a zipped group takes the position of its first name."""
    groups = {name: group for group in sweep.zip for name in group}
    for names in dict.fromkeys(groups.get(name, (name,)) for name in sweep.axes):
        columns = [sweep.axes[name] for name in names]
        yield [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _with_included(sweep: Sweep, kept: Sequence[SweepPoint]) -> list[SweepPoint]:
    found = [dict(point) for point in kept]
    places: dict[tuple[str, ...], dict[object, list[int]]] = {}
    for extra in sweep.include:
        shared = tuple(name for name in extra if name in sweep.axes)
        if shared not in places:
            places[shared] = {}
            for k, point in enumerate(kept):
                places[shared].setdefault(_identity(point, shared), []).append(k)
        matches = places[shared].get(_identity(extra, shared), [])
        for k in matches:
            found[k] |= extra
        if not matches:
            found.append(dict(extra))
    return found


def has_values(point: Mapping[str, SweepValue], pairs: Mapping[str, SweepValue]) -> bool:
    """Return whether a point has all these values."""
    return all(
        name in point and value_identity(point[name]) == value_identity(value)
        for name, value in pairs.items()
    )


def has_one_of_values(
    point: Mapping[str, SweepValue], some: Mapping[str, Sequence[SweepValue]]
) -> bool:
    """Return whether a point has one of the listed values for each name."""
    return all(
        any(has_values(point, {name: each}) for each in values) for name, values in some.items()
    )


def applied_constraints(names: Iterable[str], point: Mapping[str, Any]) -> list[str]:
    """Return the constraints that apply at a sweep point: the one that it names, otherwise all."""
    one = point.get(CONSTRAINT_AXIS)
    return [name for name in names if one in {None, name}]


def number_ranges(values: Mapping[str, Iterable[Any]]) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest number of each swept name that has numbers."""
    numbers = {k: [v for v in each if isinstance(v, int | float)] for k, each in values.items()}
    return {name: (min(found), max(found)) for name, found in numbers.items() if found}


def value_identity(value: SweepValue) -> tuple[bool, SweepValue]:
    """Return a key that distinguishes true from 1, but not 1 from 1.0."""
    return isinstance(value, bool), value


def _identity(point: Mapping[str, SweepValue], names: Iterable[str]) -> object:
    """Return a key that is equal for points with equal values of these names."""
    return tuple((name, value_identity(point[name])) for name in sorted(names))


def _unique_points(points: Iterable[SweepPoint]) -> list[SweepPoint]:
    found: dict[object, SweepPoint] = {}
    for point in points:
        found.setdefault(_identity(point, point), point)
    return list(found.values())

"""Sweeps: from a `sweep:` of the file to the points of a grid.

The rules are those of CI matrices. The grid is the product of all axes in the order of the file;
`zip` advances axes together; `exclude` removes points that match all its pairs; `include` extends
the points it agrees with, or adds one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from ratecli.config.base import SCALAR_SCHEMA, check_name
from ratecli.config.document import describe_location
from ratecli.config.validation import describe_type, quote_value, type_error
from ratecli.errors import Diagnostic, InvalidValueError, Loc

SweepValue = str | int | float | bool
SweepPoint = dict[str, SweepValue]

NUMBER_PATTERN = r"\s*([-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d{1,3})?)\s*"
SPACE_PATTERN = re.compile(
    rf"\s*(linspace|logspace)\s*\({NUMBER_PATTERN},{NUMBER_PATTERN},\s*(\d{{1,9}})\s*\)\s*"
)
MAX_SPACE_LENGTH = 200
MAX_POINTS = 10_000
"""Limit on the number of points: each takes milliseconds before anything runs."""
SWEEP_KEYWORDS = ("zip", "include", "exclude")
DATASET_AXIS = "dataset"
"""The swept name whose values are names of data sets; each is then a separate problem."""
AXIS_HINT = "write a list, linspace(first, last, count) or logspace(first, last, count)"


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


def sweep_value_loc(sweep: Sweep, name: str, value: SweepValue) -> Loc:
    """Return the location in a sweep where a name gets a value.

    That is an entry of a list or of `include`, or the whole axis.
    """
    axis = sweep.axes.get(name, ())
    for k, each in enumerate(axis if isinstance(axis, tuple) else ()):
        if _value_identity(each) == _value_identity(value):
            return name, k
    for k, point in enumerate(sweep.include):
        if has_values(point, {name: value}):
            return "include", k, name
    return (name,)


def sweep_points(sweep: Sweep, own: Sweep | None = None) -> list[SweepPoint]:
    """Return all points without duplicates.

    The product with an algorithm's `own` sweep is taken; its names replace axes of the same name.
    """
    if own is None:
        return _unique_points(_with_included(sweep, list(_kept_points(sweep))))
    outer = [
        {name: value for name, value in point.items() if name not in own.names}
        for point in sweep_points(sweep)
    ]
    inner = sweep_points(own)
    return _unique_points(before | after for before in _unique_points(outer) for after in inner)


def _kept_points(sweep: Sweep) -> Iterator[SweepPoint]:
    if not sweep.axes and sweep.include:
        return
    for parts in product(*_axis_factors(sweep)):
        point = {name: value for part in parts for name, value in part.items()}
        if not any(has_values(point, pairs) for pairs in sweep.exclude):
            yield {name: point[name] for name in sweep.axes}


def _axis_factors(sweep: Sweep) -> Iterator[list[SweepPoint]]:
    """Yield the factors of the product; a zipped group takes the position of its first name."""
    groups = {name: group for group in sweep.zip for name in group}
    for names in dict.fromkeys(groups.get(name, (name,)) for name in sweep.axes):
        columns = [expand_axis(sweep.axes[name]) for name in names]
        yield [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _with_included(sweep: Sweep, kept: Sequence[SweepPoint]) -> list[SweepPoint]:
    found = [dict(point) for point in kept]
    for extra in sweep.include:
        shared = {name: value for name, value in extra.items() if name in sweep.axes}
        matches = [k for k, point in enumerate(kept) if has_values(point, shared)]
        for k in matches:
            found[k] |= extra
        if not matches:
            found.append(dict(extra))
    return found


def has_values(point: Mapping[str, SweepValue], pairs: Mapping[str, SweepValue]) -> bool:
    """Return whether a point has all these values."""
    return all(
        name in point and _value_identity(point[name]) == _value_identity(value)
        for name, value in pairs.items()
    )


def has_one_of_values(
    point: Mapping[str, SweepValue], some: Mapping[str, Sequence[SweepValue]]
) -> bool:
    """Return whether a point has one of the listed values for each name."""
    return all(
        any(has_values(point, {name: each}) for each in values) for name, values in some.items()
    )


def _value_identity(value: SweepValue) -> tuple[bool, SweepValue]:
    """Return a key that distinguishes true from 1, but not 1 from 1.0."""
    return isinstance(value, bool), value


def _unique_points(points: Iterable[SweepPoint]) -> list[SweepPoint]:
    found: dict[object, SweepPoint] = {}
    for point in points:
        identity = tuple((name, _value_identity(value)) for name, value in sorted(point.items()))
        found.setdefault(identity, point)
    return list(found.values())


def expand_axis(axis: tuple[SweepValue, ...] | str) -> tuple[SweepValue, ...]:
    """Return the values of an axis; ends are exact, other values correctly rounded."""
    if not isinstance(axis, str):
        return axis
    found = SPACE_PATTERN.fullmatch(axis)
    assert found is not None
    name, first, last, count = found.groups()
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


def read_sweep(raw: object) -> Sweep:
    """Return a sweep from plain data; raise InvalidValueError with all errors in it."""
    if isinstance(raw, Sweep):
        return raw
    if not isinstance(raw, dict):
        raise type_error("a mapping of names to lists of values", raw, AXIS_HINT)
    axes = {name: axis for name, axis in raw.items() if name not in SWEEP_KEYWORDS}
    faults = [
        *_axes_errors(axes),
        *_zip_errors(raw.get("zip", []), axes),
        *_points_errors("include", raw.get("include", [])),
        *_points_errors("exclude", raw.get("exclude", []), axes),
    ]
    if faults:
        raise InvalidValueError(faults)
    sweep = Sweep(
        axes={name: axis if isinstance(axis, str) else tuple(axis) for name, axis in axes.items()},
        zip=tuple(tuple(group) for group in raw.get("zip", ())),
        include=tuple(raw.get("include", ())),
        exclude=tuple(raw.get("exclude", ())),
    )
    if faults := list(_grid_errors(sweep)):
        raise InvalidValueError(faults)
    return sweep


def _error(loc: Loc, message: str, hint: str | None = None, *, key: bool = False) -> Diagnostic:
    return Diagnostic("E105", message, hint, loc=loc, key=key)


def _axes_errors(axes: Mapping[str, Any]) -> Iterator[Diagnostic]:
    for name, axis in axes.items():
        yield from check_name(name, (name,), key=True)
        if isinstance(axis, str):
            yield from _space_errors((name,), axis)
        elif not isinstance(axis, list):
            message = f"'{name}' must be a list of values, not {describe_type(axis)}"
            yield _error((name,), message, AXIS_HINT)
        elif not axis:
            yield _error((name,), f"'{name}' has no values", AXIS_HINT, key=True)
        else:
            for k, value in enumerate(axis):
                yield from _value_errors((name, k), value)


def _value_errors(loc: Loc, value: object) -> Iterator[Diagnostic]:
    if isinstance(value, float) and not math.isfinite(value):
        yield _error(loc, f"{describe_location(loc)} must be a finite number, not {value}")
    elif not isinstance(value, str | int | float):
        wanted = "a number, a text, true or false"
        message = f"{describe_location(loc)} must be {wanted}, not {describe_type(value)}"
        yield _error(loc, message)


def _space_errors(loc: Loc, text: str) -> Iterator[Diagnostic]:
    found = SPACE_PATTERN.fullmatch(text) if len(text) <= MAX_SPACE_LENGTH else None
    if found is None:
        yield _error(loc, f"{quote_value(text)} is not a list of values", AXIS_HINT)
        return
    name, first, last, count = found.groups()
    ends = (float(first), float(last))
    if not 1 <= int(count) <= MAX_POINTS:
        yield _error(loc, f"the count of {name} must be from 1 to {MAX_POINTS}, not {count}")
    if not all(map(math.isfinite, ends)):
        yield _error(loc, f"the ends of {name} must be finite numbers")
    elif name == "logspace" and min(ends) <= 0:
        hint = "its arguments are the first and last value, not exponents"
        yield _error(loc, "the ends of logspace must be greater than 0", hint)


def _zip_errors(groups: object, axes: Mapping[str, Any]) -> Iterator[Diagnostic]:
    if not (isinstance(groups, list) and all(isinstance(each, list) and each for each in groups)):
        hint = "write zip: [[a, b]] to vary a and b together"
        yield _error(("zip",), "'zip' must be a list of lists of names", hint)
        return
    seen: set[str] = set()
    for k, group in enumerate(groups):
        known = [name for name in group if isinstance(name, str) and name in axes]
        for j, name in enumerate(group):
            if name not in known:
                yield _unknown_name(("zip", k, j), name, axes)
            elif name in seen:
                yield _error(("zip", k, j), f"'{name}' is zipped twice")
            seen.add(str(name))
        lengths = {name: _axis_length(axes[name]) for name in known}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            yield _error(("zip", k), f"zipped names need equally many values: {listed}")


def _axis_length(axis: Any) -> int:
    if isinstance(axis, str):
        found = SPACE_PATTERN.fullmatch(axis)
        return int(found[4]) if found else 0
    return len(axis) if isinstance(axis, list | tuple) else 0


def _unknown_name(
    loc: Loc, name: object, axes: Mapping[str, Any], *, key: bool = False
) -> Diagnostic:
    message = f"{quote_value(name)} is not a name of this sweep"
    return _error(loc, message, f"names: {', '.join(axes) or 'none'}", key=key)


def _points_errors(
    keyword: str, points: object, axes: Mapping[str, Any] | None = None
) -> Iterator[Diagnostic]:
    """Yield errors of `include` or `exclude`; the latter may only use names of `axes`."""
    if not isinstance(points, list):
        message = f"'{keyword}' must be a list of mappings, not {describe_type(points)}"
        yield _error((keyword,), message)
        return
    for k, point in enumerate(points):
        if not isinstance(point, dict) or not point:
            message = f"{describe_location((keyword, k))} must be a mapping of names to values"
            yield _error((keyword, k), message, f"write {keyword}: [{{name: value}}]")
            continue
        for name, value in point.items():
            loc = (keyword, k, name)
            yield from check_name(name, loc, key=True)
            yield from _value_errors(loc, value)
            if axes is not None and name not in axes:
                yield _unknown_name(loc, name, axes, key=True)


def _grid_errors(sweep: Sweep) -> Iterator[Diagnostic]:
    followers = {name for group in sweep.zip for name in group[1:]}
    lengths = (_axis_length(axis) for name, axis in sweep.axes.items() if name not in followers)
    size = math.prod(lengths)  # without creating the points
    if size > MAX_POINTS:
        message = f"the sweep has {size} points; at most {MAX_POINTS} are allowed"
        yield _error((), message, key=True)
        return
    found = sweep_points(sweep)
    if not found:
        yield _error(("exclude",), "every point of the sweep is excluded", key=True)
    for k, extra in enumerate(sweep.include):
        if missing := _partly_set_name(extra, found, sweep.names):
            hint = "every point of a sweep must have the same names"
            yield _error(("include", k), f"only some points give a value to '{missing}'", hint)


def _partly_set_name(
    extra: SweepPoint, found: list[SweepPoint], names: tuple[str, ...]
) -> str | None:
    """Return a name to which, because of an entry of `include`, only some points give a value."""
    lacking = [name for name in names if name not in extra] if extra in found else []
    partly = [name for name in extra if any(name not in point for point in found)]
    return next(iter([*lacking, *partly]), None)


_POINTS_SCHEMA = {
    "type": "array",
    "items": {"type": "object", "minProperties": 1, "additionalProperties": SCALAR_SCHEMA},
}
SWEEP_SCHEMA = {
    "type": "object",
    "properties": {
        "zip": {
            "type": "array",
            "items": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            "description": "Groups of names that vary together.",
        },
        "include": {**_POINTS_SCHEMA, "description": "Points to add or to complete."},
        "exclude": {**_POINTS_SCHEMA, "description": "Points to leave out."},
    },
    "additionalProperties": {
        "description": "The values of one name.",
        "anyOf": [
            {"type": "array", "minItems": 1, "items": SCALAR_SCHEMA},
            {"type": "string", "pattern": r"^\s*(linspace|logspace)\s*\(.*\)\s*$"},
        ],
    },
}
SweepField = Annotated[
    Sweep,
    PlainValidator(read_sweep),
    PlainSerializer(Sweep.as_file),
    WithJsonSchema(SWEEP_SCHEMA),
]

"""Validation of a `sweep:`, with an E105 for each error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ratecli.config.base import check_name
from ratecli.config.document import describe_location
from ratecli.config.sweep import SPACE_PATTERN, Sweep, SweepPoint, sweep_points
from ratecli.config.validation import describe_type, quote_value, wrong_type
from ratecli.errors import Diagnostic, InvalidValueError, Loc

MAX_POINTS = 10_000
"""Limit on the number of points: each takes milliseconds before anything runs."""
SWEEP_KEYWORDS = ("zip", "include", "exclude")
AXIS_HINT = "write a list, linspace(first, last, count) or logspace(first, last, count)"


def read_sweep(raw: object) -> Sweep:
    """Return a sweep from plain data; raise FaultError with all errors in it."""
    if isinstance(raw, Sweep):
        return raw
    if not isinstance(raw, dict):
        wanted = "a mapping of names to lists of values"
        raise InvalidValueError(wrong_type((), wanted, raw, AXIS_HINT))
    axes = {name: axis for name, axis in raw.items() if name not in SWEEP_KEYWORDS}
    complaints = [
        *_axes_complaints(axes),
        *_zip_complaints(raw.get("zip", []), axes),
        *_points_complaints("include", raw.get("include", [])),
        *_points_complaints("exclude", raw.get("exclude", []), axes),
    ]
    sweep = None if complaints else _sweep(raw, axes)
    if sweep is not None:
        complaints = list(_grid_complaints(sweep))
    if sweep is None or complaints:
        raise InvalidValueError(complaints)
    return sweep


def _sweep(raw: Mapping[str, Any], axes: Mapping[str, Any]) -> Sweep:
    return Sweep(
        axes={name: axis if isinstance(axis, str) else tuple(axis) for name, axis in axes.items()},
        zip=tuple(tuple(group) for group in raw.get("zip", ())),
        include=tuple(raw.get("include", ())),
        exclude=tuple(raw.get("exclude", ())),
    )


def _sweep_complaint(
    loc: Loc, message: str, hint: str | None = None, *, key: bool = False
) -> Diagnostic:
    return Diagnostic("E105", message, hint, loc=loc, key=key)


def _axes_complaints(axes: Mapping[str, Any]) -> Iterator[Diagnostic]:
    for name, axis in axes.items():
        yield from check_name((name,), name)
        if isinstance(axis, str):
            yield from _space_complaints((name,), axis)
        elif not isinstance(axis, list):
            yield _sweep_complaint(
                (name,),
                f"{describe_location((name,))} must be a list of values, not {describe_type(axis)}",
                AXIS_HINT,
            )
        elif not axis:
            yield _sweep_complaint((name,), f"'{name}' has no values", AXIS_HINT, key=True)
        else:
            yield from (
                complaint for k, value in enumerate(axis) for complaint in _value((name, k), value)
            )


def _value(loc: Loc, value: object) -> Iterator[Diagnostic]:
    if isinstance(value, float) and not math.isfinite(value):
        yield _sweep_complaint(
            loc, f"{describe_location(loc)} must be a finite number, not {value}"
        )
    elif not isinstance(value, str | int | float):
        yield _sweep_complaint(
            loc,
            f"{describe_location(loc)} must be a number, text, true or false, not "
            f"{describe_type(value)}",
        )


def _space_complaints(loc: Loc, text: str) -> Iterator[Diagnostic]:
    found = SPACE_PATTERN.fullmatch(text) if len(text) <= 200 else None
    if found is None:
        yield _sweep_complaint(loc, f"{quote_value(text)} is no list of values", AXIS_HINT)
        return
    name, first, last, count = found.groups()
    if not 1 <= int(count) <= MAX_POINTS:
        yield _sweep_complaint(
            loc, f"the count of {name} must be from 1 to {MAX_POINTS}, not {count}"
        )
    ends = (float(first), float(last))
    if not all(map(math.isfinite, ends)):
        yield _sweep_complaint(loc, f"the ends of {name} must be finite numbers")
    elif name == "logspace" and min(ends) <= 0:
        hint = "its arguments are the first and last value, not exponents"
        yield _sweep_complaint(loc, "the ends of logspace must be greater than 0", hint)


def _zip_complaints(groups: object, axes: Mapping[str, Any]) -> Iterator[Diagnostic]:
    hint = "write zip: [[a, b]] to walk a and b together"
    if not _is_lists(groups):
        yield _sweep_complaint(("zip",), "'zip' must be a list of lists of names", hint)
        return
    assert isinstance(groups, list)
    seen: set[str] = set()
    for k, group in enumerate(groups):
        for j, name in enumerate(group):
            loc = ("zip", k, j)
            if not isinstance(name, str) or name not in axes:
                yield _unknown(loc, name, axes)
            elif name in seen:
                yield _sweep_complaint(loc, f"'{name}' is zipped twice")
            seen.add(str(name))
        yield from _length_complaints(("zip", k), group, axes)


def _is_lists(groups: object) -> bool:
    return isinstance(groups, list) and all(isinstance(group, list) and group for group in groups)


def _length_complaints(loc: Loc, group: list[Any], axes: Mapping[str, Any]) -> Iterator[Diagnostic]:
    known = [name for name in group if isinstance(name, str) and name in axes]
    lengths = {name: _length(axes[name]) for name in known}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        yield _sweep_complaint(loc, f"zipped names need equally many values: {listed}")


def _length(axis: object) -> int:
    if isinstance(axis, str):
        found = SPACE_PATTERN.fullmatch(axis)
        return int(found.group(4)) if found else 0
    return len(axis) if isinstance(axis, list) else 0


def _unknown(loc: Loc, name: object, axes: Mapping[str, Any], *, key: bool = False) -> Diagnostic:
    listed = ", ".join(axes) or "none"
    return _sweep_complaint(
        loc, f"{quote_value(name)} is not a name of this sweep", f"names: {listed}", key=key
    )


def _points_complaints(
    word: str, entries: object, axes: Mapping[str, Any] | None = None
) -> Iterator[Diagnostic]:
    if not isinstance(entries, list):
        yield _sweep_complaint(
            (word,), f"'{word}' must be a list of mappings, not {describe_type(entries)}"
        )
        return
    for k, entry in enumerate(entries):
        if not isinstance(entry, dict) or not entry:
            hint = f"write {word}: [{{name: value}}]"
            yield _sweep_complaint(
                (word, k),
                f"{describe_location((word, k))} must be a mapping of names to values",
                hint,
            )
            continue
        for name, value in entry.items():
            loc = (word, k, name)
            yield from check_name(loc, name)
            yield from _value(loc, value)
            if axes is not None and name not in axes:
                yield _unknown(loc, name, axes, key=True)


def _grid_complaints(sweep: Sweep) -> Iterator[Diagnostic]:
    size = _size(sweep)
    if size > MAX_POINTS:
        yield _sweep_complaint(
            (), f"the sweep has {size} points; at most {MAX_POINTS} are allowed", key=True
        )
        return
    found = sweep_points(sweep)
    if not found:
        yield _sweep_complaint(
            ("exclude",), "nothing is left of the sweep: every point is excluded", key=True
        )
    for k, extra in enumerate(sweep.include):
        missing = _missing(extra, found, sweep.names)
        if missing:
            hint = "every point of a sweep must have the same names"
            yield _sweep_complaint(("include", k), missing, hint)


def _size(sweep: Sweep) -> int:
    """Return the number of points before `exclude` and `include`, without creating them."""
    follows = {name for group in sweep.zip for name in group[1:]}
    leading = (_length_of(sweep, name) for name in sweep.axes if name not in follows)
    return math.prod(leading)


def _length_of(sweep: Sweep, name: str) -> int:
    axis = sweep.axes[name]
    return _length(axis if isinstance(axis, str) else list(axis))


def _missing(extra: SweepPoint, found: list[SweepPoint], names: tuple[str, ...]) -> str | None:
    """Return why an included entry would leave points with different names, or None."""
    lacking = [name for name in names if name not in extra]
    if lacking and extra in found:
        return f"this point gives no value to '{lacking[0]}'"
    partly = [name for name in extra if any(name not in point for point in found)]
    return f"only some points get a value for '{partly[0]}'" if partly else None

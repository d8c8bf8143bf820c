"""Places in nested mappings and lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Path = tuple[Any, ...]


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in it, the whole first, each before what is in it."""
    yield path
    if isinstance(data, dict | list):
        steps = data.items() if isinstance(data, dict) else enumerate(data)
        for step, inner in steps:
            yield from paths(inner, (*path, step))


def changed(data: Any, path: Path, value: Any) -> Any:
    """A copy with another value at that place."""
    if not path:
        return value
    copy = data.copy()
    copy[path[0]] = changed(data[path[0]], path[1:], value)
    return copy

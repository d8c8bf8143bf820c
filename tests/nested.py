"""Places in nested mappings and lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Path = tuple[Any, ...]


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every part, outer parts first."""
    yield path
    if isinstance(data, dict | list):
        steps = data.items() if isinstance(data, dict) else enumerate(data)
        for step, inner in steps:
            yield from paths(inner, (*path, step))


def changed(data: Any, path: Path, value: Any) -> Any:
    """Return a copy with another value at that path."""
    if not path:
        return value
    copy = data.copy()
    copy[path[0]] = changed(data[path[0]], path[1:], value)
    return copy

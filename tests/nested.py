"""Places in nested mappings and lists, and validation against JSON Schema, draft 2020-12."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

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


def faults(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> list[str]:
    """Return why a value does not fit; definitions are those of `root`."""
    validator = Draft202012Validator({"$defs": root.get("$defs", {}), **schema})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def parts(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every mapping within a schema, with its path."""
    if isinstance(schema, dict):
        yield path, schema
    items = schema.items() if isinstance(schema, dict) else ()
    for key, inner in enumerate(schema) if isinstance(schema, list) else items:
        yield from parts(inner, (*path, str(key)))

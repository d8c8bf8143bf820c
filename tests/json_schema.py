"""Validation against JSON Schema, draft 2020-12."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator


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

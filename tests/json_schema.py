"""JSON Schema, draft 2020-12: the keywords that our schema uses, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

KINDS = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip
ABOUT = {"$schema", "$defs", "$ref", "title", "description", "default"}
RULES = {
    "type", "const", "enum", "anyOf", "oneOf", "properties", "patternProperties", "additionalProperties", "required",
    "propertyNames", "minProperties", "maxProperties", "items", "prefixItems", "minItems", "maxItems", "pattern", "minLength", "maxLength",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip
OF_ONE = ("items", "additionalProperties", "propertyNames")
OF_SEVERAL = ("anyOf", "oneOf", "prefixItems")
BY_NAME = ("properties", "patternProperties", "$defs")


def parts(
    schema: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every schema within, with its path."""
    if not isinstance(schema, dict):
        assert isinstance(schema, bool), path
        return
    yield path, schema
    for key in OF_ONE:
        if key in schema:
            yield from parts(schema[key], (*path, key))
    for key in OF_SEVERAL:
        for k, each in enumerate(schema.get(key, ())):
            yield from parts(each, (*path, key, str(k)))
    for key in BY_NAME:
        for name, each in schema.get(key, {}).items():
            yield from parts(each, (*path, key, name))


def malformed(schema: dict[str, Any]) -> list[str]:
    """What no reader of schemas would take."""
    found = []
    for path, part in parts(schema):
        where = "/".join(path)
        found += [f"{where}: {key}" for key in part if key not in ABOUT | RULES]
        kinds = part.get("type", [])
        found += [
            f"{where}: {kind}"
            for kind in ([kinds] if isinstance(kinds, str) else kinds)
            if kind not in KINDS
        ]
        found += [
            f"{where}: {part[key]}"
            for key in ("pattern",)
            if key in part and not re.compile(part[key])
        ]
        if "$ref" in part and part["$ref"].removeprefix("#/$defs/") not in schema["$defs"]:
            found.append(f"{where}: {part['$ref']}")
    return found


def faults(schema: Any, value: Any, root: dict[str, Any], path: str = "") -> list[str]:
    """Why a value does not fit, with the path of each reason."""
    if isinstance(schema, bool):
        return [] if schema else [f"{path}: nothing may stand here"]
    found: list[str] = []
    if "$ref" in schema:
        found += faults(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root, path)
    for key, allowed in (("anyOf", None), ("oneOf", 1)):
        if key in schema:
            fitting = sum(not faults(each, value, root, path) for each in schema[key])
            if fitting == 0 or (allowed and fitting > allowed):
                found.append(f"{path}: {value!r} fits {fitting} of {key}")
    found += [
        f"{path}: {value!r} is not {key} {schema[key]}"
        for key in schema
        if not _holds(key, schema[key], value)
    ]
    return found + _within(schema, value, root, path)


def _within(schema: dict[str, Any], value: Any, root: dict[str, Any], path: str) -> list[str]:
    found: list[str] = []
    for k, item in enumerate(value if isinstance(value, list) else ()):
        found += faults(schema.get("items", True), item, root, f"{path}/{k}")
    for name, inner in value.items() if isinstance(value, dict) else ():
        found += faults(schema.get("propertyNames", True), name, root, f"{path}/{name}")
        for each in _of(schema, name):
            found += faults(each, inner, root, f"{path}/{name}")
    return found


def _of(schema: dict[str, Any], name: str) -> list[Any]:
    named = [schema["properties"][name]] if name in schema.get("properties", {}) else []
    named += [
        each
        for pattern, each in schema.get("patternProperties", {}).items()
        if re.search(pattern, name)
    ]
    return named or [schema.get("additionalProperties", True)]


def _holds(key: str, limit: Any, value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    checks = {
        "type": lambda: any(_is(kind, value) for kind in ([limit] if isinstance(limit, str) else limit)),
        "const": lambda: value == limit and type(value) is type(limit),
        "enum": lambda: value in limit,
        "required": lambda: not isinstance(value, dict) or set(limit) <= set(value),
        "minProperties": lambda: not isinstance(value, dict) or len(value) >= limit,
        "maxProperties": lambda: not isinstance(value, dict) or len(value) <= limit,
        "minItems": lambda: not isinstance(value, list) or len(value) >= limit,
        "maxItems": lambda: not isinstance(value, list) or len(value) <= limit,
        "pattern": lambda: not isinstance(value, str) or re.search(limit, value) is not None,
        "minLength": lambda: not isinstance(value, str) or len(value) >= limit,
        "maxLength": lambda: not isinstance(value, str) or len(value) <= limit,
        "minimum": lambda: not number or value >= limit,
        "maximum": lambda: not number or value <= limit,
        "exclusiveMinimum": lambda: not number or value > limit,
        "exclusiveMaximum": lambda: not number or value < limit,
    }  # fmt: skip
    return checks.get(key, lambda: True)()


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, KINDS[kind]) or (
        kind == "integer" and isinstance(value, float) and value.is_integer()
    )

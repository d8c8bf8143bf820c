"""Options of algorithms as JSON schema, from the types and the docstrings of their classes."""

from __future__ import annotations

import inspect
import re
from typing import Any

from pydantic import TypeAdapter

from ratecli.solvers.registry import Algorithm

JsonSchema = dict[str, Any]

ATTRIBUTES_SECTION = re.compile(r"\n\s*Attributes\n\s*-+\n")
TYPE_WORDS = {
    "integer": "whole number",
    "boolean": "true or false",
    "string": "text",
    "object": "mapping",
    "array": "list",
}
BOUND_WORDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def algorithm_notes(algorithm: Algorithm) -> str:
    """Return the docstring of an algorithm's class, without the section on its options."""
    return ATTRIBUTES_SECTION.split(_docstring(algorithm))[0].strip()


def option_schemas(algorithm: Algorithm) -> dict[str, JsonSchema]:
    """Return the schema of each option, with its default and its description, in order."""
    found = TypeAdapter(algorithm.load()).json_schema().get("properties", {})
    meanings = _parse_attributes(ATTRIBUTES_SECTION.split(_docstring(algorithm))[-1])
    return {
        name: {key: value for key, value in part.items() if key != "title"}
        | {"default": algorithm.preset.get(name, part.get("default"))}
        | {"description": meanings.get(name, "")}
        for name, part in found.items()
    }


def describe_type(schema: JsonSchema) -> str:
    """Describe the values of a schema, as in 'whole number, at least 1 | null'."""
    if "anyOf" in schema:
        return " | ".join(map(describe_type, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if isinstance(values := schema.get("additionalProperties"), dict):
        keys = describe_type(schema.get("propertyNames", {"type": "string"}))
        return f"{{{keys}: {describe_type(values)}}}"
    if "items" in schema:
        return f"[{describe_type(schema['items'])}, ...]"
    kind: str = schema.get("type", "any value")
    bounds = [f"{words} {schema[key]:g}" for key, words in BOUND_WORDS.items() if key in schema]
    return ", ".join([TYPE_WORDS.get(kind, kind), *bounds])


def _docstring(algorithm: Algorithm) -> str:
    return inspect.getdoc(algorithm.load()) or ""


def _parse_attributes(section: str) -> dict[str, str]:
    """Parse a numpydoc section: names, each followed by its indented description."""
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line and not line[0].isspace():
            name = line.split(":")[0].strip()
        elif line.strip():
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found

"""JSON schemas of algorithms' options and of experiment files, with everything installed.

Options are described by the types and the docstring of an algorithm's class.
"""

from __future__ import annotations

import inspect
import json
import re
from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from ratecli.datasets.registry import list_sources
from ratecli.errors import FaultError
from ratecli.plugins import plugins_by_name
from ratecli.rates import table
from ratecli.rates.functions import FUNCTIONS
from ratecli.solvers.registry import Algorithm, all_algorithms

JsonSchema = dict[str, Any]

SWEPT_NAME_SCHEMA: JsonSchema = {
    "type": "string",
    "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
    "description": "A name of the sweep.",
}
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
    return ATTRIBUTES_SECTION.split(inspect.getdoc(algorithm.load()) or "")[0].strip()


def option_schemas(algorithm: Algorithm) -> dict[str, JsonSchema]:
    """Return the schema of each option, with its default and its description, in order."""
    found = _fields(algorithm.load())
    meanings = dict[str, str]()
    for base in reversed(algorithm.load().__mro__):
        meanings |= _parse_attributes(
            ATTRIBUTES_SECTION.split(inspect.cleandoc(base.__doc__ or ""))[-1]
        )
    return {
        name: {key: value for key, value in part.items() if key != "title"}
        | {"default": algorithm.preset.get(name, part.get("default"))}
        | {"description": meanings.get(name, "")}
        for name, part in found.items()
    }


@cache
def _fields(solver: type) -> JsonSchema:
    fields: JsonSchema = TypeAdapter(solver).json_schema().get("properties", {})
    return fields


def describe_type(schema: JsonSchema, parts: Mapping[str, JsonSchema] | None = None) -> str:
    """Describe the values of a schema, as in 'whole number, at least 1 | null'.

    `parts` are the schemas that it may refer to, by name.
    """
    if "$ref" in schema:
        return describe_type((parts or {})[_referenced_name(schema)], parts)
    if "anyOf" in schema:
        forms = (describe_type(form, parts) for form in schema["anyOf"])
        return " | ".join(dict.fromkeys(forms))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if isinstance(values := schema.get("additionalProperties"), dict):
        names = schema.get("propertyNames", {})
        keys = describe_type(names) if "enum" in names else "NAME"
        return f"{{{keys}: {describe_type(values, parts)}}}"
    if schema.get("items"):
        return f"[{describe_type(schema['items'], parts)}, ...]"
    if isinstance(schema.get("type"), list):
        return describe_type({"anyOf": [{"type": each} for each in schema["type"]]})
    kind: str = schema.get("type", "any value")
    bounds = [f"{words} {schema[key]:g}" for key, words in BOUND_WORDS.items() if key in schema]
    return ", ".join([TYPE_WORDS.get(kind, kind), *bounds])


def _referenced_name(schema: JsonSchema) -> str:
    return str(schema["$ref"].rpartition("/")[2])


@cache
def file_keys() -> tuple[dict[str, Any], ...]:
    """Return each key of a file with its type, default and meaning.

    The name is the path, in which `NAME` stands for a name of the user's. Keys of a section that
    stands at several places are listed at the first one; those of plots say of which kinds.
    """
    from ratecli.config.experiment import json_schema  # noqa: PLC0415

    root = json_schema()
    parts, visited = root.get("$defs", {}), set[str]()
    found: dict[tuple[str, str, str, str], list[str]] = {}
    pending: deque[tuple[tuple[str, ...], JsonSchema]] = deque([((), root)])
    while pending:
        path, schema = pending.popleft()
        if "$ref" in schema:
            name = _referenced_name(schema)
            if name not in visited:
                visited.add(name)
                pending.append((path, parts[name]))
            continue
        kind = schema.get("properties", {}).get("kind", {}).get("const")
        for key, field in schema.get("properties", {}).items():
            name = ".".join([*path, key])
            required = key in schema.get("required", ())
            default = "required" if required else _value_text(field.get("default"))
            row = (name, describe_type(field, parts), default, field.get("description", ""))
            if key != "kind":
                found.setdefault(row, []).extend([kind] if kind else [])
            pending.append(((*path, key), field))
        inner = [*schema.get("anyOf", ()), schema.get("items")]
        pending.extend((path, each) for each in inner if isinstance(each, dict))
        values = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
        pending.extend(((*path, "NAME"), each) for each in values if isinstance(each, dict))
    return tuple(
        {"name": name, "type": kind, "default": default}
        | {"means": f"{', '.join(plots)}: {means}" if plots else means}
        for (name, kind, default, means), plots in found.items()
    )


def _value_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)


def algorithm_options(algorithm: Algorithm) -> list[dict[str, Any]]:
    """Return each option of an algorithm with its type, default and meaning."""
    return [
        {
            "name": option,
            "type": describe_type(part),
            "default": part["default"],
            "means": part["description"],
        }
        for option, part in option_schemas(algorithm).items()
    ]


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


RULE_DESCRIPTION = (
    " Rates: {rates}. A slice is in brackets, as in tpr[women] or tpr[sex = Female]; @train, "
    "@validation or @test selects a split. Functions: {functions}."
)


def file_schema() -> JsonSchema:
    """Return the schema (draft 2020-12) of experiment files, with all valid names explained."""
    # `show` needs options only
    from ratecli.config.experiment import json_schema  # noqa: PLC0415
    from ratecli.config.trials import DEFAULT_FILTER  # noqa: PLC0415

    schema = deepcopy(json_schema())
    parts, algorithms = schema["$defs"], list(all_algorithms().values())
    source = parts["DatasetSpec"]["properties"]["source"]
    source["anyOf"] = [_enumerate_names(list_sources()), {"type": "null"}]
    own_keys = parts["AlgorithmSpec"]["anyOf"][1]["additionalProperties"]["properties"]
    for algorithm in algorithms:
        parts[f"options.{algorithm.name}"] = _algorithm_options_schema(algorithm, own_keys)
    parts["AlgorithmSpec"] |= _algorithm_choice(algorithms)
    # filters of plugins are accepted in files; loading every plugin to list them is slow
    filters = [each for each in algorithms if each.path.startswith("filtering.")]
    choice = _algorithm_choice(filters) | {"default": DEFAULT_FILTER}
    parts["FilterSpec"]["properties"]["algorithm"] |= choice
    rates = [*table.RATES, *table.COMPOSITES, *table.MEASURES, *table.RANKINGS]
    rates += dict.fromkeys([*table.BALANCE_METRICS, *plugins_by_name("metric")])
    functions = ", ".join([*FUNCTIONS, *table.TEMPLATES, table.OF, *table.ARGUMENTS])
    for key in ("objective", "constraints", "metrics"):
        description = RULE_DESCRIPTION.format(rates=", ".join(rates), functions=functions)
        schema["properties"][key]["description"] += description
    return schema


def _enumerate_names(rows: list[dict[str, Any]]) -> JsonSchema:
    """Return the schema of one of some names, each with its description."""
    return {
        "type": "string",
        "oneOf": [{"const": row["name"], "description": row["summary"]} for row in rows],
    }


def _algorithm_choice(algorithms: list[Algorithm]) -> JsonSchema:
    """Return the schema of one of some algorithms: a name, alone or with options."""
    named = {each.name: {"$ref": f"#/$defs/options.{each.name}"} for each in algorithms}
    entry = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": named,
        "additionalProperties": False,
    }
    return {"anyOf": [_enumerate_names([each.row() for each in algorithms]), entry]}


def _algorithm_options_schema(algorithm: Algorithm, own: JsonSchema) -> JsonSchema:
    """Return the schema of an algorithm's options; any key if a plugin cannot be used."""
    try:
        found = option_schemas(algorithm)
    except FaultError:
        found = None
    options = {
        name: _with_swept_names(schema)
        | {
            "description": f"{schema['description']} ({describe_type(schema)})",
            "default": schema["default"],
        }
        for name, schema in (found or {}).items()
    }
    for name in own.keys() & options.keys():  # `tune`
        both = f"{own[name]['description']} {options[name]['description']}"
        own = own | {name: own[name] | {"description": both}}
    return {
        "type": ["object", "null"],
        "description": f"{algorithm.summary} ({algorithm.source})",
        "properties": options | own,
        "additionalProperties": found is None,
    }


def _with_swept_names(schema: JsonSchema) -> JsonSchema:
    """Return the schema of a value which, or parts of which, may be given by a swept name."""
    kinds = schema.get("anyOf") or [schema]
    parts = [
        kind
        | {
            key: _with_swept_names(kind[key])
            for key in ("items", "additionalProperties")
            if isinstance(kind.get(key), dict)
        }
        for kind in kinds
    ]
    free_text = any(kind.get("type") == "string" and "enum" not in kind for kind in kinds)
    return {"anyOf": parts if free_text else [*parts, SWEPT_NAME_SCHEMA]}

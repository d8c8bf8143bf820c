"""JSON schema of experiment files, with the data sets, algorithms and rates installed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ratecli.config.base import IDENTIFIER_PATTERN
from ratecli.config.experiment import json_schema
from ratecli.config.filter import DEFAULT_FILTER
from ratecli.errors import FaultError
from ratecli.experiment.catalogue import list_datasets, list_functions, list_metrics, list_solvers
from ratecli.experiment.option_schema import JsonSchema, describe_type, option_schemas
from ratecli.solvers.registry import Algorithm, all_algorithms

SWEPT_NAME_SCHEMA: JsonSchema = {
    "type": "string",
    "pattern": f"^{IDENTIFIER_PATTERN.pattern}$",
    "description": "A name of the sweep.",
}
RATES_TEXT = (
    "Rates: {rates}. A slice stands in brackets, as in tpr[women] or tpr[sex = Female]; "
    "@train, @validation or @test names the rows."
)
FUNCTIONS_TEXT = "Functions: {functions}."
RULE_DESCRIPTION = (
    f"Two sums compared, as in tpr[women] >= 0.8 * tpr[men]. {RATES_TEXT} {FUNCTIONS_TEXT}"
)
VALUE_DESCRIPTION = (
    "Rates and arithmetic, as in positive_rate[women] / positive_rate[men]. "
    f"{RATES_TEXT} {FUNCTIONS_TEXT}"
)
CONDITION_DESCRIPTION = (
    "Conditions on columns: sex = Female, age >= 30 (both hold), "
    "race = Black | Hispanic (one of them)."
)


def file_schema() -> JsonSchema:
    """Return the schema (draft 2020-12) of experiment files, with all valid names explained."""
    schema = deepcopy(json_schema())
    parts = schema["$defs"]
    source = parts["DatasetSpec"]["properties"]["source"]
    source["anyOf"] = [_enumerate_names(list_datasets(), "summary"), {"type": "null"}]
    parts["AlgorithmSpec"] = _algorithm_entry_schema(parts["AlgorithmSpec"], parts)
    parts["FilterSpec"]["properties"]["algorithm"] |= _filter_schema()
    _describe_rules(schema["properties"])
    return schema


def _enumerate_names(rows: list[dict[str, Any]], means: str) -> JsonSchema:
    """Return the schema of one of some names, each with its description."""
    return {
        "type": "string",
        "oneOf": [{"const": row["name"], "description": row[means]} for row in rows],
    }


def _algorithm_entry_schema(part: JsonSchema, parts: dict[str, Any]) -> JsonSchema:
    """Return the schema of an entry of `algorithms:`: a name, alone or with options."""
    _, entry = part["anyOf"]
    own = entry["additionalProperties"]["properties"]
    for algorithm in all_algorithms().values():
        parts[_options_key(algorithm.name)] = _algorithm_options_schema(algorithm, own)
    named = {
        algorithm.name: {"$ref": f"#/$defs/{_options_key(algorithm.name)}"}
        for algorithm in all_algorithms().values()
    }
    entry = entry | {"properties": named, "additionalProperties": False}
    return part | {"anyOf": [_enumerate_names(list_solvers(), "summary"), entry]}


def _options_key(name: str) -> str:
    return f"options.{name}"


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


def _filter_schema() -> JsonSchema:
    """Return the schema of the algorithms that are filters, by name or with options."""
    names = [algorithm.name for algorithm in all_algorithms().values() if _is_filter(algorithm)]
    rows = [row for row in list_solvers() if row["name"] in names]
    named = {name: {"$ref": f"#/$defs/{_options_key(name)}"} for name in names}
    entry = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": named,
        "additionalProperties": False,
    }
    return {"anyOf": [_enumerate_names(rows, "summary"), entry], "default": DEFAULT_FILTER}


def _is_filter(algorithm: Algorithm) -> bool:
    return algorithm.path.startswith("ratecli.solvers.filtering.")


def _describe_rules(keys: dict[str, Any]) -> None:
    """Add the available rates and functions to the description of each rule."""
    rates = ", ".join(row["name"] for row in list_metrics())
    known = {"rates": rates, "functions": ", ".join(row["name"] for row in list_functions())}
    keys["objective"]["description"] += f" {VALUE_DESCRIPTION.format(**known)}"
    for key, text in {
        "constraints": RULE_DESCRIPTION,
        "metrics": VALUE_DESCRIPTION,
        "groups": CONDITION_DESCRIPTION,
    }.items():
        (values,) = keys[key]["patternProperties"].values()
        values["description"] = text.format(**known)

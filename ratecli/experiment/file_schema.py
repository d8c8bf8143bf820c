"""JSON schema of experiment files, with the data sets, algorithms and rates installed."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from ratecli.config.base import IDENTIFIER_PATTERN
from ratecli.config.experiment import json_schema
from ratecli.config.filter import DEFAULT_FILTER
from ratecli.experiment.catalogue import list_datasets, list_functions, list_metrics, list_solvers
from ratecli.experiment.signature import BOUND_WORDS, SolverOption, read_signature
from ratecli.solvers.registry import Algorithm, all_algorithms

OptionJsonSchema = dict[str, Any]

SWEPT_NAME_SCHEMA: OptionJsonSchema = {
    "type": "string",
    "pattern": f"^{IDENTIFIER_PATTERN.pattern}$",
    "description": "A name of the sweep.",
}
NUMBER_TYPES = {"whole number": "integer", "number": "number"}
BOUND_KEYWORDS = {
    "Ge": "minimum",
    "Gt": "exclusiveMinimum",
    "Le": "maximum",
    "Lt": "exclusiveMaximum",
}
BOUND_PATTERN = re.compile(rf"({'|'.join(BOUND_WORDS.values())}) (\S+)")
NULL_TYPE = "null"


def option_schema(option: SolverOption) -> OptionJsonSchema:
    """Return the schema of an option's values, described as in `ratecli show`."""
    kinds = _type_schemas(option.type)
    if not any(kind.get("type") == "string" for kind in kinds):
        kinds.append(SWEPT_NAME_SCHEMA)
    schema: OptionJsonSchema = {"description": f"{option.means} ({option.type})", "anyOf": kinds}
    return schema | {"default": option.default}


def _type_schemas(text: str) -> list[OptionJsonSchema]:
    """Return the schemas of a type, given as text by `signature`."""
    null: list[OptionJsonSchema] = [{"type": NULL_TYPE}] if text.endswith(f" | {NULL_TYPE}") else []
    text = text.removesuffix(f" | {NULL_TYPE}")
    head = text.split(",")[0]
    objects: list[OptionJsonSchema] = [{"type": "object"}] if "{" in text else []
    if text.startswith("{"):
        return [*objects, *null]
    if head in NUMBER_TYPES:
        return [{"type": NUMBER_TYPES[head], **_bound_keywords(text)}, *objects, *null]
    if head == "true or false":
        return [{"type": "boolean"}, *null]
    if head.startswith(("name", "text")):
        return [{"type": "string"}, *objects, *null]
    if head.startswith("["):
        return [{"type": "array"}, *null]
    return [{"enum": text.split(" | ")}, *null]


def _bound_keywords(text: str) -> OptionJsonSchema:
    keys = {
        words: BOUND_KEYWORDS[name] for name, words in BOUND_WORDS.items() if name in BOUND_KEYWORDS
    }
    return {
        keys[words]: float(limit.rstrip(",")) if "." in limit else int(limit.rstrip(","))
        for words, limit in BOUND_PATTERN.findall(text.split(", or ", maxsplit=1)[0])
        if words in keys
    }


JsonSchema = dict[str, Any]

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
    """Return the schema of an algorithm's options; any key if what it needs is not installed."""
    found = None if algorithm.missing() else read_signature(algorithm).options
    return {
        "type": ["object", "null"],
        "description": f"{algorithm.summary} ({algorithm.source})",
        "properties": {option.name: option_schema(option) for option in found or ()} | own,
        "additionalProperties": found is None,
    }


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

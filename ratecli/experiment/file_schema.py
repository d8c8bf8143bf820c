"""The JSON schema of the file with all names that this installation knows: data sets, algorithms, rates."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ratecli.config.filter import DEFAULT_FILTER
from ratecli.config.schema import json_schema
from ratecli.experiment.catalogue import list_datasets, list_functions, list_metrics, list_solvers
from ratecli.experiment.option_schema import option_schema
from ratecli.experiment.signature import read_signature
from ratecli.solvers.registry import Algorithm, all_algorithms

JsonSchema = dict[str, Any]

RATES_TEXT = "Rates: {rates}. A slice stands in brackets, as in tpr[women] or tpr[sex = Female]; @train, @validation or @test names the rows."
FUNCTIONS_TEXT = "Functions: {functions}."
RULE_DESCRIPTION = (
    f"Two sums compared, as in tpr[women] >= 0.8 * tpr[men]. {RATES_TEXT} {FUNCTIONS_TEXT}"
)
VALUE_DESCRIPTION = f"Rates and arithmetic, as in positive_rate[women] / positive_rate[men]. {RATES_TEXT} {FUNCTIONS_TEXT}"
CONDITION_DESCRIPTION = "Conditions on columns: sex = Female, age >= 30 (both hold), race = Black | Hispanic (one of them)."


def file_schema() -> JsonSchema:
    """Draft 2020-12: `config.schema` and, where names stand, which there are and what they mean."""
    schema = deepcopy(json_schema())
    parts = schema["$defs"]
    source = parts["Dataset"]["properties"]["source"]
    source["anyOf"] = [_enumerate_names(list_datasets(), "summary"), {"type": "null"}]
    parts["Algorithm"] = _algorithm_entry_schema(parts["Algorithm"], parts)
    parts["Filter"]["properties"]["algorithm"] |= _filter_schema()
    _describe_rules(schema["properties"])
    return schema


def _enumerate_names(rows: list[dict[str, Any]], means: str) -> JsonSchema:
    """One of some names, each with its line."""
    return {
        "type": "string",
        "oneOf": [{"const": row["name"], "description": row[means]} for row in rows],
    }


def _algorithm_entry_schema(part: JsonSchema, parts: dict[str, Any]) -> JsonSchema:
    """An entry of `algorithms:`: one of the names, alone or with its options."""
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
    """What may stand under an algorithm's name; any key where what it needs is not installed."""
    found = None if algorithm.missing() else read_signature(algorithm).options
    return {
        "type": ["object", "null"],
        "description": f"{algorithm.summary} ({algorithm.source})",
        "properties": {option.name: option_schema(option) for option in found or ()} | own,
        "additionalProperties": found is None,
    }


def _filter_schema() -> JsonSchema:
    """The algorithms that are filters, by their name or with options."""
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
    """What may stand in a rule, beside each."""
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

"""The JSON schema of the file with all names that this installation knows: data sets, algorithms, rates."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ratecli.config.filter import DEFAULT as DEFAULT_FILTER
from ratecli.config.schema import json_schema
from ratecli.experiment.catalogue import datasets, functions, metrics, solvers
from ratecli.experiment.option_schema import option_schema
from ratecli.experiment.signature import signature
from ratecli.solvers.registry import Algorithm, algorithms

Schema = dict[str, Any]

RATES = "Rates: {rates}. A slice stands in brackets, as in tpr[women] or tpr[sex = Female]; @train, @validation or @test names the rows."
FUNCTIONS = "Functions: {functions}."
RULE = f"Two sums compared, as in tpr[women] >= 0.8 * tpr[men]. {RATES} {FUNCTIONS}"
VALUE = (
    f"Rates and arithmetic, as in positive_rate[women] / positive_rate[men]. {RATES} {FUNCTIONS}"
)
CONDITION = "Conditions on columns: sex = Female, age >= 30 (both hold), race = Black | Hispanic (one of them)."


def file_schema() -> Schema:
    """Draft 2020-12: `config.schema` and, where names stand, which there are and what they mean."""
    schema = deepcopy(json_schema())
    parts = schema["$defs"]
    source = parts["Dataset"]["properties"]["source"]
    source["anyOf"] = [_names(datasets(), "summary"), {"type": "null"}]
    parts["Algorithm"] = _entry(parts["Algorithm"], parts)
    parts["Filter"]["properties"]["algorithm"] |= _filters()
    _say_rules(schema["properties"])
    return schema


def _names(rows: list[dict[str, Any]], means: str) -> Schema:
    """One of some names, each with its line."""
    return {
        "type": "string",
        "oneOf": [{"const": row["name"], "description": row[means]} for row in rows],
    }


def _entry(part: Schema, parts: dict[str, Any]) -> Schema:
    """An entry of `algorithms:`: one of the names, alone or with its options."""
    _, entry = part["anyOf"]
    own = entry["additionalProperties"]["properties"]
    for algorithm in algorithms().values():
        parts[_options(algorithm.name)] = _with_options(algorithm, own)
    named = {
        algorithm.name: {"$ref": f"#/$defs/{_options(algorithm.name)}"}
        for algorithm in algorithms().values()
    }
    entry = entry | {"properties": named, "additionalProperties": False}
    return part | {"anyOf": [_names(solvers(), "summary"), entry]}


def _options(name: str) -> str:
    return f"options.{name}"


def _with_options(algorithm: Algorithm, own: Schema) -> Schema:
    """What may stand under an algorithm's name; any key where what it needs is not installed."""
    found = None if algorithm.missing() else signature(algorithm).options
    return {
        "type": ["object", "null"],
        "description": f"{algorithm.summary} ({algorithm.source})",
        "properties": {option.name: option_schema(option) for option in found or ()} | own,
        "additionalProperties": found is None,
    }


def _filters() -> Schema:
    """The algorithms that are filters, by their name or with options."""
    names = [algorithm.name for algorithm in algorithms().values() if _is_filter(algorithm)]
    rows = [row for row in solvers() if row["name"] in names]
    named = {name: {"$ref": f"#/$defs/{_options(name)}"} for name in names}
    entry = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "properties": named,
        "additionalProperties": False,
    }
    return {"anyOf": [_names(rows, "summary"), entry], "default": DEFAULT_FILTER}


def _is_filter(algorithm: Algorithm) -> bool:
    return algorithm.path.startswith("ratecli.solvers.filtering.")


def _say_rules(keys: dict[str, Any]) -> None:
    """What may stand in a rule, beside each."""
    rates = ", ".join(row["name"] for row in metrics())
    known = {"rates": rates, "functions": ", ".join(row["name"] for row in functions())}
    keys["objective"]["description"] += f" {VALUE.format(**known)}"
    for key, text in {"constraints": RULE, "metrics": VALUE, "groups": CONDITION}.items():
        (values,) = keys[key]["patternProperties"].values()
        values["description"] = text.format(**known)

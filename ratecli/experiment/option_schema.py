"""An algorithm's options as JSON schema, for editors: types, bounds, choices, defaults, meanings.

It is told as a help to those who write. What counts is the check of the class itself: an option may
also be a name of the sweep, so that every schema here takes a name as well.
"""

from __future__ import annotations

import re
from typing import Any

from ratecli.config.names import IDENTIFIER_PATTERN
from ratecli.experiment.signature import BOUND_WORDS, SolverOption

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
    """The schema of an option's values, with what `ratecli show` says of it."""
    kinds = _type_schemas(option.type)
    if not any(kind.get("type") == "string" for kind in kinds):
        kinds.append(SWEPT_NAME_SCHEMA)
    schema: OptionJsonSchema = {"description": f"{option.means} ({option.type})", "anyOf": kinds}
    return schema | {"default": option.default}


def _type_schemas(text: str) -> list[OptionJsonSchema]:
    """The schemas of a type as `signature` writes it."""
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

"""An algorithm's options as JSON schema, for editors: types, bounds, choices, defaults, meanings.

It is told as a help to those who write. What counts is the check of the class itself: an option may
also be a name of the sweep, so that every schema here takes a name as well.
"""

from __future__ import annotations

import re
from typing import Any

from ratecli.config.names import NAME
from ratecli.experiment.signature import BOUNDS, Option

Schema = dict[str, Any]

SWEPT: Schema = {
    "type": "string",
    "pattern": f"^{NAME.pattern}$",
    "description": "A name of the sweep.",
}
NUMBERS = {"whole number": "integer", "number": "number"}
LIMITS = {"Ge": "minimum", "Gt": "exclusiveMinimum", "Le": "maximum", "Lt": "exclusiveMaximum"}
BOUND = re.compile(rf"({'|'.join(BOUNDS.values())}) (\S+)")
NULL = "null"


def option_schema(option: Option) -> Schema:
    """The schema of an option's values, with what `ratecli show` says of it."""
    kinds = _kinds(option.type)
    if not any(kind.get("type") == "string" for kind in kinds):
        kinds.append(SWEPT)
    schema: Schema = {"description": f"{option.means} ({option.type})", "anyOf": kinds}
    return schema | {"default": option.default}


def _kinds(text: str) -> list[Schema]:
    """The schemas of a type as `signature` writes it."""
    null: list[Schema] = [{"type": NULL}] if text.endswith(f" | {NULL}") else []
    text = text.removesuffix(f" | {NULL}")
    head = text.split(",")[0]
    objects: list[Schema] = [{"type": "object"}] if "{" in text else []
    if text.startswith("{"):
        return [*objects, *null]
    if head in NUMBERS:
        return [{"type": NUMBERS[head], **_bounds(text)}, *objects, *null]
    if head == "true or false":
        return [{"type": "boolean"}, *null]
    if head.startswith(("name", "text")):
        return [{"type": "string"}, *objects, *null]
    if head.startswith("["):
        return [{"type": "array"}, *null]
    return [{"enum": text.split(" | ")}, *null]


def _bounds(text: str) -> Schema:
    keys = {words: LIMITS[name] for name, words in BOUNDS.items() if name in LIMITS}
    return {
        keys[words]: float(limit.rstrip(",")) if "." in limit else int(limit.rstrip(","))
        for words, limit in BOUND.findall(text.split(", or ", maxsplit=1)[0])
        if words in keys
    }

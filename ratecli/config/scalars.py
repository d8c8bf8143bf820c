"""Plain scalars as YAML 1.2's core schema reads them."""

from __future__ import annotations

import re

PlainScalar = str | int | float | bool | None

SCALAR_CONSTANTS: dict[str, PlainScalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}

INTEGER_PATTERN = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT_PATTERN = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
INTEGER_BASES = {"0o": 8, "0x": 16}
MAX_INTEGER = 2**63 - 1


def resolve_scalar(text: str) -> PlainScalar:
    """The value of an unquoted scalar; OverflowError for whole numbers beyond 64 bits."""
    if text in SCALAR_CONSTANTS:
        return SCALAR_CONSTANTS[text]
    if INTEGER_PATTERN.fullmatch(text):
        return _parse_integer(text)
    if FLOAT_PATTERN.fullmatch(text):
        return float(text)
    return text


def _parse_integer(text: str) -> int:
    base = INTEGER_BASES.get(text[:2], 10)
    digits = text[2:] if base != 10 else text
    # int() itself refuses thousands of digits, so the length is looked at first
    number = int(digits, base) if len(digits.lstrip("+-0")) <= 64 else MAX_INTEGER + 1
    if abs(number) > MAX_INTEGER:
        raise OverflowError(text)
    return number

"""Plain scalars as YAML 1.2's core schema reads them."""

from __future__ import annotations

import re

Plain = str | int | float | bool | None

CONSTANTS: dict[str, Plain] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}

INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
BASES = {"0o": 8, "0x": 16}
LARGEST = 2**63 - 1


def resolve(text: str) -> Plain:
    """The value of an unquoted scalar; OverflowError for whole numbers beyond 64 bits."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if INTEGER.fullmatch(text):
        return _whole(text)
    if FLOAT.fullmatch(text):
        return float(text)
    return text


def _whole(text: str) -> int:
    base = BASES.get(text[:2], 10)
    digits = text[2:] if base != 10 else text
    # int() itself refuses thousands of digits, so the length is looked at first
    number = int(digits, base) if len(digits.lstrip("+-0")) <= 64 else LARGEST + 1
    if abs(number) > LARGEST:
        raise OverflowError(text)
    return number

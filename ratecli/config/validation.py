"""The words of validation errors, and the conversion of pydantic's errors to diagnostics."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ratecli.config.document import LOCATION_MARK
from ratecli.errors import Diagnostic, FaultError, Loc, did_you_mean

KEY_MARK = "[key]"
"""Last element of pydantic's location if a key is invalid, not its value."""


def diagnostics_of(error: ValidationError, known: Iterable[str] = ()) -> list[Diagnostic]:
    """Return each pydantic error in plain words; `known` are the keys allowed where it was raised.

    A FaultError that a validator raised contributes its own diagnostics. Each error is reported
    once: a misspelt key is not also missing, a list of invalid entries is not also too short, and
    the value of an invalid key is not checked.
    """
    details = error.errors(include_url=False)
    names = list(known)
    unknown = [str(each["loc"][-1]) for each in details if each["type"] == "extra_forbidden"]
    meant = {near for word in unknown for near in difflib.get_close_matches(word, names, n=1)}
    bad_keys = {each["loc"][:-1] for each in details if _concerns_key(each)}
    return [
        found
        for each in details
        if not (each["type"] == "missing" and each["loc"][-1] in meant)
        and not (each["type"] == "too_short" and each["input"])
        and each["loc"] not in bad_keys
        for found in _from_pydantic(each, names)
    ]


def unknown_key(loc: Loc, names: Iterable[str]) -> Diagnostic:
    key = str(loc[-1])
    hint = missing_space_hint(key) or did_you_mean(key, names, "allowed keys")
    return Diagnostic("E101", f"unknown key {quote_value(key)}", hint, loc=loc, key=True)


def missing_space_hint(key: str) -> str | None:
    """Return help for {a:b}, which YAML reads as a single key."""
    name, colon, rest = key.partition(":")
    return f"a space is missing after the ':': write {name}: {rest}" if colon else None


def quote_value(value: object) -> str:
    """Return a value in quotes, cut to a readable length."""
    text = str(value)
    return f"'{text[:37]}...'" if len(text) > 40 else f"'{text}'"


def describe_type(value: object) -> str:
    """Describe an invalid value, for the end of '... must be a list, not ...'."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, str):
        return f"the text {quote_value(value)}"
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a mapping" if isinstance(value, dict) else "a list"


def invalid_choice(loc: Loc, value: object, choices: Iterable[str]) -> Diagnostic:
    """Return an error for an invalid choice: E104 for a scalar, else E103."""
    names = sorted(choices)
    if not isinstance(value, str | bool | int | float):
        return wrong_type(loc, f"one of {', '.join(names)}", value)
    hint = did_you_mean(str(value), names, "choices")
    return Diagnostic(
        "E104", f"{quote_value(value)} is not a choice for {LOCATION_MARK}", hint, loc=loc
    )


def wrong_type(loc: Loc, wanted: str, value: object, hint: str | None = None) -> Diagnostic:
    """Return an E103; `wanted` continues the sentence after 'must be'."""
    return Diagnostic(
        "E103", f"{LOCATION_MARK} must be {wanted}, not {describe_type(value)}", hint, loc=loc
    )


EXPECTED_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
    "tuple_type": "a list",
}
BOUND_PHRASES = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "greater than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def _concerns_key(error: ErrorDetails) -> bool:
    loc, own_key = error["loc"], error["type"] in {"extra_forbidden", "missing"}
    return len(loc) > 1 and loc[-1] == KEY_MARK and not own_key


def _from_pydantic(error: ErrorDetails, names: list[str]) -> Iterator[Diagnostic]:
    loc, key = error["loc"], _concerns_key(error)
    problem, value, context = error["type"], error["input"], error.get("ctx", {})
    if key:
        loc = loc[:-1]
    raised = context.get("error")
    if isinstance(raised, FaultError):
        yield from (each.under(*loc, key=key) for each in raised.faults)
    elif problem == "extra_forbidden":
        yield unknown_key(loc, names)
    elif problem == "literal_error" and key:
        yield unknown_key(loc, _choices_of(context))
    elif problem == "literal_error":
        yield invalid_choice(loc, value, _choices_of(context))
    elif problem == "missing":
        yield Diagnostic("E102", f"the key '{loc[-1]}' is missing", loc=loc)
    elif problem == "value_error":  # raised by the class itself: conflicting values
        yield Diagnostic("E104", str(raised), loc=loc, key=key)
    elif problem in EXPECTED_TYPES:
        hint = _type_help(problem, value)
        yield replace(wrong_type(loc, EXPECTED_TYPES[problem], value, hint), key=key)
    else:
        message, hint = _range_sentence(problem, value, context)
        yield Diagnostic("E104", message, hint, loc=loc, key=key)


def _choices_of(context: dict[str, Any]) -> list[str]:
    return re.findall(r"'([^']*)'", context["expected"])


def _type_help(problem: str, value: object) -> str | None:
    if value is None:
        return "give it a value, or remove the key"
    if problem == "string_type" and isinstance(value, bool | int | float):
        return f"if it is meant as text, put it in quotes: '{value}'"
    if problem == "tuple_type":
        return f"write [{value}]" if isinstance(value, str | int | float) else "write [a, b]"
    return None


def _range_sentence(problem: str, value: object, context: dict[str, Any]) -> tuple[str, str | None]:
    if problem in BOUND_PHRASES:
        field, words = BOUND_PHRASES[problem]
        return f"{LOCATION_MARK} must be {words} {context[field]}, not {value}", None
    if problem == "finite_number":
        return f"{LOCATION_MARK} must be a finite number, not {value}", None
    if problem in {"too_short", "string_too_short"}:
        return f"{LOCATION_MARK} must not be empty", None
    return f"{LOCATION_MARK} is not valid: {quote_value(value)}", None


def sort_by_place(faults: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Yield diagnostics in the order of their places, without duplicates."""
    placed = {
        (f.place.file, f.place.line, f.place.column, f.code, f.message): f
        for f in faults
        if f.place is not None
    }
    yield from (placed[key] for key in sorted(placed, key=lambda key: (key[0] == "--set", key)))

"""The words of validation errors, and the conversion of pydantic's errors to diagnostics."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ratecli.config.document import LOCATION_MARK
from ratecli.errors import Diagnostic, FaultError, InvalidValueError, Loc, did_you_mean

KEY_MARK = "[key]"
"""Last element of pydantic's location if a key is invalid, not its value."""
REPLACED_KEYS = {
    "constraints_on": "it was replaced: write holds: validation",
    "margin": "it was replaced: write holds: new_rows, and for example level: 0.95",
}
"""Keys of earlier versions, with help on what to write instead."""


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
    hint = REPLACED_KEYS.get(key) or did_you_mean(key, names, "allowed keys")
    return Diagnostic("E101", f"unknown key {quote_value(key)}", hint, loc=loc, key=True)


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
    if not isinstance(value, dict | list | tuple):  # in Python
        return f"an object of the type {type(value).__name__}"
    kind = "mapping" if isinstance(value, dict) else "list"
    return f"a {kind}" if value else f"an empty {kind}"


def invalid_choice(value: object, choices: Iterable[str]) -> InvalidValueError:
    """Return an error for an invalid choice: E104 for a scalar, else E103."""
    names = sorted(name if name[:1].isalnum() else repr(name) for name in choices)
    if not isinstance(value, str | bool | int | float):
        return type_error(f"one of {', '.join(names)}", value)
    message = f"{quote_value(value)} is not a choice for {LOCATION_MARK}"
    return InvalidValueError(
        Diagnostic("E104", message, did_you_mean(str(value), names, "choices"))
    )


def type_error(
    wanted: str, value: object, hint: str | None = None, loc: Loc = ()
) -> InvalidValueError:
    """Return an E103; `wanted` continues the sentence after 'must be'."""
    message = f"{LOCATION_MARK} must be {wanted}, not {describe_type(value)}"
    return InvalidValueError(Diagnostic("E103", message, hint, loc=loc))


def value_error(wanted: str, value: object, hint: str | None = None) -> InvalidValueError:
    """Return an E104; `wanted` continues the sentence after 'must be'."""
    message = f"{LOCATION_MARK} must be {wanted}, not {value}"
    return InvalidValueError(Diagnostic("E104", message, hint))


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
OTHER_PROBLEMS = {
    "finite_number": "must be a finite number, not {value}",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}


def _concerns_key(error: ErrorDetails) -> bool:
    loc, own_key = error["loc"], error["type"] in {"extra_forbidden", "missing"}
    return len(loc) > 1 and loc[-1] == KEY_MARK and not own_key


def _from_pydantic(error: ErrorDetails, names: list[str]) -> Iterator[Diagnostic]:
    loc, key = error["loc"], _concerns_key(error)
    problem, value, context = error["type"], error["input"], error.get("ctx", {})
    if key:
        loc = loc[:-1]
    found = context.get("error")
    if problem == "extra_forbidden":
        yield unknown_key(loc, names)
    elif problem == "literal_error" and key:
        yield unknown_key(loc, _choices_of(context))
    elif problem == "missing":
        yield Diagnostic("E102", f"the key '{loc[-1]}' is missing", loc=loc)
    else:
        if problem == "literal_error":
            found = invalid_choice(value, _choices_of(context))
        elif problem in EXPECTED_TYPES:
            found = type_error(EXPECTED_TYPES[problem], value, _type_help(problem, value))
        elif problem in BOUND_PHRASES:
            limit, words = BOUND_PHRASES[problem]
            found = value_error(f"{words} {context[limit]}", value)
        elif not isinstance(found, FaultError):
            message = OTHER_PROBLEMS.get(problem, "is not valid: {value}")
            text = f"{LOCATION_MARK} {message.format(value=quote_value(value))}"
            found = InvalidValueError(Diagnostic("E104", text if found is None else str(found)))
        yield from (each.under(*loc, key=key) for each in found.faults)


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

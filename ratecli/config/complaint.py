"""Validation errors with a location in the data, and their conversion from and to pydantic."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from ratecli.config.document import Document, Loc
from ratecli.errors import Diagnostic, did_you_mean

CODE_PATTERN = re.compile(r"E\d{3}")
LOCATION_MARK = "\0"
"""Placeholder in messages for the name of the location; no YAML text contains it."""
KEY_MARK = "[key]"
"""Last element of pydantic's location if a key is invalid, not its value."""


@dataclass(frozen=True)
class Complaint:
    """A diagnostic whose place is still a location in the data.

    `key` is true if it concerns the key at that location, not the value.
    """

    loc: Loc
    code: str
    message: str
    help: str | None = None
    key: bool = False

    def under(self, *outer: str | int) -> Complaint:
        return replace(self, loc=(*outer, *self.loc))

    def fault(self, document: Document) -> Diagnostic:
        place = document.place(self.loc, key=self.key)
        message = self.message.replace(LOCATION_MARK, describe_location(self.loc))
        return Diagnostic(self.code, message, self.help, place=place)


def as_validation_error(complaints: Sequence[Complaint], title: str) -> ValidationError:
    """Wrap complaints in an exception to which pydantic adds outer locations."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError(
                complaint.code,
                "{message}",
                {"message": complaint.message, "help": complaint.help, "key": complaint.key},
            ),
            loc=complaint.loc,
            input=None,
        )
        for complaint in complaints
    ]
    return ValidationError.from_exception_data(title, details)


def complaints_of(error: ValidationError, known: Iterable[str] = ()) -> list[Complaint]:
    """Return each pydantic error in plain words; `known` are the keys allowed where it was raised.

    Each mistake is reported once: a misspelt key is not also missing, a list of invalid entries is
    not also too short, and the value of an invalid key is not checked.
    """
    details = error.errors(include_url=False)
    names = list(known)
    unknown = [str(each["loc"][-1]) for each in details if each["type"] == "extra_forbidden"]
    meant = {near for word in unknown for near in difflib.get_close_matches(word, names, n=1)}
    bad_keys = {each["loc"][:-1] for each in details if _concerns_key(each)}
    return [
        _from_pydantic(each, names)
        for each in details
        if not (each["type"] == "missing" and each["loc"][-1] in meant)
        and not (each["type"] == "too_short" and each["input"])
        and each["loc"] not in bad_keys
    ]


def unknown_key(loc: Loc, names: Iterable[str]) -> Complaint:
    key = str(loc[-1])
    hint = missing_space_hint(key) or did_you_mean(key, names, "allowed keys")
    return Complaint(loc, "E101", f"unknown key {quote_value(key)}", hint, key=True)


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


def describe_location(loc: Loc) -> str:
    """Return what a message calls the value at `loc`."""
    if not loc:
        return "this"
    if isinstance(loc[-1], int):
        outer = f" of '{loc[-2]}'" if len(loc) > 1 else ""
        return f"entry {loc[-1] + 1}{outer}"
    return f"'{loc[-1]}'"


def invalid_choice(loc: Loc, value: object, choices: Iterable[str]) -> Complaint:
    """Return an error for an invalid choice: E104 for a scalar, else E103."""
    names = sorted(choices)
    if not isinstance(value, str | bool | int | float):
        return wrong_type(loc, f"one of {', '.join(names)}", value)
    hint = did_you_mean(str(value), names, "choices")
    return Complaint(loc, "E104", f"{quote_value(value)} is not a choice for {LOCATION_MARK}", hint)


def wrong_type(loc: Loc, wanted: str, value: object, hint: str | None = None) -> Complaint:
    """Return an E103; `wanted` continues the sentence after 'must be'."""
    return Complaint(
        loc, "E103", f"{LOCATION_MARK} must be {wanted}, not {describe_type(value)}", hint
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


def _from_pydantic(error: ErrorDetails, names: list[str]) -> Complaint:
    loc = error["loc"]
    if _concerns_key(error) and error["type"] == "literal_error":
        return unknown_key(loc[:-1], _choices_of(error["ctx"]))
    if _concerns_key(error):
        return replace(_from_pydantic({**error, "loc": loc[:-1]}, names), key=True)
    problem, value, context = error["type"], error["input"], error.get("ctx", {})
    if CODE_PATTERN.fullmatch(problem):
        return Complaint(loc, problem, context["message"], context["help"], context["key"])
    if problem == "extra_forbidden":
        return unknown_key(loc, names)
    if problem == "missing":
        return Complaint(loc, "E102", f"the key '{loc[-1]}' is missing")
    if problem == "value_error":  # raised by the class itself: conflicting values
        return Complaint(loc, "E104", str(context["error"]))
    if problem == "literal_error":
        return invalid_choice(loc, value, _choices_of(context))
    if problem in EXPECTED_TYPES:
        return wrong_type(loc, EXPECTED_TYPES[problem], value, _type_help(problem, value))
    return Complaint(loc, "E104", *_range_sentence(problem, value, context))


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

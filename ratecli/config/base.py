"""The base class and the field types that all sections of the file share, and its errors."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    Strict,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from ratecli.config.document import LOCATION_MARK
from ratecli.errors import Diagnostic, FaultError, InvalidValueError, Loc, did_you_mean

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
    hint = did_you_mean(key, names, "allowed keys")
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
    hint = did_you_mean(str(value), names, "choices")
    return InvalidValueError(Diagnostic("E104", message, hint))


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
    "string_too_long": "must have at most {max_length} characters, but has {length}",
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
            facts = {**context, "value": quote_value(value), "length": len(str(value))}
            text = OTHER_PROBLEMS.get(problem, "is not valid: {value}").format(**facts)
            text = f"{LOCATION_MARK} {text}" if found is None else str(found)
            code = "E302" if context.get("max_length") == MAX_RULE_LENGTH else "E104"
            found = InvalidValueError(Diagnostic(code, text))
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


IDENTIFIER_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SLUG_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
FRACTION_PATTERN = re.compile(r"(\d{1,6})/(0*[1-9]\d{0,5})")
MAX_RULE_LENGTH = 2000
SOLUTION_RATE = "solution_rate"
"""Name in tables and expectations of the share of trials that returned a classifier."""
FAILURE_RATE = "failure_rate"
"""Name of the share of trials that returned a classifier which violates a constraint.

A constraint's name may follow after a dot. Metrics must not have these two names.
"""
NAME_HELP = "a name begins with a letter or '_' and continues with letters, digits and '_'"
COMMA_HELP = "a rule with a comma needs quotes inside braces: {worst: 'max(mse, by=sex)'}"
PREFIX_HELP = "in `tune`, parameters of the model have no prefix: num_leaves"
SLUG_HELP = "use lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit"


def is_name(text: str) -> bool:
    """Return whether rules can refer to a name."""
    return bool(IDENTIFIER_PATTERN.fullmatch(text)) and len(text) <= 100


def check_name(name: str, loc: Loc = (), *, key: bool = False) -> list[Diagnostic]:
    """Return an error if rules could not refer to this name."""
    if is_name(name):
        return []
    message = f"{quote_value(name)} is not a name"
    hint = NAME_HELP
    if set("()=<>'\"") & set(name):
        hint = COMMA_HELP
    elif name.startswith("model."):
        hint = PREFIX_HELP
    return [Diagnostic("E104", message, hint, loc=loc, key=key)]


class Spec(BaseModel):
    """A mapping in the file: immutable, without unknown keys. Docstrings describe its keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )
    error_code: ClassVar[str | None] = None
    """The code of every error in the mapping; None: each has its own."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def stated(self) -> dict[str, Any]:
        """Return the keys that have a value, as plain data that is again valid in a file."""
        return self.model_dump(mode="json", exclude_none=True)

    def conflicts(self) -> Iterable[Diagnostic]:
        """Yield errors that concern several keys together, each of which is valid alone."""
        return ()

    def check_one_key(self, keys: Iterable[str], hint: str) -> Iterator[Diagnostic]:
        """Yield an error unless exactly one of some keys has a value."""
        present = [key for key in keys if getattr(self, key) is not None]
        listed = " and ".join(", ".join(f"'{key}'" for key in keys).rsplit(", ", 1))
        if len(present) > 1:
            message = f"only one of {listed} is allowed"
            yield Diagnostic("E104", message, hint, loc=(present[1],), key=True)
        if not present:
            yield Diagnostic("E102", f"{LOCATION_MARK} needs one of {listed}", hint, key=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        for key in handler.resolve_ref_schema(schema).get("properties", {}).values():
            if "description" in key:
                key["description"] = " ".join(key["description"].split())
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            part = handler(raw)
            found = list(part.conflicts())
        except ValidationError as error:
            found = diagnostics_of(error, cls.model_fields)
        if found:
            raise InvalidValueError(
                replace(each, code=cls.error_code or each.code) for each in found
            )
        return part


def not_null(kind: Any) -> BeforeValidator:
    """Refuse an empty value of an optional key whose presence alone has a meaning."""

    def check(value: object) -> object:
        if value is None:
            hint = "give it a value, or remove the key"
            raise InvalidValueError(Diagnostic("E103", f"{LOCATION_MARK} must not be empty", hint))
        return value

    return BeforeValidator(check, json_schema_input_type=kind)


def matching(pattern: re.Pattern[str]) -> dict[str, Any]:
    """Return the JSON schema of texts that match a pattern."""
    return {"type": "string", "pattern": f"^{pattern.pattern}$"}


def above_zero_or(pattern: re.Pattern[str]) -> Any:
    """Return the type, in JSON schemas, of numbers above 0 and of texts that match a pattern."""
    return Annotated[float, Field(gt=0)] | Annotated[str, WithJsonSchema(matching(pattern))]


def as_tuple(value: object) -> object:
    """Return a single text as a list of it, anything else unchanged."""
    return (value,) if isinstance(value, str) else value


def is_scalar(value: object) -> bool:
    """Return whether a value is a number or a text."""
    return isinstance(value, int | float | str) and not isinstance(value, bool)


@dataclass(frozen=True)
class OneOf:
    """Annotation of a union: one error in words, instead of one for each of its types.

    An error inside of a list or mapping is reported as it is.
    """

    wanted: str
    hint: str | None = None

    def _validate(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            details = error.errors(include_url=False)
        found = list[Diagnostic]()
        for each in details:  # a location begins with the type
            own = each.get("ctx", {}).get("error")
            if each["loc"][1:] or each["type"] == "string_too_long":
                found += _from_pydantic({**each, "loc": each["loc"][1:]}, [])
            elif isinstance(own, FaultError):
                hints = is_scalar(value)
                found += (
                    fault
                    for fault in own.faults
                    if fault.loc or fault.code != "E103" or (hints and fault.help)
                )
        if found:
            raise InvalidValueError(found)
        if is_scalar(value) and not all(each["type"].endswith("_type") for each in details):
            raise value_error(self.wanted, quote_value(value), self.hint)
        raise type_error(self.wanted, value, self.hint)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._validate, handler(source))


def _validate_name(value: object) -> object:
    if isinstance(value, str) and (wrong := check_name(value)):
        raise InvalidValueError(wrong)
    return value


def _validate_slug(value: object) -> object:
    if isinstance(value, str) and not SLUG_PATTERN.fullmatch(value):
        message = f"{quote_value(value)} cannot name a file or folder"
        raise InvalidValueError(Diagnostic("E104", message, SLUG_HELP))
    return value


NameText = Annotated[
    str, BeforeValidator(_validate_name), WithJsonSchema(matching(IDENTIFIER_PATTERN))
]
SlugText = Annotated[str, BeforeValidator(_validate_slug), WithJsonSchema(matching(SLUG_PATTERN))]
RuleText = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_RULE_LENGTH)]
StrictText = Annotated[str, Strict()]
ColumnName = Annotated[str, StringConstraints(strict=True, min_length=1)]
ColumnNames = Annotated[tuple[ColumnName, ...], Field(min_length=1)]
StrictFlag = Annotated[bool, Strict()]
SeedNumber = Annotated[int, Strict(), Field(ge=0)]
ScalarValue = Annotated[
    bool | int | float | str,
    OneOf("a number, a text, true or false"),
    WithJsonSchema({"type": ["number", "string", "boolean"]}),
]
"""A value of a swept name or of a column."""


@dataclass(frozen=True)
class NumberRange:
    """Annotation of a key that accepts numbers, fractions such as 1/3, and names of the sweep.

    `above` excludes the lower end, `below` the upper end.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False
    names: bool = True

    def __contains__(self, value: object) -> bool:
        number = exact_number(value)
        if number is None:
            return False
        low, high = Fraction(str(self.low)), Fraction(str(self.high))
        good = number > low if self.above else number >= low
        return good and (number < high if self.below else number <= high)

    @property
    def words(self) -> str:
        low = f"{'greater than' if self.above else 'at least'} {self.low:g}"
        return f"{low} and {'less than' if self.below else 'at most'} {self.high:g}"

    def validate(self, value: object) -> Any:
        """Return the value unchanged; raise InvalidValueError with E103 or E104."""
        wanted = "a number such as 0.5 or 1/2"
        wanted += ", or a name of the sweep" if self.names else ""
        if not is_scalar(value):
            raise type_error(wanted, value)
        if isinstance(value, str) and not FRACTION_PATTERN.fullmatch(value):
            if self.names and is_name(value):
                return value
            raise value_error(wanted, quote_value(value))
        if value not in self:
            raise value_error(self.words, value)
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        low = "exclusiveMinimum" if self.above else "minimum"
        high = "exclusiveMaximum" if self.below else "maximum"
        number = {"type": "number", low: self.low, high: self.high}
        texts = [FRACTION_PATTERN, *([IDENTIFIER_PATTERN] if self.names else [])]
        return {"anyOf": [number, *map(matching, texts)]}


def exact_number(value: object) -> Fraction | None:
    """Return a number as it is written, or a text like '1/3'; None for anything else."""
    if isinstance(value, str):
        return Fraction(value) if FRACTION_PATTERN.fullmatch(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return Fraction(str(value))

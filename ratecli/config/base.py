"""The base class and the field types shared by all sections of the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    Strict,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ratecli.config.sweep import SweepValue
from ratecli.config.validation import diagnostics_of, missing_space_hint, quote_value, wrong_type
from ratecli.errors import Diagnostic, InvalidValueError, Loc

IDENTIFIER_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SLUG_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
SOLUTION_RATE = "solution_rate"
"""Name in tables and expectations of the share of trials that returned a classifier."""
FAILURE_RATE = "failure_rate"
"""Name of the share of trials that returned a classifier which violates a constraint.

A constraint's name may follow after a dot. Metrics must not have these two names.
"""
RESERVED_RESULT_FILES = {
    "reference": "the folder of pinned numbers",
    "report.html": "the page over several experiments",
}
"""Other contents of the results folder; no experiment may have one of these names."""
NAME_HELP = "a name begins with a letter or '_' and goes on with letters, digits and '_'"
SLUG_HELP = "use small letters, digits, '.', '_' and '-', beginning with a letter or digit"


def check_name(loc: Loc, name: str, *, key: bool = True) -> list[Diagnostic]:
    """Return an error if rules could not refer to this name."""
    if IDENTIFIER_PATTERN.fullmatch(name) and len(name) <= 100:
        return []
    hint = missing_space_hint(name) or NAME_HELP
    return [Diagnostic("E104", f"{quote_value(name)} is not a name", hint, loc=loc, key=key)]


def check_slug(loc: Loc, text: str) -> list[Diagnostic]:
    """Return an error if the text is not a plain file name."""
    if SLUG_PATTERN.fullmatch(text):
        return []
    return [
        Diagnostic("E104", f"{quote_value(text)} cannot name a file or folder", SLUG_HELP, loc=loc)
    ]


MAX_RULE_LENGTH = 2000


class Spec(BaseModel):
    """A mapping in the file: immutable, without unknown keys.

    `cross_check` gets the raw data, so that it runs even if fields are invalid.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        """Yield errors that concern several keys together."""
        del raw
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = list(cls.cross_check(raw)) if isinstance(raw, dict) else []
        try:
            part = handler(raw)
        except ValidationError as error:
            found = [*diagnostics_of(error, cls.model_fields), *found]
        if found:
            raise InvalidValueError(found)
        return part


def _validate_name(value: object) -> object:
    return _accept_unless(check_name((), value), value) if isinstance(value, str) else value


def _validate_slug(value: object) -> object:
    return _accept_unless(check_slug((), value), value) if isinstance(value, str) else value


def validate_rule(value: object) -> object:
    """Return the text of a rule; raise FaultError with E103, E104 or E302."""
    if not isinstance(value, str):
        hint = f"put it in quotes: '{value}'" if isinstance(value, int | float) else None
        return _accept_unless([wrong_type((), "the text of a rule", value, hint)], value)
    if not value.strip():
        return _accept_unless([Diagnostic("E104", "the rule is empty", "write a rule")], value)
    if len(value) > MAX_RULE_LENGTH:
        message = f"the rule has {len(value)} characters; at most {MAX_RULE_LENGTH} are allowed"
        return _accept_unless([Diagnostic("E302", message)], value)
    return value


def _validate_scalar(value: object) -> object:
    right = isinstance(value, bool | int | float | str)
    wanted = "a number, a text or true or false, as in the sweep"
    return _accept_unless([] if right else [wrong_type((), wanted, value)], value)


def _accept_unless(complaints: list[Diagnostic], value: object) -> object:
    if complaints:
        raise InvalidValueError(complaints)
    return value


class NotNull:
    """Annotation of a key that may be absent but not null: removes null from its JSON schema."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        kept = [part for part in schema["anyOf"] if part != {"type": "null"}]
        return kept[0] if len(kept) == 1 else schema | {"anyOf": kept}


def require_value(wanted: str, hint: str) -> BeforeValidator:
    """Return a validator that rejects an empty value with an E103.

    For keys whose mere presence requests something: if empty, they would silently request nothing.
    """

    def check(value: object) -> object:
        return _accept_unless([wrong_type((), wanted, value, hint)] if value is None else [], value)

    return BeforeValidator(check)


NameText = Annotated[
    str,
    BeforeValidator(_validate_name),
    WithJsonSchema({"type": "string", "pattern": f"^{IDENTIFIER_PATTERN.pattern}$"}),
]
SlugText = Annotated[
    str,
    BeforeValidator(_validate_slug),
    WithJsonSchema({"type": "string", "pattern": f"^{SLUG_PATTERN.pattern}$"}),
]
RuleText = Annotated[
    str,
    BeforeValidator(validate_rule),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_RULE_LENGTH}),
]
StrictText = Annotated[str, Strict()]
ColumnName = Annotated[str, StringConstraints(strict=True, min_length=1)]
WholeNumber = Annotated[int, Strict()]
StrictFlag = Annotated[bool, Strict()]
PositiveCount = Annotated[int, Strict(), Field(ge=1)]
SeedNumber = Annotated[int, Strict(), Field(ge=0)]
StrictScalar = Annotated[
    SweepValue,
    BeforeValidator(_validate_scalar),
    WithJsonSchema({"type": ["number", "string", "boolean"]}),
]
"""A value of a swept name."""

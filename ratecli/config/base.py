"""What all parts of the file have in common: frozen, no unknown keys, faults in plain words."""

from __future__ import annotations

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

from ratecli.config.complaint import Complaint, complaints_of, raised, wrong_type
from ratecli.config.names import NAME, SLUG, bad_name, bad_slug
from ratecli.config.sweep import Value

MAX_RULE = 2000


class Part(BaseModel):
    """A mapping of the file. `cross_check` looks at the raw data, so that it always has its say."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Complaint]:
        """Complaints about what several keys say together."""
        del raw
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = list(cls.cross_check(raw)) if isinstance(raw, dict) else []
        try:
            part = handler(raw)
        except ValidationError as error:
            found = [*complaints_of(error, cls.model_fields), *found]
        if found:
            raise raised(found, cls.__name__)
        return part


def _name(value: object) -> object:
    return _without(bad_name((), value), value) if isinstance(value, str) else value


def _slug(value: object) -> object:
    return _without(bad_slug((), value), value) if isinstance(value, str) else value


def as_rule(value: object) -> object:
    """The text of a rule as it is; raises what pydantic passes on (E103, E104, E302)."""
    if not isinstance(value, str):
        hint = f"put it in quotes: '{value}'" if isinstance(value, int | float) else None
        return _without([wrong_type((), "the text of a rule", value, hint)], value)
    if not value.strip():
        return _without([Complaint((), "E104", "the rule is empty", "write a rule")], value)
    if len(value) > MAX_RULE:
        message = f"the rule has {len(value)} characters; at most {MAX_RULE} are allowed"
        return _without([Complaint((), "E302", message)], value)
    return value


def _scalar(value: object) -> object:
    right = isinstance(value, bool | int | float | str)
    wanted = "a number, a text or true or false, as in the sweep"
    return _without([] if right else [wrong_type((), wanted, value)], value)


def _without(complaints: list[Complaint], value: object) -> object:
    if complaints:
        raise raised(complaints, "value")
    return value


class NoNull:
    """Of a key that may be left out, but not be null: an editor is told so, too."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        kept = [part for part in schema["anyOf"] if part != {"type": "null"}]
        return kept[0] if len(kept) == 1 else schema | {"anyOf": kept}


def stated(wanted: str, hint: str) -> BeforeValidator:
    """For a key that asks for something by being there: left empty, it would silently ask for nothing.

    Raises what pydantic passes on, an E103.
    """

    def check(value: object) -> object:
        return _without([wrong_type((), wanted, value, hint)] if value is None else [], value)

    return BeforeValidator(check)


Name = Annotated[
    str,
    BeforeValidator(_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"}),
]
Slug = Annotated[
    str,
    BeforeValidator(_slug),
    WithJsonSchema({"type": "string", "pattern": f"^{SLUG.pattern}$"}),
]
Rule = Annotated[
    str,
    BeforeValidator(as_rule),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_RULE}),
]
Text = Annotated[str, Strict()]
Column = Annotated[str, StringConstraints(strict=True, min_length=1)]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=1)]
Seed = Annotated[int, Strict(), Field(ge=0)]
Scalar = Annotated[
    Value,
    BeforeValidator(_scalar),
    WithJsonSchema({"type": ["number", "string", "boolean"]}),
]
"""A value of a swept name."""

"""One entry of `algorithms:`: a name, or a name with options."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ratecli.config.base import NameText, Spec, StrictFlag
from ratecli.config.filter import LABEL_WORDS, parse_named_options
from ratecli.config.safety import AlgorithmSafety, SafetySpec
from ratecli.config.sweep import Sweep
from ratecli.config.validation import diagnostics_of
from ratecli.errors import InvalidValueError

Holds = Literal["train", "validation", "new_rows"]
Level = Annotated[float, Strict(), Field(gt=0.5, lt=1)]
TunedValues = Annotated[
    dict[NameText, Annotated[tuple[Any, ...], Field(min_length=1)]], Field(min_length=1)
]


class AlgorithmSpec(Spec):
    """An algorithm with the label of its results and its own sweep; other keys are its options."""

    model_config = ConfigDict(extra="allow")

    name: NameText
    """The algorithm; `ratecli ls algorithms` lists them."""
    label: NameText = Field(alias="as")
    """The name of its results; default: the algorithm's."""
    holds: Holds | None = None
    """The rows on which constraints must hold; default: as in the file."""
    level: Level | None = None
    """The probability with which they must hold; default: as in the file."""
    safety: AlgorithmSafety = None
    """Keys that override the file's safety test, a test for this algorithm alone if the file has
    none, or false for no test.
    """
    filter: StrictFlag = True
    """false: this algorithm is trained on unfiltered rows."""
    tune: TunedValues | None = None
    """Values to try: of options, of the penalty `l2` of a linear model and of parameters of other
    models, by name. Of all combinations, the one with the smallest objective that satisfies the
    constraints on validation rows is chosen, or without such rows, in 5 folds of the training rows.
    """
    sweep: Sweep | None = None
    """What varies for this algorithm only, in addition to the experiment's sweep. A name that is
    one of its options sets it.
    """

    @property
    def options(self) -> dict[str, Any]:
        """The algorithm's hyper-parameters; `ratecli show NAME` lists them."""
        return dict(self.model_extra or {})

    @model_validator(mode="wrap")
    @classmethod
    def _from_entry(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(raw, cls):
            return raw
        keys = {*LABEL_WORDS, *(field.alias or key for key, field in cls.model_fields.items())}
        name, options = parse_named_options(raw, keys)
        outer = (name,) if isinstance(raw, dict) else ()
        try:
            return handler({"as": name, **options, "name": name})
        except ValidationError as error:
            faults = [
                replace(each, loc=outer, key=bool(outer))
                if each.loc == ("name",) or not outer
                else each.under(*outer)
                for each in diagnostics_of(error)
            ]
            raise InvalidValueError(faults) from None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(core, handler))
        keys = schema.pop("properties")
        for key in ("required", "additionalProperties", "type"):
            schema.pop(key, None)
        name = keys.pop("name")
        options = {"type": ["object", "null"], "description": "Its options.", "properties": keys}
        entry = {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": options,
        }
        return schema | {"anyOf": [name, entry]}

    @model_serializer
    def _as_file(self) -> dict[str, Any]:
        """Return the entry as written in a file: its options, its label, and other keys if set."""
        fields = {key: field for key, field in type(self).model_fields.items() if key != "name"}
        own = {
            field.alias or key: getattr(self, key)
            for key, field in fields.items()
            if getattr(self, key) != field.default
        }
        if isinstance(self.safety, SafetySpec):  # only these keys override the file's test
            own["safety"] = self.safety.model_dump(exclude_unset=True)
        return {self.name: self.options | own}

"""One entry of `algorithms:`: a name, or a name with options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ratecli.config.base import NameText, Spec
from ratecli.config.filter import AlgorithmFilter
from ratecli.config.safety import AlgorithmSafety
from ratecli.config.sweep import SweepField
from ratecli.config.validation import diagnostics_of, type_error
from ratecli.errors import Diagnostic, InvalidValueError, Loc


class AlgorithmSpec(Spec):
    """An algorithm with the label of its results and its own sweep; other keys are its options."""

    model_config = ConfigDict(extra="allow")

    name: NameText = Field(description="The algorithm; `ratecli ls algorithms` lists them.")
    label: NameText = Field(
        alias="as", description="The name of its results; default: the algorithm's."
    )
    constraints_on: Literal["train", "validation"] = Field(
        "train",
        description="The split on which constraints must hold. For validation, they are tightened "
        "on training rows until they hold on validation rows.",
    )
    margin: Annotated[float, Strict(), Field(gt=0.5, lt=1)] | None = Field(
        None,
        description="Confidence with which each constraint must hold: its value plus its standard "
        "error times the normal quantile (1.64 for 0.95) must satisfy it. With too few rows for "
        "that, the trial ends as `no_solution_found`.",
    )
    safety: AlgorithmSafety = Field(
        None,
        description="Keys that override the file's safety test, a test for this algorithm alone "
        "if the file has none, or false for no test.",
    )
    filter: AlgorithmFilter = Field(
        None, description="false: this algorithm is trained on unfiltered rows."
    )
    sweep: SweepField | None = Field(
        None,
        description="What varies for this algorithm only, in addition to the experiment's sweep. "
        "A name that is one of its options sets it.",
    )

    @property
    def options(self) -> dict[str, Any]:
        """The algorithm's hyper-parameters; `ratecli show NAME` lists them."""
        return dict(self.model_extra or {})

    @model_validator(mode="wrap")
    @classmethod
    def _from_entry(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(raw, cls):
            return raw
        _check_shape(raw)
        name, given = (raw, {}) if isinstance(raw, str) else next(iter(raw.items()))
        outer = (name,) if isinstance(raw, dict) else ()
        try:
            return handler({"as": name, **(given or {}), "name": name})
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
        schema = handler.resolve_ref_schema(handler(core))
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

    def as_file(self) -> dict[str, Any]:
        """Return the entry as written in a file, with all values explicit."""
        own: dict[str, Any] = {"sweep": self.sweep.as_file()} if self.sweep else {}
        if self.constraints_on != "train":
            own["constraints_on"] = self.constraints_on
        if self.margin is not None:
            own["margin"] = self.margin
        if self.safety is not None:
            own["safety"] = self.safety and self.safety.as_file()
        if self.filter is not None:
            own["filter"] = False
        return {self.name: {**self.options, "as": self.label, **own}}


def entry_options(raw: object) -> tuple[str | None, Mapping[str, Any]]:
    """Return the name and the options of a raw entry: None and none if it is malformed."""
    if isinstance(raw, str):
        return raw, {}
    if not (isinstance(raw, dict) and len(raw) == 1):
        return None, {}
    ((name, given),) = raw.items()
    return str(name), given if isinstance(given, dict) else {}


def entry_label(raw: object) -> str | None:
    """Return the label of a raw entry, or None if the entry is malformed."""
    name, given = entry_options(raw)
    label = given.get("as", name)
    return label if isinstance(label, str) else None


def entry_sweep(raw: object) -> Mapping[str, Any]:
    """Return the raw `sweep` of a raw entry; empty if there is none."""
    sweep = entry_options(raw)[1].get("sweep")
    return sweep if isinstance(sweep, dict) else {}


def entry_label_loc(index: int, raw: object) -> Loc:
    """Return the location of a raw entry's label."""
    name, given = entry_options(raw)
    if isinstance(raw, str) or name is None:
        return ("algorithms", index)
    return ("algorithms", index, name, *(["as"] if "as" in given else []))


def _check_shape(raw: object) -> None:
    example = "write `- name` or `- name: {option: value}`"
    if isinstance(raw, str):
        return
    if not isinstance(raw, dict) or not raw:
        raise type_error("an algorithm's name, or a name with its options", raw, example)
    if len(raw) > 1:
        first, second, *_ = raw
        hint = f"write options inside, `- {first}: {{option: value}}`, and a new '-' for each"
        message = f"an entry has one algorithm, but this one has {len(raw)} keys"
        raise InvalidValueError(Diagnostic("E103", message, hint, loc=(second,), key=True))
    ((name, given),) = raw.items()
    if given is not None and not isinstance(given, dict):
        hint = f"write `- {name}: {{option: value}}`"
        raise type_error("a mapping of options to values", given, hint, loc=(name,))

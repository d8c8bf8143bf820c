"""One entry of `algorithms:`: a name, or a name with options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from annotated_types import Gt, Lt
from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PlainValidator,
    Strict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from ratecli.config.base import NameText, Spec
from ratecli.config.filter import AlgorithmFilter
from ratecli.config.safety import AlgorithmSafety, SafetySpec
from ratecli.config.sweep import Sweep
from ratecli.config.sweep_reader import read_sweep
from ratecli.config.validation import diagnostics_of, wrong_type
from ratecli.errors import Diagnostic, InvalidValueError

SCALAR_SCHEMA = {"type": ["number", "string", "boolean"]}
POINTS_SCHEMA = {
    "type": "array",
    "items": {"type": "object", "minProperties": 1, "additionalProperties": SCALAR_SCHEMA},
}
SWEEP_SCHEMA = {
    "type": "object",
    "properties": {
        "zip": {
            "type": "array",
            "items": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            "description": "Groups of names whose values are walked together.",
        },
        "include": POINTS_SCHEMA
        | {"description": "Points to add, or to complete matching ones with."},
        "exclude": POINTS_SCHEMA | {"description": "Points to leave out."},
    },
    "additionalProperties": {
        "description": "The values of one name.",
        "anyOf": [
            {"type": "array", "minItems": 1, "items": SCALAR_SCHEMA},
            {"type": "string", "pattern": r"^\s*(linspace|logspace)\s*\(.*\)\s*$"},
        ],
    },
}

ENTRY_KEYS = ("constraints_on", "filter", "margin", "safety", "sweep")
"""Keys of an entry other than its label and the algorithm's options."""

SweepField = Annotated[
    Sweep,
    PlainValidator(read_sweep),
    PlainSerializer(Sweep.as_file),
    WithJsonSchema(SWEEP_SCHEMA),
]


class AlgorithmSpec(Spec):
    """An algorithm, the label of its results, its options and its own sweep."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: NameText = Field(description="The algorithm; `ratecli ls algorithms` lists them.")
    label: NameText = Field(
        description="The name of its results (`as`); by default the algorithm's."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Its hyper-parameters; `ratecli show NAME` lists them."
    )
    constraints_on: Literal["train", "validation"] = Field(
        "train",
        description="The split on which constraints must hold. On validation rows, which no model "
        "is fitted to, they are tightened on training rows until they do.",
    )
    margin: Annotated[float, Strict(), Gt(0.5), Lt(1)] | None = Field(
        None,
        description="Confidence with which each constraint must hold: its value plus its standard "
        "error times the normal quantile (1.64 for 0.95) must satisfy it. With too few rows for "
        "that, the trial ends as `no_solution_found`.",
    )
    safety: AlgorithmSafety = Field(
        None,
        description="Keys of the safety test that are others than the file's, a test for this "
        "algorithm alone where the file has none, or false: no test.",
    )
    filter: AlgorithmFilter = Field(
        None,
        description="false: this algorithm is trained on all training rows, whatever the file's "
        "filter says.",
    )
    sweep: SweepField | None = Field(
        None,
        description="What varies for this algorithm only, beside the experiment's sweep. A name "
        "that is one of its options sets it.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _from_entry(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(raw, cls):
            return raw
        complaint = _shape_complaint(raw)
        if complaint:
            raise InvalidValueError(complaint)
        name, given = (raw, {}) if isinstance(raw, str) else next(iter(raw.items()))
        try:
            return handler(_entry_fields(name, given or {}))
        except ValidationError as error:
            found = [_relocated(each, str(name), raw) for each in diagnostics_of(error)]
            raise InvalidValueError(found) from None

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        fields = schema.pop("properties")
        schema.pop("required", None)
        schema.pop("additionalProperties", None)
        schema.pop("type", None)
        options = {
            "type": ["object", "null"],
            "description": fields["options"]["description"],
            "properties": {
                "as": fields["label"],
                "constraints_on": fields["constraints_on"],
                "margin": fields["margin"],
                "safety": fields["safety"],
                "filter": fields["filter"],
                "sweep": SWEEP_SCHEMA | {"description": fields["sweep"]["description"]},
            },
        }
        entry = {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": options,
        }
        return schema | {"anyOf": [fields["name"], entry]}

    def as_file(self) -> dict[str, Any]:
        """Return the entry as written in a file, with all values explicit."""
        own: dict[str, Any] = {"sweep": self.sweep.as_file()} if self.sweep else {}
        if self.constraints_on != "train":
            own["constraints_on"] = self.constraints_on
        if self.margin is not None:
            own["margin"] = self.margin
        if self.safety is not None:
            own["safety"] = self.safety.given() if isinstance(self.safety, SafetySpec) else False
        if self.filter is not None:
            own["filter"] = False
        return {self.name: {**self.options, "as": self.label, **own}}


def entry_label(raw: object) -> str | None:
    """Return the label of a raw entry, or None if the entry is malformed."""
    if isinstance(raw, str):
        return raw
    if not (isinstance(raw, dict) and len(raw) == 1):
        return None
    name, given = next(iter(raw.items()))
    label = given.get("as", name) if isinstance(given, dict) else name
    return label if isinstance(label, str) else None


def entry_sweep(raw: object) -> Mapping[str, Any]:
    """Return the raw `sweep` of a raw entry; empty if there is none."""
    options = next(iter(raw.values()), None) if isinstance(raw, dict) else None
    sweep = options.get("sweep") if isinstance(options, dict) else None
    return sweep if isinstance(sweep, dict) else {}


def entry_label_loc(index: int, raw: object) -> tuple[str | int, ...]:
    """Return the location of a raw entry's label."""
    if not isinstance(raw, dict):
        return ("algorithms", index)
    name, given = next(iter(raw.items()))
    if isinstance(given, dict) and "as" in given:
        return ("algorithms", index, name, "as")
    return ("algorithms", index, name)


def _shape_complaint(raw: object) -> Diagnostic | None:
    example = "write `- name` or `- name: {option: value}`"
    if isinstance(raw, str):
        return None
    if not isinstance(raw, dict) or not raw:
        return wrong_type((), "an algorithm's name, or a name with its options", raw, example)
    if len(raw) > 1:
        names = list(raw)
        listed = ", ".join(f"'{name}'" for name in names[:4]) + (", ..." if len(names) > 4 else "")
        hint = f"write options inside, `- {names[0]}: {{option: value}}`, and a new '-' for each"
        message = f"one entry names one algorithm, this has {len(names)} keys: {listed}"
        return Diagnostic("E103", message, hint, loc=(names[1],), key=True)
    ((name, given),) = raw.items()
    if given is not None and not isinstance(given, dict):
        wanted = "a mapping of options to values"
        return wrong_type((name,), wanted, given, f"write `- {name}: {{option: value}}`")
    return None


def _entry_fields(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    options = {key: value for key, value in given.items() if key not in {"as", *ENTRY_KEYS}}
    own = {key: given[key] for key in ENTRY_KEYS if key in given}
    return {"name": name, "label": given.get("as", name), "options": options} | own


def _relocated(fault: Diagnostic, name: str, raw: object) -> Diagnostic:
    """Move a diagnostic from a field of the model to the corresponding place in the file."""
    field, *rest = fault.loc
    if field in ENTRY_KEYS:
        return replace(fault, loc=(name, field, *rest))
    inside = (name, "as") if field == "label" and entry_label(raw) != name else (name,)
    loc = inside if isinstance(raw, dict) else ()
    return replace(fault, loc=loc, key=len(loc) == 1)

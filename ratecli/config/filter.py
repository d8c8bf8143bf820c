"""The `filter:` section: training rows are balanced before any algorithm sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from ratecli.config.base import (
    IDENTIFIER_PATTERN,
    ColumnName,
    NotNull,
    NumberRange,
    RuleText,
    Spec,
    any_of,
    check_one_key,
    exact_number,
    is_name,
    matching,
    require_value,
)
from ratecli.config.validation import invalid_choice, type_error
from ratecli.errors import Diagnostic

FILTER = "filter"
"""Label of the filter's own trials in results."""
TAKE_CHOICES = ("weights", "sample")
DISCLOSIVITY_RANGE = NumberRange(0, 1)
DEFAULT_FILTER = "balanced_tree"
GOAL_HINT = "write balance: COLUMN for equal shares of its values, or objective: RULE for others"
ALGORITHM_HINT = "write `algorithm: NAME` or `algorithm: {NAME: {option: value}}`"


def _validate_columns(value: object) -> object:
    """Return one column or several as a tuple."""
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list | tuple):
        raise type_error("a column or a list of columns", value, "write balance: COLUMN")
    return tuple(value)


def _validate_disclosivity(value: object) -> object:
    DISCLOSIVITY_RANGE.validate(value)
    number = exact_number(value)
    return value if number is None else float(number)


def _validate_algorithm(value: object) -> object:
    """Return a name, or a name with options, as a mapping of the name to its options."""
    if isinstance(value, str):
        return {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        raise type_error("an algorithm's name, or one name with its options", value, ALGORITHM_HINT)
    ((name, options),) = value.items()
    if not isinstance(options, dict | None):
        raise type_error("a mapping of options to values", options, ALGORITHM_HINT, loc=(name,))
    return {name: options or {}}


def _validate_take(value: object) -> object:
    """Return a choice, or a name of the sweep, which is checked once the sweep is known."""
    if value in TAKE_CHOICES or (isinstance(value, str) and is_name(value)):
        return value
    raise invalid_choice(value, TAKE_CHOICES)


_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_ALGORITHM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": {"type": ["object", "null"]},
}
FilterColumns = Annotated[
    tuple[ColumnName, ...],
    BeforeValidator(_validate_columns),
    Field(min_length=1),
    any_of(_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}),
]
DisclosivityField = Annotated[
    float | str, PlainValidator(_validate_disclosivity), WithJsonSchema(DISCLOSIVITY_RANGE.schema)
]
FilterAlgorithm = Annotated[
    dict[str, dict[str, Any]], PlainValidator(_validate_algorithm), any_of(_TEXT, _ALGORITHM_SCHEMA)
]
TakeField = Annotated[
    str,
    PlainValidator(_validate_take),
    any_of({"enum": list(TAKE_CHOICES)}, matching(IDENTIFIER_PATTERN)),
]


class FilterSpec(Spec):
    """A filter that balances groups before training.

    It keeps rows so that groups have the desired shares, without using the columns that define the
    groups. Validation, test and safety rows are not filtered.
    """

    balance: Annotated[FilterColumns | None, NotNull()] = Field(
        None,
        description="One or several columns whose values get equal shares among the kept rows.",
    )
    objective: Annotated[RuleText | None, NotNull()] = Field(
        None,
        description="Instead of 'balance', the distance of shares from other targets, to be "
        "minimized: sqrt((share[women] - 0.4)**2 + (share[men] - 0.6)**2).",
    )
    disclosivity: Annotated[
        DisclosivityField | None,
        NotNull(),
        require_value("a number from 0 to 1", "to bound nothing, remove the key"),
    ] = Field(
        None,
        description="alpha: the most by which the filter's proxy may change the probability of "
        "any value of these columns; balanced_tree guarantees it. Default: no bound.",
    )
    algorithm: FilterAlgorithm = Field(
        default_factory=lambda: dict[str, dict[str, Any]]({DEFAULT_FILTER: {}}),
        description="The filter (`ratecli ls algorithms`): a name, or {name: {option: value}}.",
    )
    take: TakeField = Field(
        "weights",
        description="weights: each training row is weighted by the probability that it is kept. "
        "sample: each is kept or not, at random by the seed. Rows without weight are not used.",
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        misspelt = bool(set(raw) - set(cls.model_fields))
        return check_one_key(raw, ("balance", "objective"), GOAL_HINT, misspelt=misspelt)

    @property
    def name(self) -> str:
        """Name of the filter algorithm."""
        return next(iter(self.algorithm))

    def as_file(self) -> dict[str, Any]:
        """Return the section as written in a file, with all values explicit."""
        return self.model_dump(mode="json", exclude_none=True)


OptionalFilter = Annotated[
    FilterSpec | None,
    NotNull(),
    require_value("a mapping of keys to values", "write filter: {balance: COLUMN}, or remove it"),
]
"""None if the key is absent; an empty value is an E103."""


def _validate_off(value: object) -> object:
    if value is not False:
        hint = "remove the key to filter the rows of this algorithm, too"
        raise type_error("false", value, hint)
    return value


AlgorithmFilter = Annotated[Literal[False] | None, NotNull(), BeforeValidator(_validate_off)]
"""The `filter` of an algorithm's entry: False trains it on unfiltered rows; None if absent."""

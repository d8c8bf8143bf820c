"""The `filter:` section: training rows are balanced before any algorithm sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from ratecli.config.base import (
    IDENTIFIER_PATTERN,
    ColumnName,
    NotNull,
    RuleText,
    Spec,
    check_name,
    require_value,
)
from ratecli.config.document import LOCATION_MARK
from ratecli.config.validation import invalid_choice, wrong_type
from ratecli.errors import Diagnostic, InvalidValueError

FILTER = "filter"
"""Label of the filter's own trials in results."""
TAKE_CHOICES = ("weights", "sample")
ALPHA_WORDS = "a number from 0 to 1"
DEFAULT_FILTER = "balanced_tree"
FILTER_GOAL_HINT = (
    "write balance: COLUMN for equal shares of its values, or objective: RULE for others"
)
UNBOUNDED_HINT = "to bound nothing, remove the key"


def _validate_columns(value: object) -> object:
    """Return one column or several as a tuple."""
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list | tuple):
        wanted = "a column or a list of columns"
        raise InvalidValueError(wrong_type((), wanted, value, "write balance: COLUMN"))
    return tuple(value)


def _validate_alpha(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidValueError(wrong_type((), f"{ALPHA_WORDS}, or a name of the sweep", value))
    if isinstance(value, str):
        wrong = check_name((), value, key=False)
    else:
        good = 0 <= value <= 1
        wrong = (
            []
            if good
            else [Diagnostic("E104", f"{LOCATION_MARK} must be {ALPHA_WORDS}, not {value}")]
        )
    if wrong:
        raise InvalidValueError(wrong)
    return value if isinstance(value, str) else float(value)


def _validate_algorithm(value: object) -> object:
    """Return a name, or a name with options, as a mapping of the name to its options."""
    example = "write `algorithm: NAME` or `algorithm: {NAME: {option: value}}`"
    if isinstance(value, str):
        return {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        wanted = "an algorithm's name, or one name with its options"
        raise InvalidValueError(wrong_type((), wanted, value, example))
    ((name, options),) = value.items()
    if options is not None and not isinstance(options, dict):
        wanted = "a mapping of options to values"
        raise InvalidValueError(wrong_type((name,), wanted, options, example))
    return {name: options or {}}


def _validate_take(value: object) -> object:
    if isinstance(value, str) and value not in TAKE_CHOICES and IDENTIFIER_PATTERN.fullmatch(value):
        return value  # a name of the sweep; checked once the sweep is known
    if value not in TAKE_CHOICES:
        raise InvalidValueError(invalid_choice((), value, TAKE_CHOICES))
    return value


_NAMED: dict[str, Any] = {"type": "string", "pattern": f"^{IDENTIFIER_PATTERN.pattern}$"}
_OPTIONS: dict[str, Any] = {"type": ["object", "null"]}
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
FilterColumns = Annotated[
    tuple[ColumnName, ...],
    BeforeValidator(_validate_columns),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]}),
]
AlphaField = Annotated[
    float | str,
    PlainValidator(_validate_alpha),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _NAMED]}),
]
FilterAlgorithm = Annotated[
    dict[str, dict[str, Any]],
    PlainValidator(_validate_algorithm),
    WithJsonSchema(
        {
            "anyOf": [
                _TEXT,
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": _OPTIONS,
                },
            ]
        }
    ),
]
TakeField = Annotated[
    str,
    PlainValidator(_validate_take),
    WithJsonSchema({"anyOf": [{"enum": list(TAKE_CHOICES)}, _NAMED]}),
]


class FilterSpec(Spec):
    """A filter that balances groups before training.

    It keeps rows so that groups have the desired shares, without using the columns that define the
    groups. Validation, test and safety rows are not filtered.
    """

    balance: Annotated[
        FilterColumns | None,
        NotNull(),
        require_value("a column or a list of columns", FILTER_GOAL_HINT),
    ] = Field(
        None,
        description="The column whose values are to have equal shares among the training rows "
        "that are kept, or several such columns.",
    )
    objective: Annotated[
        RuleText | None, NotNull(), require_value("the text of a rule", FILTER_GOAL_HINT)
    ] = Field(
        None,
        description="Instead of 'balance' the distance of shares from other targets that is to be "
        "small, as in sqrt((share[women] - 0.4)**2 + (share[men] - 0.6)**2).",
    )
    disclosivity: Annotated[
        AlphaField | None, NotNull(), require_value(ALPHA_WORDS, UNBOUNDED_HINT)
    ] = Field(
        None,
        description="alpha: by how much at most what the filter's proxy says of a row may move "
        "the chance of any value of these columns; balanced_tree keeps it. Left out, there is no "
        "bound.",
    )
    algorithm: FilterAlgorithm = Field(
        default_factory=lambda: dict[str, dict[str, Any]]({DEFAULT_FILTER: {}}),
        description="balanced_tree, or another filter (`ratecli ls algorithms`), by its name or "
        "with its options as {name: {option: value}}.",
    )
    take: TakeField = Field(
        "weights",
        description="weights: each training row counts by the chance that it is kept. sample: "
        "each is kept or not, drawn by the seed. A row without a chance, or not drawn, does not "
        "train and has no say in how features are encoded.",
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Diagnostic]:
        both = [key for key in raw if key in {"balance", "objective"} and raw[key] is not None]
        if len(both) > 1:
            message = "give one of 'balance' and 'objective'"
            return [Diagnostic("E104", message, FILTER_GOAL_HINT, loc=(both[1],), key=True)]
        if (
            not both
            and not set(raw) & {"balance", "objective"}
            and set(raw) <= set(cls.model_fields)
        ):
            message = f"{LOCATION_MARK} needs a 'balance' or an 'objective'"
            return [Diagnostic("E102", message, FILTER_GOAL_HINT, key=True)]
        return []

    @property
    def name(self) -> str:
        """Name of the filter algorithm."""
        return next(iter(self.algorithm))

    def given(self) -> dict[str, Any]:
        """Return the section as written in a file, with all values explicit."""
        data = self.model_dump(mode="json", exclude_none=True)
        return data | ({"balance": list(self.balance)} if self.balance else {})


OptionalFilter = Annotated[
    FilterSpec | None,
    NotNull(),
    require_value(
        "a mapping of keys to values", "write filter: {balance: COLUMN}, or remove the key"
    ),
]
"""None if the key is absent; an empty value is an E103."""


def _validate_off(value: object) -> object:
    if value is not False:
        hint = (
            "`filter: false` trains this algorithm on all rows; without the key they are filtered"
        )
        raise InvalidValueError(wrong_type((), "false", value, hint))
    return value


AlgorithmFilter = Annotated[Literal[False] | None, NotNull(), BeforeValidator(_validate_off)]
"""The `filter` of an algorithm's entry: False trains it on unfiltered rows; None if absent."""

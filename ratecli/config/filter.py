"""The `filter:` part: training rows are balanced before any algorithm sees them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from ratecli.config.base import Column, NoNull, Part, Rule, stated
from ratecli.config.complaint import WHERE, Complaint, no_choice, raised, wrong_type
from ratecli.config.names import NAME, bad_name

FILTER = "filter"
"""What results call the stage's own trials."""
TAKES = ("weights", "sample")
ALPHA = "a number from 0 to 1"
DEFAULT = "balanced_tree"
AIMS = "write balance: COLUMN for equal shares of its values, or objective: RULE for others"
UNBOUNDED = "to bound nothing, remove the key"


def _columns(value: object) -> object:
    """One column or several, as a list."""
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list | tuple):
        wanted = "a column or a list of columns"
        raise raised([wrong_type((), wanted, value, "write balance: COLUMN")], "columns")
    return tuple(value)


def _alpha(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise raised([wrong_type((), f"{ALPHA}, or a name of the sweep", value)], "number")
    if isinstance(value, str):
        wrong = bad_name((), value, key=False)
    else:
        good = 0 <= value <= 1
        wrong = [] if good else [Complaint((), "E104", f"{WHERE} must be {ALPHA}, not {value}")]
    if wrong:
        raise raised(wrong, "number")
    return value if isinstance(value, str) else float(value)


def _algorithm(value: object) -> object:
    """A name, or a name with options, as the latter."""
    example = "write `algorithm: NAME` or `algorithm: {NAME: {option: value}}`"
    if isinstance(value, str):
        return {value: {}}
    if not isinstance(value, dict) or len(value) != 1:
        wanted = "an algorithm's name, or one name with its options"
        raise raised([wrong_type((), wanted, value, example)], "algorithm")
    ((name, options),) = value.items()
    if options is not None and not isinstance(options, dict):
        wanted = "a mapping of options to values"
        raise raised([wrong_type((name,), wanted, options, example)], "algorithm")
    return {name: options or {}}


def _take(value: object) -> object:
    if isinstance(value, str) and value not in TAKES and NAME.fullmatch(value):
        return value  # of the sweep, or nothing: told where the sweep is known
    if value not in TAKES:
        raise raised([no_choice((), value, TAKES)], "choice")
    return value


_NAMED: dict[str, Any] = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_OPTIONS: dict[str, Any] = {"type": ["object", "null"]}
_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
FilterColumns = Annotated[
    tuple[Column, ...],
    BeforeValidator(_columns),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]}),
]
Alpha = Annotated[
    float | str,
    PlainValidator(_alpha),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _NAMED]}),
]
FilterAlgorithm = Annotated[
    dict[str, dict[str, Any]],
    PlainValidator(_algorithm),
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
Take = Annotated[
    str,
    PlainValidator(_take),
    WithJsonSchema({"anyOf": [{"enum": list(TAKES)}, _NAMED]}),
]


class Filter(Part):
    """A balanced filter before training: it keeps rows so that groups have given shares, and does not see
    the columns that tell them. Validation, test and safety rows are not filtered.
    """

    balance: Annotated[
        FilterColumns | None, NoNull(), stated("a column or a list of columns", AIMS)
    ] = Field(
        None,
        description="The column whose values are to have equal shares among the training rows that are "
        "kept, or several such columns.",
    )
    objective: Annotated[Rule | None, NoNull(), stated("the text of a rule", AIMS)] = Field(
        None,
        description="Instead of 'balance' the distance of shares from other targets that is to be small, "
        "as in sqrt((share[women] - 0.4)**2 + (share[men] - 0.6)**2).",
    )
    disclosivity: Annotated[Alpha | None, NoNull(), stated(ALPHA, UNBOUNDED)] = Field(
        None,
        description="alpha: by how much at most what the filter's proxy says of a row may move the chance "
        "of any value of these columns; balanced_tree keeps it. Left out, there is no bound.",
    )
    algorithm: FilterAlgorithm = Field(
        default_factory=lambda: dict[str, dict[str, Any]]({DEFAULT: {}}),
        description="balanced_tree, or another filter (`ratecli ls algorithms`), by its name or with its "
        "options as {name: {option: value}}.",
    )
    take: Take = Field(
        "weights",
        description="weights: each training row counts by the chance that it is kept. sample: each is kept "
        "or not, drawn by the seed. A row without a chance, or not drawn, does not train and has no say in "
        "how features are encoded.",
    )

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Complaint]:
        both = [key for key in raw if key in {"balance", "objective"} and raw[key] is not None]
        if len(both) > 1:
            message = "give one of 'balance' and 'objective'"
            return [Complaint((both[1],), "E104", message, AIMS, key=True)]
        if (
            not both
            and not set(raw) & {"balance", "objective"}
            and set(raw) <= set(cls.model_fields)
        ):
            message = f"{WHERE} needs a 'balance' or an 'objective'"
            return [Complaint((), "E102", message, AIMS, key=True)]
        return []

    @property
    def name(self) -> str:
        """The algorithm's."""
        return next(iter(self.algorithm))

    def given(self) -> dict[str, Any]:
        """The part as it is written in a file, everything said."""
        data = self.model_dump(mode="json", exclude_none=True)
        return data | ({"balance": list(self.balance)} if self.balance else {})


GivenFilter = Annotated[
    Filter | None,
    NoNull(),
    stated("a mapping of keys to values", "write filter: {balance: COLUMN}, or remove the key"),
]
"""None where the key is not there; left empty it is an E103."""


def _off(value: object) -> object:
    if value is not False:
        hint = (
            "`filter: false` trains this algorithm on all rows; without the key they are filtered"
        )
        raise raised([wrong_type((), "false", value, hint)], "filter")
    return value


OwnFilter = Annotated[Literal[False] | None, NoNull(), BeforeValidator(_off)]
"""What an algorithm's entry says of the filter: that its training rows are not filtered, or nothing."""

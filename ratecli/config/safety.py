"""The `safety:` section: the test on held-out rows that a trained model must pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema

from ratecli.config.base import (
    IDENTIFIER_PATTERN,
    NotNull,
    Spec,
    StrictFlag,
    check_name,
    require_value,
)
from ratecli.config.dataset import FRACTION_PATTERN, ColumnNames, as_fraction
from ratecli.config.document import LOCATION_MARK
from ratecli.config.validation import quote_value, wrong_type
from ratecli.errors import Diagnostic, FaultError, InvalidValueError

DEFAULT_DELTA = 0.05
"""Delta of constraints that a mapping `delta` does not name."""


def _validate_number(value: object, within: Callable[[Fraction], bool], words: str) -> object:
    """Return a number, a fraction or a name; raise FaultError with E103 or E104."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidValueError(wrong_type((), f"{words}, or a name of the sweep", value))
    if isinstance(value, str) and not FRACTION_PATTERN.fullmatch(value):
        wrong = check_name((), value, key=False) and [_not_a_number(value)]
    else:
        exists = isinstance(value, str) or math.isfinite(value)
        good = exists and within(as_fraction(value))
        wrong = (
            [] if good else [Diagnostic("E104", f"{LOCATION_MARK} must be {words}, not {value}")]
        )
    if wrong:
        raise InvalidValueError(wrong)
    return value


def _not_a_number(text: str) -> Diagnostic:
    """Return the error for a text such as `5%`, which was meant as a number, not as a name."""
    message = (
        f"{LOCATION_MARK} must be a number such as 0.05 or 1/20, or a name of the sweep, "
        f"not {quote_value(text)}"
    )
    return Diagnostic("E104", message)


def is_probability(value: Fraction) -> bool:
    return 0 < value < 1


def is_pass_probability(value: Fraction) -> bool:
    """Return whether a value is valid as `aim`.

    An aim of 0.5 tightens nothing; 1 would require an infinite margin.
    """
    return Fraction(1, 2) <= value < 1


PROBABILITY_WORDS = "greater than 0 and less than 1"
AIM_WORDS = "at least 0.5 and less than 1"


def _validate_chance(value: object) -> object:
    return _validate_number(value, is_probability, f"a number {PROBABILITY_WORDS}")


def _validate_aim(value: object) -> object:
    return (
        value
        if value is None
        else _validate_number(value, is_pass_probability, f"a number {AIM_WORDS}")
    )


def _validate_delta(value: object) -> object:
    """Return delta: one for all constraints, or a mapping of constraints to deltas.

    Fractions are converted to numbers.
    """
    if not isinstance(value, dict):
        given = _validate_chance(value)
        divided = isinstance(given, str) and FRACTION_PATTERN.fullmatch(given)
        return float(as_fraction(str(given))) if divided else given
    found: list[Diagnostic] = []
    each = dict[str, object]()
    for name, one in value.items():
        try:
            each[name] = _validate_chance(one) if isinstance(one, dict) else _validate_delta(one)
        except FaultError as error:
            found += [each.under(name) for each in error.faults]
    if found:
        raise InvalidValueError(found)
    return each


_PROBABILITY_SCHEMA: dict[str, Any] = {
    "type": "number",
    "exclusiveMinimum": 0,
    "exclusiveMaximum": 1,
}
_NAME_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^{IDENTIFIER_PATTERN.pattern}$"}
_FRACTION_SCHEMA: dict[str, Any] = {"type": "string", "pattern": f"^{FRACTION_PATTERN.pattern}$"}
_AIM_SCHEMA: dict[str, Any] = {"type": "number", "minimum": 0.5, "exclusiveMaximum": 1}
_CHANCE_SCHEMAS = [_PROBABILITY_SCHEMA, _FRACTION_SCHEMA, _NAME_SCHEMA]
_CHANCE_SCHEMA: dict[str, Any] = {"anyOf": _CHANCE_SCHEMAS}
DeltaField = Annotated[
    float | str | dict[str, float | str],
    PlainValidator(_validate_delta),
    WithJsonSchema(
        {"anyOf": [*_CHANCE_SCHEMAS, {"type": "object", "additionalProperties": _CHANCE_SCHEMA}]}
    ),
]
ChanceField = Annotated[
    float | str,
    PlainValidator(_validate_chance),
    WithJsonSchema(_CHANCE_SCHEMA),
]
AimField = Annotated[
    float | str | None,
    PlainValidator(_validate_aim),
    WithJsonSchema({"anyOf": [_AIM_SCHEMA, _FRACTION_SCHEMA, _NAME_SCHEMA, {"type": "null"}]}),
]


class SafetySpec(Spec):
    """A test of every constraint on held-out rows; a model that fails it is not returned."""

    delta: DeltaField = Field(
        DEFAULT_DELTA,
        description="How probable a mistake may be: that a model passes which breaks a "
        "constraint. A number, a fraction such as 1/20, a name of the sweep, or one of these for "
        "each constraint by its name (0.05 for those that are left out).",
    )
    bound: Literal[
        "auto",
        "student_t",
        "hoeffding",
        "clopper_pearson",
        "empirical_bernstein",
        "betting",
        "bootstrap",
    ] = Field("auto", description="The confidence bound; `auto` takes one that suits the rates.")
    fraction: ChanceField = Field(
        0.5,
        description="Fraction of the training rows that is put aside for the test, or a name of "
        "the sweep.",
    )
    method: Literal["leaves", "forms", "pieces"] = Field(
        "pieces",
        description="What is bounded: every rate (leaves), affine combinations of rates (forms), "
        "or these for each part of a maximum at the whole delta (pieces).",
    )
    division: Literal["equal", "optimized"] = Field(
        "equal",
        description="How a constraint's delta is divided over the bounds that it needs: equally, "
        "or as suits the candidate best on the rows that it was trained on.",
    )
    stratify: ColumnNames | None = Field(
        None,
        description="Columns (or label) whose values get the same shares in the test as in "
        "training.",
    )
    order: Literal["shuffled", "positional"] = Field(
        "shuffled",
        description="Which rows are put aside: some at random, or the last ones in the order of "
        "the file.",
    )

    test: StrictFlag = Field(
        default=True,
        description="false puts the rows aside and tests nothing, for an algorithm that others "
        "are compared with by of(...): it must not have seen the rows of their tests.",
    )
    aim: AimField = Field(
        None,
        description="The probability with which a model is to pass: an algorithm that takes "
        "constraints has them tightened on training rows until that is likely. Without it the "
        "model is tested as it comes. A number, or a name of the sweep.",
    )

    def given(self) -> dict[str, Any]:
        """Return the keys given in the file, without defaults."""
        return self.model_dump(mode="json", exclude_unset=True)


OptionalSafety = Annotated[
    SafetySpec | None,
    NotNull(),
    require_value(
        "a mapping of keys to values",
        "`safety: {}` is a test with the defaults; to test nothing, remove the key",
    ),
]
"""The file's test; None if the key is absent. An empty value is an E103."""


def _validate_own_safety(value: object) -> object:
    if value is False or isinstance(value, SafetySpec):
        return value
    if not isinstance(value, dict):
        raise InvalidValueError(
            wrong_type((), "a mapping of keys to values, or false", value, SAFETY_OFF_HINT)
        )
    return SafetySpec.model_validate(value)


SAFETY_OFF_HINT = (
    "`safety: false` turns the test off for this algorithm; without the key it has the file's test"
)
AlgorithmSafety = Annotated[
    SafetySpec | Literal[False] | None, NotNull(), BeforeValidator(_validate_own_safety)
]
"""The `safety` of an algorithm's entry: keys that override those of the file's test, or no test.

None if the key is absent: the file's test applies. An empty value is an E103, since it could mean
either.
"""

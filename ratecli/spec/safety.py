"""The `safety:` part: the test that a trained model has to pass on rows that no algorithm sees."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt
from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
    WithJsonSchema,
)

from ratecli.spec.complaint import WHERE, Complaint, complaints_of, raised, wrong_type
from ratecli.spec.dataset import FRACTION, Columns, as_fraction
from ratecli.spec.names import NAME, bad_name
from ratecli.spec.strict import Flag, Part

DELTA = 0.05
"""Of a constraint that `delta` does not name."""


def _chance(value: object, *, fractions: bool = False) -> object:
    """A number between 0 and 1, both excluded, or a name; raises what pydantic passes on."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        wanted = "a number between 0 and 1, or a name of the sweep"
        raise raised([wrong_type((), wanted, value)], "number")
    divided = isinstance(value, str) and FRACTION.fullmatch(value) is not None and fractions
    if isinstance(value, str) and not divided:
        wrong = bad_name((), value, key=False)
    else:
        wrong = [] if _between(value) else [Complaint((), "E104", f"{BETWEEN}, not {value}")]
    if wrong:
        raise raised(wrong, "number")
    return value


BETWEEN = f"{WHERE} must be greater than 0 and less than 1"


def _between(value: float | str) -> bool:
    if isinstance(value, str):
        return not value.endswith("/0") and 0 < as_fraction(value) < 1
    return 0 < value < 1


def _share(value: object) -> object:
    return _chance(value, fractions=True)


def _delta(value: object) -> object:
    """One for all constraints, or one for each by its name."""
    if not isinstance(value, dict):
        return _chance(value)
    found: list[Complaint] = []
    for name, each in value.items():
        try:
            _chance(each)
        except ValidationError as error:
            found += [complaint.under(name) for complaint in complaints_of(error)]
    if found:
        raise raised(found, "delta")
    return value


_BETWEEN: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_NAMED: dict[str, Any] = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_DIVIDED: dict[str, Any] = {"type": "string", "pattern": f"^{FRACTION.pattern}$"}
_CHANCE: dict[str, Any] = {"anyOf": [_BETWEEN, _NAMED]}
Delta = Annotated[
    float | str | dict[str, float | str],
    PlainValidator(_delta),
    WithJsonSchema(
        {"anyOf": [_BETWEEN, _NAMED, {"type": "object", "additionalProperties": _CHANCE}]}
    ),
]
Share = Annotated[
    float | str,
    PlainValidator(_share),
    WithJsonSchema({"anyOf": [_BETWEEN, _DIVIDED, _NAMED]}),
]


class Safety(Part):
    """A test of every constraint on rows that no algorithm sees: a model that fails it is not given."""

    delta: Delta = Field(
        DELTA,
        description="How probable a mistake may be: that a model passes which breaks a constraint. A "
        "number, a name of the sweep, or one of these for each constraint by its name (0.05 for those "
        "that are left out).",
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
    fraction: Share = Field(
        0.5,
        description="Fraction of the training rows that is put aside for the test, or a name of the "
        "sweep.",
    )
    method: Literal["leaves", "forms", "pieces"] = Field(
        "pieces",
        description="What is bounded: every rate (leaves), affine combinations of rates (forms), or "
        "these for each part of a maximum at the whole delta (pieces).",
    )
    division: Literal["equal", "optimized"] = Field(
        "equal",
        description="How a constraint's delta is divided over the bounds that it needs: equally, or as "
        "suits the candidate best on the rows that it was trained on.",
    )
    stratify: Columns | None = Field(
        None,
        description="Columns (or label) whose values get the same shares in the test as in training.",
    )
    order: Literal["shuffled", "positional"] = Field(
        "shuffled",
        description="Which rows are put aside: some at random, or the last ones in the order of the "
        "file.",
    )

    test: Flag = Field(
        default=True,
        description="false puts the rows aside and tests nothing, for an algorithm that others are compared "
        "with by of(...): it must not have seen the rows of their tests.",
    )
    aim: Annotated[float, Strict(), Ge(0.5), Lt(1)] | None = Field(
        None,
        description="The probability with which a model is to pass: an algorithm that takes constraints has "
        "them tightened on training rows until that is likely. Without it the model is tested as it comes.",
    )

    def given(self) -> dict[str, Any]:
        """What the file says here, without defaults."""
        return self.model_dump(mode="json", exclude_unset=True)


def _own(value: object) -> object:
    if value is None or value is False or isinstance(value, Safety):
        return value
    if not isinstance(value, dict):
        hint = "`safety: false` turns the test off for this algorithm"
        raise raised([wrong_type((), "a mapping of keys to values, or false", value, hint)], "test")
    return Safety.model_validate(value)


OwnSafety = Annotated[Safety | Literal[False] | None, BeforeValidator(_own)]
"""What an algorithm's entry says of the test: keys that stand for those of the file's, or no test."""

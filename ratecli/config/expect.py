"""The `expect:` part: numbers that must come out, and those of a paper to stand beside ours."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema, model_validator

from ratecli.config.base import ColumnName, NameText, Spec, StrictScalar, StrictText
from ratecli.config.complaint import (
    LOCATION_MARK,
    Complaint,
    as_validation_error,
    describe_type,
    unknown_key,
)
from ratecli.config.report import SplitName
from ratecli.config.sweep import SweepValue

EXPECTATION_KINDS = ("paper", "value", "at_most", "at_least")
"""Of these every entry has one."""
CONFIDENCE_INTERVAL = "ci"
PERCENT_PATTERN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
WITHIN_HELP = "write a number as 0.01, a share as 2%, or ci for our 95 % interval"


def _validate_tolerance(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        message = f"{LOCATION_MARK} must be a number or a text, not {describe_type(value)}"
        raise as_validation_error([Complaint((), "E103", message, WITHIN_HELP)], "value")
    words = isinstance(value, str)
    good = (
        value == CONFIDENCE_INTERVAL or PERCENT_PATTERN.fullmatch(str(value))
        if words
        else 0 <= float(value) < INFINITY
    )
    if not good:
        message = f"{LOCATION_MARK} must be a number from 0, a share or ci, not '{value}'"
        raise as_validation_error([Complaint((), "E104", message, WITHIN_HELP)], "value")
    return value


INFINITY = float("inf")
StrictNumber = Annotated[float, Strict()]
Tolerance = Annotated[
    float | str,
    BeforeValidator(_validate_tolerance),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {
                    "type": "string",
                    "pattern": rf"^({CONFIDENCE_INTERVAL}|{PERCENT_PATTERN.pattern})$",
                },
            ]
        }
    ),
]


class Expectation(Spec):
    """What some rows of the results are compared with; further keys are names of the sweep."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, StrictScalar] = Field(init=False)

    algorithm: NameText = Field(description="The label of the algorithm.")
    variant: ColumnName | None = Field(None, description="Which of its variants; without it all.")
    split: SplitName = Field("test", description="The rows that are measured.")
    metric: ColumnName = Field(
        description="What is compared: a metric, objective, violation.CONSTRAINT, solution_rate, "
        "failure_rate (of any constraint), failure_rate.CONSTRAINT."
    )
    paper: StrictNumber | None = Field(
        None,
        description="The paper's figure, to stand beside ours; judged where `within` is given.",
    )
    value: StrictNumber | None = Field(
        None, description="What our mean must be, as exactly as `within` says."
    )
    at_most: StrictNumber | None = Field(None, description="What our mean must not exceed.")
    at_least: StrictNumber | None = Field(None, description="What our mean must reach.")
    within: Tolerance | None = Field(
        None,
        description="How far our mean may lie from the figure or beyond the bound: a number, a share "
        "of it (2%), or `ci`, our 95 % interval.",
    )
    source: StrictText | None = Field(None, description="Where the figure stands, such as Table 3.")

    @property
    def point(self) -> dict[str, SweepValue]:
        """The sweep point that is asked for; names that it leaves out may have any value."""
        return dict(self.model_extra or {})

    @property
    def kind(self) -> str:
        return next(name for name in EXPECTATION_KINDS if getattr(self, name) is not None)

    def as_file(self) -> dict[str, Any]:
        """The entry as it is written in a file."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Complaint]:
        given = [name for name in EXPECTATION_KINDS if raw.get(name) is not None]
        listed = ", ".join(f"'{name}'" for name in EXPECTATION_KINDS)
        if not given and not _misspelt_keys(raw):
            yield Complaint((), "E102", f"{LOCATION_MARK} needs one of {listed}", key=True)
        if len(given) > 1:
            hint = "write an entry for each"
            message = f"one entry has one of {listed}"
            yield Complaint((given[1],), "E104", message, hint, key=True)
        if given == ["value"] and raw.get("within") is None:
            message = "'value' needs 'within': how exactly our mean must be that"
            yield Complaint(("value",), "E102", message, WITHIN_HELP, key=True)

    @model_validator(mode="before")
    @classmethod
    def _no_misspelt_key(cls, raw: Any) -> Any:
        near = _misspelt_keys(raw) if isinstance(raw, dict) else []
        if near:
            raise as_validation_error(
                [unknown_key((key,), cls.model_fields) for key in near], cls.__name__
            )
        return raw


def _misspelt_keys(raw: Mapping[str, Any]) -> list[str]:
    """Keys that are no names of the sweep but nearly something that is needed and missing."""
    needed = {"algorithm", "metric", *EXPECTATION_KINDS} - raw.keys()
    if raw.keys() & set(EXPECTATION_KINDS):
        needed -= set(EXPECTATION_KINDS)
    return [
        key
        for key in raw
        if key not in Expectation.model_fields and difflib.get_close_matches(key, needed, n=1)
    ]

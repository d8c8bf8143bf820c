"""The `expect:` part: numbers that must come out, and those of a paper to stand beside ours."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema, model_validator

from ratecli.config.base import Column, Name, Part, Scalar, Text
from ratecli.config.complaint import WHERE, Complaint, kind, raised, unknown_key
from ratecli.config.report import SplitName
from ratecli.config.sweep import Value

KINDS = ("paper", "value", "at_most", "at_least")
"""Of these every entry has one."""
CI = "ci"
PERCENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
WITHIN_HELP = "write a number as 0.01, a share as 2%, or ci for our 95 % interval"


def _within(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        message = f"{WHERE} must be a number or a text, not {kind(value)}"
        raise raised([Complaint((), "E103", message, WITHIN_HELP)], "value")
    words = isinstance(value, str)
    good = value == CI or PERCENT.fullmatch(str(value)) if words else 0 <= float(value) < INFINITY
    if not good:
        message = f"{WHERE} must be a number from 0, a share or ci, not '{value}'"
        raise raised([Complaint((), "E104", message, WITHIN_HELP)], "value")
    return value


INFINITY = float("inf")
Number = Annotated[float, Strict()]
Within = Annotated[
    float | str,
    BeforeValidator(_within),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": rf"^({CI}|{PERCENT.pattern})$"},
            ]
        }
    ),
]


class Expectation(Part):
    """What some rows of the results are compared with; further keys are names of the sweep."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Scalar] = Field(init=False)

    algorithm: Name = Field(description="The label of the algorithm.")
    variant: Column | None = Field(None, description="Which of its variants; without it all.")
    split: SplitName = Field("test", description="The rows that are measured.")
    metric: Column = Field(
        description="What is compared: a metric, objective, violation.CONSTRAINT, solution_rate, "
        "failure_rate (of any constraint), failure_rate.CONSTRAINT."
    )
    paper: Number | None = Field(
        None,
        description="The paper's figure, to stand beside ours; judged where `within` is given.",
    )
    value: Number | None = Field(
        None, description="What our mean must be, as exactly as `within` says."
    )
    at_most: Number | None = Field(None, description="What our mean must not exceed.")
    at_least: Number | None = Field(None, description="What our mean must reach.")
    within: Within | None = Field(
        None,
        description="How far our mean may lie from the figure or beyond the bound: a number, a share "
        "of it (2%), or `ci`, our 95 % interval.",
    )
    source: Text | None = Field(None, description="Where the figure stands, such as Table 3.")

    @property
    def point(self) -> dict[str, Value]:
        """The sweep point that is asked for; names that it leaves out may have any value."""
        return dict(self.model_extra or {})

    @property
    def kind(self) -> str:
        return next(name for name in KINDS if getattr(self, name) is not None)

    def as_file(self) -> dict[str, Any]:
        """The entry as it is written in a file."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def cross_check(cls, raw: Mapping[str, Any]) -> Iterable[Complaint]:
        given = [name for name in KINDS if raw.get(name) is not None]
        listed = ", ".join(f"'{name}'" for name in KINDS)
        if not given and not _misspelt(raw):
            yield Complaint((), "E102", f"{WHERE} needs one of {listed}", key=True)
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
        near = _misspelt(raw) if isinstance(raw, dict) else []
        if near:
            raise raised([unknown_key((key,), cls.model_fields) for key in near], cls.__name__)
        return raw


def _misspelt(raw: Mapping[str, Any]) -> list[str]:
    """Keys that are no names of the sweep but nearly something that is needed and missing."""
    needed = {"algorithm", "metric", *KINDS} - raw.keys()
    if raw.keys() & set(KINDS):
        needed -= set(KINDS)
    return [
        key
        for key in raw
        if key not in Expectation.model_fields and difflib.get_close_matches(key, needed, n=1)
    ]

"""What a trial may take before it is ended: time and memory."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from ratecli.config.base import Spec
from ratecli.config.complaint import LOCATION_MARK, Complaint, as_validation_error, describe_type

AMOUNT_PATTERN = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?) ?([A-Za-z]+)")
SECONDS_PER_UNIT = {"s": 1.0, "min": 60.0, "h": 3600.0}
BYTES_PER_UNIT = {
    **{unit: 1000.0**k for k, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: 1024.0**k for k, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
}
MAX_SECONDS = 30 * 86400.0
MIN_MEMORY = 64 * 2**20
MAX_MEMORY = 2**50


def _validate_seconds(value: object) -> object:
    hint = "write seconds, or a text like 90 s, 10 min or 2 h"
    seconds = _parse_amount(value, SECONDS_PER_UNIT, hint)
    if not 0 < seconds <= MAX_SECONDS:
        message = f"{LOCATION_MARK} must be more than nothing and at most 30 days, not '{value}'"
        raise _limit_error("E104", message, hint)
    return seconds


def _validate_bytes(value: object) -> object:
    hint = "write a text like 512 MiB or 4 GiB"
    found = _parse_amount(value, BYTES_PER_UNIT, hint)
    if not MIN_MEMORY <= found <= MAX_MEMORY:
        message = f"{LOCATION_MARK} must be from 64 MiB, which Python alone takes, to 1 PiB, not '{value}'"
        raise _limit_error("E104", message, hint)
    return int(found)


def _parse_amount(value: object, units: dict[str, float], hint: str) -> float:
    """A number as it is, or a text's number times its unit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _limit_error(
            "E103", f"{LOCATION_MARK} must be a number or a text, not {describe_type(value)}", hint
        )
    if not isinstance(value, str):
        return float(value)
    found = AMOUNT_PATTERN.fullmatch(value)
    if found is None or found[2] not in units:
        message = f"'{value}' is no amount with one of the units {', '.join(units)}"
        raise _limit_error("E104", message, hint)
    return float(found[1]) * units[found[2]]


def _limit_error(code: str, message: str, hint: str) -> ValidationError:
    return as_validation_error([Complaint((), code, message, hint)], "value")


def _amount_schema(units: dict[str, float]) -> WithJsonSchema:
    pattern = rf"^[0-9.]+(?:[eE][-+]?[0-9]+)? ?({'|'.join(units)})$"
    number = {"type": "number", "exclusiveMinimum": 0}
    return WithJsonSchema({"anyOf": [number, {"type": "string", "pattern": pattern}]})


DurationField = Annotated[
    float, BeforeValidator(_validate_seconds), _amount_schema(SECONDS_PER_UNIT)
]
MemoryField = Annotated[int, BeforeValidator(_validate_bytes), _amount_schema(BYTES_PER_UNIT)]


class LimitsSpec(Spec):
    """What a trial may take. Numbers do not hang on it: it is not part of a trial's key."""

    time: DurationField | None = Field(
        None,
        description="A trial that runs longer is ended as timeout: seconds, or a text like 10 min.",
    )
    memory: MemoryField | None = Field(
        None,
        description="A trial whose process holds more is ended as error, and streamed data sets are "
        "read in pieces that stay within it: a text like 2 GiB.",
    )

"""What a trial may take before it is ended: time and memory."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from ratecli.config.base import Part
from ratecli.config.complaint import WHERE, Complaint, kind, raised

AMOUNT = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?) ?([A-Za-z]+)")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
BYTES = {
    **{unit: 1000.0**k for k, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: 1024.0**k for k, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
}
LONGEST = 30 * 86400.0
LEAST_MEMORY = 64 * 2**20
MOST_MEMORY = 2**50


def _seconds(value: object) -> object:
    hint = "write seconds, or a text like 90 s, 10 min or 2 h"
    seconds = _amount(value, SECONDS, hint)
    if not 0 < seconds <= LONGEST:
        message = f"{WHERE} must be more than nothing and at most 30 days, not '{value}'"
        raise _refused("E104", message, hint)
    return seconds


def _bytes(value: object) -> object:
    hint = "write a text like 512 MiB or 4 GiB"
    found = _amount(value, BYTES, hint)
    if not LEAST_MEMORY <= found <= MOST_MEMORY:
        message = f"{WHERE} must be from 64 MiB, which Python alone takes, to 1 PiB, not '{value}'"
        raise _refused("E104", message, hint)
    return int(found)


def _amount(value: object, units: dict[str, float], hint: str) -> float:
    """A number as it is, or a text's number times its unit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refused("E103", f"{WHERE} must be a number or a text, not {kind(value)}", hint)
    if not isinstance(value, str):
        return float(value)
    found = AMOUNT.fullmatch(value)
    if found is None or found[2] not in units:
        message = f"'{value}' is no amount with one of the units {', '.join(units)}"
        raise _refused("E104", message, hint)
    return float(found[1]) * units[found[2]]


def _refused(code: str, message: str, hint: str) -> ValidationError:
    return raised([Complaint((), code, message, hint)], "value")


def _schema(units: dict[str, float]) -> WithJsonSchema:
    pattern = rf"^[0-9.]+(?:[eE][-+]?[0-9]+)? ?({'|'.join(units)})$"
    number = {"type": "number", "exclusiveMinimum": 0}
    return WithJsonSchema({"anyOf": [number, {"type": "string", "pattern": pattern}]})


Seconds = Annotated[float, BeforeValidator(_seconds), _schema(SECONDS)]
Bytes = Annotated[int, BeforeValidator(_bytes), _schema(BYTES)]


class Limits(Part):
    """What a trial may take. Numbers do not hang on it: it is not part of a trial's key."""

    time: Seconds | None = Field(
        None,
        description="A trial that runs longer is ended as timeout: seconds, or a text like 10 min.",
    )
    memory: Bytes | None = Field(
        None,
        description="A trial whose process holds more is ended as error, and streamed data sets are "
        "read in pieces that stay within it: a text like 2 GiB.",
    )

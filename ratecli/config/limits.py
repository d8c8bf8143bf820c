"""Limits of trials, and their measured times."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from ratecli.config.base import Spec, any_of, is_scalar, validate_each
from ratecli.config.validation import type_error, value_error

NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,2})?"
AMOUNT_PATTERN = re.compile(rf"({NUMBER}) ?([A-Za-z]+)")
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
        raise value_error("more than 0 and at most 30 days", f"'{value}'", hint)
    return seconds


def _validate_bytes(value: object) -> object:
    hint = "write a text like 512 MiB or 4 GiB"
    count = _parse_amount(value, BYTES_PER_UNIT, hint)
    if not MIN_MEMORY <= count <= MAX_MEMORY:
        wanted = "from 64 MiB, which Python itself needs, to 1 PiB"
        raise value_error(wanted, f"'{value}'", hint)
    return int(count)


def _parse_amount(value: object, units: dict[str, float], hint: str) -> float:
    """Return a number unchanged, or the number in a text times its unit."""
    if not is_scalar(value):
        raise type_error("a number or a text", value, hint)
    if isinstance(value, int | float):
        return float(value)
    found = AMOUNT_PATTERN.fullmatch(str(value))
    if found is None or found[2] not in units:
        raise value_error(f"a number with one of the units {', '.join(units)}", f"'{value}'", hint)
    return float(found[1]) * units[found[2]]


def _amount_schema(units: dict[str, float]) -> WithJsonSchema:
    pattern = rf"^[0-9.]+(?:[eE][-+]?[0-9]+)? ?({'|'.join(units)})$"
    number = {"type": "number", "exclusiveMinimum": 0}
    return any_of(number, {"type": "string", "pattern": pattern})


DurationField = Annotated[
    float, BeforeValidator(_validate_seconds), _amount_schema(SECONDS_PER_UNIT)
]
MemoryField = Annotated[int, BeforeValidator(_validate_bytes), _amount_schema(BYTES_PER_UNIT)]


class LimitsSpec(Spec):
    """Time and memory limits of a trial. They do not affect results, so they are not in its key."""

    time: DurationField | None = None
    """A trial that runs longer ends as timeout: seconds, or a text like 10 min."""
    memory: MemoryField | None = None
    """A trial whose process needs more ends as error, and streamed data sets are read in smaller
    pieces: a text like 2 GiB.
    """

    def wider(self, other: LimitsSpec) -> LimitsSpec:
        """Return the wider of both limits, for a trial that two experiments share."""
        pairs = {key: (getattr(self, key), getattr(other, key)) for key in ("time", "memory")}
        return LimitsSpec(**{key: max(pair) for key, pair in pairs.items() if None not in pair})


def _validate_trial_seconds(value: object) -> object:
    """Return a number above 0, or a mapping of data sets to such numbers."""
    if isinstance(value, dict):
        validate_each(value.items(), _validate_positive)
    else:
        _validate_positive(value, " or a mapping of data sets to numbers")
    return value


def _validate_positive(value: object, other: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise type_error(f"a number of seconds{other}", value)
    if not 0 < value < math.inf:
        raise value_error("greater than 0 and finite", f"'{value}'")


_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
TrialSeconds = Annotated[
    float | dict[str, float],
    BeforeValidator(_validate_trial_seconds),
    any_of(_POSITIVE, {"type": "object", "additionalProperties": _POSITIVE}),
]
"""Seconds of a trial: a number, or one for each data set."""

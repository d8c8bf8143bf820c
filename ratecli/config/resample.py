"""The `resample:` part: training rows drawn from all rows, so that the truth about them is known."""

from __future__ import annotations

from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from ratecli.config.base import NotNull, require_value
from ratecli.config.complaint import LOCATION_MARK, Complaint, as_validation_error, wrong_type
from ratecli.config.dataset import FRACTION_PATTERN, as_fraction
from ratecli.config.names import IDENTIFIER_PATTERN, check_name

MAX_RESAMPLE_SHARE = 1000
"""Times as many rows as there are: more were a slip."""
RESAMPLE_WANTED = "a number greater than 0, or a name of the sweep"


def _validate_resample(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise as_validation_error([wrong_type((), RESAMPLE_WANTED, value)], "share")
    if isinstance(value, str) and not FRACTION_PATTERN.fullmatch(value):
        wrong = check_name((), value, key=False)
    else:
        wrong = (
            []
            if _is_valid_share(value)
            else [Complaint((), "E104", f"{RESAMPLE_MESSAGE}, not {value}")]
        )
    if wrong:
        raise as_validation_error(wrong, "share")
    return value


RESAMPLE_MESSAGE = f"{LOCATION_MARK} must be greater than 0 and at most {MAX_RESAMPLE_SHARE}"


def _is_valid_share(value: float | str) -> bool:
    if isinstance(value, str):
        return 0 < as_fraction(value) <= MAX_RESAMPLE_SHARE
    return 0 < value <= MAX_RESAMPLE_SHARE


ResampleShare = Annotated[
    float | str,
    PlainValidator(_validate_resample),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_RESAMPLE_SHARE},
                {"type": "string", "pattern": f"^{FRACTION_PATTERN.pattern}$"},
                {"type": "string", "pattern": f"^{IDENTIFIER_PATTERN.pattern}$"},
            ]
        }
    ),
]
OptionalResample = Annotated[
    ResampleShare | None,
    NotNull(),
    require_value(
        RESAMPLE_WANTED, "write a number, or remove the key to train on the rows of the split"
    ),
]
"""None where the key is not there; left empty it is an E103."""

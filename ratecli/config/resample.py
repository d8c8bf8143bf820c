"""The `resample:` part: training rows drawn from all rows, so that the truth about them is known."""

from __future__ import annotations

from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from ratecli.config.base import NoNull, stated
from ratecli.config.complaint import WHERE, Complaint, raised, wrong_type
from ratecli.config.dataset import FRACTION, as_fraction
from ratecli.config.names import NAME, bad_name

MAX_SHARE = 1000
"""Times as many rows as there are: more were a slip."""
WANTED = "a number greater than 0, or a name of the sweep"


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise raised([wrong_type((), WANTED, value)], "share")
    if isinstance(value, str) and not FRACTION.fullmatch(value):
        wrong = bad_name((), value, key=False)
    else:
        wrong = [] if _possible(value) else [Complaint((), "E104", f"{WITHIN}, not {value}")]
    if wrong:
        raise raised(wrong, "share")
    return value


WITHIN = f"{WHERE} must be greater than 0 and at most {MAX_SHARE}"


def _possible(value: float | str) -> bool:
    if isinstance(value, str):
        return 0 < as_fraction(value) <= MAX_SHARE
    return 0 < value <= MAX_SHARE


Resample = Annotated[
    float | str,
    PlainValidator(_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SHARE},
                {"type": "string", "pattern": f"^{FRACTION.pattern}$"},
                {"type": "string", "pattern": f"^{NAME.pattern}$"},
            ]
        }
    ),
]
GivenResample = Annotated[
    Resample | None,
    NoNull(),
    stated(WANTED, "write a number, or remove the key to train on the rows of the split"),
]
"""None where the key is not there; left empty it is an E103."""

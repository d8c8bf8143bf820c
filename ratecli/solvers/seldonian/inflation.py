"""The margin between a bound predicted on candidate rows and the limit that it must satisfy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any

from pydantic import BeforeValidator

from ratecli.errors import Diagnostic, InvalidValueError

PASS_KEY = "pass"  # noqa: S105  not a password
DEFAULT_PASS_PROBABILITY = 0.9
"""Target probability of passing the test if the file specifies none."""


@dataclass(frozen=True)
class BoundInflation:
    """How a predicted bound is inflated: see `calibrate_inflation`.

    Attributes
    ----------
    factor
        Multiplies the distance of the predicted bound from the point estimate.
    deviates
        Number of standard errors to add: of the difference between the estimates of the same means
        on candidate and on safety rows.
    """

    factor: float = 1.0
    deviates: float = 0.0


def calibrate_inflation(wanted: float, bounds: int) -> BoundInflation:
    """Return the margin with which the real test is passed with a probability of at least `wanted`.

    Let a bound on a mean be computed from `n` candidate rows or `m` safety rows. The mean on the
    candidate rows is `C = mu + s / sqrt(n) Z`, that of the test `S = mu + s / sqrt(m) Z'`, with Z
    and Z' independent and approximately normal. The bound of the test lies `h` above S, and h
    hardly varies. Candidate selection requires `C + h + r <= limit` with a margin r. If that holds
    with equality, the test's bound is within the limit if `S - C <= r`. As `S - C` has standard
    deviation `s sqrt(1 / n + 1 / m)`, the margin `r = z s sqrt(1 / n + 1 / m)` with `Phi(z) = p`
    gives a probability of p. For Student's t, with `h = t s / sqrt(m)`, this is the factor `1 + (z
    / t) sqrt(1 + m / n)` on h: about 2.2 for 60 % of the rows in the test, a delta of 0.05 and p =
    0.9. So the tutorial's 2 is right for one delta, one split and one p.

    Several bounds, over all constraints, hold together with a probability of at least `wanted` if
    each holds with `1 - (1 - wanted) / bounds`. If all limits are at most those predicted, so is
    the upper end of every goal, which is monotone in them. Not accounted for: the candidate was
    chosen on these rows, so its C is slightly better than that of a given model.
    """
    return BoundInflation(1.0, NormalDist().inv_cdf(1 - (1 - wanted) / max(bounds, 1)))


def make_inflation(option: float | Mapping[str, float] | None, bounds: int) -> BoundInflation:
    """Return the inflation for a checked option and the number of bounds over all constraints."""
    if option is None:
        return calibrate_inflation(DEFAULT_PASS_PROBABILITY, bounds)
    if isinstance(option, Mapping):
        return calibrate_inflation(option[PASS_KEY], bounds)
    return BoundInflation(float(option))


def check_inflation(value: Any) -> Any:
    """Return the value; raise E103 or E104 if it is neither a factor nor a probability."""
    hint = "write a factor such as 2, or {pass: 0.9}"
    if isinstance(value, dict) and list(value) == [PASS_KEY]:
        wanted = value[PASS_KEY]
        if not _is_number(wanted):
            message = "'pass' must be a number"
            raise InvalidValueError(Diagnostic("E103", message, hint, loc=(PASS_KEY,)))
        if not 0.5 <= wanted < 1:
            message = f"'pass' must be at least 0.5 and below 1, not {wanted:g}"
            raise InvalidValueError(Diagnostic("E104", message, hint, loc=(PASS_KEY,)))
    elif not _is_number(value):
        raise InvalidValueError(Diagnostic("E103", "'inflation' is no number", hint))
    elif value < 0:
        raise InvalidValueError(Diagnostic("E104", f"'inflation' is negative: {value:g}", hint))
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


InflationOption = Annotated[float | dict[str, float], BeforeValidator(check_inflation)]
"""Type of a solver option: a factor of at least 0, or `{pass: probability}`."""

"""How far a limit that is predicted stands off from what is measured on candidate rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any

from ratecli.errors import Diagnostic
from ratecli.solvers.base import OptionCheck, OptionFaultError

PASS_KEY = "pass"  # noqa: S105  no password
DEFAULT_PASS_PROBABILITY = 0.9
"""Probability to pass that is wanted where a file says nothing."""


@dataclass(frozen=True)
class BoundInflation:
    """What a predicted limit is made of: see `calibrate_inflation` and `times`.

    Attributes
    ----------
    factor
        By which the distance of the predicted bound from the point estimate is multiplied.
    deviates
        Standard errors of the difference between two estimates of the same means, one from candidate
        and one from safety rows, that are added.
    """

    factor: float = 1.0
    deviates: float = 0.0


def calibrate_inflation(wanted: float, bounds: int) -> BoundInflation:
    r"""Room such that the real test is passed with a probability of at least `wanted`.

    Let a bound on a mean be made of `n` candidate rows or `m` safety rows. The candidate's mean is
    `C = mu + s / sqrt(n) Z`, that of the test `S = mu + s / sqrt(m) Z'`, with independent Z and Z' that
    are about normal; the bound of the test lies `h` above S, which hardly varies. Candidate
    selection asks for `C + h + r <= limit` with room r. Where that is met with equality, the test's
    bound is within the limit if `S - C <= r`, and `S - C` has the deviation
    `s sqrt(1 / n + 1 / m)`: so `r = z s sqrt(1 / n + 1 / m)` with `Phi(z) = p` gives a probability of
    p. For Student's t, with `h = t s / sqrt(m)`, that is the factor `1 + (z / t) sqrt(1 + m / n)` on h:
    about 2.2 for 60 % of the rows in the test, a delta of 0.05 and p = 0.9. The tutorial's 2 is
    right, by that, for one delta, one split and one p.

    All of a number of bounds, of however many constraints, hold together with a probability of at least
    `wanted` if each does with `1 - (1 - wanted) / bounds`; and where all limits are at most those
    predicted, so is the upper end of every goal, which grows in them. What is not in it is that the
    candidate was chosen on these rows: its C is a little better than that of a given model.
    """
    return BoundInflation(1.0, NormalDist().inv_cdf(1 - (1 - wanted) / max(bounds, 1)))


def make_inflation(option: float | Mapping[str, float] | None, bounds: int) -> BoundInflation:
    """That of a checked option, for a number of bounds over all constraints."""
    if option is None:
        return calibrate_inflation(DEFAULT_PASS_PROBABILITY, bounds)
    if isinstance(option, Mapping):
        return calibrate_inflation(option[PASS_KEY], bounds)
    return BoundInflation(float(option))


def check_inflation(value: Any) -> None:
    """Raises OptionFaultError, E103 or E104, for what is neither a factor nor a probability."""
    hint = "write a factor such as 2, or {pass: 0.9}"
    if isinstance(value, dict) and list(value) == [PASS_KEY]:
        wanted = value[PASS_KEY]
        if not _is_number(wanted):
            raise OptionFaultError((PASS_KEY,), Diagnostic("E103", "'pass' must be a number", hint))
        if not 0.5 <= wanted < 1:
            message = f"'pass' must be at least 0.5 and below 1, not {wanted:g}"
            raise OptionFaultError((PASS_KEY,), Diagnostic("E104", message, hint))
    elif not _is_number(value):
        raise OptionFaultError((), Diagnostic("E103", "'inflation' is no number", hint))
    elif value < 0:
        raise OptionFaultError((), Diagnostic("E104", f"'inflation' is negative: {value:g}", hint))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


InflationOption = Annotated[Any, OptionCheck(check_inflation)]
"""An option of a solver: a factor of at least 0, or `{pass: probability}`."""

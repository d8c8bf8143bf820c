"""The names of an experiment with data, and errors at marked places of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ratecli.errors import Diagnostic, FaultError
from ratecli.rates.expression import Expression
from ratecli.rates.parser import parse_conditions, parse_expression
from ratecli.rates.resolve import resolve
from ratecli.rates.scope import LoggedRanges, Scope

VALUES: dict[str, Sequence[str | float]] = {
    "sex": ("Female", "Male"),
    "race": ("Asian", "Black", "White"),
    "age": (20.0, 39.0, 41.5),
    "day": ("2024-05-30 08:15:00", "2024-05-31T23:00:00"),
    "alone": ("one",),
    "zip": tuple(map(str, range(1001))),
}
FULL = Scope(
    datasets=frozenset({"d1", "d2", "d3"}),
    groups={
        "women": parse_conditions("sex = Female"),
        "men": parse_conditions("sex = Male"),
        "old": parse_conditions("age >= 39, race != Black"),
    },
    parameters={"kappa": 0.8, "count": 3, "nothing": 0, "mode": "fast", "flag": True},
    algorithms=frozenset({"unconstrained", "majorize"}),
    values=VALUES.get,
    columns=frozenset(VALUES),
    logged=LoggedRanges({"profit": (-1.0, 8.0)}, weight=10.0),
)


def value(text: str, scope: Scope = FULL) -> Expression:
    return resolve(parse_expression(text), scope)


def fault_under(mark: str, read: Callable[[str], object]) -> Diagnostic:
    """The only error of reading a text; it must point at the part between « and »."""
    start, end = mark.index("«"), mark.index("»") - 1
    text = mark.replace("«", "").replace("»", "")
    with pytest.raises(FaultError) as raised:
        read(text)
    (fault,) = raised.value.faults
    assert fault.span is not None
    found = fault.span
    shown = f"{text[: found.start]}«{text[found.start : found.end]}»{text[found.end :]}"
    assert shown == f"{text[:start]}«{text[start:end]}»{text[end:]}"
    return fault

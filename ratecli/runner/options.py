"""An algorithm's options in a file, checked against the fields of its class."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ratecli.faults import Fault, FaultError, did_you_mean
from ratecli.solvers.base import Solver
from ratecli.solvers.registry import algorithms
from ratecli.spec.complaint import WHERE, Complaint, complaints_of, unknown_key


class OptionError(Exception):
    """What is wrong with options, located within them."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__("; ".join(complaint.message for complaint in complaints))
        self.complaints = complaints


@cache
def solver_class(name: str) -> type[Solver]:
    """Raises E202 for an algorithm that does not exist."""
    known = algorithms()
    if name not in known:
        raise FaultError(
            Fault(
                "E202", f"no algorithm is called '{name}'", did_you_mean(name, known, "algorithms")
            )
        )
    return known[name].load()


def option_names(name: str) -> tuple[str, ...]:
    """What an algorithm may be given; raises E202."""
    return tuple(field.name for field in dataclasses.fields(solver_class(name)))  # type: ignore[arg-type]


def solver(name: str, options: Mapping[str, Any]) -> Solver:
    """The algorithm with its options; raises OptionError, E202."""
    found = solver_class(name)
    fields = option_names(name)
    wrong = [unknown_key((key,), fields) for key in options if key not in fields]
    wrong += [_not_finite(key, value) for key, value in options.items() if _endless(value)]
    if wrong:
        raise OptionError(wrong)
    try:
        # JSON, because strict Python input would have to be the class itself
        made: Solver = _adapter(found).validate_json(json.dumps(options), strict=True)
    except ValidationError as error:
        raise OptionError(complaints_of(error)) from None
    return made


def _endless(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _not_finite(key: str, value: float) -> Complaint:
    return Complaint((key,), "E104", f"{WHERE} must be a finite number, not {value}")


@cache
def _adapter(found: type[Solver]) -> TypeAdapter[Solver]:
    return TypeAdapter(found)


def settled(made: Solver) -> dict[str, Any]:
    """Every option of an algorithm, defaults filled in: what enters a trial's key."""
    return dataclasses.asdict(made)  # type: ignore[call-overload,no-any-return]

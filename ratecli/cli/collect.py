"""One thing done to several files or the like, whose faults come together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ratecli.errors import Diagnostic, FaultError

Item = TypeVar("Item")
ResultT = TypeVar("ResultT")


def collect_errors(items: Iterable[Item], act: Callable[[Item], ResultT]) -> list[ResultT]:
    """What `act` gives for every one; FaultError with the faults of all of them."""
    found: list[ResultT] = []
    faults: list[Diagnostic] = []
    for item in items:
        try:
            found.append(act(item))
        except FaultError as error:
            faults += error.faults
    if faults:
        raise FaultError(faults)
    return found

"""One thing done to several files or the like, whose faults come together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ratecli.errors import Fault, FaultError

Item = TypeVar("Item")
T = TypeVar("T")


def each(items: Iterable[Item], act: Callable[[Item], T]) -> list[T]:
    """What `act` gives for every one; FaultError with the faults of all of them."""
    found: list[T] = []
    faults: list[Fault] = []
    for item in items:
        try:
            found.append(act(item))
        except FaultError as error:
            faults += error.faults
    if faults:
        raise FaultError(faults)
    return found
